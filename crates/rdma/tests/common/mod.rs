//! Two devices and a simulated network between them, in virtual time.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::expect_used)]

pub mod generated;
pub mod hostile_stream;
pub mod streams;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::{IpAddr, Ipv4Addr};

use nichrome_rdma::*;
use nichrome_wire::rdma::{DatagramWriter, Message, ROCE_PORT, Repr, UdpFlow};
use nichrome_wire::star::STAR_PORT;
use nichrome_wire::{AddressPair, Ecn, SeqNumber, TrafficClass};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;

/// Base address of each end's memory.
pub const BASE: u64 = 0x1_0000;
/// Size of each end's memory in bytes.
pub const MEMORY: usize = 4 << 20;

pub const ALL: Access = {
    let bits = Access::LOCAL_WRITE.bits()
        | Access::REMOTE_WRITE.bits()
        | Access::REMOTE_READ.bits()
        | Access::REMOTE_ATOMIC.bits()
        | Access::WINDOW_BIND.bits()
        | Access::FLUSH_GLOBAL.bits();
    match Access::from_bits(bits) {
        Some(all) => all,
        None => Access::NONE,
    }
};

/// Probabilities of network faults per datagram, 0 to 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: f64,
    pub duplicate: f64,
    pub reorder: f64,
    pub corrupt: f64,
    pub mark: f64,
}

/// A datagram in flight.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    due: u64,
    nth: u64,
    to: usize,
    port: u16,
    /// The multicast group that it is for; `None` for the end's address.
    group: Option<IpAddr>,
    bytes: Vec<u8>,
    class: u8,
}

/// One end: a device and the objects that most tests need.
pub struct End {
    pub device: Device<ByteMemory>,
    pub domain: DomainHandle,
    pub cq: CqHandle,
    pub region: RegionHandle,
    pub lkey: LKey,
    pub rkey: RKey,
}

impl End {
    pub fn new(config: Config) -> Self {
        let mut device = Device::new(config, ByteMemory::new(BASE, MEMORY)).unwrap();
        let domain = device.create_domain().unwrap();
        let cq = device.create_cq(4096).unwrap();
        let (region, keys) = register(&mut device, domain, RegionConfig::new(BASE, MEMORY as u64, ALL));
        let RegionReport { lkey, rkey, .. } = keys;
        Self { device, domain, cq, region, lkey, rkey }
    }

    pub fn qp_config(&self, kind: QpType) -> QpConfig {
        let capacity =
            QpCapacity { send_wrs: 128, receive_wrs: 128, send_sges: 32, receive_sges: 32, inline: 400 };
        QpConfig {
            kind,
            domain: self.domain,
            send_cq: self.cq,
            receive_cq: self.cq,
            srq: None,
            capacity,
            signaling: Signaling::Requested,
        }
    }

    pub fn sge(&self, at: usize, len: usize) -> Sge {
        Sge { address: BASE + at as u64, len: len as u32, lkey: self.lkey }
    }

    /// Offset `at` of this end's memory, as its peer addresses it.
    pub fn remote(&self, at: usize) -> Remote {
        Remote { address: BASE + at as u64, rkey: self.rkey }
    }

    pub fn bytes(&self, at: usize, len: usize) -> &[u8] {
        &self.device.memory().bytes()[at..at + len]
    }

    pub fn fill(&mut self, at: usize, bytes: &[u8]) {
        self.device.memory_mut().bytes_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub fn completions(&mut self) -> Vec<Completion> {
        let (device, cq) = (&mut self.device, self.cq);
        std::iter::from_fn(|| device.poll_cq(cq)).collect()
    }

    pub fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.device.poll_event()).collect()
    }

    pub fn register(&mut self, config: RegionConfig) -> (RegionHandle, RegionReport) {
        register(&mut self.device, self.domain, config)
    }

    pub fn window(&mut self, kind: WindowKind) -> (WindowHandle, RKey) {
        let window = self.device.create_window(self.domain, kind).unwrap();
        (window, self.device.window_key(window).unwrap())
    }

    /// Posts a signaled request without payload.
    pub fn post_local(&mut self, qp: QpHandle, wr_id: u64, operation: Operation) {
        self.device.post_send(qp, &SendRequest::new(wr_id, operation, &[])).unwrap();
    }

    /// Removes all completions; returns identifier and status of each.
    pub fn statuses(&mut self) -> Vec<(u64, Status)> {
        self.completions().iter().map(|completion| (completion.wr_id, completion.status)).collect()
    }

    pub fn receive(&mut self, qp: QpHandle, wr_id: u64, at: usize, len: usize) {
        let buffers = [self.sge(at, len)];
        self.device.post_receive(qp, &ReceiveRequest { wr_id, buffers: &buffers }).unwrap();
    }

    pub fn post(&mut self, qp: QpHandle, wr_id: u64, operation: Operation, at: usize, len: usize) {
        let buffers = [self.sge(at, len)];
        self.device.post_send(qp, &SendRequest::new(wr_id, operation, &buffers)).unwrap();
    }
}

/// Registers memory and returns the region's keys.
pub fn register<M: Memory>(
    device: &mut Device<M>,
    domain: DomainHandle,
    config: RegionConfig,
) -> (RegionHandle, RegionReport) {
    let region = device.register(domain, config).unwrap();
    (region, device.query_region(region).unwrap())
}

pub fn address(end: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, end as u8 + 1).into()
}

/// The attributes of a connected queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub mtu: PathMtu,
    pub timeout: u8,
    pub retry_count: u8,
    pub rnr_retry: u8,
    pub rd_atomic: u8,
    pub access: Access,
    pub psn: u32,
}

impl Default for Link {
    fn default() -> Self {
        let access =
            Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC | Access::FLUSH_GLOBAL;
        Self {
            mtu: PathMtu::B1024,
            timeout: 8,
            retry_count: 7,
            rnr_retry: 7,
            rd_atomic: 4,
            access,
            psn: 0xFF_FFF0,
        }
    }
}

/// The network's treatment of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Arrives,
    IsLost,
    ArrivesTwice,
    /// Arrives this many nanoseconds late.
    ArrivesLate(u64),
}

/// Decides the fate of a datagram by its receiving end and its bytes.
pub type Fates = Box<dyn FnMut(usize, &[u8]) -> Fate>;

/// Two ends with one-way delay between them.
pub struct Pair {
    pub ends: [End; 2],
    pub now: Instant,
    pub faults: Faults,
    pub delay: u64,
    /// Sent datagrams and their sending end, if `record` is set.
    pub sent: Vec<(usize, Vec<u8>)>,
    pub record: bool,
    /// Fates that precede the random faults.
    pub fates: Option<Fates>,
    /// Streams of queue pairs on iWARP.
    pub streams: streams::Streams,
    flights: BinaryHeap<Reverse<Flight>>,
    count: u64,
    random: Pcg64,
    buffer: Vec<u8>,
}

impl Pair {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl Fn(&mut Config)) -> Self {
        let end = |end| {
            let mut config = Config::new(vec![address(end)]);
            config.seed = end as u128;
            change(&mut config);
            End::new(config)
        };
        Self {
            ends: [end(0), end(1)],
            now: Instant::ZERO,
            faults: Faults::default(),
            delay: 10_000,
            sent: Vec::new(),
            record: false,
            fates: None,
            streams: streams::Streams::default(),
            flights: BinaryHeap::new(),
            count: 0,
            random: Pcg64::seed_from_u64(1),
            buffer: vec![0; 65_507],
        }
    }

    pub fn seeded(mut self, seed: u64, faults: Faults) -> Self {
        (self.random, self.faults) = (Pcg64::seed_from_u64(seed), faults);
        self
    }

    /// Creates a queue pair at each end.
    pub fn create(&mut self, kind: QpType) -> [QpHandle; 2] {
        self.ends.each_mut().map(|end| end.device.create_qp(end.qp_config(kind)).unwrap())
    }

    /// Creates a queue pair at each end and connects them.
    pub fn connect(&mut self, kind: QpType, link: &Link) -> [QpHandle; 2] {
        let qps = self.create(kind);
        self.bring_up(kind, qps, link);
        qps
    }

    pub fn bring_up(&mut self, kind: QpType, qps: [QpHandle; 2], link: &Link) {
        for end in 0..2 {
            let peer = self.ends[1 - end].device.qp_number(qps[1 - end]).unwrap();
            bring_up(&mut self.ends[end].device, kind, qps[end], address(1 - end), peer, link);
        }
    }

    /// Creates a queue pair at each end and connects them on StaR; end `server` is stateless.
    pub fn connect_star(&mut self, server: usize, link: &Link) -> [QpHandle; 2] {
        let qps = self.create(QpType::Rc);
        self.bring_up_star(server, qps, link);
        qps
    }

    pub fn bring_up_star(&mut self, server: usize, qps: [QpHandle; 2], link: &Link) {
        self.bring_up(QpType::Rc, qps, link);
        self.put_on_star(server, qps, link.psn);
    }

    /// Negotiates StaR without messages on the network.
    pub fn put_on_star(&mut self, server: usize, qps: [QpHandle; 2], first: u32) {
        let offer = |end: usize, wish| {
            let first = SeqNumber(first.wrapping_add(end as u32));
            let device = &self.ends[end].device;
            let mut offer = device.ask(qps[end], star::MakeOffer { wish, first_element: first }).unwrap();
            if device.query_qp(qps[end]).unwrap().state == QpState::Rtr {
                // The live adapter does the same: in RTR the program has not set its timers yet.
                let Link { timeout, retry_count, rnr_retry, .. } = Link::default();
                offer.timers = star::Timers { timeout, retry_count, rnr_retry, ..offer.timers };
            }
            offer
        };
        let (ours, theirs) = (offer(server, star::Wish::Own), offer(1 - server, star::Wish::Automatic));
        let agreed = star::agree(&ours, &theirs).unwrap();
        assert_eq!(agreed, star::Agreement::Star { stateless: star::Side::Ours });
        let stateless = &mut self.ends[server].device;
        let admission = stateless.ask(qps[server], star::Admit(&theirs)).unwrap();
        stateless
            .connect(
                qps[server],
                &star::Connect { ours: &ours, theirs: &theirs, role: &star::StarRole::Stateless },
            )
            .unwrap();
        let role = star::StarRole::Stateful(admission);
        self.ends[1 - server]
            .device
            .connect(qps[1 - server], &star::Connect { ours: &theirs, theirs: &ours, role: &role })
            .unwrap();
    }

    pub fn flow(from: usize) -> UdpFlow {
        Self::flow_to(from, ROCE_PORT)
    }

    /// The flow from one end to a port of the other.
    pub fn flow_to(from: usize, port: u16) -> UdpFlow {
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (address(from), address(1 - from)) else { panic!() };
        let addresses = AddressPair::V4 { src, dst };
        UdpFlow { addresses, src_port: port, dst_port: port }
    }

    /// Sends the outgoing datagrams of both ends.
    pub fn transmit(&mut self) {
        for end in 0..2 {
            while let Some(transmit) = self.ends[end].device.poll_transmit(self.now, 16, &mut self.buffer) {
                let transmit = match transmit {
                    Transmit::Datagrams(transmit) => transmit,
                    Transmit::Stream(StreamBytes { qp, len }) => {
                        let bytes = &self.buffer[..len];
                        self.streams.send(&mut self.ends[end], end, qp, bytes, &mut self.random);
                        continue;
                    }
                    Transmit::End(StreamEnding { qp, how }) => {
                        self.streams.end(end, qp, how);
                        continue;
                    }
                };
                assert!(transmit.len > 0 && transmit.len <= transmit.segment_len * 16);
                let buffer = std::mem::take(&mut self.buffer);
                for bytes in transmit.datagrams(&buffer) {
                    if self.record {
                        self.sent.push((end, bytes.to_vec()));
                    }
                    let UdpFlow { addresses, dst_port, .. } = transmit.route.flow;
                    let group = Some(addresses.dst()).filter(IpAddr::is_multicast);
                    self.launch(1 - end, dst_port, group, bytes);
                }
                self.buffer = buffer;
            }
        }
    }

    fn launch(&mut self, to: usize, port: u16, group: Option<IpAddr>, bytes: &[u8]) {
        let fate = self.fates.as_mut().map_or(Fate::Arrives, |fates| fates(to, bytes));
        if fate == Fate::IsLost {
            return;
        }
        let faults = self.faults;
        let mut chance = |probability: f64| probability > 0.0 && self.random.random_bool(probability);
        if chance(faults.loss) {
            return;
        }
        let copies = 1 + u8::from(chance(faults.duplicate) || fate == Fate::ArrivesTwice);
        // A duplicate of a write to a stateless side arrives together with the original: the side keeps no
        // state to recognize a later one.
        let is_rdp = port == STAR_PORT && bytes[0] & 0xF == 4;
        let (mut before, mut follows) = (0, false);
        for _ in 0..copies {
            let mut bytes = bytes.to_vec();
            let mut chance = |probability: f64| probability > 0.0 && self.random.random_bool(probability);
            let late = if chance(faults.reorder) && !follows { 4 * self.delay } else { 0 };
            let class = if chance(faults.mark) { Ecn::Ce as u8 } else { 0 };
            if chance(faults.corrupt) {
                let bit = self.random.random_range(0..bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            self.count += 1;
            let late = if late > 0 { self.random.random_range(0..late) } else { 0 };
            let late = if let Fate::ArrivesLate(nanos) = fate { nanos } else { late };
            let due = if follows { before } else { self.now.as_nanos() + self.delay + late };
            (before, follows) = (due, is_rdp);
            self.flights.push(Reverse(Flight { due, nth: self.count, to, port, group, bytes, class }));
        }
    }

    /// Delivers a RoCE datagram to an end, from the other's address.
    pub fn inject(&mut self, to: usize, bytes: &[u8]) {
        self.deliver(to, ROCE_PORT, None, 0, bytes);
    }

    /// Delivers a RoCE datagram to a multicast group at an end, from the other's address.
    pub fn inject_to_group(&mut self, to: usize, group: IpAddr, bytes: &[u8]) {
        self.deliver(to, ROCE_PORT, Some(group), 0, bytes);
    }

    /// Delivers a StaR datagram to an end, from the other's address.
    pub fn inject_star(&mut self, to: usize, bytes: &[u8]) {
        self.deliver(to, STAR_PORT, None, 0, bytes);
    }

    fn deliver(&mut self, to: usize, port: u16, group: Option<IpAddr>, class: u8, bytes: &[u8]) {
        let mut flow = Self::flow_to(1 - to, port);
        if let (AddressPair::V4 { dst, .. }, Some(IpAddr::V4(group))) = (&mut flow.addresses, group) {
            *dst = group;
        }
        let datagram = Datagram { flow, traffic_class: TrafficClass(class), bytes };
        self.ends[to].device.receive(&datagram, self.now);
    }

    /// Returns the time of the next arrival or timer.
    fn next(&mut self) -> Option<Instant> {
        if self.faults.loss >= 1.0 {
            self.streams.break_all(&mut self.ends, self.now);
        }
        self.transmit();
        while self.streams.deliver(&mut self.ends, self.now, &mut self.random) {
            self.transmit();
        }
        let flight = self.flights.peek().map(|Reverse(flight)| Instant::from_nanos(flight.due));
        let timers = self.ends.iter().filter_map(|end| end.device.poll_timeout());
        timers.chain(flight).chain(self.streams.next().map(Instant::from_nanos)).min()
    }

    /// Advances to the next arrival or timer and processes it. Returns false if there is none.
    pub fn step(&mut self) -> bool {
        let Some(next) = self.next() else { return false };
        self.now = self.now.max(next);
        for end in &mut self.ends {
            if end.device.poll_timeout().is_some_and(|due| due <= self.now) {
                end.device.handle_timeout(self.now);
            }
        }
        while let Some(Reverse(flight)) = self.flights.peek()
            && flight.due <= self.now.as_nanos()
        {
            let Some(Reverse(flight)) = self.flights.pop() else { break };
            let Flight { to, port, group, bytes, class, .. } = flight;
            self.deliver(to, port, group, class, &bytes);
        }
        true
    }

    /// Runs until no datagrams and timers are left.
    pub fn run(&mut self) {
        for _ in 0..5_000_000 {
            if !self.step() {
                return;
            }
        }
        panic!("no end at {}", self.now);
    }

    /// Runs until `done` returns true, or no datagrams and timers are left.
    pub fn run_until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        while !done(self) && self.step() {}
    }

    /// Runs for a time in nanoseconds.
    pub fn run_for(&mut self, nanos: u64) {
        let end = self.now.plus_nanos(nanos);
        while self.next().is_some_and(|next| next <= end) {
            self.step();
        }
        self.now = end;
    }
}

/// Moves a queue pair from RESET to RTS.
pub fn bring_up<M: Memory>(
    device: &mut Device<M>,
    kind: QpType,
    qp: QpHandle,
    to: IpAddr,
    peer: QpNumber,
    link: &Link,
) {
    for change in changes(kind, to, peer, link) {
        device.modify_qp(qp, &change).unwrap();
    }
}

/// The changes that move a queue pair from RESET to INIT, RTR and RTS.
pub fn changes(kind: QpType, to: IpAddr, peer: QpNumber, link: &Link) -> [QpChange; 3] {
    let rc = kind == QpType::Rc;
    let (sends, receives) = (rc || kind == QpType::XrcSend, rc || kind == QpType::XrcReceive);
    let connected = kind != QpType::Ud;
    let init = QpChange {
        pkey_index: Some(0),
        port: Some(1),
        access: connected.then_some(link.access),
        qkey: (!connected).then_some(QKey(0x1234)),
        ..QpChange::to(QpState::Init)
    };
    let rtr = QpChange {
        path: connected.then_some(AddressVector::to(to)),
        path_mtu: connected.then_some(link.mtu),
        destination: connected.then_some(peer),
        rq_psn: connected.then_some(Psn::new(link.psn)),
        max_dest_rd_atomic: receives.then_some(link.rd_atomic),
        min_rnr_timer: receives.then_some(RnrTimer::new(1).unwrap()),
        ..QpChange::to(QpState::Rtr)
    };
    let rts = QpChange {
        sq_psn: Some(Psn::new(link.psn)),
        timeout: (sends || receives).then_some(link.timeout),
        retry_count: sends.then_some(link.retry_count),
        rnr_retry: sends.then_some(link.rnr_retry),
        max_rd_atomic: sends.then_some(link.rd_atomic),
        ..QpChange::to(QpState::Rts)
    };
    [init, rtr, rts]
}

/// Random bytes.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Pcg64::seed_from_u64(seed);
    (0..len).map(|_| random.random()).collect()
}

/// Builds the datagram that end `from` sends with these headers and this payload.
pub fn datagram(from: usize, repr: &Repr, payload: &[u8]) -> Vec<u8> {
    datagram_of_flow(&Pair::flow(from), repr, payload)
}

/// Builds the datagram with these headers and this payload.
pub fn datagram_of_flow(flow: &UdpFlow, repr: &Repr, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; repr.datagram_len(payload.len())];
    let mut writer = DatagramWriter::new(repr, payload.len(), flow, 0, &mut bytes).unwrap();
    writer.payload().copy_from_slice(payload);
    writer.finish();
    bytes
}

/// A datagram with other headers and a right ICRC.
fn changed(bytes: &[u8], flow: &UdpFlow, change: impl Fn(&mut Repr)) -> Vec<u8> {
    let (mut repr, payload) = Repr::parse(bytes).unwrap();
    change(&mut repr);
    let mut out = vec![0; repr.datagram_len(payload.len())];
    let mut writer = DatagramWriter::new(&repr, payload.len(), flow, 0, &mut out).unwrap();
    writer.payload().copy_from_slice(payload);
    writer.finish();
    out
}

/// A datagram for another queue pair, with a right ICRC.
pub fn readdressed(bytes: &[u8], flow: &UdpFlow, dest_qp: QpNumber) -> Vec<u8> {
    changed(bytes, flow, |repr| repr.bth.dest_qp = dest_qp)
}

/// A request of XRC that names another shared receive queue, with a right ICRC.
pub fn with_srq(bytes: &[u8], flow: &UdpFlow, number: SrqNumber) -> Vec<u8> {
    changed(bytes, flow, |repr| {
        if let Message::Xrc(srq, _) = &mut repr.message {
            *srq = number;
        }
    })
}
