//! A UDP port that receives datagrams.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use nichrome_port::udp::{
    Arrival, PacketReceiver, PacketReceiverError, ReceiveBatch, ServicePorts, UdpError, UdpSocket,
};
use nichrome_rdma::Datagram;
use nichrome_wire::AddressPair;
use nichrome_wire::rdma::{IcrcChecker, Opcode, Operation, ROCE_PORT, UdpFlow};

use rustix::io::Errno;

use crate::config::RoceSocket;

/// Packets received by one [`DatagramPort::receive`] at most.
const MAX_PACKETS: usize = 64;

/// Where received datagrams go, in two steps because a received identification is not the one that the device expects.
pub(crate) trait Sink {
    /// Takes a datagram with its identification as on the wire.
    fn capture(&mut self, datagram: &Datagram<'_>);

    /// Takes a datagram whose ICRC is for identification 0, or for an identification that is not known.
    fn accept(&mut self, datagram: &Datagram<'_>);
}

/// A UDP port of this machine.
pub(crate) struct DatagramPort {
    socket: RoceSocket,
    source: Source,
}

enum Source {
    Socket(ReceiveBatch),
    /// The interfaces (AF_PACKET): the identification of each datagram is known.
    Packets(PacketReceiver, IcrcChecker),
}

impl DatagramPort {
    /// The port of `socket`, received from in batches.
    pub(crate) fn receiving_from(socket: RoceSocket) -> Self {
        Self { socket, source: Source::Socket(ReceiveBatch::default()) }
    }

    /// The port of `socket`, received from the interfaces one packet at a time.
    ///
    /// # Errors
    /// The address is of IPv6, or CAP_NET_RAW is missing.
    pub(crate) fn receiving_packets(socket: RoceSocket) -> Result<Self, PacketReceiverError> {
        let receiver = PacketReceiver::open(socket.udp())?;
        Ok(Self { socket, source: Source::Packets(receiver, IcrcChecker::default()) })
    }

    /// The socket, to send from.
    #[inline]
    pub(crate) fn socket(&self) -> &UdpSocket {
        self.socket.udp()
    }

    /// The slot at a shared address.
    pub(crate) fn slot(&self) -> Option<usize> {
        self.socket.slot()
    }

    /// As [`RoceSocket::open_services`], for a port whose datagrams the kernel steers.
    ///
    /// # Errors
    /// The port receives packets of all processes; or the kernel's.
    pub(crate) fn open_services(&self) -> Result<Option<(ServicePorts, UdpSocket)>, UdpError> {
        match (&self.source, &self.socket) {
            (Source::Packets(..), RoceSocket::Shared(_)) => {
                let address = self.socket.udp().local();
                Err(UdpError::Io { address, error: Errno::OPNOTSUPP.into() })
            }
            _ => self.socket.open_services(),
        }
    }

    /// Receives a batch; returns true if more may wait. Errors count as nothing received: the port stays readable and the
    /// next call reports the same.
    #[inline]
    pub(crate) fn receive(&mut self, sink: &mut impl Sink) -> bool {
        let local = self.socket.udp().local();
        match &mut self.source {
            Source::Socket(batch) => receive_batch(batch, self.socket.udp(), sink),
            Source::Packets(receiver, icrc) => (0..MAX_PACKETS).all(|_| {
                let Ok(Some(mut arrival)) = receiver.receive() else { return false };
                let Some(flow) = flow_between(arrival.peer, local) else { return true };
                let traffic_class = arrival.traffic_class;
                for (ident, bytes) in arrival.datagrams() {
                    sink.capture(&Datagram { flow, traffic_class, bytes });
                    icrc.change_ident(bytes, ident);
                    sink.accept(&Datagram { flow, traffic_class, bytes });
                }
                true
            }),
        }
    }
}

impl AsFd for DatagramPort {
    /// Readable while a datagram waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.source {
            Source::Socket(_) => self.socket.udp().as_fd(),
            Source::Packets(receiver, _) => receiver.as_fd(),
        }
    }
}

/// Receives a batch from a socket; returns true if more may wait.
#[inline]
pub(super) fn receive_batch(batch: &mut ReceiveBatch, socket: &UdpSocket, sink: &mut impl Sink) -> bool {
    let more = batch.receive(socket).unwrap_or(false);
    for arrival in batch.arrivals() {
        pass_on(&arrival, socket.local(), sink);
    }
    more
}

/// Passes on datagrams that one sender sent together to the address `local`. An acknowledgement at their end is accepted first:
/// a delayed one is behind the answer of the peer's program, and programs rely on their request's completion before that answer,
/// since hardware acknowledges at once.
#[inline]
pub(super) fn pass_on(arrival: &Arrival<'_>, local: SocketAddr, sink: &mut impl Sink) {
    let Some(flow) = flow_between(arrival.peer, local) else { return };
    let datagram = |bytes| Datagram { flow, traffic_class: arrival.traffic_class, bytes };
    arrival.datagrams().for_each(|bytes| sink.capture(&datagram(bytes)));
    let mut rest = arrival.datagrams();
    let Some(last) = rest.next_back() else { return };
    let goes_first = flow.dst_port == ROCE_PORT && is_acknowledgement(last);
    let (first, last) = if goes_first { (Some(last), None) } else { (None, Some(last)) };
    first.into_iter().chain(rest).chain(last).for_each(|bytes| sink.accept(&datagram(bytes)));
}

/// Returns true if a RoCEv2 datagram is an ACK, an RNR NAK or a NAK.
#[inline]
fn is_acknowledgement(datagram: &[u8]) -> bool {
    let opcode = datagram.first().and_then(|code| Opcode::new(*code));
    opcode.is_some_and(|opcode| opcode.operation() == Operation::Acknowledge)
}

/// The flow from `src` to `dst`; `None` if they are of different families.
#[inline]
pub(crate) fn flow_between(src: SocketAddr, dst: SocketAddr) -> Option<UdpFlow> {
    let addresses = match (src.ip(), dst.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => AddressPair::V4 { src, dst },
        (IpAddr::V6(src), IpAddr::V6(dst)) => AddressPair::V6 { src, dst },
        _ => return None,
    };
    Some(UdpFlow { addresses, src_port: src.port(), dst_port: dst.port() })
}
