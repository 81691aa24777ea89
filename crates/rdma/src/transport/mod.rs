//! The interface between the device and its transports.
//!
//! A transport implements [`Endpoint`], the state of one queue pair, and [`Shared`], the state that all its
//! queue pairs share in one device. Endpoints do not import the device; the device lists its transports in
//! `device/transports.rs`.

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

/// A queue pair together with its transport's state.
pub(crate) trait Endpoint: Sized {
    type Shared: Shared;

    fn qp(&self) -> &QueuePair;
    fn qp_mut(&mut self) -> &mut QueuePair;

    /// Returns the attributes that a state transition requires and allows; `None` if the transition does not
    /// exist.
    fn rule(&self, kind: QpType, from: QpState, to: QpState) -> Option<Rule> {
        states::infiniband(kind, from, to)
    }

    /// Applies the path and packet numbers of a change. The queue pair's settings are already updated.
    fn modified(&mut self, change: &QpChange, shared: &Self::Shared);

    /// Returns the PSNs that are received and sent next; 0 on transports without PSNs.
    fn packet_numbers(&self) -> (Psn, Psn) {
        (Psn::new(0), Psn::new(0))
    }

    /// Returns true if requests may be posted to the send queue in this state.
    fn takes_sends_in(&self, state: QpState) -> bool {
        !matches!(state, QpState::Reset | QpState::Init | QpState::Rtr)
    }

    /// Checks that the transport supports this operation with this payload of `len` bytes.
    fn accepts(&self, operation: &Operation, payload: &Payload<'_>, len: u32) -> Result<(), PostError> {
        let _ = (operation, payload, len);
        Ok(())
    }

    /// Checks that the transport supports receives of this many buffers.
    fn accepts_receive(&self, buffers: usize) -> Result<(), PostError> {
        let _ = buffers;
        Ok(())
    }

    /// Adds a validated request to the send queue. A request that is
    /// [`Progress::Failed`](crate::core::send_queue::Progress) already is not sent, and completes in its
    /// turn.
    fn post_send<M: Memory>(&mut self, work: SendWork, shared: &mut Self::Shared, verbs: &mut Verbs<M>);

    /// Handles a newly posted receive. Returns true if the endpoint may have packets to send for it.
    fn receive_posted<M: Memory>(&mut self, verbs: &mut Verbs<M>) -> bool {
        let qp = self.qp_mut();
        if qp.state == QpState::Err {
            qp.flush(verbs);
        }
        false
    }

    /// Takes one receive of the shared queue that the endpoint has waited for by [`Verbs::wait_for_receive`],
    /// and may wait again.
    fn take_shared_receive<M: Memory>(&mut self, shared: &mut Self::Shared, verbs: &mut Verbs<M>) {
        let _ = (shared, verbs);
    }

    /// Returns true if packets with these addresses come from the peer.
    fn is_from_peer(&self, addresses: &AddressPair) -> bool;

    /// Processes a packet from the peer. Returns false if it was dropped without a change of state.
    fn receive<M: Memory>(
        &mut self,
        packet: PacketOf<'_, Self>,
        datagram: &Datagram<'_>,
        shared: &mut Self::Shared,
        verbs: &mut Verbs<M>,
    ) -> bool;

    /// Processes bytes of the peer's stream; returns how many were consumed. If fewer than all, the driver
    /// keeps the rest and stops reading until [`wants_stream`](Self::wants_stream) returns true.
    fn receive_stream<M: Memory>(
        &mut self,
        bytes: &[u8],
        shared: &mut Self::Shared,
        verbs: &mut Verbs<M>,
    ) -> usize {
        let _ = (shared, verbs);
        bytes.len()
    }

    /// Returns true if the endpoint accepts bytes of the peer's stream.
    fn wants_stream<M: Memory>(&self, verbs: &Verbs<M>) -> bool {
        let _ = verbs;
        true
    }

    /// Returns true if the driver must end the stream, blocked or not: the driver sends the bytes that it has
    /// kept, or resets.
    fn ends_stream(&self) -> bool {
        false
    }

    /// Handles the end of the peer's stream.
    fn stream_closed<M: Memory>(&mut self, end: StreamEnd, shared: &mut Self::Shared, verbs: &mut Verbs<M>) {
        let _ = (end, shared, verbs);
    }

    /// Builds outgoing packets in `room`. Returns true if more are ready than fit.
    fn write<M: Memory>(
        &mut self,
        room: &mut Room<'_>,
        shared: &mut Self::Shared,
        verbs: &mut Verbs<M>,
    ) -> bool;

    /// Returns true if the endpoint may have packets to send.
    fn has_work(&self, now: Instant) -> bool;

    /// Returns the deadline of the next timer; may be early.
    fn next_timeout(&self, shared: &Self::Shared, now: Instant) -> Option<Instant>;

    /// Runs the timers that are due.
    fn handle_timeout<M: Memory>(&mut self, shared: &mut Self::Shared, verbs: &mut Verbs<M>);

    /// Flushes the delayed ACK.
    fn flush_acknowledgement(&mut self) {}

    /// Retransmits the last ACK and the transport's other unconfirmed replies.
    fn repeat_acknowledgement(&mut self);

    /// Starts draining the send queue.
    fn drain<M: Memory>(&mut self, shared: &mut Self::Shared, verbs: &mut Verbs<M>);

    /// Moves the queue pair to ERROR and flushes its queues. Transports with a close message send `why` in
    /// it.
    fn enter_error<M: Memory>(&mut self, why: Status, shared: &mut Self::Shared, verbs: &mut Verbs<M>);

    /// CQ overrun: moves the queue pair to ERROR.
    fn cq_overrun<M: Memory>(&mut self, shared: &mut Self::Shared, verbs: &mut Verbs<M>) {
        if self.qp().state != QpState::Err {
            self.enter_error(Status::Fatal, shared, verbs);
            verbs.events.push_back(Event::QpFatal(self.qp().handle));
        }
        self.qp_mut().cq_overrun = false;
    }

    /// Handles a change to a memory region. Returns true if the endpoint may have packets to send for it.
    fn region_changed(&mut self, change: &RegionChange) -> bool {
        let _ = change;
        false
    }

    /// Drops the transport's state without waiting for the peer, and returns the queue pair.
    fn dissolve<M: Memory>(self, shared: &mut Self::Shared, verbs: &mut Verbs<M>) -> QueuePair;

    /// Returns the bytes of state that a hardware card would hold for the connection.
    fn state_bytes(&self) -> usize;
}

/// A packet of an endpoint's transport.
pub(crate) type PacketOf<'a, E> = <<E as Endpoint>::Shared as Shared>::Packet<'a>;

/// The state that all queue pairs of a transport share in one device.
pub(crate) trait Shared: Sized {
    /// The transport's part of the device's configuration.
    type Config: Clone;

    /// A parsed datagram for a queue pair.
    type Packet<'a>;

    /// The transport's UDP port; `None` for transports over streams.
    const PORT: Option<u16>;

    fn new(environment: &Environment, config: Self::Config) -> Self;

    /// Parses a datagram; returns its destination queue pair and the packet. Returns `None` for datagrams
    /// without a queue pair, which are already processed, or dropped and counted.
    fn read<'a, M: Memory>(
        &mut self,
        datagram: &Datagram<'a>,
        verbs: &mut Verbs<M>,
    ) -> Option<(QpNumber, Self::Packet<'a>)>;

    /// Builds outgoing packets that belong to no queue pair in `room`. Returns true if more are ready than
    /// fit.
    fn write<M: Memory>(&mut self, room: &mut Room<'_>, verbs: &mut Verbs<M>) -> bool {
        let _ = (room, verbs);
        false
    }

    /// Returns true if endpoints need calls of [`Endpoint::region_changed`].
    fn follows_regions(&self) -> bool {
        false
    }

    /// Returns the number of connections whose state the peer keeps.
    fn stateless(&self) -> usize {
        0
    }

    /// Returns the bytes that a hardware card would hold for the transport, independent of the number of
    /// connections.
    fn state_bytes(&self) -> usize {
        0
    }
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The peer closed it.
    Closed,
    /// It was reset or timed out.
    Lost,
}

/// The parts of the device's configuration that transports share.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    pub(crate) addresses: LocalAddresses,
    /// The largest path MTU.
    pub(crate) mtu: PathMtu,
    /// Bytes of the longest message that programs may post.
    pub(crate) message_limit: u32,
    pub(crate) window: crate::congestion::SendWindow,
}
