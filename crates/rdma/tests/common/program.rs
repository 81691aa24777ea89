//! Random programs of verbs, and a model of their results.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use nichrome_rdma::*;
use proptest::prelude::*;

use crate::common::{ALL, BASE, End, Faults, MEMORY, Pair, pattern};

/// Layout of an end's memory: payloads, targets of the peer, results of READs and atomics, received messages.
pub const SOURCE: usize = 0;
pub const TARGET: usize = 0x10_0000;
pub const LANDING: usize = 0x20_0000;
pub const MESSAGES: usize = 0x30_0000;
pub const ZONE: usize = 0x4000;
/// Bytes of a receive.
pub const ROOM: usize = 6000;

/// Returns the buffer of a receive. Four in a row share one.
fn receive_buffer(nth: usize) -> usize {
    MESSAGES + nth / 4 % 16 * ROOM
}

#[derive(Clone, Debug)]
pub enum Step {
    Write { from: usize, to: usize, len: usize, source: usize },
    WriteWithImmediate { from: usize, to: usize, len: usize },
    Read { from: usize, to: usize, len: usize },
    Send { from: usize, len: usize, inline: bool },
    SendWithImmediate { from: usize, len: usize },
    FetchAdd { at: usize, add: u64, to: usize },
    CompareSwap { at: usize, compare: u64, swap: u64, to: usize },
}

pub fn step() -> impl Strategy<Value = Step> {
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
        // All to one target, so that they overlap.
        place.clone().prop_map(|from| Step::Write { from, to: 0, len: 2000, source: SOURCE }),
        (place.clone(), place.clone(), len.clone()).prop_map(|(from, to, len)| Step::WriteWithImmediate {
            from,
            to,
            len
        }),
        (place.clone(), place.clone(), len.clone()).prop_map(|(from, to, len)| Step::Read { from, to, len }),
        place.clone().prop_map(|from| Step::Read { from, to: 0, len: 2000 }),
        place.clone().prop_map(|from| Step::Send { from, len: 700, inline: false }),
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

pub fn faults() -> impl Strategy<Value = Faults> {
    let chance = || prop_oneof![Just(0.0), 0.0..0.1];
    (chance(), chance(), chance(), chance(), chance()).prop_map(
        |(loss, duplicate, reorder, corrupt, mark)| Faults { loss, duplicate, reorder, corrupt, mark },
    )
}

/// The expected memory and completions of both ends.
pub struct Model {
    pub memory: [Vec<u8>; 2],
    pub sends: [Vec<u64>; 2],
    pub receives: [Vec<(u64, usize, Option<ImmediateData>)>; 2],
    /// Number of receives consumed at each end.
    pub used: [usize; 2],
    /// A READ or atomic was posted since the last fence.
    pub reading: [bool; 2],
}

impl Model {
    pub fn new(pair: &Pair) -> Self {
        let memory = pair.ends.each_ref().map(|end| end.device.memory().bytes().to_vec());
        let (sends, receives) = Default::default();
        Self { memory, sends, receives, used: [0; 2], reading: [false; 2] }
    }

    pub fn message(&mut self, to: usize, bytes: &[u8], immediate: Option<ImmediateData>) {
        let nth = self.used[to];
        self.used[to] += 1;
        let at = receive_buffer(nth);
        self.memory[to][at..at + bytes.len()].copy_from_slice(bytes);
        self.receives[to].push((nth as u64, bytes.len(), immediate));
    }

    pub fn atomic(&mut self, end: usize, at: usize, to: usize, change: impl Fn(u64) -> u64) {
        let word: [u8; 8] = self.memory[1 - end][TARGET + at..][..8].try_into().unwrap();
        let after = change(u64::from_ne_bytes(word));
        self.memory[end][LANDING + to..][..8].copy_from_slice(&word);
        self.memory[1 - end][TARGET + at..][..8].copy_from_slice(&after.to_ne_bytes());
    }
}

pub const IMMEDIATE: ImmediateData = ImmediateData([9, 8, 7, 6]);

/// Posts a step and applies it to the model.
pub fn post(
    pair: &mut Pair,
    qp: QpHandle,
    end: usize,
    nth: u64,
    step: &Step,
    signaled: bool,
    model: &mut Model,
) {
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
    // After READs and atomics, a request that changes the peer's memory or sends their results needs a fence.
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
        _ if len == 8 || at.is_multiple_of(2) => Payload::Buffers(&whole),
        _ => Payload::Buffers(&buffers),
    };
    let request = SendRequest { wr_id: nth, operation, payload, flags, recipient: None, srq: None };
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
pub struct Seen {
    pub sends: Vec<u64>,
    pub receives: Vec<(u64, usize, Option<ImmediateData>)>,
    pub failed: Vec<Completion>,
}

impl Seen {
    pub fn gather(&mut self, end: &mut End) {
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

/// A step with its end, whether it is signaled, and the pause before the next.
pub type Posted = (usize, Step, bool, u8);

/// Runs a program on a connection and compares the results with the model. Accepts `RetryExceeded` on a
/// network with loss or corruption.
pub fn runs<'a>(
    pair: &mut Pair,
    qps: [QpHandle; 2],
    steps: impl Iterator<Item = &'a Posted>,
    early: usize,
    seed: u64,
) -> Result<(), TestCaseError> {
    for end in 0..2 {
        for zone in [SOURCE, TARGET, LANDING] {
            pair.ends[end].fill(zone, &pattern(ZONE, seed ^ (zone + end) as u64));
        }
    }
    let mut model = Model::new(pair);
    let mut posted = [0; 2];
    let mut seen = [Seen::default(), Seen::default()];
    for (nth, (end, step, signaled, pause)) in steps.enumerate() {
        post(pair, qps[*end], *end, nth as u64, step, *signaled, &mut model);
        // Receives are posted early, or late, which causes RNR NAKs.
        let wanted = model.used.map(|used| used.saturating_sub(2) + early);
        receives(pair, qps, &mut posted, wanted);
        (0..*pause * 3).for_each(|_| {
            pair.step();
        });
        (0..2).for_each(|at| seen[at].gather(&mut pair.ends[at]));
    }
    receives(pair, qps, &mut posted, model.used);
    pair.run();
    (0..2).for_each(|at| seen[at].gather(&mut pair.ends[at]));
    if seen.iter().any(|seen| !seen.failed.is_empty()) {
        // Repeated loss may exceed the retry count; an end then reports it.
        prop_assert!(
            pair.faults.loss + pair.faults.corrupt > 0.0,
            "{:?}",
            seen.each_ref().map(|it| &it.failed)
        );
        let mut gave_up = seen.iter().filter_map(|seen| seen.failed.first());
        prop_assert!(gave_up.any(|wc| wc.status == Status::RetryExceeded));
        return Ok(());
    }
    for (at, (seen, end)) in seen.iter().zip(&pair.ends).enumerate() {
        prop_assert_eq!(&seen.sends, &model.sends[at]);
        prop_assert_eq!(&seen.receives, &model.receives[at]);
        let memory = end.device.memory().bytes();
        let differs = memory.iter().zip(&model.memory[at]).position(|(is, should)| is != should);
        prop_assert_eq!(differs, None, "memory of {}", at);
        prop_assert_eq!(end.device.poll_timeout(), None);
    }
    Ok(())
}

/// Posts receives up to the wanted number at each end.
fn receives(pair: &mut Pair, qps: [QpHandle; 2], posted: &mut [usize; 2], wanted: [usize; 2]) {
    for at in 0..2 {
        while posted[at] < wanted[at] {
            pair.ends[at].receive(qps[at], posted[at] as u64, receive_buffer(posted[at]), ROOM);
            posted[at] += 1;
        }
    }
}

/// Valid and invalid requests by number, 0 to 8; `None` for a receive. StaR does not support the last.
fn request(what: u8, there: Remote) -> Option<Operation> {
    Some(match what {
        0 => Operation::Write(there),
        1 => Operation::Read(there),
        2 => Operation::Send,
        3 => Operation::Write(Remote { rkey: RKey(there.rkey.0 ^ 0x55), ..there }),
        4 => Operation::Read(Remote { address: 3, ..there }),
        5 => Operation::WriteWithImmediate(there, IMMEDIATE),
        6 => Operation::SendWithInvalidate(RKey(5)),
        7 => return None,
        _ => Operation::LocalInvalidate(RKey(5)),
    })
}

/// A request: its end, its kind, its length, and the number of steps after it.
pub type RequestSpec = (usize, u8, usize, u8);

/// Requests of the first `kinds`. Few are invalid, since the first one ends the connection.
pub fn requests(kinds: u8) -> impl Strategy<Value = Vec<RequestSpec>> {
    let valid = proptest::sample::select(vec![0, 0, 1, 1, 2, 5, 7, 7]);
    let what = prop_oneof![20 => valid, 1 => 0..kinds];
    proptest::collection::vec((0..2usize, what, 0..5000usize, 0..4u8), 1..50)
}

/// What goes wrong in the middle of a program, and after how many steps.
#[derive(Clone, Copy, Debug)]
pub struct ScheduledFaults {
    /// The network loses all packets.
    pub loses_all_after: Option<usize>,
    /// This end deregisters the memory of every other request.
    pub deregisters: Option<(usize, usize)>,
}

pub fn scheduled_faults() -> impl Strategy<Value = ScheduledFaults> {
    let loses_all_after = prop_oneof![Just(None), (0..200usize).prop_map(Some)];
    let deregisters = prop_oneof![Just(None), (0..2usize, 0..100usize).prop_map(Some)];
    (loses_all_after, deregisters)
        .prop_map(|(loses_all_after, deregisters)| ScheduledFaults { loses_all_after, deregisters })
}

/// The region of every other request at each end, until it is deregistered.
struct Others {
    regions: [Option<RegionHandle>; 2],
    keys: [RegionReport; 2],
}

impl Others {
    fn new(pair: &mut Pair) -> Self {
        let whole = RegionConfig::new(BASE, MEMORY as u64, ALL);
        let [(one, its), (other, of_other)] = pair.ends.each_mut().map(|end| end.register(whole));
        Self { regions: [Some(one), Some(other)], keys: [its, of_other] }
    }

    fn deregister(&mut self, end: usize, device: &mut Device<ByteMemory>) {
        self.regions[end].take().into_iter().for_each(|region| device.deregister(region).unwrap());
    }
}

/// Posts requests, each with its end, number, length and pause, while something goes wrong. Checks that each
/// completes once, in order, and that the objects can be destroyed.
pub fn completes(
    pair: &mut Pair,
    qps: [QpHandle; 2],
    requests: Vec<RequestSpec>,
    ScheduledFaults { loses_all_after, deregisters }: ScheduledFaults,
) -> Result<(), TestCaseError> {
    let mut others = Others::new(pair);
    let mut posted = [Vec::new(), Vec::new()];
    let mut turns = 0;
    for (nth, (end, what, len, pause)) in requests.into_iter().enumerate() {
        let is_other = nth % 2 == 1;
        let (mut there, mut here) = (pair.ends[1 - end].remote(0), pair.ends[end].sge(0, len));
        if is_other {
            (there.rkey, here.lkey) = (others.keys[1 - end].rkey, others.keys[end].lkey);
        }
        let nth = nth as u64;
        let device = &mut pair.ends[end].device;
        if let Some(operation) = request(what, there) {
            here.len = if matches!(operation, Operation::LocalInvalidate(_)) { 0 } else { here.len };
            let taken = device.post_send(qps[end], &SendRequest::new(nth, operation, &[here]));
            assert!(taken.is_ok() || others.regions[end].is_none(), "{taken:?}");
            posted[end].extend(taken.is_ok().then_some(nth));
        } else {
            here.len = 2500;
            let taken = device.post_receive(qps[end], &ReceiveRequest { wr_id: nth, buffers: &[here] });
            assert!(taken.is_ok() || others.regions[end].is_none(), "{taken:?}");
        }
        for _ in 0..pause {
            turns += 1;
            if loses_all_after == Some(turns) {
                pair.faults.loss = 1.0;
            }
            if let Some((end, _)) = deregisters.filter(|(_, turn)| *turn == turns) {
                others.deregister(end, &mut pair.ends[end].device);
            }
            pair.step();
        }
    }
    if loses_all_after.is_some() {
        pair.faults.loss = 1.0;
    }
    pair.run();
    for (at, ((end, qp), posted)) in pair.ends.iter_mut().zip(qps).zip(&posted).enumerate() {
        let is_send = |wc: &Completion| {
            !matches!(wc.operation, CompletedOperation::Receive | CompletedOperation::ReceiveWithWrite)
        };
        let completed: Vec<_> =
            end.completions().iter().filter(|wc| is_send(wc)).map(|wc| wc.wr_id).collect();
        prop_assert_eq!(&completed, posted);
        let device = &mut end.device;
        prop_assert_eq!(device.poll_timeout(), None);
        others.deregister(at, device);
        device.destroy_qp(qp).unwrap();
        device.destroy_cq(end.cq).unwrap();
        device.deregister(end.region).unwrap();
        device.destroy_domain(end.domain).unwrap();
        prop_assert_eq!(device.stateless_connections(), 0);
    }
    Ok(())
}
