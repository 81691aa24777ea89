//! Memory that each connection allocates, by end and part: two devices in this process, measured by its
//! counting allocator.
//!
//! Each connection has a memory region and a protection domain of its own, as in servers that isolate their
//! clients from each other.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, bail};
use nichrome_rdma::star::{
    Admit, Agreement, CardAuthentication, Connect, MakeOffer, ServerSecret, Side, StarRole, Wish, agree,
};
use nichrome_rdma::{
    Access, AddressVector, ByteMemory, Config, CqHandle, Datagram, Device, DomainHandle, Instant, LKey,
    Operation, PathMtu, Psn, QpCapacity, QpChange, QpConfig, QpHandle, QpNumber, QpState, QpType, RKey,
    RegionConfig, Remote, RnrTimer, SendRequest, Sge, Signaling, Status, Transmit,
};
use nichrome_wire::rdma::{ROCE_PORT, UdpFlow};
use nichrome_wire::star::STAR_PORT;
use nichrome_wire::{AddressPair, SeqNumber, TrafficClass};
use serde::Serialize;
use stats_alloc::Stats;

use crate::allocator::ALLOCATOR;

/// Start address, and length in bytes, of the memory that all regions cover.
const BASE: u64 = 0x1_0000;
const LEN: usize = 64 << 10;

/// Nanoseconds of virtual time between two rounds of packets.
const ROUND: u64 = 20_000;

/// Maximum number of rounds until WRITEs are complete.
const MAX_ROUNDS: usize = 10_000;

/// Bytes that each connection of one end allocates. The names of the fields are JSON keys.
#[derive(Clone, Copy, Default, Serialize)]
pub(super) struct Parts {
    /// For the protection domain and the region: the memory table in the card's host.
    pub(super) region: i64,
    /// For the connected queue pair: queues and connection state, which on StaR replaces the state of RoCE
    /// that it begins with; on StaR also the client's copy of the memory table.
    pub(super) queue_pair: i64,
    /// For a WRITE of 64 KB: queues grow to their largest use and keep that size.
    pub(super) traffic: i64,
}

impl Parts {
    pub(super) fn total(&self) -> i64 {
        self.region + self.queue_pair + self.traffic
    }
}

/// Memory that connections of one transport allocate. The names of the fields are JSON keys.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Allocated {
    pub(super) transport: &'static str,
    pub(super) connections: usize,
    pub(super) server: Parts,
    pub(super) client: Parts,
    /// Bytes of the server card's queue of answers, while one packet of each connection waits for its answer;
    /// for all connections together.
    pub(super) answer_queue: i64,
}

/// Measures `connections` pairs of queue pairs over RoCE, or over StaR with end 1 stateless.
pub(super) fn measure(transport: &'static str, connections: usize) -> anyhow::Result<Allocated> {
    let mut lab = Lab::new(transport == "star", connections)?;
    let mut parts = [Parts::default(); 2];
    let mut regions = [Vec::new(), Vec::new()];
    let mut qps = [Vec::new(), Vec::new()];
    for end in 0..2 {
        (parts[end].region, regions[end]) = each(connections, || lab.region(end))?;
        let domains: Vec<DomainHandle> = regions[end].iter().map(|region| region.domain).collect();
        let mut domains = domains.into_iter();
        (parts[end].queue_pair, qps[end]) = each(connections, || {
            lab.queue_pair(end, domains.next().context("each connection has a domain")?)
        })?;
    }
    let mut connected = [0; 2];
    for (client, server) in qps[0].iter().zip(&qps[1]) {
        for (end, [qp, peer]) in [[*client, *server], [*server, *client]].into_iter().enumerate() {
            let before = live();
            lab.bring_up(end, qp, peer)?;
            connected[end] += live() - before;
        }
        if lab.is_star {
            let [ours, theirs] = lab.put_on_star(*client, *server)?;
            connected[0] += ours;
            connected[1] += theirs;
        }
    }
    for (parts, connected) in parts.iter_mut().zip(connected) {
        parts.queue_pair += connected / connections as i64;
    }
    let answer_queue = lab.writes(&qps[0], &regions, &mut parts)?;
    let [client, server] = parts;
    Ok(Allocated { transport, connections, server, client, answer_queue })
}

/// Returns the bytes that the program has allocated and not freed.
fn live() -> i64 {
    let Stats { bytes_allocated, bytes_deallocated, .. } = ALLOCATOR.stats();
    bytes_allocated as i64 - bytes_deallocated as i64
}

/// Makes `count` objects; returns the bytes allocated by each, and the objects.
fn each<T>(count: usize, mut make: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<(i64, Vec<T>)> {
    let mut objects = Vec::with_capacity(count);
    let before = live();
    for _ in 0..count {
        objects.push(make()?);
    }
    Ok(((live() - before) / count as i64, objects))
}

/// A region and its domain.
struct OwnRegion {
    domain: DomainHandle,
    key: u32,
}

/// Two devices: the client is end 0, the server end 1.
struct Lab {
    devices: [Device<ByteMemory>; 2],
    cqs: [CqHandle; 2],
    is_star: bool,
    now: Instant,
    buffer: Vec<u8>,
}

fn address(end: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 1 + end as u8)
}

impl Lab {
    fn new(is_star: bool, connections: usize) -> anyhow::Result<Self> {
        let device = |end: usize| {
            let mut config = Config::new(vec![IpAddr::V4(address(end))]);
            config.seed = end as u128;
            let secret = ServerSecret::new([end as u8; 16]);
            config.star.authentication = Some(CardAuthentication { secret });
            Device::new(config, ByteMemory::new(BASE, LEN))
        };
        let mut devices = [device(0)?, device(1)?];
        let [client, server] = &mut devices;
        let cqs = [client.create_cq(connections + 1)?, server.create_cq(connections + 1)?];
        Ok(Self { devices, cqs, is_star, now: Instant::ZERO, buffer: vec![0; 65_507] })
    }

    fn region(&mut self, end: usize) -> anyhow::Result<OwnRegion> {
        let device = &mut self.devices[end];
        let domain = device.create_domain()?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let region = device.register(domain, RegionConfig::new(BASE, LEN as u64, access))?;
        Ok(OwnRegion { domain, key: device.query_region(region)?.lkey.0 })
    }

    fn queue_pair(&mut self, end: usize, domain: DomainHandle) -> anyhow::Result<QpHandle> {
        let capacity = QpCapacity { send_wrs: 1, receive_wrs: 1, send_sges: 1, receive_sges: 1, inline: 256 };
        let config = QpConfig {
            kind: QpType::Rc,
            domain,
            send_cq: self.cqs[end],
            receive_cq: self.cqs[end],
            srq: None,
            capacity,
            signaling: Signaling::All,
        };
        Ok(self.devices[end].create_qp(config)?)
    }

    /// Brings a queue pair to RTS.
    fn bring_up(&mut self, end: usize, qp: QpHandle, peer: QpHandle) -> anyhow::Result<()> {
        let peer = self.devices[1 - end].qp_number(peer)?;
        for change in changes(address(1 - end).into(), peer) {
            self.devices[end].modify_qp(qp, &change)?;
        }
        Ok(())
    }

    /// Negotiates StaR for a connected pair; returns the bytes that client and server have allocated.
    fn put_on_star(&mut self, client: QpHandle, server: QpHandle) -> anyhow::Result<[i64; 2]> {
        let [ours, theirs] = &mut self.devices;
        let offer = |device: &Device<ByteMemory>, qp, wish| {
            device.ask(qp, MakeOffer { wish, first_element: SeqNumber(0) })
        };
        let (client_offer, server_offer) =
            (offer(ours, client, Wish::Automatic)?, offer(theirs, server, Wish::Own)?);
        if agree(&server_offer, &client_offer)? != (Agreement::Star { stateless: Side::Ours }) {
            bail!("the server is not stateless");
        }
        let admission = theirs.ask(server, Admit(&client_offer))?;
        let role = StarRole::Stateful(admission);
        let before = live();
        let agreed = Connect { ours: &server_offer, theirs: &client_offer, role: &StarRole::Stateless };
        theirs.connect(server, &agreed)?;
        let between = live();
        ours.connect(client, &Connect { ours: &client_offer, theirs: &server_offer, role: &role })?;
        Ok([live() - between, between - before])
    }

    /// Completes a WRITE of 64 KB on each client, one after the other, and adds the memory allocated for it.
    /// Returns the bytes of the server's queue of answers while a packet of each connection waits.
    fn writes(
        &mut self,
        qps: &[QpHandle],
        regions: &[Vec<OwnRegion>; 2],
        parts: &mut [Parts; 2],
    ) -> anyhow::Result<i64> {
        let mut grown = [0; 2];
        for (nth, qp) in qps.iter().enumerate() {
            let [ours, theirs] = regions.each_ref().map(|regions| regions[nth].key);
            let remote = Remote { address: BASE, rkey: RKey(theirs) };
            let buffers = [Sge { address: BASE, len: LEN as u32, lkey: LKey(ours) }];
            let request = SendRequest::new(nth as u64, Operation::Write(remote), &buffers);
            let before = live();
            self.devices[0].post_send(*qp, &request)?;
            grown[0] += live() - before;
            self.run_until_complete(1, &mut grown)?;
        }
        for (parts, grown) in parts.iter_mut().zip(grown) {
            parts.traffic = grown / qps.len() as i64;
        }
        self.waiting_answers(qps, regions)
    }

    /// Returns the bytes that the server allocates for the answers to a packet of each connection, before it
    /// sends any.
    fn waiting_answers(&mut self, qps: &[QpHandle], regions: &[Vec<OwnRegion>; 2]) -> anyhow::Result<i64> {
        let mut grown = [0; 2];
        for (nth, qp) in qps.iter().enumerate() {
            let [ours, theirs] = regions.each_ref().map(|regions| regions[nth].key);
            let remote = Remote { address: BASE, rkey: RKey(theirs) };
            let buffers = [Sge { address: BASE, len: 8, lkey: LKey(ours) }];
            let request = SendRequest::new(nth as u64, Operation::Write(remote), &buffers);
            self.devices[0].post_send(*qp, &request)?;
            self.carry(0, &mut grown);
        }
        self.run_until_complete(qps.len(), &mut [0; 2])?;
        Ok(grown[1])
    }

    /// Carries packets until `count` WRITEs are complete; adds the bytes that each end allocates to `grown`.
    fn run_until_complete(&mut self, count: usize, grown: &mut [i64; 2]) -> anyhow::Result<()> {
        let mut left = count;
        for _ in 0..MAX_ROUNDS {
            self.carry(0, grown);
            self.carry(1, grown);
            self.now = self.now.plus_nanos(ROUND);
            while let Some(completion) = self.devices[0].poll_cq(self.cqs[0]) {
                if completion.status != Status::Success {
                    bail!("a WRITE completed in error: {:?}", completion.status);
                }
                left -= 1;
            }
            if left == 0 {
                return Ok(());
            }
        }
        bail!("{left} of {count} WRITEs are not complete")
    }

    /// Passes the packets that one end has to send to the other end.
    fn carry(&mut self, from: usize, grown: &mut [i64; 2]) {
        let Self { devices, now, buffer, is_star, .. } = self;
        let port = if *is_star { STAR_PORT } else { ROCE_PORT };
        let addresses = AddressPair::V4 { src: address(from), dst: address(1 - from) };
        let flow = UdpFlow { addresses, src_port: port, dst_port: port };
        loop {
            let before = live();
            devices[from].handle_timeout(*now);
            let sent = devices[from].poll_transmit(*now, 16, buffer);
            grown[from] += live() - before;
            let Some(Transmit::Datagrams(transmit)) = sent else { return };
            let before = live();
            for bytes in transmit.datagrams(buffer) {
                devices[1 - from].receive(&Datagram { flow, traffic_class: TrafficClass(0), bytes }, *now);
            }
            grown[1 - from] += live() - before;
        }
    }
}

/// Returns the changes that bring a queue pair to RTS.
fn changes(peer: IpAddr, number: QpNumber) -> [QpChange; 3] {
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
    let init =
        QpChange { pkey_index: Some(0), port: Some(1), access: Some(access), ..QpChange::to(QpState::Init) };
    let ready_to_receive = QpChange {
        path: Some(AddressVector::to(peer)),
        path_mtu: Some(PathMtu::B4096),
        destination: Some(number),
        rq_psn: Some(Psn::new(0)),
        max_dest_rd_atomic: Some(1),
        min_rnr_timer: Some(RnrTimer::default()),
        ..QpChange::to(QpState::Rtr)
    };
    let ready_to_send = QpChange {
        sq_psn: Some(Psn::new(0)),
        timeout: Some(14),
        retry_count: Some(7),
        rnr_retry: Some(7),
        max_rd_atomic: Some(1),
        ..QpChange::to(QpState::Rts)
    };
    [init, ready_to_receive, ready_to_send]
}
