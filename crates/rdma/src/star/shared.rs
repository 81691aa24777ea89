//! State that all StaR queue pairs of a device share: the stateless card and the egress module.

use nichrome_wire::Ecn;
use nichrome_wire::rdma::{QpNumber, UdpFlow};
use nichrome_wire::star::{Repr, STAR_PORT};

use super::card::{CardConfig, CardCounters, StatelessCard};
use super::card_queue::CardQueue;
use super::config::StarConfig;
use super::mirror_pool::MirrorPool;
use super::packet::Incoming;
use super::result_slots::ResultSlots;
use super::security::{EgressCounters, EgressModule};
use super::setup::Room as StateRoom;
use crate::core::memory::Memory;
use crate::core::verbs::Verbs;
use crate::net::{Datagram, Room, Route};
use crate::transport::{Environment, Shared, set_up::View};

/// Hop limit of the card's packets.
const HOP_LIMIT: u8 = 64;

/// State that all StaR queue pairs of a device share.
pub(crate) struct StarShared {
    pub(super) environment: Environment,
    pub(super) config: StarConfig,
    pub(super) card: CardQueue,
    pub(super) egress: EgressModule,
    /// Results of atomic operations, in the memory of the host.
    pub(super) slots: ResultSlots,
    /// The budget for the copies of servers' queues.
    pub(super) mirrors: MirrorPool,
    /// Connections in the stateless role.
    pub(super) stateless: usize,
}

impl StarShared {
    /// Returns [`StateRoom::Full`] if those of the device's `qps` queue pairs that are not stateless exceed
    /// the connection budget.
    pub(super) fn state_room(&self, qps: usize) -> StateRoom {
        match self.config.connection_budget {
            Some(budget) if qps - self.stateless > budget => StateRoom::Full,
            _ => StateRoom::Free,
        }
    }

    /// Returns the route of a connection's packet, to StaR's port. Routers may mark data only.
    pub(super) fn route_of(&self, route: &Route, is_data: bool) -> Route {
        let flow = UdpFlow { src_port: self.config.source_port, dst_port: STAR_PORT, ..route.flow };
        let ecn = if is_data { Ecn::Ect0 } else { Ecn::NotEct };
        Route { flow, traffic_class: route.traffic_class.with_ecn(ecn), ..*route }
    }
}

impl Shared for StarShared {
    type Config = StarConfig;
    type Packet<'a> = Incoming<'a>;

    const PORT: Option<u16> = Some(STAR_PORT);

    fn new(environment: &Environment, config: StarConfig) -> Self {
        let card = StatelessCard::new(CardConfig {
            epoch: config.epoch,
            max_payload: environment.mtu.bytes() as u16,
            hop_limit: HOP_LIMIT,
            authentication: config.authentication.clone(),
        });
        let card = CardQueue::new(card, config.waiting_packets);
        let (environment, egress) = (environment.clone(), EgressModule::default());
        let (slots, mirrors) = (ResultSlots::default(), MirrorPool::new(config.mirrored_bytes_in_all));
        Self { environment, config, card, egress, slots, mirrors, stateless: 0 }
    }

    fn read<'a, M: Memory>(
        &mut self,
        datagram: &Datagram<'a>,
        verbs: &mut Verbs<M>,
    ) -> Option<(QpNumber, Incoming<'a>)> {
        let Ok((repr, payload, authentication)) = Repr::parse(datagram.bytes) else {
            verbs.counters.dropped_malformed += 1;
            return None;
        };
        let kind = repr.message.packet_type();
        if !kind.is_for_card() {
            let ecn = datagram.traffic_class.ecn();
            return Some((repr.connection, Incoming { repr, payload, authentication, ecn }));
        }
        // A host without a stateless connection drops packets for a card.
        match self.stateless {
            0 => verbs.counters.dropped_unknown += 1,
            _ => self.card.receive(datagram, kind, verbs),
        }
        None
    }

    fn write<M: Memory>(&mut self, room: &mut Room<'_>, verbs: &mut Verbs<M>) -> bool {
        !self.card.is_empty() && self.card.fill(room, &mut self.slots, verbs)
    }

    fn follows_regions(&self) -> bool {
        self.stateless > 0
    }

    fn stateless(&self) -> usize {
        self.stateless
    }

    fn state_bytes(&self) -> usize {
        if self.stateless > 0 { self.card.state_bytes() } else { 0 }
    }
}

impl View for CardCounters {
    type Shared = StarShared;

    fn of(shared: &StarShared) -> Self {
        *shared.card.card().counters()
    }
}

impl View for EgressCounters {
    type Shared = StarShared;

    fn of(shared: &StarShared) -> Self {
        *shared.egress.counters()
    }
}
