//! The questions of StaR's set-up to the device, and the change of a queue pair to StaR.

use nichrome_wire::star::{Element, PacketCheck};
use nichrome_wire::{Instant, SeqNumber};

use super::StarRole;
use super::endpoint::StarQp;
use super::lease::{Grantor, registration};
use super::seal::Seal;
use super::setup::{Admission, Credentials, Offer, QueueDepth, Receives as PeerReceives, Timers, Wish};
use super::shared::StarShared;
use super::stateful::Stateful;
use super::stateless::{MAX_LENT, Stateless};
use super::tag::Ends;
use crate::core::attributes::QpState;
use crate::core::error::ObjectError;
use crate::core::limits::Limits;
use crate::core::memory::Memory;
use crate::core::queue_pair::{QueuePair, Receives, Settings};
use crate::core::verbs::Verbs;
use crate::transport::set_up::{Agreed, Answerable, ConnectError, Question, Scope};

/// Asks for the offer of a queue pair, from its present attributes.
#[derive(Clone, Copy, Debug)]
pub struct MakeOffer {
    /// The side to be stateless.
    pub wish: Wish,
    /// The number of this side's first element, chosen at random.
    pub first_element: SeqNumber,
}

impl Question for MakeOffer {
    type Answer = Offer;
}

impl<M: Memory> Answerable<M> for MakeOffer {
    type Endpoint = StarQp;

    fn answer(self, qp: &QueuePair, scope: Scope<'_, M, StarShared>) -> Result<Offer, ConnectError> {
        let settings = &qp.settings;
        let address = scope.shared.environment.addresses.source(settings.path);
        let (receives, receive_wrs) = match &qp.receives {
            Receives::Own(_) => (PeerReceives::Own, qp.capacity.receive_wrs),
            Receives::Shared(_) => (PeerReceives::Shared, MAX_LENT),
        };
        let depth = QueueDepth { sends: qp.capacity.send_wrs as u32, receives: receive_wrs as u32 };
        let timers = Timers {
            timeout: settings.timeout,
            retry_count: settings.retry_count,
            rnr_retry: settings.rnr_retry,
            min_rnr_timer: settings.min_rnr_timer.code(),
        };
        Ok(Offer {
            wish: self.wish,
            room: scope.shared.state_room(scope.qps),
            receives,
            connection: qp.number,
            peer_connection: settings.destination,
            address: address.ok_or(ObjectError::Address(0))?,
            path_mtu: settings.path_mtu,
            access: settings.access,
            first_element: self.first_element,
            depth,
            timers,
        })
    }
}

/// Asks for the stateless side's admission of the peer with this offer.
#[derive(Clone, Copy, Debug)]
pub struct Admit<'a>(pub &'a Offer);

impl Question for Admit<'_> {
    type Answer = Admission;
}

impl<M: Memory> Answerable<M> for Admit<'_> {
    type Endpoint = StarQp;

    fn answer(self, qp: &QueuePair, scope: Scope<'_, M, StarShared>) -> Result<Admission, ConnectError> {
        let Scope { shared, verbs, .. } = scope;
        let Self(peer) = self;
        let grantor = grantor(qp, peer, shared, verbs.now);
        let credentials = grantor.as_ref().map(|Grantor { secret, ends, lease, .. }| Credentials {
            key: secret.connection_key(ends),
            lease: (*lease, secret.lease_key(ends, *lease)),
        });
        let clock = shared.card.card().clock(verbs.now);
        let access = qp.settings.access;
        let regions = verbs.protection.regions_of(qp.domain);
        let granted = regions.filter_map(|(key, region)| registration(key, region, access, grantor.as_ref()));
        Ok(Admission { epoch: shared.config.epoch, clock, credentials, regions: granted.collect() })
    }
}

/// The result of set-up: both sides' offers and this side's role.
#[derive(Clone, Copy, Debug)]
pub struct Connect<'a> {
    /// This side's offer.
    pub ours: &'a Offer,
    /// The peer's.
    pub theirs: &'a Offer,
    /// This side's role.
    pub role: &'a StarRole,
}

impl<M: Memory> Agreed<M> for Connect<'_> {
    type Endpoint = StarQp;

    fn check(&self, limits: &Limits) -> Result<(), ConnectError> {
        let QueueDepth { sends, receives } = self.theirs.depth;
        let requests = sends.max(receives) as usize;
        match self.role {
            StarRole::Stateful(_) if requests > limits.wrs => {
                Err(ConnectError::Depth { requests, limit: limits.wrs })
            }
            _ => Ok(()),
        }
    }

    fn connect(&self, mut qp: QueuePair, shared: &mut StarShared, verbs: &mut Verbs<M>) -> StarQp {
        let Self { ours, theirs, role } = *self;
        if qp.state != QpState::Rts {
            // A program that only receives never sets its timers, but the client sends for both sides.
            let Timers { timeout, retry_count, rnr_retry, .. } = ours.timers;
            qp.settings = Settings { timeout, retry_count, rnr_retry, ..qp.settings };
        }
        qp.settings.path_mtu = ours.path_mtu.min(theirs.path_mtu);
        let path = qp.settings.path;
        let route = path.and_then(|path| shared.environment.addresses.route(&path, 0, 0));
        match role {
            StarRole::Stateful(admission) => {
                shared.egress.admit(qp.number, theirs.address, theirs.access, admission);
                let client = Stateful::new(qp, route, ours, theirs, admission, shared, verbs.now);
                StarQp::Stateful(Box::new(client))
            }
            StarRole::Stateless => {
                let grantor = grantor(&qp, theirs, shared, verbs.now);
                let key = grantor.as_ref().map(|Grantor { secret, ends, .. }| secret.connection_key(ends));
                let seal = Seal { check: PacketCheck::new(shared.config.epoch), key };
                shared.egress.serve();
                shared.slots.open(qp.number);
                shared.stateless += 1;
                let mut server = Stateless::new(qp, route, ours, theirs, (seal, grantor));
                let rights = server.qp.settings.access.star_bits();
                if rights != ours.access.star_bits() {
                    // The program changed the access rights after the OFFER.
                    server.push_element(Element::Rights(rights));
                }
                StarQp::Stateless(Box::new(server))
            }
        }
    }
}

/// Returns the grantor of a connection with `peer`; `None` without authentication.
fn grantor(qp: &QueuePair, peer: &Offer, shared: &StarShared, now: Instant) -> Option<Grantor> {
    let secret = shared.config.authentication.as_ref()?.secret.clone();
    let ends = Ends { address: peer.address, client: peer.connection, server: qp.number };
    Some(Grantor::new(secret, ends, shared.card.card().lease(qp.number, now), now))
}
