//! Generated sequences of valid and invalid verbs, manipulated packets and time steps, and the invariants
//! that hold for all of them ([`Invariants`]). The choices come from a generator or a fuzzer.

use std::net::{IpAddr, Ipv4Addr};

use nichrome_rdma::*;
use nichrome_wire::star::{Epoch, PacketCheck, STAR_PORT};

use super::{ALL, BASE, End, Faults, Link, MEMORY, Pair};

/// Returns a choice below its argument; `None` at the end of the input.
pub type Choose<'a> = dyn FnMut(u32) -> Option<u32> + 'a;

/// Memory from this offset on is outside all regions.
const GUARDED: usize = MEMORY / 2;

/// The invariants: every request completes at most once and in order; when the network is idle, every request
/// has completed unless its queue pair was reset; memory outside all regions is unchanged.
struct Invariants {
    qps: Vec<[QpHandle; 2]>,
    kinds: Vec<QpType>,
    /// Sends that have not completed, by end and queue pair.
    waiting: [Vec<std::collections::VecDeque<u64>>; 2],
    regions: [Vec<RegionHandle>; 2],
    windows: [Vec<WindowHandle>; 2],
    srq: [SrqHandle; 2],
    /// The shared receive queue of end 1 that requests of XRC name, and its number.
    xrc_srq: SrqHandle,
    named: SrqNumber,
    xrc: XrcHandle,
    next: u64,
}

/// Index of the UD queue pair.
const DATAGRAMS: usize = 3;

/// The multicast group that the UD queue pairs are attached to.
const GROUP: IpAddr = IpAddr::V4(Ipv4Addr::new(239, 1, 2, 3));

/// Queue pairs from this one on are on StaR: the first with end 0 as the stateless side, the second with
/// end 1.
const STAR: usize = 5;

/// Index of the initiator of end 0 and the target of end 1.
const XRC: usize = 4;

/// Runs a sequence; returns the counters of both ends. Panics if an invariant is violated.
pub fn run(choose: &mut Choose<'_>) -> [Counters; 2] {
    let setting = choose(64).unwrap_or_default();
    let mut pair = Pair::with(|config| {
        config.window = SendWindow { initial: 1 + setting % 8, max: 16, read: 1 };
        config.roce.held_packets = (setting % 5) as usize;
        if setting & 32 > 0 {
            config.roce.selective_repeat = SelectiveRepeat::Never;
        }
        if setting & 16 > 0 {
            config.roce.congestion = Congestion::Dcqcn(Dcqcn::default());
        }
    });
    pair.record = true;
    let mut invariants = Invariants::new(&mut pair);
    while let Some(what) = choose(16) {
        if invariants.step(&mut pair, what, choose).is_none() {
            break;
        }
        invariants.completions(&mut pair);
        pair.sent.truncate(64);
    }
    invariants.end(&mut pair);
    pair.ends.map(|end| *end.device.counters())
}

/// A connection that gives up soon.
fn link() -> Link {
    Link { retry_count: 2, rnr_retry: 2, timeout: 4, ..Link::default() }
}

/// Brings up a queue pair at each end: for XRC, an initiator at end 0 and a target at end 1.
fn bring_up(pair: &mut Pair, kind: QpType, qps: [QpHandle; 2]) {
    if kind == QpType::XrcSend {
        let numbers = [0, 1].map(|end| pair.ends[end].device.qp_number(qps[end]).unwrap());
        for (end, kind) in [kind, QpType::XrcReceive].into_iter().enumerate() {
            let (device, to) = (&mut pair.ends[end].device, super::address(1 - end));
            super::bring_up(device, kind, qps[end], to, numbers[1 - end], &link());
        }
        return;
    }
    pair.bring_up(kind, qps, &link());
}

/// Registers the first `len` bytes of an end's memory as its region.
fn replace_region(end: &mut End, len: u64) {
    let (region, keys) = end.register(RegionConfig::new(BASE, len, ALL));
    (end.region, end.lkey, end.rkey) = (region, keys.lkey, keys.rkey);
}

impl Invariants {
    fn new(pair: &mut Pair) -> Self {
        let mut regions = [Vec::new(), Vec::new()];
        let mut windows = [Vec::new(), Vec::new()];
        let srq = pair.ends.each_mut().map(|end| {
            end.device.create_srq(end.domain, SrqAttributes { wrs: 8, sges: 2, limit: 1 }).unwrap()
        });
        for (at, end) in pair.ends.iter_mut().enumerate() {
            end.device.deregister(end.region).unwrap();
            replace_region(end, GUARDED as u64);
            regions[at].push(end.region);
            windows[at].push(end.device.create_window(end.domain, WindowKind::Two).unwrap());
        }
        let kinds = [QpType::Rc, QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcSend, QpType::Rc, QpType::Rc];
        let kinds = kinds.to_vec();
        let end = &mut pair.ends[1];
        let xrc = end.device.create_xrc_domain().unwrap();
        let attributes = SrqAttributes { wrs: 8, sges: 2, limit: 1 };
        let xrc_srq = end.device.create_xrc_srq(xrc, end.domain, end.cq, attributes).unwrap();
        let named = end.device.srq_number(xrc_srq).unwrap();
        let (qps, waiting) = (Vec::new(), Default::default());
        let mut invariants =
            Self { qps, kinds, waiting, regions, windows, srq, xrc_srq, named, xrc, next: 0 };
        for nth in 0..invariants.kinds.len() {
            let kind = invariants.kinds[nth];
            let qps = [0, 1].map(|end| {
                if (nth, end) == (XRC, 1) {
                    return pair.ends[1].device.create_xrc_target(xrc).unwrap();
                }
                let srq = (nth == 1).then_some(invariants.srq[end]);
                let config = QpConfig { srq, ..pair.ends[end].qp_config(kind) };
                pair.ends[end].device.create_qp(config).unwrap()
            });
            bring_up(pair, kind, qps);
            if nth >= STAR {
                pair.put_on_star(nth - STAR, qps, 0);
            }
            if nth == DATAGRAMS {
                for (end, qp) in pair.ends.iter_mut().zip(qps) {
                    end.device.attach_multicast(qp, GROUP).unwrap();
                }
            }
            invariants.qps.push(qps);
            invariants.waiting.iter_mut().for_each(|waiting| waiting.push(std::collections::VecDeque::new()));
        }
        invariants
    }

    fn step(&mut self, pair: &mut Pair, what: u32, choose: &mut Choose<'_>) -> Option<()> {
        let end = choose(2)? as usize;
        let nth = choose(self.qps.len() as u32)? as usize;
        let qp = self.qps[nth][end];
        match what {
            0..5 => self.send(pair, end, nth, choose)?,
            5 => {
                let len = choose(3000)? as usize;
                let buffers = [pair.ends[end].sge(choose(9000)? as usize, len)];
                let request = ReceiveRequest { wr_id: u64::MAX, buffers: &buffers };
                let _ = pair.ends[end].device.post_receive(qp, &request);
                let _ = pair.ends[end].device.post_srq_receive(self.srq[end], &request);
                let _ = pair.ends[1].device.post_srq_receive(self.xrc_srq, &request);
            }
            6..10 => (0..choose(20)?).for_each(|_| {
                pair.step();
            }),
            10 => pair.run_for(u64::from(choose(1_000_000)?)),
            11 => {
                let chance = |choice: u32| f64::from(choice) / 40.0;
                pair.faults = Faults {
                    loss: chance(choose(10)?),
                    duplicate: chance(choose(10)?),
                    reorder: chance(choose(10)?),
                    corrupt: chance(choose(10)?),
                    mark: chance(choose(10)?),
                };
            }
            12 => self.tamper(pair, choose)?,
            13 => self.change(pair, end, nth, choose)?,
            14 => self.regions(pair, end, choose)?,
            _ => {
                let cq = pair.ends[end].cq;
                let notify = if choose(2)? == 0 { Notify::Any } else { Notify::Solicited };
                pair.ends[end].device.req_notify_cq(cq, notify).unwrap();
                let moderation = Moderation { count: choose(4)? as u16, period_us: choose(100)? as u16 };
                pair.ends[end].device.moderate_cq(cq, moderation).unwrap();
            }
        }
        Some(())
    }

    fn send(&mut self, pair: &mut Pair, end: usize, nth: usize, choose: &mut Choose<'_>) -> Option<()> {
        let peer = 1 - end;
        let wrong = if choose(8)? == 0 { 1 << choose(32)? } else { 0 };
        let rkey = RKey(pair.ends[peer].rkey.0 ^ wrong);
        let remote = Remote { address: BASE + u64::from(choose(GUARDED as u32)?), rkey };
        let aligned = Remote { address: remote.address & !7, rkey };
        let window = *self.windows[end].first()?;
        let window = pair.ends[end].device.window_key(window).unwrap();
        let bind = Bind {
            window,
            key_byte: choose(256)? as u8,
            region: pair.ends[end].lkey,
            address: remote.address,
            len: u64::from(choose(5000)?),
            access: Access::REMOTE_WRITE,
        };
        let immediate = ImmediateData([1, 2, 3, 4]);
        let value = u64::from(choose(3)?);
        let operation = match choose(12)? {
            0 => Operation::Send,
            1 => Operation::SendWithImmediate(immediate),
            2 => Operation::SendWithInvalidate(rkey),
            3 => Operation::Write(remote),
            4 => Operation::WriteWithImmediate(remote, immediate),
            5 => Operation::Read(remote),
            6 => Operation::CompareSwap { remote: aligned, compare: value, swap: value + 1 },
            7 => Operation::FetchAdd { remote: aligned, add: value },
            8 => Operation::LocalInvalidate(window),
            9 => Operation::AtomicWrite(aligned),
            10 => {
                let selectivity = if value == 0 { Selectivity::Region } else { Selectivity::Range };
                let scope = Feth { placement: Placement::GLOBAL, selectivity };
                Operation::Flush { remote, len: choose(5000)?, scope }
            }
            _ => Operation::BindWindow(bind),
        };
        let len = match operation {
            Operation::LocalInvalidate(_) | Operation::BindWindow(_) | Operation::Flush { .. } => 0,
            Operation::CompareSwap { .. } | Operation::FetchAdd { .. } | Operation::AtomicWrite(_) => 8,
            _ => choose(4000)? as usize,
        };
        let buffers = [pair.ends[end].sge(choose(GUARDED as u32 - 4000)? as usize, len)];
        let payload = match choose(4)? {
            0 => Payload::InlineFrom(&buffers),
            _ => Payload::Buffers(&buffers),
        };
        let flags = [SendFlags::NONE, SendFlags::FENCE, SendFlags::SOLICITED][choose(3)? as usize];
        let datagrams = pair.ends[peer].device.qp_number(self.qps[DATAGRAMS][peer]).unwrap();
        let (to, datagrams) = match value {
            0 => (GROUP, QpNumber::MULTICAST),
            _ => (super::address(peer), datagrams),
        };
        let recipient = (self.kinds[nth] == QpType::Ud).then(|| {
            let end = &mut pair.ends[end];
            let address = end.device.create_address(end.domain, AddressVector::to(to));
            Recipient { address: address.unwrap(), qp: datagrams, qkey: QKey(0x1234) }
        });
        self.next += 1;
        let (wr_id, flags) = (self.next, flags | SendFlags::SIGNALED);
        let wrong = if value == 0 && choose(4)? == 0 { 1 } else { 0 };
        let srq = (self.kinds[nth] == QpType::XrcSend)
            .then(|| SrqNumber::new(self.named.value() ^ wrong).unwrap_or_default());
        let request = SendRequest { wr_id, operation, payload, flags, recipient, srq };
        if pair.ends[end].device.post_send(self.qps[nth][end], &request).is_ok() {
            self.waiting[end][nth].push_back(wr_id);
        }
        Some(())
    }

    /// Delivers a recorded packet again, at either end, with some of its bytes changed.
    fn tamper(&mut self, pair: &mut Pair, choose: &mut Choose<'_>) -> Option<()> {
        let to = choose(2)? as usize;
        let which = choose(pair.sent.len().max(1) as u32)? as usize;
        let mut bytes = pair.sent.get(which).map(|(_, bytes)| bytes.clone()).unwrap_or_default();
        let flow = Pair::flow_to(1 - to, STAR_PORT);
        let is_star = pair.sent.get(which).is_some_and(|(from, bytes)| {
            PacketCheck::new(Epoch(0)).is_valid(&Pair::flow_to(*from, STAR_PORT), bytes)
        });
        for _ in 0..choose(4)? {
            let at = choose(bytes.len().max(1) as u32)? as usize;
            let byte = choose(256)? as u8;
            bytes.get_mut(at).into_iter().for_each(|changed| *changed = byte);
        }
        if is_star {
            // With a valid packet check, more of the code processes the changes.
            if let Some((covered, check)) = bytes.split_last_chunk_mut() {
                *check = PacketCheck::new(Epoch(0)).compute(&flow, covered);
            }
            pair.inject_star(to, &bytes);
        } else if choose(4)? == 0 {
            pair.inject_to_group(to, GROUP, &bytes);
        } else {
            pair.inject(to, &bytes);
        }
        Some(())
    }

    /// Changes the state of a queue pair, or resets and reconnects it.
    fn change(&mut self, pair: &mut Pair, end: usize, nth: usize, choose: &mut Choose<'_>) -> Option<()> {
        let qp = self.qps[nth][end];
        match choose(8)? {
            0 => pair.ends[end].device.modify_qp(qp, &QpChange::to(QpState::Err)).unwrap(),
            1 => {
                for end in 0..2 {
                    let qp = self.qps[nth][end];
                    pair.ends[end].device.modify_qp(qp, &QpChange::to(QpState::Reset)).unwrap();
                    self.completions(pair);
                    self.waiting[end][nth].clear();
                }
                bring_up(pair, self.kinds[nth], self.qps[nth]);
                if nth >= STAR {
                    self.next += 1000;
                    pair.put_on_star(nth - STAR, self.qps[nth], self.next as u32);
                }
            }
            2 | 3 => {
                let _ = pair.ends[end].device.modify_qp(qp, &QpChange::to(QpState::Sqd));
            }
            _ => {
                let _ = pair.ends[end].device.modify_qp(qp, &QpChange::to(QpState::Rts));
            }
        }
        Some(())
    }

    /// Deregisters or registers a region, or replaces a window.
    fn regions(&mut self, pair: &mut Pair, end: usize, choose: &mut Choose<'_>) -> Option<()> {
        let chosen = choose(3)?;
        let end_of = &mut pair.ends[end];
        let device = &mut end_of.device;
        match chosen {
            0 => {
                let region = self.regions[end].pop()?;
                if device.deregister(region).is_err() {
                    self.regions[end].push(region);
                }
            }
            1 => {
                replace_region(end_of, u64::from(choose(GUARDED as u32)?));
                self.regions[end].push(end_of.region);
            }
            _ => {
                let old = self.windows[end].pop()?;
                device.destroy_window(old).unwrap();
                self.windows[end].push(device.create_window(end_of.domain, WindowKind::Two).unwrap());
            }
        }
        Some(())
    }

    fn completions(&mut self, pair: &mut Pair) {
        for end in 0..2 {
            for wc in pair.ends[end].completions() {
                let nth = (0..self.qps.len())
                    .find(|nth| pair.ends[end].device.qp_number(self.qps[*nth][end]) == Ok(wc.qp));
                if wc.wr_id != u64::MAX {
                    let expected = self.waiting[end][nth.unwrap()].pop_front();
                    assert_eq!(expected, Some(wc.wr_id), "requests complete once and in order");
                }
            }
        }
    }

    /// Loses all packets until every request has completed, then destroys all objects.
    fn end(&mut self, pair: &mut Pair) {
        pair.faults = Faults { loss: 1.0, ..Faults::default() };
        // Requests that a draining queue has begun are sent, if unreliable, or fail.
        pair.run();
        self.completions(pair);
        for end in 0..2 {
            for nth in 0..self.qps.len() {
                let resumed =
                    pair.ends[end].device.modify_qp(self.qps[nth][end], &QpChange::to(QpState::Rts));
                assert_ne!(resumed, Err(ModifyError::Draining), "{:?} drains for ever", self.kinds[nth]);
            }
        }
        pair.run();
        self.completions(pair);
        for end in 0..2 {
            for (nth, waiting) in self.waiting[end].iter().enumerate() {
                let state = pair.ends[end].device.query_qp(self.qps[nth][end]).unwrap().state;
                assert!(waiting.is_empty(), "{waiting:?} wait for ever on {:?}, {state:?}", self.kinds[nth]);
            }
            assert!(pair.ends[end].bytes(GUARDED, MEMORY - GUARDED).iter().all(|byte| *byte == 0));
            for qps in &self.qps {
                pair.ends[end].device.destroy_qp(qps[end]).unwrap();
            }
            if end == 1 {
                pair.ends[1].device.destroy_srq(self.xrc_srq).unwrap();
                pair.ends[1].device.destroy_xrc_domain(self.xrc).unwrap();
            }
            let (cq, srq) = (pair.ends[end].cq, self.srq[end]);
            pair.ends[end].device.destroy_cq(cq).unwrap();
            pair.ends[end].device.destroy_srq(srq).unwrap();
            for window in self.windows[end].drain(..) {
                pair.ends[end].device.destroy_window(window).unwrap();
            }
            for region in self.regions[end].drain(..) {
                pair.ends[end].device.deregister(region).unwrap();
            }
        }
    }
}
