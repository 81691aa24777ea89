//! What a transport is, as the device sees it.
//!
//! A transport is an [`Endpoint`] for each queue pair on it, and a [`Shared`] for what all of them share in one device.
//! Endpoints know nothing of the device; the device knows transports by one line each in `device/transports.rs`.

pub(crate) mod set_up;
pub(crate) mod states;

use nichrome_wire::rdma::{PathMtu, Psn, QpNumber};
use nichrome_wire::{AddressPair, Instant};

use crate::core::attributes::{QpChange, QpState, QpType, Rule};
use crate::core::completion::Status;
use crate::core::error::PostError;
use crate::core::event::Event;
use crate::core::memory::Memory;
use crate::core::protection::RegionChange;
use crate::core::queue_pair::QueuePair;
use crate::core::send_queue::SendWork;
use crate::core::verbs::Verbs;
use crate::core::work::{Operation, Payload};
use crate::net::{Datagram, LocalAddresses, Room};

/// A queue pair on its transport.
pub(crate) trait Endpoint: Sized {
    type Shared: Shared;

    fn qp(&self) -> &QueuePair;
    fn qp_mut(&mut self) -> &mut QueuePair;

    /// Returns what a change of state needs and allows on this transport; `None` where there is no such change.
    fn rule(&self, kind: QpType, from: QpState, to: QpState) -> Option<Rule> {
        states::infiniband(kind, from, to)
    }

    /// Takes over what a change says of path and packet numbers, after the queue pair's settings have it.
    fn modified(&mut self, change: &QpChange, shared: &Self::Shared);

    /// The packet numbers that are received and sent next, where the transport has such.
    fn packet_numbers(&self) -> (Psn, Psn) {
        (Psn::new(0), Psn::new(0))
    }

    /// Whether the transport does this operation with a payload of this form.
    fn accepts(&self, operation: &Operation, payload: &Payload<'_>, len: u32) -> Result<(), PostError> {
        let _ = (operation, payload, len);
        Ok(())
    }

    /// Whether the transport takes receives of so many buffers.
    fn accepts_receive(&self, buffers: usize) -> Result<(), PostError> {
        let _ = buffers;
        Ok(())
    }

    /// Adds a request whose form has been checked.
    fn post_send<M: Memory>(&mut self, work: SendWork, shared: &mut Self::Shared, verbs: &mut Verbs<M>);

    /// A receive was posted. Returns true if the peer is to learn of it.
    fn receive_posted<M: Memory>(&mut self, verbs: &mut Verbs<M>) -> bool {
        let qp = self.qp_mut();
        if qp.state == QpState::Err {
            qp.flush(verbs);
        }
        false
    }

    /// Whether packets with these addresses come from the peer.
    fn is_from_peer(&self, addresses: &AddressPair) -> bool;

    /// Takes in a packet from the peer. Returns false if it was dropped before it could change anything.
    fn receive<M: Memory>(
        &mut self,
        packet: PacketOf<'_, Self>,
        datagram: &Datagram<'_>,
        shared: &mut Self::Shared,
        verbs: &mut Verbs<M>,
    ) -> bool;

    /// Takes in bytes of the peer's stream; returns how many were consumed. Fewer than all means that the driver keeps the
    /// rest and stops reading until the endpoint [wants](Self::wants_stream) more.
    fn receive_stream<M: Memory>(
        &mut self,
        bytes: &[u8],
        shared: &mut Self::Shared,
        verbs: &mut Verbs<M>,
    ) -> usize {
        let _ = (shared, verbs);
        bytes.len()
    }

    /// Whether the driver is to read the peer's stream.
    fn wants_stream(&self) -> bool {
        true
    }

    /// The stream has ended.
    fn stream_closed<M: Memory>(&mut self, end: StreamEnd, shared: &mut Self::Shared, verbs: &mut Verbs<M>) {
        let _ = (end, shared, verbs);
    }

    /// Fills room with what is to leave. Returns true if there is more than fits.
    fn write<M: Memory>(
        &mut self,
        room: &mut Room<'_>,
        shared: &mut Self::Shared,
        verbs: &mut Verbs<M>,
    ) -> bool;

    /// Returns true if there may be something to send.
    fn has_work(&self, now: Instant) -> bool;

    /// Deadline of the next timer; may be early.
    fn next_timeout(&self, shared: &Self::Shared, now: Instant) -> Option<Instant>;

    /// Does what is due.
    fn handle_timeout<M: Memory>(&mut self, shared: &mut Self::Shared, verbs: &mut Verbs<M>);

    /// Sends a delayed acknowledgement now.
    fn flush_acknowledgement(&mut self) {}

    /// Retransmits the last acknowledgement, and what else the peer may have missed.
    fn repeat_acknowledgement(&mut self);

    /// Begins to drain the send queue.
    fn drain<M: Memory>(&mut self, shared: &mut Self::Shared, verbs: &mut Verbs<M>);

    /// Moves the queue pair to ERROR and flushes its queues. `why` is what the peer is told, where the transport tells it.
    fn enter_error<M: Memory>(&mut self, why: Status, shared: &mut Self::Shared, verbs: &mut Verbs<M>);

    /// CQ overrun: moves the queue pair to ERROR.
    fn cq_overrun<M: Memory>(&mut self, shared: &mut Self::Shared, verbs: &mut Verbs<M>) {
        if self.qp().state != QpState::Err {
            self.enter_error(Status::Fatal, shared, verbs);
            verbs.events.push_back(Event::QpFatal(self.qp().handle));
        }
        self.qp_mut().cq_overrun = false;
    }

    /// Memory that peers may name has changed. Returns true if the peer is to learn of it.
    fn region_changed(&mut self, change: &RegionChange) -> bool {
        let _ = change;
        false
    }

    /// Gives up the transport's state without waiting for the peer, and returns the queue pair.
    fn dissolve<M: Memory>(self, shared: &mut Self::Shared, verbs: &mut Verbs<M>) -> QueuePair;

    /// Bytes of state that a card would hold for the connection.
    fn state_bytes(&self) -> usize;
}

/// A packet of an endpoint's transport.
pub(crate) type PacketOf<'a, E> = <<E as Endpoint>::Shared as Shared>::Packet<'a>;

/// What the queue pairs of a transport share in one device.
pub(crate) trait Shared: Sized {
    /// The transport's part of a device's configuration.
    type Config: Clone;

    /// A datagram for a queue pair, parsed.
    type Packet<'a>;

    /// The UDP port of the transport's datagrams.
    const PORT: Option<u16>;

    fn new(environment: &Environment, config: Self::Config) -> Self;

    /// Reads a datagram: the queue pair that it is for, and what it says. `None` where it is for none, which is dealt
    /// with, or dropped and counted.
    fn read<'a, M: Memory>(
        &mut self,
        datagram: &Datagram<'a>,
        verbs: &mut Verbs<M>,
    ) -> Option<(QpNumber, Self::Packet<'a>)>;

    /// Fills room with what leaves in the name of no queue pair. Returns true if there is more than fits.
    fn write<M: Memory>(&mut self, room: &mut Room<'_>, verbs: &mut Verbs<M>) -> bool {
        let _ = (room, verbs);
        false
    }

    /// Whether endpoints want to know of changes to memory that peers may name.
    fn follows_regions(&self) -> bool {
        false
    }

    /// Connections whose state the peers keep.
    fn stateless(&self) -> usize {
        0
    }

    /// Bytes that a card would hold for the transport, whatever the number of connections.
    fn state_bytes(&self) -> usize {
        0
    }
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The peer sends nothing more.
    Closed,
    /// The connection was reset or timed out.
    Lost,
}

/// What a device tells its transports of itself.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    pub(crate) addresses: LocalAddresses,
    /// The largest path MTU.
    pub(crate) mtu: PathMtu,
    /// Bytes of the longest message.
    pub(crate) message_limit: u32,
    pub(crate) window: crate::congestion::SendWindow,
}
