//! A queue pair on StaR, on either side of its connection.

use nichrome_wire::rdma::RKey;
use nichrome_wire::star::Element;
use nichrome_wire::{AddressPair, Instant};

use super::connection_end::ConnectionEnd;
use super::element_room::{check_buffers, element_room};
use super::packet::Incoming;
use super::shared::StarShared;
use super::stateful::Stateful;
use super::stateless::Stateless;
use crate::core::attributes::{QpChange, QpState};
use crate::core::completion::Status;
use crate::core::error::PostError;
use crate::core::memory::Memory;
use crate::core::protection::RegionChange;
use crate::core::queue_pair::QueuePair;
use crate::core::send_queue::SendWork;
use crate::core::verbs::Verbs;
use crate::core::work::{Operation, Payload};
use crate::net::{Datagram, Room};
use crate::transport::Endpoint;

/// A queue pair on StaR.
pub(crate) enum StarQp {
    /// This side keeps the state.
    Stateful(Box<Stateful>),
    /// The peer keeps the state.
    Stateless(Box<Stateless>),
}

/// Evaluates an expression for either side.
macro_rules! either {
    ($qp:expr, $side:ident => $call:expr) => {
        match $qp {
            StarQp::Stateful($side) => $call,
            StarQp::Stateless($side) => $call,
        }
    };
}

impl Endpoint for StarQp {
    type Shared = StarShared;

    fn qp(&self) -> &QueuePair {
        either!(self, side => &side.qp)
    }

    fn qp_mut(&mut self) -> &mut QueuePair {
        either!(self, side => &mut side.qp)
    }

    fn modified(&mut self, change: &QpChange, shared: &StarShared) {
        if let Some(path) = &change.path {
            let route = shared.environment.addresses.route(path, 0, 0);
            either!(self, side => side.route = route);
        }
        if let (Self::Stateless(server), Some(access)) = (self, change.access) {
            // The device reports all regions of the domain again.
            server.push_element(Element::Rights(access.star_bits()));
        }
    }

    /// Rejects window binds and local invalidations; FLUSH and ATOMIC WRITE, which StaR has no packets for;
    /// and requests of the stateless side that do not fit a WQEP.
    fn accepts(&self, operation: &Operation, payload: &Payload<'_>, len: u32) -> Result<(), PostError> {
        use Operation as O;
        let local = matches!(operation, O::LocalInvalidate(_) | O::BindWindow(_));
        let unknown = matches!(operation, O::Flush { .. } | O::AtomicWrite(_));
        match self {
            Self::Stateful(_) if local || unknown => Err(PostError::Transport),
            Self::Stateless(_) if local || unknown => Err(PostError::Transport),
            Self::Stateful(_) => Ok(()),
            Self::Stateless(server) => match payload {
                Payload::Buffers(buffers) => check_buffers(&server.qp, buffers.len()),
                Payload::Inline(_) | Payload::InlineFrom(_) => {
                    let (len, max) = (len as usize, element_room(&server.qp));
                    if len > max { Err(PostError::Inline { len, max }) } else { Ok(()) }
                }
            },
        }
    }

    fn accepts_receive(&self, buffers: usize) -> Result<(), PostError> {
        match self {
            Self::Stateful(_) => Ok(()),
            Self::Stateless(server) => check_buffers(&server.qp, buffers),
        }
    }

    fn post_send<M: Memory>(&mut self, work: SendWork, shared: &mut StarShared, verbs: &mut Verbs<M>) {
        either!(self, side => side.post_send(work, verbs));
        self.revoke_closed(shared, verbs.now);
    }

    fn receive_posted<M: Memory>(&mut self, verbs: &mut Verbs<M>) -> bool {
        let is_closed = match self {
            Self::Stateful(_) => true,
            Self::Stateless(server) => server.is_closed(),
        };
        let qp = self.qp_mut();
        if qp.state == QpState::Err && is_closed {
            qp.flush(verbs);
        }
        true
    }

    fn take_shared_receive<M: Memory>(&mut self, shared: &mut StarShared, verbs: &mut Verbs<M>) {
        if let Self::Stateless(server) = self {
            server.take_shared_receive(verbs);
        }
        self.revoke_closed(shared, verbs.now);
    }

    fn is_from_peer(&self, addresses: &AddressPair) -> bool {
        either!(self, side => side.route.as_ref()).is_some_and(|route| route.is_reverse_of(addresses))
    }

    fn receive<M: Memory>(
        &mut self,
        packet: Incoming<'_>,
        datagram: &Datagram<'_>,
        shared: &mut StarShared,
        verbs: &mut Verbs<M>,
    ) -> bool {
        let is_valid = either!(self, side => side.receive_verified(&packet, datagram, shared, verbs));
        self.revoke_closed(shared, verbs.now);
        is_valid
    }

    fn write<M: Memory>(
        &mut self,
        room: &mut Room<'_>,
        shared: &mut StarShared,
        verbs: &mut Verbs<M>,
    ) -> bool {
        let has_more = either!(self, side => side.write(room, shared, verbs));
        self.revoke_closed(shared, verbs.now);
        has_more
    }

    fn has_work(&self, _: Instant) -> bool {
        either!(self, side => side.has_work())
    }

    fn next_timeout(&self, _: &StarShared, now: Instant) -> Option<Instant> {
        match self {
            Self::Stateful(client) => client.next_timeout(now),
            Self::Stateless(server) => server.next_timeout(),
        }
    }

    fn handle_timeout<M: Memory>(&mut self, shared: &mut StarShared, verbs: &mut Verbs<M>) {
        match self {
            Self::Stateful(client) => client.handle_timeout(verbs),
            Self::Stateless(server) => server.handle_timeout(verbs),
        }
        self.revoke_closed(shared, verbs.now);
    }

    fn repeat_acknowledgement(&mut self) {
        either!(self, side => side.repeat_acknowledgement());
    }

    fn drain<M: Memory>(&mut self, _: &mut StarShared, verbs: &mut Verbs<M>) {
        self.qp_mut().drain.begin();
        either!(self, side => side.check_drained(verbs));
    }

    fn enter_error<M: Memory>(&mut self, why: Status, shared: &mut StarShared, verbs: &mut Verbs<M>) {
        match self {
            Self::Stateful(client) => client.enter_error(why, verbs),
            Self::Stateless(server) => server.enter_error(verbs),
        }
        self.revoke_closed(shared, verbs.now);
    }

    fn region_changed(&mut self, change: &RegionChange) -> bool {
        let Self::Stateless(server) = self else { return false };
        let region = change.region.as_ref();
        let granted = region.and_then(|region| server.registration(change.key, region));
        server.push_element(match granted {
            Some(granted) => Element::Register(granted),
            None => Element::Deregister(RKey(change.key)),
        });
        true
    }

    fn dissolve<M: Memory>(self, shared: &mut StarShared, verbs: &mut Verbs<M>) -> QueuePair {
        match self {
            Self::Stateful(client) => client.dissolve(shared, verbs),
            Self::Stateless(server) => server.dissolve(shared, verbs),
        }
    }

    fn state_bytes(&self) -> usize {
        match self {
            Self::Stateful(_) => size_of::<Stateful>(),
            Self::Stateless(_) => 0,
        }
    }
}

impl StarQp {
    /// Ends the client's access if the connection is closed.
    fn revoke_closed(&mut self, shared: &mut StarShared, now: Instant) {
        if let Self::Stateless(server) = self {
            server.revoke_closed(shared, now);
        }
    }
}
