//! Random programs of verbs over a network with faults: effects once and in order, and never a queue pair that is stuck.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;

use common::{BASE, Faults, Link, Pair, pattern};
use nichrome_rdma::*;
use proptest::prelude::*;

/// Memory of an end: where requests take bytes from, where the peer's go, and where answers and messages land.
const SOURCE: usize = 0;
const TARGET: usize = 0x10_0000;
const LANDING: usize = 0x20_0000;
const MESSAGES: usize = 0x30_0000;
const ZONE: usize = 0x4000;
/// Bytes of a receive.
const ROOM: usize = 6000;

#[derive(Clone, Debug)]
enum Step {
    Write { from: usize, to: usize, len: usize, source: usize },
    WriteWithImmediate { from: usize, to: usize, len: usize },
    Read { from: usize, to: usize, len: usize },
    Send { from: usize, len: usize, inline: bool },
    SendWithImmediate { from: usize, len: usize },
    FetchAdd { at: usize, add: u64, to: usize },
    CompareSwap { at: usize, compare: u64, swap: u64, to: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let place = 0..ZONE / 2;
    let len = prop_oneof![0..64usize, 0..5000usize, Just(1024usize), Just(4096usize)];
    let word = (0..ZONE / 16).prop_map(|word| word * 8);
    let source = prop_oneof![Just(SOURCE), Just(LANDING)];
    prop_oneof![
        (place.clone(), place.clone(), len.clone(), source).prop_map(|(from, to, len, source)| Step::Write {
            from,
            to,
            len,
            source
        }),
        (place.clone(), place.clone(), len.clone()).prop_map(|(from, to, len)| Step::WriteWithImmediate {
            from,
            to,
            len
        }),
        (place.clone(), place.clone(), len.clone()).prop_map(|(from, to, len)| Step::Read { from, to, len }),
        (place.clone(), len.clone(), any::<bool>()).prop_map(|(from, len, inline)| Step::Send {
            from,
            len,
            inline
        }),
        (place.clone(), len).prop_map(|(from, len)| Step::SendWithImmediate { from, len }),
        (word.clone(), any::<u64>(), place.clone()).prop_map(|(at, add, to)| Step::FetchAdd { at, add, to }),
        (word, 0..3u64, any::<u64>(), place).prop_map(|(at, compare, swap, to)| Step::CompareSwap {
            at,
            compare,
            swap,
            to
        }),
    ]
}

fn faults() -> impl Strategy<Value = Faults> {
    let chance = || prop_oneof![Just(0.0), 0.0..0.1];
    (chance(), chance(), chance(), chance(), chance()).prop_map(
        |(loss, duplicate, reorder, corrupt, mark)| Faults { loss, duplicate, reorder, corrupt, mark },
    )
}

/// What the memory of both ends must look like, and what must have completed.
struct Model {
    memory: [Vec<u8>; 2],
    sends: [Vec<u64>; 2],
    receives: [Vec<(u64, usize, Option<ImmediateData>)>; 2],
    /// Receives used at each end.
    used: [usize; 2],
    /// READs and atomics since the last fence.
    reading: [bool; 2],
}

impl Model {
    fn new(pair: &Pair) -> Self {
        let memory = pair.ends.each_ref().map(|end| end.device.memory().bytes().to_vec());
        let (sends, receives) = Default::default();
        Self { memory, sends, receives, used: [0; 2], reading: [false; 2] }
    }

    fn message(&mut self, to: usize, bytes: &[u8], immediate: Option<ImmediateData>) {
        let nth = self.used[to];
        self.used[to] += 1;
        let at = MESSAGES + nth % 64 * ROOM;
        self.memory[to][at..at + bytes.len()].copy_from_slice(bytes);
        self.receives[to].push((nth as u64, bytes.len(), immediate));
    }

    fn atomic(&mut self, end: usize, at: usize, to: usize, change: impl Fn(u64) -> u64) {
        let word: [u8; 8] = self.memory[1 - end][TARGET + at..][..8].try_into().unwrap();
        let after = change(u64::from_ne_bytes(word));
        self.memory[end][LANDING + to..][..8].copy_from_slice(&word);
        self.memory[1 - end][TARGET + at..][..8].copy_from_slice(&after.to_ne_bytes());
    }
}

const IMMEDIATE: ImmediateData = ImmediateData([9, 8, 7, 6]);

/// Posts a step and does it in the model.
fn post(pair: &mut Pair, qp: QpHandle, end: usize, nth: u64, step: &Step, signaled: bool, model: &mut Model) {
    let peer = 1 - end;
    let remote = |at: usize| Remote { address: BASE + (TARGET + at) as u64, rkey: pair.ends[peer].rkey };
    let (operation, at, len) = match *step {
        Step::Write { from, to, len, source } => (Operation::Write(remote(to)), source + from, len),
        Step::WriteWithImmediate { from, to, len } => {
            (Operation::WriteWithImmediate(remote(to), IMMEDIATE), SOURCE + from, len)
        }
        Step::Read { from, to, len } => (Operation::Read(remote(from)), LANDING + to, len),
        Step::Send { from, len, .. } => (Operation::Send, SOURCE + from, len),
        Step::SendWithImmediate { from, len } => {
            (Operation::SendWithImmediate(IMMEDIATE), SOURCE + from, len)
        }
        Step::FetchAdd { at, add, to } => (Operation::FetchAdd { remote: remote(at), add }, LANDING + to, 8),
        Step::CompareSwap { at, compare, swap, to } => {
            (Operation::CompareSwap { remote: remote(at), compare, swap }, LANDING + to, 8)
        }
    };
    let reads = matches!(step, Step::Read { .. } | Step::FetchAdd { .. } | Step::CompareSwap { .. });
    let lands = matches!(step, Step::Read { .. });
    // What changes the peer's memory, or reads what was landed, waits for the answers before it.
    let fence = model.reading[end] && !lands;
    model.reading[end] = reads || model.reading[end] && !fence;
    let mut flags = if signaled { SendFlags::SIGNALED } else { SendFlags::NONE };
    if fence {
        flags = flags | SendFlags::FENCE;
    }
    let half = len / 2;
    let buffers = [pair.ends[end].sge(at, half), pair.ends[end].sge(at + half, len - half)];
    let whole = [pair.ends[end].sge(at, len)];
    let inline = pair.ends[end].bytes(at, len).to_vec();
    let payload = match step {
        Step::Send { inline: true, len, .. } if *len <= 400 => Payload::Inline(&inline),
        _ if len == 8 => Payload::Buffers(&whole),
        _ => Payload::Buffers(&buffers),
    };
    let request = SendRequest { wr_id: nth, operation, payload, flags, recipient: None };
    pair.ends[end].device.post_send(qp, &request).unwrap();
    if signaled {
        model.sends[end].push(nth);
    }

    match *step {
        Step::Write { to, .. } | Step::WriteWithImmediate { to, .. } => {
            let bytes = model.memory[end][at..at + len].to_vec();
            model.memory[peer][TARGET + to..][..len].copy_from_slice(&bytes);
            if matches!(step, Step::WriteWithImmediate { .. }) {
                let nth = model.used[peer];
                model.used[peer] += 1;
                model.receives[peer].push((nth as u64, len, Some(IMMEDIATE)));
            }
        }
        Step::Read { from, to, .. } => {
            let bytes = model.memory[peer][TARGET + from..][..len].to_vec();
            model.memory[end][LANDING + to..][..len].copy_from_slice(&bytes);
        }
        Step::Send { .. } | Step::SendWithImmediate { .. } => {
            let bytes = model.memory[end][at..at + len].to_vec();
            let immediate = matches!(step, Step::SendWithImmediate { .. }).then_some(IMMEDIATE);
            model.message(peer, &bytes, immediate);
        }
        Step::FetchAdd { at, add, to } => model.atomic(end, at, to, |value| value.wrapping_add(add)),
        Step::CompareSwap { at, compare, swap, to } => {
            model.atomic(end, at, to, |value| if value == compare { swap } else { value });
        }
    }
}

/// Completions of an end, in order: of sends, of receives.
#[derive(Default)]
struct Seen {
    sends: Vec<u64>,
    receives: Vec<(u64, usize, Option<ImmediateData>)>,
    failed: Vec<Completion>,
}

impl Seen {
    fn gather(&mut self, end: &mut common::End) {
        for wc in end.completions() {
            match (wc.status, wc.operation) {
                (Status::Success, CompletedOperation::Receive | CompletedOperation::ReceiveWithWrite) => {
                    let immediate = match wc.notice {
                        Some(Notice::Immediate(immediate)) => Some(immediate),
                        _ => None,
                    };
                    self.receives.push((wc.wr_id, wc.len as usize, immediate));
                }
                (Status::Success, _) => self.sends.push(wc.wr_id),
                _ => self.failed.push(wc),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn programs_do_what_they_say_once_and_in_order(
        steps in proptest::collection::vec((0..2usize, step(), any::<bool>(), 0..3u8), 1..60),
        faults in faults(),
        seed in any::<u64>(),
        mtu in 0..5usize,
        rd_atomic in 1..5u8,
        early in 0..4usize,
        window in prop_oneof![Just(1u32), 2..8u32, Just(64)],
        selective in 0..4u8,
        held in prop_oneof![Just(0usize), Just(3), Just(1000)],
        paced in any::<bool>(),
        delay in prop_oneof![Just(0u64), Just(60_000)],
    ) {
        let mut pair = Pair::with(|config| {
            config.window = SendWindow { initial: window, max: 4 * window, read: window.min(4) };
            // Both, either one, or none takes part in selective repeat.
            if selective >> config.seed & 1 == 0 {
                config.selective_repeat = SelectiveRepeat::Never;
            }
            if paced {
                config.congestion = Congestion::Dcqcn(Dcqcn::default());
            }
            config.held_packets = held;
            config.acknowledgement_delay = delay;
        }).seeded(seed, faults);
        let link = Link { mtu: PathMtu::ALL[mtu], rd_atomic, psn: seed as u32, ..Link::default() };
        let qps = pair.connect(QpType::Rc, &link);
        for end in 0..2 {
            for zone in [SOURCE, TARGET, LANDING] {
                pair.ends[end].fill(zone, &pattern(ZONE, seed ^ (zone + end) as u64));
            }
        }
        let mut model = Model::new(&pair);
        let mut posted = [0usize; 2];
        let mut seen = [Seen::default(), Seen::default()];
        for (nth, (end, step, signaled, pause)) in steps.iter().enumerate() {
            post(&mut pair, qps[*end], *end, nth as u64, step, *signaled, &mut model);
            for at in 0..2 {
                // Receives come early or late: then the sender is asked to wait.
                while posted[at] < model.used[at].saturating_sub(2) + early {
                    pair.ends[at].receive(qps[at], posted[at] as u64, MESSAGES + posted[at] % 64 * ROOM, ROOM);
                    posted[at] += 1;
                }
            }
            (0..*pause * 3).for_each(|_| { pair.step(); });
            (0..2).for_each(|at| seen[at].gather(&mut pair.ends[at]));
        }
        for at in 0..2 {
            while posted[at] < model.used[at] {
                pair.ends[at].receive(qps[at], posted[at] as u64, MESSAGES + posted[at] % 64 * ROOM, ROOM);
                posted[at] += 1;
            }
        }
        pair.run();
        (0..2).for_each(|at| seen[at].gather(&mut pair.ends[at]));
        if seen.iter().any(|seen| !seen.failed.is_empty()) {
            // Bad luck that a program must live with: then an end says so, and nothing waits there.
            prop_assert!(faults.loss + faults.corrupt > 0.0);
            let gave_up = seen.iter().flat_map(|seen| seen.failed.first());
            prop_assert!(gave_up.clone().any(|wc| wc.status == Status::RetryExceeded), "{:?}", gave_up.collect::<Vec<_>>());
            return Ok(());
        }
        for (at, (seen, end)) in seen.iter().zip(&pair.ends).enumerate() {
            prop_assert_eq!(&seen.sends, &model.sends[at]);
            prop_assert_eq!(&seen.receives, &model.receives[at]);
            prop_assert!(end.device.memory().bytes() == model.memory[at], "memory of {}", at);
            prop_assert_eq!(end.device.poll_timeout(), None);
        }
    }

    /// Whatever is asked, also what may not be, and whenever the peer goes away: each request completes once, in order,
    /// and the objects can be destroyed.
    #[test]
    fn every_request_completes_whatever_goes_wrong(
        steps in proptest::collection::vec((0..2usize, 0..9u8, 0..5000usize, 0..4u8), 1..50),
        faults in faults(),
        seed in any::<u64>(),
        dies in prop_oneof![Just(None), (0..200usize).prop_map(Some)],
    ) {
        let mut pair = Pair::with(|config| config.acknowledgement_delay = seed % 2 * 60_000).seeded(seed, faults);
        let qps = pair.connect(QpType::Rc, &Link { rnr_retry: 2, retry_count: 3, psn: seed as u32, ..Link::default() });
        let mut posted = [Vec::new(), Vec::new()];
        let mut completed = [Vec::new(), Vec::new()];
        let mut turns = 0;
        for (nth, (end, what, len, pause)) in steps.into_iter().enumerate() {
            let there = pair.ends[1 - end].remote(0);
            let wrong = Remote { rkey: RKey(there.rkey.0 ^ 0x55), ..there };
            let operation = match what {
                0 => Operation::Write(there),
                1 => Operation::Read(there),
                2 => Operation::Send,
                3 => Operation::Write(wrong),
                4 => Operation::Read(Remote { address: 3, ..there }),
                5 => Operation::WriteWithImmediate(there, IMMEDIATE),
                6 => Operation::SendWithInvalidate(RKey(5)),
                7 => Operation::LocalInvalidate(RKey(5)),
                _ => {
                    pair.ends[end].receive(qps[end], nth as u64, 0, 2500);
                    continue;
                }
            };
            let buffers = [pair.ends[end].sge(0, if what == 7 { 0 } else { len })];
            pair.ends[end].device.post_send(qps[end], &SendRequest::new(nth as u64, operation, &buffers)).unwrap();
            posted[end].push(nth as u64);
            for _ in 0..pause {
                turns += 1;
                if dies == Some(turns) {
                    pair.faults.loss = 1.0;
                }
                pair.step();
            }
        }
        if dies.is_some() {
            pair.faults.loss = 1.0;
        }
        pair.run();
        for (end, completed) in pair.ends.iter_mut().zip(&mut completed) {
            let sent = |wc: &Completion| {
                !matches!(wc.operation, CompletedOperation::Receive | CompletedOperation::ReceiveWithWrite)
            };
            completed.extend(end.completions().iter().filter(|wc| sent(wc)).map(|wc| wc.wr_id));
        }
        prop_assert_eq!(&completed, &posted);
        for (end, qp) in pair.ends.iter_mut().zip(qps) {
            let device = &mut end.device;
            prop_assert_eq!(device.poll_timeout(), None);
            device.destroy_qp(qp).unwrap();
            device.destroy_cq(end.cq).unwrap();
            device.deregister(end.region).unwrap();
            device.destroy_domain(end.domain).unwrap();
        }
    }
}
