//! The engines of crates/rdma: one device with the queue pairs of all clients, another with the queue pairs
//! of all servers.
//!
//! Queue pairs of a device are independent, so that one device can represent many machines. The network knows
//! the machine of a queue pair, and with it card and links. The two devices build all packets. After the
//! set-up, [`Engines::split`] can separate them.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use nichrome_rdma::{
    Access, ByteMemory, CompletedOperation, Config, CqHandle, Datagram, Device, DomainHandle, LKey, Limits,
    Operation, QpHandle, RKey, ReceiveRequest, RegionConfig, Remote, SendRequest, Sge, Status, Transmit,
};
use nichrome_wire::rdma::{ROCE_PORT, UdpFlow};
use nichrome_wire::star::{CommonHeader, Flags, PacketType, STAR_PORT};
use nichrome_wire::{AddressPair, Instant, TrafficClass};

use super::config::NetworkConfig;
use super::engine_config::device_config;
use super::packet::{Kind, Packet};
use super::side::Side;
use crate::experiment::RunError;

/// The start of each program's memory.
const BASE: u64 = 0x1_0000;
/// Size of the completion queues; the network polls them at once.
const COMPLETIONS: usize = 1 << 16;
/// Size of the transmit buffer: a datagram and the device's headroom.
const BUFFER: usize = 65_507;
/// Maximum number of buffers kept for reuse: a device that only receives takes none of them.
const MAX_SPARE_BUFFERS: usize = 1 << 12;
/// Lowest queue pair number of both sides.
pub(super) const FIRST_QP: u32 = 0x11;
/// Opcodes of RC ACK and ATOMIC ACK (IBA 9.2.1), and of CNP (RoCEv2 annex A17).
const ROCE_ANSWERS: [u8; 3] = [0x11, 0x12, 0x81];

/// A completion reported to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// A posted request completed.
    Sent,
    /// A message arrived.
    Received,
    /// A request failed.
    Failed(Status),
}

/// A device with its programs' objects.
pub(super) struct End {
    pub(super) device: Device<ByteMemory>,
    pub(super) domain: DomainHandle,
    pub(super) cq: CqHandle,
    lkey: LKey,
    rkey: RKey,
    pub(super) qps: Vec<QpHandle>,
}

/// The properties of a device that both sides know.
#[derive(Clone)]
struct Public {
    rkey: RKey,
    /// The connection of each queue pair, by number from [`FIRST_QP`] on.
    connections: Arc<Vec<u32>>,
}

/// Both devices, or one of them.
pub(super) struct Engines {
    pub(super) ends: [Option<End>; 2],
    public: [Public; 2],
    /// Length of the message that each side posts for an operation, in bytes.
    lens: [u32; 2],
    is_write: bool,
    buffer: Vec<u8>,
    /// Reusable buffers of arrived packets.
    spare: Vec<Vec<u8>>,
}

/// Returns the error for a configuration that a device rejects.
pub(super) fn refused(error: impl Display) -> RunError {
    RunError::Impossible(format!("the RDMA device rejects the configuration: {error}"))
}

pub(super) fn address(side: Side) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, side as u8 + 1).into()
}

impl End {
    fn new(config: &NetworkConfig, side: Side, connections: usize, memory: usize) -> Result<Self, RunError> {
        let limits = Limits { qps: connections, ..Limits::default() };
        let config = Config { first_qp: FIRST_QP, limits, ..device_config(config, address(side)) };
        let mut device = Device::new(config, ByteMemory::new(BASE, memory)).map_err(refused)?;
        let domain = device.create_domain().map_err(refused)?;
        let cq = device.create_cq(COMPLETIONS).map_err(refused)?;
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = RegionConfig::new(BASE, memory as u64, rights);
        let region = device.register(domain, region).map_err(refused)?;
        let keys = device.query_region(region).map_err(refused)?;
        Ok(Self { device, domain, cq, lkey: keys.lkey, rkey: keys.rkey, qps: Vec::new() })
    }
}

impl Public {
    /// Assigns a queue pair number to a connection.
    fn assign(&mut self, number: u32, connection: u32) -> Result<(), RunError> {
        let place = number.checked_sub(FIRST_QP);
        let connections = Arc::make_mut(&mut self.connections);
        let place = place.and_then(|place| connections.get_mut(place as usize));
        *place.ok_or_else(|| refused("a queue pair number out of its range"))? = connection;
        Ok(())
    }

    fn connection(&self, number: u32) -> Option<u32> {
        self.connections.get(number.checked_sub(FIRST_QP)? as usize).copied()
    }
}

impl Engines {
    /// Creates two devices without queue pairs.
    pub(super) fn new(config: &NetworkConfig, connections: usize) -> Result<Self, RunError> {
        let request = config.request.len() as u32;
        let (response, is_write) = match config.operation {
            super::operation::Operation::Write => (0, true),
            super::operation::Operation::Rpc { response, .. } => (response.len() as u32, false),
        };
        let memory = request.max(response).max(8) as usize;
        let end = |side| End::new(config, side, connections, memory);
        let ends = [end(Side::Client)?, end(Side::Server)?];
        let public = |end: &End| Public { rkey: end.rkey, connections: Arc::new(vec![0; connections]) };
        Ok(Self {
            public: ends.each_ref().map(public),
            ends: ends.map(Some),
            lens: [request, response],
            is_write,
            buffer: vec![0; BUFFER],
            spare: Vec::new(),
        })
    }

    /// Separates the devices: the client's, and the server's.
    pub(super) fn split(self) -> [Self; 2] {
        let Self { ends: [client, server], public, lens, is_write, .. } = self;
        [[client, None], [None, server]].map(|ends| Self {
            ends,
            public: public.clone(),
            lens,
            is_write,
            buffer: vec![0; BUFFER],
            spare: Vec::new(),
        })
    }

    /// Assigns a queue pair of a side to the next connection.
    pub(super) fn add(&mut self, side: Side, qp: QpHandle) -> Result<(), RunError> {
        let Some(end) = &mut self.ends[side as usize] else { return Ok(()) };
        let number = end.device.qp_number(qp).map_err(refused)?.value();
        self.public[side as usize].assign(number, end.qps.len() as u32)?;
        end.qps.push(qp);
        Ok(())
    }

    /// Posts a side's part of an operation: the client's WRITE or request, the server's response.
    pub(super) fn post(&mut self, connection: u32, side: Side) -> Result<(), RunError> {
        let remote = Remote { address: BASE, rkey: self.public[side.other() as usize].rkey };
        let operation = if self.is_write { Operation::Write(remote) } else { Operation::Send };
        let Some(end) = &mut self.ends[side as usize] else { return Ok(()) };
        let buffers = [Sge { address: BASE, len: self.lens[side as usize], lkey: end.lkey }];
        let request = SendRequest::new(u64::from(connection), operation, &buffers);
        end.device.post_send(end.qps[connection as usize], &request).map_err(refused)
    }

    /// Posts a RECV for the other side's message.
    pub(super) fn post_receive(&mut self, connection: u32, side: Side) -> Result<(), RunError> {
        let len = self.lens[side.other() as usize];
        let Some(end) = &mut self.ends[side as usize] else { return Ok(()) };
        let buffers = [Sge { address: BASE, len, lkey: end.lkey }];
        let request = ReceiveRequest { wr_id: u64::from(connection), buffers: &buffers };
        end.device.post_receive(end.qps[connection as usize], &request).map_err(refused)
    }

    /// Passes a packet to a side's device.
    pub(super) fn receive(&mut self, packet: Packet, now: Instant) {
        let addresses = [packet.to.other(), packet.to].map(address);
        let [IpAddr::V4(src), IpAddr::V4(dst)] = addresses else { return };
        let (src_port, dst_port) = (packet.port, packet.port);
        let flow = UdpFlow { addresses: AddressPair::V4 { src, dst }, src_port, dst_port };
        let congestion = if packet.marked { 0b11 } else { 0 };
        let datagram =
            Datagram { flow, traffic_class: TrafficClass(packet.class | congestion), bytes: &packet.bytes };
        if let Some(end) = &mut self.ends[packet.to as usize] {
            end.device.receive(&datagram, now);
        }
        if self.spare.len() < MAX_SPARE_BUFFERS {
            self.spare.push(packet.bytes);
        }
    }

    /// Returns the next packet of a side's device.
    pub(super) fn poll(&mut self, side: Side, now: Instant) -> Option<Packet> {
        loop {
            let end = self.ends[side as usize].as_mut()?;
            let transmit = end.device.poll_transmit(now, 1, &mut self.buffer)?;
            let Transmit::Datagrams(batch) = transmit else { continue };
            let (port, class) = (batch.route.flow.dst_port, batch.route.traffic_class.0);
            let built = &self.buffer[..batch.len];
            let Some((connection, kind)) = self.classify(built, port, side) else { continue };
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.clear();
            bytes.extend_from_slice(built);
            return Some(Packet::of_engine(connection, side.other(), kind, bytes, port, class));
        }
    }

    /// Returns the connection of a packet, and whether it needs the sender's context.
    fn classify(&self, bytes: &[u8], port: u16, from: Side) -> Option<(u32, Kind)> {
        let to = &self.public[from.other() as usize];
        if port == ROCE_PORT {
            let number = u32::from_be_bytes([0, *bytes.get(5)?, *bytes.get(6)?, *bytes.get(7)?]);
            let kind = if ROCE_ANSWERS.contains(bytes.first()?) { Kind::Answer } else { Kind::Work };
            return Some((to.connection(number)?, kind));
        }
        let header = CommonHeader::new(bytes).filter(|_| port == STAR_PORT)?;
        let names_server = header.flags().contains(Flags::TO_SERVER);
        let whose = if names_server { Side::Server } else { Side::Client };
        let connection = self.public[whose as usize].connection(header.connection())?;
        let is_one_of = |types: &[PacketType]| types.iter().any(|kind| *kind as u8 == header.type_code());
        let kind = if is_one_of(&[PacketType::Rdp, PacketType::Gd]) {
            Kind::Work
        } else if is_one_of(&[PacketType::Wqep, PacketType::Cqep, PacketType::Ea]) {
            Kind::Element
        } else {
            Kind::Answer
        };
        Some((connection, kind))
    }

    /// Returns the next completion of a side.
    pub(super) fn completion(&mut self, side: Side) -> Option<(u32, Done)> {
        let end = self.ends[side as usize].as_mut()?;
        let completion = end.device.poll_cq(end.cq)?;
        let done = match (completion.status, completion.operation) {
            (Status::Success, CompletedOperation::Receive) => Done::Received,
            (Status::Success, _) => Done::Sent,
            (status, _) => Done::Failed(status),
        };
        Some((completion.wr_id as u32, done))
    }

    /// Returns when a side's device has work.
    pub(super) fn poll_timeout(&self, side: Side) -> Option<Instant> {
        self.ends[side as usize].as_ref()?.device.poll_timeout()
    }

    pub(super) fn handle_timeout(&mut self, side: Side, now: Instant) {
        if let Some(end) = &mut self.ends[side as usize] {
            end.device.handle_timeout(now);
        }
    }

    /// Returns the number of retransmitted packets.
    pub(super) fn repeated(&self) -> u64 {
        self.ends.iter().flatten().map(|end| end.device.counters().retransmitted).sum()
    }

    /// Exchanges packets between both sides without a network until there are none: the set-up before a run.
    pub(super) fn settle(&mut self, now: Instant) {
        loop {
            let mut is_quiet = true;
            for side in [Side::Client, Side::Server] {
                while let Some(packet) = self.poll(side, now) {
                    is_quiet = false;
                    self.receive(packet, now);
                }
            }
            if is_quiet {
                return;
            }
        }
    }
}
