//! A UDP port that receives datagrams.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use nichrome_port::close_in_child;
use nichrome_port::udp::{
    Arrival, PacketReceiver, PacketReceiverError, ReceiveBatch, ServicePorts, UdpError, UdpSocket,
};
use nichrome_rdma::Datagram;
use nichrome_wire::AddressPair;
use nichrome_wire::rdma::{
    IcrcChecker, Message, Opcode, Operation, ROCE_PORT, RcMessage, Repr, Syndrome, UdpFlow,
};

use rustix::io::Errno;

use crate::config::RoceSocket;

/// Maximum number of packets that one [`DatagramPort::receive`] receives from the interfaces.
const MAX_PACKETS: usize = 64;

/// Takes each received datagram twice: for the capture as on the wire, and for the device, which expects an
/// ICRC for another identification.
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
    /// A port that receives from `socket` in batches.
    pub(crate) fn receiving_from(socket: RoceSocket) -> Self {
        Self { socket, source: Source::Socket(ReceiveBatch::default()) }
    }

    /// A port that receives the packets for `socket` from the interfaces, one at a time.
    ///
    /// # Errors
    /// As [`PacketReceiver::open`].
    pub(crate) fn receiving_packets(socket: RoceSocket) -> Result<Self, PacketReceiverError> {
        let receiver = PacketReceiver::open(socket.udp())?;
        Ok(Self { socket, source: Source::Packets(receiver, IcrcChecker::default()) })
    }

    /// The socket, to send from.
    #[inline]
    pub(crate) fn socket(&self) -> &UdpSocket {
        self.socket.udp()
    }

    /// As [`PacketReceiver::dropped_offloads`]; 0 for a port that is received from in batches.
    pub(crate) fn dropped_offloads(&self) -> u64 {
        match &self.source {
            Source::Socket(_) => 0,
            Source::Packets(receiver, _) => receiver.dropped_offloads(),
        }
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

    /// Gives up the sockets in a forked child; its parent keeps them.
    pub(crate) fn close_in_child(&self) {
        self.socket.close_in_child();
        if let Source::Packets(receiver, _) = &self.source {
            close_in_child([receiver.as_fd()]);
        }
    }

    /// Receives a batch; returns true if more may wait. An error counts as no datagram: the port stays
    /// readable, and the next call meets the same error.
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

/// Passes on datagrams that one sender sent together to the address `local`. Passes an ACK at their end
/// before the requests: a delayed ACK is behind the answer of the peer's program, but programs expect the
/// completion of their request before that answer, since hardware acknowledges at once. The ACK stays behind
/// READ and atomic responses, which it would otherwise declare lost (IBA 9.7.5.1).
#[inline]
pub(super) fn pass_on(arrival: &Arrival<'_>, local: SocketAddr, sink: &mut impl Sink) {
    let Some(flow) = flow_between(arrival.peer, local) else { return };
    let datagram = |bytes| Datagram { flow, traffic_class: arrival.traffic_class, bytes };
    arrival.datagrams().for_each(|bytes| sink.capture(&datagram(bytes)));
    let mut rest = arrival.datagrams();
    let Some(last) = rest.next_back() else { return };
    let place = if rest.len() > 0 && flow.dst_port == ROCE_PORT && is_ack(last) {
        rest.clone().rposition(is_response).map_or(0, |response| response + 1)
    } else {
        rest.len()
    };
    let (before, behind) = (rest.clone().take(place), rest.skip(place));
    before.chain([last]).chain(behind).for_each(|bytes| sink.accept(&datagram(bytes)));
}

/// The operation of a RoCEv2 datagram.
#[inline]
fn operation(datagram: &[u8]) -> Option<Operation> {
    Opcode::new(*datagram.first()?).map(Opcode::operation)
}

/// Returns true if a RoCEv2 datagram is an ACK; false for an RNR NAK and a NAK.
#[inline]
fn is_ack(datagram: &[u8]) -> bool {
    operation(datagram) == Some(Operation::Acknowledge)
        && Repr::parse(datagram).is_ok_and(|(repr, _)| match repr.message {
            Message::Rc(RcMessage::Acknowledge(aeth)) | Message::Xrc(_, RcMessage::Acknowledge(aeth)) => {
                matches!(aeth.syndrome, Syndrome::Ack(_))
            }
            _ => false,
        })
}

/// Returns true if a RoCEv2 datagram is a READ response or the response to an atomic.
#[inline]
fn is_response(datagram: &[u8]) -> bool {
    matches!(operation(datagram), Some(Operation::ReadResponse | Operation::AtomicAcknowledge))
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

#[cfg(test)]
mod tests {
    use nichrome_port::udp::{Envelope, SendBatch};
    use nichrome_wire::TrafficClass;
    use nichrome_wire::rdma::{
        Aeth, Bth, BthFlags, Credit, DatagramWriter, Msn, NakCode, PKey, Part, Psn, QpNumber, ReadResponse,
        RnrTimer, SendEnd,
    };

    use super::*;

    /// Bytes of each datagram, as of an atomic response. ACKs and NAKs are shorter.
    const LEN: usize = 28;

    const ACK: Aeth = aeth(Syndrome::Ack(Credit::UNLIMITED));

    const fn aeth(syndrome: Syndrome) -> Aeth {
        Aeth { syndrome, msn: Msn::new(1) }
    }

    /// The packet numbers of accepted datagrams.
    #[derive(Default)]
    struct Accepted(Vec<u32>);

    impl Sink for Accepted {
        fn capture(&mut self, _: &Datagram<'_>) {}

        fn accept(&mut self, datagram: &Datagram<'_>) {
            self.0.push(Repr::parse(datagram.bytes).unwrap().0.bth.psn.value());
        }
    }

    /// Sends messages together, with packet numbers from 0 on; returns the numbers in the order of
    /// acceptance.
    fn order(messages: &[RcMessage]) -> Vec<u32> {
        let [from, to] = [0, 1].map(|_| UdpSocket::open_loopback(ROCE_PORT).unwrap());
        let flow = flow_between(from.local(), to.local()).unwrap();
        let mut outgoing = SendBatch::default();
        let room = outgoing.room().unwrap();
        let mut total = 0;
        for (psn, message) in messages.iter().enumerate() {
            let (flags, dest_qp) = (BthFlags::MIGRATED, QpNumber::new(2).unwrap());
            let bth = Bth { flags, pkey: PKey::default(), dest_qp, psn: Psn::new(psn as u32) };
            let repr = Repr { bth, message: Message::Rc(*message) };
            let is_short = matches!(message, RcMessage::Acknowledge(_));
            let payload_len = if is_short { 0 } else { LEN - repr.datagram_len(0) };
            let writer = DatagramWriter::new(&repr, payload_len, &flow, 0, &mut room[total..]);
            writer.unwrap().finish();
            total += repr.datagram_len(payload_len);
        }
        let envelope = Envelope { peer: to.local(), traffic_class: TrafficClass(0), hop_limit: None };
        outgoing.stage(envelope, total, LEN);
        outgoing.send(&from);
        let (mut batch, mut accepted) = (ReceiveBatch::default(), Accepted::default());
        batch.receive(&to).unwrap();
        let arrivals: Vec<_> = batch.arrivals().collect();
        let [arrival] = arrivals[..] else { panic!("{arrivals:?}") };
        assert_eq!(arrival.datagrams().len(), messages.len());
        pass_on(&arrival, to.local(), &mut accepted);
        accepted.0
    }

    const SEND: RcMessage = RcMessage::Send(Part::Only((), SendEnd::Plain));

    #[test]
    fn an_ack_passes_requests_and_no_responses() {
        let ack = RcMessage::Acknowledge(ACK);
        assert_eq!(order(&[ack]), [0]);
        assert_eq!(order(&[SEND, SEND]), [0, 1]);
        assert_eq!(order(&[SEND, SEND, ack]), [2, 0, 1]);
        for response in [
            RcMessage::ReadResponse(ReadResponse::Only(ACK)),
            RcMessage::ReadResponse(ReadResponse::Middle),
            RcMessage::AtomicAcknowledge(ACK, 7),
        ] {
            assert_eq!(order(&[response, ack]), [0, 1], "{response:?}");
            assert_eq!(order(&[response, response, SEND, SEND, ack]), [0, 1, 4, 2, 3], "{response:?}");
            assert_eq!(order(&[SEND, response, ack]), [0, 1, 2], "{response:?}");
        }
    }

    #[test]
    fn a_nak_passes_nothing() {
        let timer = RnrTimer::new(1).unwrap();
        for syndrome in [Syndrome::RnrNak(timer), Syndrome::Nak(NakCode::RemoteAccess)] {
            assert_eq!(order(&[SEND, RcMessage::Acknowledge(aeth(syndrome))]), [0, 1]);
        }
    }
}
