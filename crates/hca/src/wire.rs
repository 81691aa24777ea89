//! Between the device and the socket: batches, faults, capture.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use nichrome_port::udp::{Envelope, PacketReceiver, ReceiveBatch, SendBatch, SendReport, Staged, UdpSocket};
use nichrome_rdma::{Datagram, DatagramBatch, Device, Memory, Transmit};
use nichrome_wan::{Impairments, Output, Path};
use nichrome_wire::rdma::{IcrcCheck, IcrcChecker, ROCE_PORT, UdpFlow};
use nichrome_wire::star::STAR_PORT;
use nichrome_wire::{AddressPair, Engine, Instant};

use crate::config::{AdapterConfig, Faults, OpenError, Port, Reception, Transport};
use crate::parcel::Parcel;
use crate::recorder::Recorder;
use crate::star::StarPort;

/// Bytes of what is sent as one, at most: a UDP payload over IPv4.
const MAX_TRANSMIT: usize = 65_507;

/// What the wire has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCounters {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams received.
    pub received: u64,
    /// Datagrams that the kernel did not send.
    pub refused: u64,
    /// Datagrams that a fault has taken or damaged beyond recognition.
    pub lost: u64,
}

/// The socket and what is before it.
pub(crate) struct Wire {
    port: Port,
    outgoing: SendBatch,
    incoming: Incoming,
    /// Where StaR is spoken too.
    star: Option<StarPort>,
    faults: Option<FaultyPaths>,
    recorder: Option<Recorder>,
    counters: WireCounters,
    /// Whether the socket is not to be used any more.
    is_cut_off: bool,
}

/// Where datagrams come from.
enum Incoming {
    Socket(ReceiveBatch),
    Packets(PacketReceiver, IcrcChecker),
}

/// Packets that are received before anything else is done.
const PACKETS: usize = 64;

/// What happens to datagrams on their way out and in.
struct FaultyPaths {
    out: Path<Parcel>,
    back: Path<Parcel>,
    icrc: IcrcChecker,
}

impl FaultyPaths {
    fn new(Faults { impairments, seed }: &Faults) -> Result<Self, nichrome_wan::ConfigError> {
        let path = |impairments: &Impairments, seed| Path::new(impairments, seed);
        Ok(Self {
            out: path(impairments, *seed)?,
            back: path(impairments, seed.wrapping_add(1))?,
            icrc: IcrcChecker::default(),
        })
    }
}

impl Wire {
    pub(crate) fn new(port: Port, config: &AdapterConfig) -> Result<Self, OpenError> {
        let recorder =
            config.capture.as_deref().map(|path| Recorder::create(path, "nichrome")).transpose()?;
        let incoming = match config.reception {
            Reception::Socket => Incoming::Socket(ReceiveBatch::default()),
            Reception::Packets => {
                Incoming::Packets(PacketReceiver::open(port.socket())?, IcrcChecker::default())
            }
        };
        let star = match (config.transport, config.reception) {
            (Transport::Roce, _) => None,
            (Transport::Star, Reception::Socket) => Some(StarPort::open(port.socket())?),
            (Transport::Star, Reception::Packets) => return Err(OpenError::StarFromPackets),
        };
        Ok(Self {
            port,
            outgoing: SendBatch::default(),
            incoming,
            star,
            faults: config.faults.as_ref().map(FaultyPaths::new).transpose()?,
            recorder,
            counters: WireCounters::default(),
            is_cut_off: false,
        })
    }

    pub(crate) fn socket(&self) -> &UdpSocket {
        self.port.socket()
    }

    /// What is readable when something has arrived.
    pub(crate) fn source(&self) -> BorrowedFd<'_> {
        match (&self.star, &self.incoming) {
            (Some(star), _) => star.either(),
            (None, Incoming::Socket(_)) => self.port.socket().as_fd(),
            (None, Incoming::Packets(receiver, _)) => receiver.as_fd(),
        }
    }

    pub(crate) fn counters(&self) -> WireCounters {
        self.counters
    }

    /// Uses the socket no more: what is sent is lost, and nothing arrives.
    pub(crate) fn cut_off(&mut self) {
        self.is_cut_off = true;
        self.recorder = None;
    }

    /// When a path has something to let go.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let paths = self.faults.as_ref()?;
        [paths.out.poll_timeout(), paths.back.poll_timeout()].into_iter().flatten().min()
    }

    /// When the path out has something to let go.
    pub(crate) fn outgoing_timeout(&self) -> Option<Instant> {
        self.faults.as_ref()?.out.poll_timeout()
    }

    /// Whether something waits until the socket can be written again.
    pub(crate) fn is_full(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Gives the device what has arrived; returns whether there may be more.
    pub(crate) fn receive<M: Memory>(&mut self, device: &mut Device<M>, now: Instant) -> bool {
        if self.is_cut_off {
            return false;
        }
        let Self { port, incoming, star, faults, recorder, counters, .. } = self;
        let local = port.socket().local();
        let star_local = SocketAddr::new(local.ip(), STAR_PORT);
        let mut take = |datagram: &Datagram<'_>| {
            counters.received += 1;
            match faults {
                None => device.receive(datagram, now),
                Some(paths) => paths.back.receive(parcel(datagram, None), now),
            }
        };
        let more = match incoming {
            Incoming::Socket(batch) => {
                let more = batch.receive(port.socket()).unwrap_or(false);
                for arrival in batch.arrivals() {
                    let Some(flow) = flow_between(arrival.peer, local) else { continue };
                    for bytes in arrival.datagrams() {
                        let datagram = Datagram { flow, traffic_class: arrival.traffic_class, bytes };
                        record(recorder, &datagram, now);
                        take(&datagram);
                    }
                }
                more
            }
            Incoming::Packets(receiver, icrc) => (0..PACKETS).all(|_| {
                let Ok(Some(mut arrival)) = receiver.receive() else { return false };
                let Some(flow) = flow_between(arrival.peer, local) else { return true };
                let traffic_class = arrival.traffic_class;
                for (ident, bytes) in arrival.datagrams() {
                    record(recorder, &Datagram { flow, traffic_class, bytes }, now);
                    icrc.change_ident(bytes, ident);
                    take(&Datagram { flow, traffic_class, bytes });
                }
                true
            }),
        };
        let more_of_star = star.as_mut().is_some_and(|star| {
            let more = star.receive();
            for arrival in star.batch().arrivals() {
                let Some(flow) = flow_between(arrival.peer, star_local) else { continue };
                for bytes in arrival.datagrams() {
                    let datagram = Datagram { flow, traffic_class: arrival.traffic_class, bytes };
                    record(recorder, &datagram, now);
                    take(&datagram);
                }
            }
            more
        });
        self.let_in(device, now);
        more || more_of_star
    }

    /// Gives the device what has come through the path.
    fn let_in<M: Memory>(&mut self, device: &mut Device<M>, now: Instant) {
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

    /// Sends what the device has; returns whether it may have more.
    pub(crate) fn transmit<M: Memory>(&mut self, device: &mut Device<M>, now: Instant) -> bool {
        if self.is_full() && self.push_out() {
            return false;
        }
        let max_segments = self.port.socket().max_segments(1);
        let mut is_done = false;
        while let Some(room) = self.outgoing.room() {
            let room = &mut room[..MAX_TRANSMIT];
            let Some(Transmit::Datagrams(DatagramBatch { route, len, segment_len })) =
                device.poll_transmit(now, max_segments, room)
            else {
                is_done = true;
                break;
            };
            let peer = SocketAddr::new(route.flow.addresses.dst(), route.flow.dst_port);
            let hop_limit = Some(route.hop_limit);
            let envelope = Envelope { peer, traffic_class: route.traffic_class, hop_limit };
            self.outgoing.stage(envelope, len, segment_len);
        }
        if self.faults.is_some() {
            self.send_out(now);
            self.let_out(now);
            !is_done
        } else {
            !self.flush(now) && !is_done
        }
    }

    /// Puts what is staged on the path, with identification 0: each will be sent on its own.
    fn send_out(&mut self, now: Instant) {
        let Some(paths) = &mut self.faults else { return };
        let local = self.port.socket().local();
        for Staged { envelope, bytes, segment_size } in self.outgoing.staged() {
            let Some(flow) = flow_between(local, envelope.peer) else { continue };
            for bytes in bytes.chunks(segment_size) {
                let datagram = Datagram { flow, traffic_class: envelope.traffic_class, bytes };
                let mut parcel = parcel(&datagram, envelope.hop_limit);
                if flow.dst_port == ROCE_PORT
                    && let IcrcCheck::RightFor(ident) = paths.icrc.check(&flow, bytes)
                {
                    paths.icrc.change_ident(&mut parcel.bytes, ident);
                }
                paths.out.receive(parcel, now);
            }
        }
        self.outgoing.clear();
    }

    /// Sends what has come through the path.
    pub(crate) fn let_out(&mut self, now: Instant) {
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
                    self.outgoing.stage(
                        Envelope { peer, traffic_class, hop_limit },
                        bytes.len(),
                        bytes.len(),
                    );
                }
                Some(Output::Released(_) | Output::Dropped { .. }) => self.counters.lost += 1,
            }
        }
        self.flush(now);
    }

    /// Sends what is staged; returns whether the socket is full.
    fn flush(&mut self, now: Instant) -> bool {
        if self.recorder.is_some() {
            self.record_staged(now);
        }
        self.push_out()
    }

    /// Sends what was recorded already; returns whether the socket is full.
    fn push_out(&mut self) -> bool {
        if self.is_cut_off {
            self.counters.refused += self.outgoing.staged().count() as u64;
            self.outgoing.clear();
            return false;
        }
        let SendReport { sent, refused, is_full, .. } = self.outgoing.send(self.port.socket());
        self.counters.sent += sent;
        self.counters.refused += refused;
        is_full
    }

    fn record_staged(&mut self, now: Instant) {
        let local = self.port.socket().local();
        for Staged { envelope, bytes, segment_size } in self.outgoing.staged() {
            let Some(flow) = flow_between(local, envelope.peer) else { continue };
            for bytes in bytes.chunks(segment_size) {
                let datagram = Datagram { flow, traffic_class: envelope.traffic_class, bytes };
                record(&mut self.recorder, &datagram, now);
            }
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            // There is no one left to tell.
            let _ = recorder.flush();
        }
    }
}

fn parcel(datagram: &Datagram<'_>, hop_limit: Option<u8>) -> Parcel {
    let Datagram { flow, traffic_class, bytes } = *datagram;
    Parcel { flow, traffic_class, hop_limit, bytes: bytes.to_vec(), is_damaged: false }
}

/// Adds a datagram to the capture, which ends where it cannot be written any more.
fn record(recorder: &mut Option<Recorder>, datagram: &Datagram<'_>, now: Instant) {
    if let Some(writer) = recorder
        && writer.record(&datagram.flow, datagram.traffic_class, datagram.bytes, now).is_err()
    {
        *recorder = None;
    }
}

/// The flow from `src` to `dst`; `None` where they are not of one family.
fn flow_between(src: SocketAddr, dst: SocketAddr) -> Option<UdpFlow> {
    let addresses = match (src.ip(), dst.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => AddressPair::V4 { src, dst },
        (IpAddr::V6(src), IpAddr::V6(dst)) => AddressPair::V6 { src, dst },
        _ => return None,
    };
    Some(UdpFlow { addresses, src_port: src.port(), dst_port: dst.port() })
}
