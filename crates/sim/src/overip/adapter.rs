//! The RDMA adapter of a node: a device whose queue pairs use iWARP streams over the card's TCP, or exchange
//! datagrams.
//!
//! The peer's memory and key are known from the start, as if programs had exchanged them (section 5). A
//! message goes to the next of several slots, with marks that change from message to message: the receiver
//! polls the slot for them, the last byte first. iWARP has no timers: TCP retransmits.

use std::collections::VecDeque;
use std::fmt::Display;

use nichrome_rdma::iwarp::setup::{Established, Initiator, Options, Responder};
use nichrome_rdma::{
    Access, AddressVector, ByteMemory, CompletedOperation, CqHandle, Device, DomainHandle, LKey, Operation,
    QpCapacity, QpChange, QpConfig, QpHandle, QpState, QpType, RKey, RegionConfig, Remote, RnrTimer,
    SendRequest, Sge, Signaling, Status, Transmit,
};
use nichrome_wire::Instant;
use nichrome_wire::iwarp::Fpdu;
use nichrome_wire::rdma::{PathMtu, Psn, QpNumber};

use super::config::TestbedConfig;
use super::datagram;
use super::engine_config::device_config;
use crate::HostId;
use crate::experiment::RunError;
use crate::host::{ConnectionId, Host};

/// Address of the memory's first byte.
const BASE: u64 = 0x1_0000;
/// Number of slots: messages in flight to a program that does not poll.
const SLOTS: u64 = 8;
/// Maximum outstanding work requests of a queue pair.
const DEPTH: usize = 16;
/// Maximum bytes that the device passes to TCP at once.
const BUFFER: usize = 1 << 17;
/// DDP's control byte: tagged, and last of its message (RFC 5041 section 4).
const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
/// Bytes before the ULPDU in an FPDU, and of a tagged DDP header.
const LENGTH_FIELD: usize = 2;
const TAGGED_HEADER: usize = 14;

/// The state of a connection's stream.
enum Stage {
    /// MPA start-up, at the end that opened the connection.
    Asking(Initiator),
    /// MPA start-up, at the other end.
    Answering(Responder),
    /// Both ends exchange FPDUs.
    Ready(QpHandle),
}

/// The stream of a connection.
struct Stream {
    stage: Stage,
    /// Bytes received and not consumed.
    arrived: Vec<u8>,
    /// Bytes of `arrived` in complete FPDUs that are counted already.
    counted: usize,
    /// Bytes not yet accepted by TCP.
    kept: Vec<u8>,
    /// Outstanding work requests.
    outstanding: usize,
}

/// A program's work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) connection: usize,
    /// Length in bytes.
    pub(super) len: usize,
    /// Number of the message that a WRITE carries; `None`: a READ.
    pub(super) message: Option<u64>,
}

/// Newly completed FPDUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CompleteFpdus {
    /// Length in the stream, in bytes.
    pub(super) bytes: usize,
    /// Number of messages that end in them.
    pub(super) messages: u64,
    /// Payload for memory, in bytes.
    pub(super) payload: usize,
}

/// The adapter.
pub(super) struct Adapter {
    pub(super) device: Device<ByteMemory>,
    domain: DomainHandle,
    cq: CqHandle,
    lkey: LKey,
    rkey: RKey,
    pub(super) address: HostId,
    /// Streams by connection number.
    streams: Vec<Stream>,
    /// Maximum DDP segment whose FPDU fits a TCP segment.
    max_ulpdu: u16,
    /// Length of a slot, in bytes.
    longest: u64,
    buffer: Vec<u8>,
    /// Datagrams to send.
    frames: VecDeque<Vec<u8>>,
}

/// Returns the error for an operation that the engine rejects.
pub(super) fn refused(error: impl Display) -> RunError {
    RunError::Impossible(format!("the RDMA device rejects the configuration: {error}"))
}

/// Distance between two marks of a message in bytes: the smallest path MTU, so that every packet has a mark.
const MARK_DISTANCE: usize = 256;

/// Returns the marked offsets of a message, the last byte first: with in-order delivery it arrives last.
fn marks(len: usize) -> impl Iterator<Item = usize> {
    (0..len).rev().step_by(MARK_DISTANCE)
}

/// Returns the mark of a message; never 0, the initial content of memory.
fn stamp(message: u64) -> u8 {
    (message % 255) as u8 + 1
}

impl Adapter {
    /// Creates an adapter without connections.
    pub(super) fn new(address: HostId, config: &TestbedConfig) -> Result<Self, RunError> {
        let memory = (2 * SLOTS as usize + 1) * config.longest;
        let device = device_config(address, config);
        let mut device = Device::new(device, ByteMemory::new(BASE, memory)).map_err(refused)?;
        let domain = device.create_domain().map_err(refused)?;
        let cq = device.create_cq(1 << 10).map_err(refused)?;
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let region =
            device.register(domain, RegionConfig::new(BASE, memory as u64, rights)).map_err(refused)?;
        let keys = device.query_region(region).map_err(refused)?;
        // An FPDU is a multiple of four bytes with an overhead of six (RFC 5044 section 4).
        let max_ulpdu = u16::try_from(config.mss() / 4 * 4 - 6).unwrap_or(u16::MAX);
        Ok(Self {
            device,
            domain,
            cq,
            lkey: keys.lkey,
            rkey: keys.rkey,
            address,
            streams: Vec::new(),
            max_ulpdu,
            longest: config.longest as u64,
            buffer: vec![0; BUFFER],
            frames: VecDeque::new(),
        })
    }

    /// Returns the slot's address for the peer's message of this number.
    fn slot(&self, message: u64) -> u64 {
        BASE + message % SLOTS * self.longest
    }

    /// Returns the address that a message is sent from.
    fn source(&self, message: u64) -> u64 {
        self.slot(message) + (SLOTS + 1) * self.longest
    }

    /// Returns the address that READs write to.
    fn sink(&self) -> u64 {
        BASE + SLOTS * self.longest
    }

    /// Returns the memory's key.
    pub(super) fn rkey(&self) -> RKey {
        self.rkey
    }

    /// Adds a connection that this end opened; returns the MPA Request.
    pub(super) fn open(&mut self, now: Instant) -> Vec<u8> {
        let mut initiator = Initiator::new(self.options(), &[], now);
        let request = initiator.take_output();
        self.add(Stage::Asking(initiator));
        request
    }

    /// Adds a connection that the peer opened.
    pub(super) fn accept(&mut self, now: Instant) {
        self.add(Stage::Answering(Responder::new(now)));
    }

    /// Adds a connection whose queue pair is in RTS.
    pub(super) fn add_ready(&mut self, qp: QpHandle) {
        self.add(Stage::Ready(qp));
    }

    fn add(&mut self, stage: Stage) {
        let (arrived, kept) = (Vec::new(), Vec::new());
        self.streams.push(Stream { stage, arrived, counted: 0, kept, outstanding: 0 });
    }

    /// Returns how many connections there are.
    pub(super) fn connections(&self) -> usize {
        self.streams.len()
    }

    /// Reads a connection's received bytes from TCP; returns the newly completed FPDUs. Handles MPA start-up
    /// directly.
    pub(super) fn read(
        &mut self,
        id: ConnectionId,
        tcp: &mut Host,
        now: Instant,
    ) -> Result<CompleteFpdus, RunError> {
        let Some(stream) = self.streams.get_mut(id.0) else { return Ok(CompleteFpdus::default()) };
        tcp.read(id, &mut stream.arrived, usize::MAX, now);
        if !matches!(stream.stage, Stage::Ready(_)) {
            self.start_up(id, tcp, now)?;
        }
        Ok(self.streams[id.0].count_complete())
    }

    /// Continues MPA start-up.
    fn start_up(&mut self, id: ConnectionId, tcp: &mut Host, now: Instant) -> Result<(), RunError> {
        let options = self.options();
        let stream = &mut self.streams[id.0];
        let bytes = std::mem::take(&mut stream.arrived);
        let (established, output) = match &mut stream.stage {
            Stage::Asking(initiator) => (initiator.receive(&bytes).map_err(refused)?, Vec::new()),
            Stage::Answering(responder) => {
                let is_whole = responder.receive(&bytes).map_err(refused)?.is_some();
                let established =
                    is_whole.then(|| responder.accept(&options, &[])).transpose().map_err(refused)?;
                (established, responder.take_output())
            }
            Stage::Ready(_) => return Ok(()),
        };
        if let Some(Established { terms, rest, .. }) = established {
            let qp = self.queue_pair()?;
            self.device.connect(qp, &terms).map_err(refused)?;
            let stream = &mut self.streams[id.0];
            (stream.stage, stream.arrived) = (Stage::Ready(qp), rest);
        }
        tcp.write(id, &output, now);
        Ok(())
    }

    /// Posts a work request for the peer's memory with this key.
    pub(super) fn request(
        &mut self,
        request: Request,
        rkey: RKey,
        tcp: &mut Host,
        now: Instant,
    ) -> Result<(), RunError> {
        let Request { connection, len, message } = request;
        match message {
            Some(message) => {
                let (source, slot) = (self.source(message), self.slot(message));
                self.mark(source, len, stamp(message));
                self.post(connection, Operation::Write(Remote { address: slot, rkey }), source, len)?;
            }
            None => {
                let sink = self.sink();
                self.post(connection, Operation::Read(Remote { address: BASE, rkey }), sink, len)?;
            }
        }
        self.transmit(tcp, now)
    }

    /// Posts a work request with the local buffer at `address`.
    fn post(
        &mut self,
        connection: usize,
        operation: Operation,
        address: u64,
        len: usize,
    ) -> Result<(), RunError> {
        let Some(Stream { stage: Stage::Ready(qp), .. }) = self.streams.get(connection) else {
            return Err(refused("a work request before the connection is set up"));
        };
        let buffers = [Sge { address, len: len as u32, lkey: self.lkey }];
        let request = SendRequest::new(connection as u64, operation, &buffers);
        self.device.post_send(*qp, &request).map_err(refused)
    }

    /// Returns true if a work request can be posted now.
    pub(super) fn has_room(&self, connection: usize) -> bool {
        let stream = self.streams.get(connection);
        stream.is_some_and(|stream| matches!(stream.stage, Stage::Ready(_)) && stream.outstanding < DEPTH)
    }

    /// Counts a work request on its way to the card.
    pub(super) fn reserve(&mut self, connection: usize) {
        if let Some(stream) = self.streams.get_mut(connection) {
            stream.outstanding += 1;
        }
    }

    /// Returns true if the peer's message of this number and length is completely in memory.
    pub(super) fn has_message(&self, message: u64, len: usize) -> bool {
        let start = (self.slot(message) - BASE) as usize;
        let bytes = self.device.memory().bytes();
        marks(len).all(|at| bytes.get(start + at) == Some(&stamp(message)))
    }

    /// Processes `bytes` received bytes of a connection, in whole FPDUs; returns the connections of completed
    /// READs.
    pub(super) fn process(
        &mut self,
        id: ConnectionId,
        bytes: usize,
        now: Instant,
        tcp: &mut Host,
    ) -> Result<Vec<usize>, RunError> {
        if let Some(stream) = self.streams.get_mut(id.0)
            && let Stage::Ready(qp) = stream.stage
        {
            let bytes = bytes.min(stream.arrived.len());
            let consumed = self.device.receive_stream(qp, &stream.arrived[..bytes], now).map_err(refused)?;
            stream.arrived.drain(..consumed);
            stream.counted -= consumed;
        }
        self.transmit(tcp, now)?;
        self.completions()
    }

    /// Passes pending bytes to TCP, which may accept them now.
    pub(super) fn flush(&mut self, id: ConnectionId, tcp: &mut Host, now: Instant) -> Result<(), RunError> {
        let Some(stream) = self.streams.get_mut(id.0).filter(|stream| !stream.kept.is_empty()) else {
            return Ok(());
        };
        let taken = tcp.write(id, &stream.kept, now);
        stream.kept.drain(..taken);
        if let (true, Stage::Ready(qp)) = (stream.kept.is_empty(), &stream.stage) {
            self.device.release_sends(*qp);
        }
        self.transmit(tcp, now)
    }

    /// Passes the device's output to TCP.
    fn transmit(&mut self, tcp: &mut Host, now: Instant) -> Result<(), RunError> {
        while let Some(transmit) = self.device.poll_transmit(now, 1, &mut self.buffer) {
            let sent = match transmit {
                Transmit::Stream(sent) => sent,
                Transmit::Datagrams(batch) => {
                    let frame = datagram::frame(self.address, &batch.route, &self.buffer[..batch.len]);
                    self.frames.push_back(frame.map_err(refused)?);
                    continue;
                }
                Transmit::End(_) => return Err(refused("a queue pair that fails")),
            };
            let place = self
                .streams
                .iter()
                .position(|stream| matches!(stream.stage, Stage::Ready(qp) if qp == sent.qp));
            let Some(place) = place else { return Err(refused("bytes of no connection")) };
            let bytes = &self.buffer[..sent.len];
            let taken = tcp.write(ConnectionId(place), bytes, now);
            if taken < bytes.len() {
                self.streams[place].kept.extend_from_slice(&bytes[taken..]);
                self.device.hold_sends(sent.qp);
            }
        }
        Ok(())
    }

    /// Polls completions; returns the connections of completed READs.
    pub(super) fn completions(&mut self) -> Result<Vec<usize>, RunError> {
        let mut read = Vec::new();
        while let Some(completion) = self.device.poll_cq(self.cq) {
            if completion.status != Status::Success {
                return Err(refused(format!("a work request fails: {:?}", completion.status)));
            }
            let connection = completion.wr_id as usize;
            if let Some(stream) = self.streams.get_mut(connection) {
                stream.outstanding -= 1;
            }
            if completion.operation == CompletedOperation::Read {
                read.push(connection);
            }
        }
        Ok(read)
    }

    /// Marks a message before it is sent.
    fn mark(&mut self, address: u64, len: usize, with: u8) {
        let start = (address - BASE) as usize;
        let bytes = self.device.memory_mut().bytes_mut();
        for at in marks(len) {
            if let Some(byte) = bytes.get_mut(start + at) {
                *byte = with;
            }
        }
    }

    fn options(&self) -> Options {
        Options { max_ulpdu: self.max_ulpdu, ..Options::default() }
    }

    pub(super) fn queue_pair_in_reset(&mut self) -> Result<QpHandle, RunError> {
        let capacity = QpCapacity {
            send_wrs: DEPTH,
            receive_wrs: 1,
            send_sges: 1,
            receive_sges: 1,
            ..QpCapacity::default()
        };
        let qp = self.device.create_qp(QpConfig {
            kind: QpType::Rc,
            domain: self.domain,
            send_cq: self.cq,
            receive_cq: self.cq,
            srq: None,
            capacity,
            signaling: Signaling::All,
        });
        qp.map_err(refused)
    }

    /// Creates a queue pair in RTS.
    fn queue_pair(&mut self) -> Result<QpHandle, RunError> {
        let qp = self.queue_pair_in_reset()?;
        // TCP has the peer's address; the RoCE attributes have no effect.
        let number = self.device.qp_number(qp).map_err(refused)?;
        self.bring_up(qp, self.address, number, PathMtu::B1024, 0)?;
        Ok(qp)
    }

    /// Moves a queue pair from RESET to RTS.
    pub(super) fn bring_up(
        &mut self,
        qp: QpHandle,
        peer: HostId,
        number: QpNumber,
        mtu: PathMtu,
        timeout: u8,
    ) -> Result<(), RunError> {
        let init = QpChange {
            pkey_index: Some(0),
            port: Some(1),
            access: Some(Access::REMOTE_WRITE | Access::REMOTE_READ),
            ..QpChange::to(QpState::Init)
        };
        let rtr = QpChange {
            path: Some(AddressVector::to(peer.ip().into())),
            path_mtu: Some(mtu),
            destination: Some(number),
            rq_psn: Some(Psn::new(0)),
            max_dest_rd_atomic: Some(DEPTH as u8),
            min_rnr_timer: RnrTimer::new(1),
            ..QpChange::to(QpState::Rtr)
        };
        let rts = QpChange {
            sq_psn: Some(Psn::new(0)),
            timeout: Some(timeout),
            retry_count: Some(7),
            rnr_retry: Some(7),
            max_rd_atomic: Some(DEPTH as u8),
            ..QpChange::to(QpState::Rts)
        };
        for change in [init, rtr, rts] {
            self.device.modify_qp(qp, &change).map_err(refused)?;
        }
        Ok(())
    }

    /// Returns the next datagram to send.
    pub(super) fn poll(&mut self) -> Option<Vec<u8>> {
        self.frames.pop_front()
    }

    /// Processes a datagram in memory, or an expired timer; returns the connections of completed READs.
    pub(super) fn receive(
        &mut self,
        frame: Option<&[u8]>,
        tcp: &mut Host,
        now: Instant,
    ) -> Result<Vec<usize>, RunError> {
        match frame {
            Some(frame) => {
                if let Some(datagram) = datagram::parse(frame) {
                    self.device.receive(&datagram, now);
                }
            }
            None => self.device.handle_timeout(now),
        }
        self.transmit(tcp, now)?;
        self.completions()
    }

    /// Returns when the device has work. iWARP has no timers.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.device.poll_timeout()
    }

    /// Returns the number of retransmitted datagrams.
    pub(super) fn retransmitted(&self) -> u64 {
        self.device.counters().retransmitted
    }
}

impl Stream {
    /// Counts newly completed FPDUs.
    fn count_complete(&mut self) -> CompleteFpdus {
        let mut fpdus = CompleteFpdus::default();
        if !matches!(self.stage, Stage::Ready(_)) {
            return fpdus;
        }
        while let Some(rest) = self.arrived.get(self.counted..)
            && let Some(len) = Fpdu::len_of(rest)
            && let Some(fpdu) = rest.get(..len)
        {
            let control = fpdu[LENGTH_FIELD];
            fpdus.messages += u64::from(control & LAST != 0);
            if control & TAGGED != 0 {
                let ulpdu = usize::from(u16::from_be_bytes([fpdu[0], fpdu[1]]));
                fpdus.payload += ulpdu.saturating_sub(TAGGED_HEADER);
            }
            fpdus.bytes += len;
            self.counted += len;
        }
        fpdus
    }
}
