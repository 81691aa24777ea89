//! The path between the device and its ports: send batches, faults, capture, counters.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nichrome_port::capture::WriteError;
use nichrome_port::udp::{Envelope, LinkSend, SendBatch, SendReport, ServicePorts, Staged, UdpError};
use nichrome_rdma::{Datagram, DatagramBatch, Device, Memory, QpHandle, Transmit};
use nichrome_wan::{Output, Path};
use nichrome_wire::rdma::{IcrcCheck, IcrcChecker, ROCE_PORT};
use nichrome_wire::{Engine, Instant};
use rustix::io::{self, Errno};

use crate::config::{AdapterConfig, Faults, OpenError, RoceSocket, Transport};
use crate::connected_stream::ConnectedStream;
use crate::management_steering::slot_of;
use crate::parcel::Parcel;
use crate::ports::{self, Ports, Sink, StreamCounters, StreamPorts, flow_between};
use crate::recorder::Capture;

/// Bytes of one send at most: a UDP payload over IPv4.
const MAX_TRANSMIT: usize = 65_507;

/// Bytes of one send at most while there is a link to another process, which works on one send while this
/// process prepares the next.
const MAX_TRANSMIT_WITH_LINKS: usize = 16_384;

/// Datagram counters of an adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCounters {
    /// Datagrams sent, or writes to streams.
    pub sent: u64,
    /// Of these, datagrams sent through memory.
    pub sent_through_memory: u64,
    /// Datagrams received, or reads of streams.
    pub received: u64,
    /// Datagrams that the kernel refused to send, or that a process did not read from memory in time.
    pub refused: u64,
    /// Datagrams dropped by a fault, or with headers damaged by one.
    pub lost: u64,
    /// Messages of several datagrams, sent together by a process of this machine, that the kernel dropped:
    /// with [`Reception::Packets`](crate::Reception::Packets) before Linux 6.2.
    pub dropped_offloads: u64,
}

impl WireCounters {
    fn count_linked(&mut self, datagrams: usize) {
        self.sent += datagrams as u64;
        self.sent_through_memory += datagrams as u64;
    }
}

/// The ports, with the stages that datagrams pass to and from them.
pub(crate) struct Wire {
    ports: Ports,
    outgoing: SendBatch,
    /// Datagrams for a link that was full.
    held: Option<Held>,
    faults: Option<FaultyPaths>,
    capture: Capture,
    counters: WireCounters,
    is_closed: bool,
}

/// Datagrams of `segment_size` bytes each; the last may be shorter.
struct Held {
    envelope: Envelope,
    bytes: Vec<u8>,
    segment_size: usize,
}

/// Impaired paths, one per direction.
struct FaultyPaths {
    out: Path<Parcel>,
    back: Path<Parcel>,
    icrc: IcrcChecker,
}

impl FaultyPaths {
    fn new(Faults { impairments, seed }: &Faults) -> Result<Self, nichrome_wan::ConfigError> {
        let (out, back) = (Path::new(impairments, *seed)?, Path::new(impairments, seed.wrapping_add(1))?);
        Ok(Self { out, back, icrc: IcrcChecker::default() })
    }
}

/// Received datagrams between a port and the device.
struct Intake<'a, M> {
    device: &'a mut Device<M>,
    faults: Option<&'a mut FaultyPaths>,
    capture: &'a mut Capture,
    counters: &'a mut WireCounters,
    now: Instant,
}

impl<M: Memory> Sink for Intake<'_, M> {
    #[inline]
    fn capture(&mut self, datagram: &Datagram<'_>) {
        self.capture.record(datagram, self.now);
    }

    #[inline]
    fn accept(&mut self, datagram: &Datagram<'_>) {
        self.counters.received += 1;
        match &mut self.faults {
            None => self.device.receive(datagram, self.now),
            Some(paths) => paths.back.receive(Parcel::new(datagram, None), self.now),
        }
    }
}

impl Wire {
    /// Checks the parts of a configuration that do not depend on the address.
    ///
    /// # Errors
    /// The transport does not support the configured reception, local path or faults, or the faults
    /// contradict each other.
    pub(crate) fn check(config: &AdapterConfig) -> Result<(), OpenError> {
        if let Some(faults) = &config.faults
            && config.transport != Transport::Iwarp
        {
            FaultyPaths::new(faults)?;
        }
        ports::check(config)
    }

    /// Opens the ports of the configured transport at the address of `socket`.
    ///
    /// # Errors
    /// A port is taken, the capture file cannot be written, or as for [`check`](Self::check).
    pub(crate) fn open(socket: RoceSocket, config: &AdapterConfig) -> Result<Self, OpenError> {
        let ports = Ports::open(socket, config)?;
        // Streams have impaired paths of their own.
        let faults = config.faults.as_ref().filter(|_| config.transport != Transport::Iwarp);
        let faults = faults.map(FaultyPaths::new).transpose()?;
        // Creates the capture last: an adapter that does not open leaves an existing file as it is.
        let capture = config.capture.as_deref().map(|path| Capture::create(path, "nichrome")).transpose()?;
        Ok(Self {
            ports,
            outgoing: SendBatch::default(),
            held: None,
            faults,
            capture: capture.unwrap_or_default(),
            counters: WireCounters::default(),
            is_closed: false,
        })
    }

    /// The slot at a shared address.
    pub(crate) fn slot(&self) -> Option<usize> {
        self.ports.slot()
    }

    /// Receives requests of connection managers from now on. Returns the service ports of this process and a
    /// descriptor that is readable while a datagram waits at a side port; `None` where the address is not
    /// shared.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn open_services(&mut self) -> Result<Option<(ServicePorts, OwnedFd)>, UdpError> {
        self.check_connected()?;
        self.ports.open_services()
    }

    /// The address that datagrams are sent from.
    pub(crate) fn local(&self) -> SocketAddr {
        self.ports.socket().local()
    }

    /// A descriptor that is readable while a datagram waits at any port.
    ///
    /// # Errors
    /// No descriptor is free.
    pub(crate) fn readiness(&self) -> Result<OwnedFd, OpenError> {
        self.ports.readiness()
    }

    /// Joins a multicast group; returns a descriptor that is readable while a datagram waits at a side port.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn join(&mut self, group: IpAddr) -> Result<OwnedFd, UdpError> {
        self.check_connected()?;
        self.ports.join(group)
    }

    /// Checks whether the ports may be used.
    ///
    /// # Errors
    /// ENETDOWN: this process is a forked child, or exits.
    fn check_connected(&self) -> Result<(), UdpError> {
        match self.is_closed {
            false => Ok(()),
            true => Err(UdpError::Io { address: self.local(), error: Errno::NETDOWN.into() }),
        }
    }

    /// Leaves a multicast group.
    pub(crate) fn leave(&mut self, group: IpAddr) {
        self.ports.leave(group);
    }

    /// The processor that received the last packet of a stream, if the kernel reports it; `None` for
    /// datagrams, whose sockets have many peers.
    pub(crate) fn incoming_processor(&self) -> Option<u32> {
        self.ports.streams().and_then(StreamPorts::incoming_processor)
    }

    /// Returns the error that has ended the capture.
    pub(crate) fn capture_error(&self) -> Option<Arc<WriteError>> {
        self.capture.error()
    }

    #[inline]
    pub(crate) fn counters(&self) -> WireCounters {
        let Some(streams) = self.ports.streams() else {
            return WireCounters { dropped_offloads: self.ports.dropped_offloads(), ..self.counters };
        };
        let StreamCounters { sent, received } = streams.counters();
        WireCounters { sent, received, ..self.counters }
    }

    /// Attaches a stream to its queue pair.
    ///
    /// # Errors
    /// The adapter has no streams, or the kernel cannot watch the socket.
    pub(crate) fn attach_stream(
        &mut self,
        qp: QpHandle,
        connected: ConnectedStream,
        now: Instant,
    ) -> io::Result<()> {
        let streams = self.ports.streams_mut().filter(|_| !self.is_closed).ok_or(Errno::NOTCONN)?;
        streams.attach(qp, connected, &mut self.capture, now)
    }

    /// Watches another descriptor with the streams; the driver serves it when it wakes.
    ///
    /// # Errors
    /// The adapter has no streams, or the kernel cannot watch it.
    pub(crate) fn watch(&mut self, descriptor: &impl AsFd) -> io::Result<()> {
        let streams = self.ports.streams_mut().filter(|_| !self.is_closed).ok_or(Errno::NOTCONN)?;
        streams.watch_other(descriptor)
    }

    /// Takes the queue pairs that the connection manager connected and whose streams have ended.
    pub(crate) fn take_detached_qps(&mut self) -> Vec<QpHandle> {
        self.ports.streams_mut().map(StreamPorts::take_detached_qps).unwrap_or_default()
    }

    /// Detaches a queue pair from its stream, which is closed.
    pub(crate) fn close_stream(&mut self, qp: QpHandle, now: Instant) {
        if let Some(streams) = self.ports.streams_mut().filter(|_| !self.is_closed) {
            streams.close(qp, now);
        }
    }

    /// Detaches all queue pairs from their streams, which are closed.
    pub(crate) fn close_streams(&mut self, now: Instant) {
        if let Some(streams) = self.ports.streams_mut().filter(|_| !self.is_closed) {
            streams.close_all(now);
        }
    }

    /// Returns true if the device wants bytes of a stream that is not read.
    #[inline]
    pub(crate) fn has_wanted_stream<M: Memory>(&self, device: &Device<M>) -> bool {
        self.ports.streams().is_some_and(|streams| streams.has_wanted(device))
    }

    /// A descriptor that is readable while a stream has bytes; `None` if the adapter has no streams.
    pub(crate) fn streams(&self) -> Option<BorrowedFd<'_>> {
        self.ports.streams().map(AsFd::as_fd)
    }

    /// Stops using the ports, for a process that ends: datagrams to send are refused, none is received, and
    /// the capture is closed.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        self.capture.close();
    }

    /// Gives up the ports and the capture in a forked child; its parent keeps them.
    pub(crate) fn close_in_child(&mut self) {
        self.is_closed = true;
        self.ports.close_in_child();
        self.capture.close_in_child();
    }

    /// Deadline of the next datagram on an impaired path.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if let Some(streams) = self.ports.streams() {
            return streams.poll_timeout();
        }
        let paths = self.faults.as_ref()?;
        [paths.out.poll_timeout(), paths.back.poll_timeout()].into_iter().flatten().min()
    }

    /// Deadline of the next datagram on the impaired path out, or of a stream that closes.
    pub(crate) fn outgoing_timeout(&self) -> Option<Instant> {
        if let Some(streams) = self.ports.streams() {
            return streams.outgoing_timeout();
        }
        self.faults.as_ref()?.out.poll_timeout()
    }

    /// Returns true if a stream has bytes that its socket has not accepted.
    pub(crate) fn has_unsent(&self) -> bool {
        self.ports.streams().is_some_and(StreamPorts::has_unsent)
    }

    /// Returns true if datagrams wait for room in the socket or in a link.
    pub(crate) fn is_full(&self) -> bool {
        !self.outgoing.is_empty() || self.held.is_some()
    }

    /// Receives a batch from each port; returns true if more may wait.
    pub(crate) fn receive<M: Memory>(&mut self, device: &mut Device<M>, now: Instant) -> bool {
        if self.is_closed {
            return false;
        }
        let Self { ports, faults, capture, counters, .. } = self;
        if let Some(streams) = ports.streams_mut() {
            return streams.receive(device, capture, now);
        }
        let more = ports.receive(&mut Intake { device, faults: faults.as_mut(), capture, counters, now });
        self.release_received(device, now);
        more
    }

    /// Passes the device the datagrams that the impaired path releases.
    fn release_received<M: Memory>(&mut self, device: &mut Device<M>, now: Instant) {
        let Some(paths) = &mut self.faults else { return };
        paths.back.handle_timeout(now);
        while let Some(output) = paths.back.poll() {
            match output {
                Output::Released(departure) if !departure.packet.is_damaged => {
                    device.receive(&departure.packet.as_datagram(), now);
                }
                Output::Released(_) | Output::Dropped { .. } => self.counters.lost += 1,
            }
        }
    }

    /// Sends a batch of the device's datagrams, and writes out the capture; returns true if the device may
    /// have more.
    #[inline]
    pub(crate) fn transmit<M: Memory>(&mut self, device: &mut Device<M>, now: Instant) -> bool {
        let has_more = match self.ports.streams_mut() {
            None => self.send_batch(device, now),
            Some(streams) => !self.is_closed && streams.transmit(device, &mut self.capture, now),
        };
        self.capture.flush();
        has_more
    }

    /// Sends the datagrams that the impaired path releases, and writes out their capture.
    pub(crate) fn release_sent<M: Memory>(&mut self, device: &mut Device<M>, now: Instant) {
        match self.ports.streams_mut() {
            None => self.send_released(now),
            Some(streams) => streams.release_sent(device, &mut self.capture, now),
        }
        self.capture.flush();
    }

    /// Sends a batch of the device's datagrams; returns true if it may have more.
    fn send_batch<M: Memory>(&mut self, device: &mut Device<M>, now: Instant) -> bool {
        if self.is_full() && (self.send_staged() || self.send_held(now)) {
            return false;
        }
        let (local, max_segments) = (self.local(), self.ports.socket().max_segments(1));
        let max_transmit = match self.ports.links_mut() {
            Some(links) if links.has_outgoing() => MAX_TRANSMIT_WITH_LINKS,
            _ => MAX_TRANSMIT,
        };
        let mut is_done = false;
        while self.held.is_none()
            && let Some(room) = self.outgoing.room()
        {
            let room = &mut room[..max_transmit];
            let Some(Transmit::Datagrams(DatagramBatch { route, len, segment_len })) =
                device.poll_transmit(now, max_segments, room)
            else {
                is_done = true;
                break;
            };
            let peer = SocketAddr::new(route.flow.addresses.dst(), route.flow.dst_port);
            let hop_limit = Some(route.hop_limit);
            let envelope = Envelope { peer, traffic_class: route.traffic_class, hop_limit };
            let bytes = &room[..len];
            match send_by_link(&mut self.ports, &envelope, bytes, segment_len, self.is_closed, now) {
                LinkSend::NoLink => {
                    self.outgoing.stage(envelope, len, segment_len);
                    continue;
                }
                LinkSend::Sent => self.counters.count_linked(len.div_ceil(segment_len)),
                LinkSend::Dropped => self.counters.refused += len.div_ceil(segment_len) as u64,
                LinkSend::Full => {
                    self.held = Some(Held { envelope, bytes: bytes.to_vec(), segment_size: segment_len });
                }
            }
            if self.capture.is_on()
                && let Some(flow) = flow_between(local, peer)
            {
                let traffic_class = route.traffic_class;
                for bytes in bytes.chunks(segment_len) {
                    self.capture.record(&Datagram { flow, traffic_class, bytes }, now);
                }
            }
        }
        if self.faults.is_some() {
            self.impair_staged(now);
            self.send_released(now);
            !is_done
        } else {
            !self.flush(now) && self.held.is_none() && !is_done
        }
    }

    /// Sends the datagrams that a link had no room for; returns true if it still has none.
    fn send_held(&mut self, now: Instant) -> bool {
        let Some(Held { envelope, bytes, segment_size }) = self.held.take() else { return false };
        let count = bytes.len().div_ceil(segment_size);
        match send_by_link(&mut self.ports, &envelope, &bytes, segment_size, self.is_closed, now) {
            LinkSend::Sent => self.counters.count_linked(count),
            LinkSend::Dropped => self.counters.refused += count as u64,
            LinkSend::Full => {
                self.held = Some(Held { envelope, bytes, segment_size });
                return true;
            }
            LinkSend::NoLink => {
                if let Some(room) = self.outgoing.room() {
                    room[..bytes.len()].copy_from_slice(&bytes);
                    self.outgoing.stage(envelope, bytes.len(), segment_size);
                }
                return self.send_staged();
            }
        }
        false
    }

    /// Moves staged datagrams to the impaired path, with identification 0: each will be sent alone.
    fn impair_staged(&mut self, now: Instant) {
        let local = self.local();
        let Some(paths) = &mut self.faults else { return };
        for_each_staged(&self.outgoing, local, |datagram, hop_limit| {
            let mut parcel = Parcel::new(datagram, hop_limit);
            if datagram.flow.dst_port == ROCE_PORT
                && let IcrcCheck::ValidForIdent(ident) = paths.icrc.check(&datagram.flow, datagram.bytes)
            {
                paths.icrc.change_ident(&mut parcel.bytes, ident);
            }
            paths.out.receive(parcel, now);
        });
        self.outgoing.clear();
    }

    /// Sends the datagrams that the impaired path releases.
    fn send_released(&mut self, now: Instant) {
        let Some(paths) = &mut self.faults else { return };
        paths.out.handle_timeout(now);
        loop {
            let Some(paths) = &mut self.faults else { return };
            let Some(room) = self.outgoing.room() else {
                if self.flush(now) {
                    return;
                }
                continue;
            };
            match paths.out.poll() {
                None => break,
                Some(Output::Released(departure)) if !departure.packet.is_damaged => {
                    let Parcel { flow, traffic_class, hop_limit, bytes, .. } = departure.packet;
                    room[..bytes.len()].copy_from_slice(&bytes);
                    let peer = SocketAddr::new(flow.addresses.dst(), flow.dst_port);
                    let envelope = Envelope { peer, traffic_class, hop_limit };
                    self.outgoing.stage(envelope, bytes.len(), bytes.len());
                }
                Some(Output::Released(_) | Output::Dropped { .. }) => self.counters.lost += 1,
            }
        }
        self.flush(now);
    }

    /// Captures and sends the staged datagrams; returns true if the socket is full.
    fn flush(&mut self, now: Instant) -> bool {
        if self.capture.is_on() {
            let (local, capture) = (self.local(), &mut self.capture);
            for_each_staged(&self.outgoing, local, |datagram, _| capture.record(datagram, now));
        }
        self.send_staged()
    }

    /// Sends staged datagrams that are captured already; returns true if the socket is full.
    fn send_staged(&mut self) -> bool {
        if self.is_closed {
            self.counters.refused += self.outgoing.staged().count() as u64;
            self.outgoing.clear();
            return false;
        }
        let SendReport { sent, refused, is_full, .. } = self.outgoing.send(self.ports.socket());
        self.counters.sent += sent;
        self.counters.refused += refused;
        is_full
    }
}

/// Sends datagrams by the link to the process that they are for, if there is one and this process may use it.
#[inline]
fn send_by_link(
    ports: &mut Ports,
    envelope: &Envelope,
    bytes: &[u8],
    segment_size: usize,
    is_closed: bool,
    now: Instant,
) -> LinkSend {
    let Some(links) = ports.links_mut().filter(|_| !is_closed && envelope.peer.port() == ROCE_PORT) else {
        return LinkSend::NoLink;
    };
    let Some(slot) = slot_of(bytes) else { return LinkSend::NoLink };
    links.send((envelope.peer, slot), envelope.traffic_class, (bytes, segment_size), now)
}

/// Calls `f` with each staged datagram and its hop limit.
fn for_each_staged(staged: &SendBatch, local: SocketAddr, mut f: impl FnMut(&Datagram<'_>, Option<u8>)) {
    for Staged { envelope, bytes, segment_size } in staged.staged() {
        let Some(flow) = flow_between(local, envelope.peer) else { continue };
        for bytes in bytes.chunks(segment_size) {
            f(&Datagram { flow, traffic_class: envelope.traffic_class, bytes }, envelope.hop_limit);
        }
    }
}
