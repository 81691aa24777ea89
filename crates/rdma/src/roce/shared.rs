//! State that all RoCE queue pairs of a device share.

use nichrome_wire::rdma::{
    BthFlags, IcrcCheck, IcrcChecker, Message, PKey, QpNumber, ROCE_PORT, Repr, SrqNumber,
};

use super::config::RoceConfig;
use super::general_services::{GeneralServices, ManagementDatagram};
use super::held_pool::HeldPool;
use super::packet::Incoming;
use crate::congestion::Congestion;
use crate::core::attributes::AddressVector;
use crate::core::memory::Memory;
use crate::core::verbs::Verbs;
use crate::net::{Datagram, Room, Route};
use crate::transport::{Environment, Shared};

/// State that all RoCE queue pairs of a device share.
pub(crate) struct RoceShared {
    pub(crate) environment: Environment,
    pub(crate) config: RoceConfig,
    pub(crate) icrc: IcrcChecker,
    /// Room for packets that arrive ahead of lost ones.
    pub(crate) held_pool: HeldPool,
    pub(crate) general_services: GeneralServices,
}

impl RoceShared {
    /// Returns the route of an address vector.
    #[inline]
    pub(super) fn route(&self, vector: &AddressVector) -> Option<Route> {
        self.environment.addresses.route(vector, self.config.source_port, ROCE_PORT)
    }

    /// Queues a management datagram; drops it if the device has no such source address or the queue is full.
    pub(crate) fn send_management<M: Memory>(&mut self, datagram: &ManagementDatagram, verbs: &mut Verbs<M>) {
        let ManagementDatagram { source, destination, payload } = datagram;
        let index = self.environment.addresses.index_of(*source);
        let route = index.and_then(|source_index| {
            self.route(&AddressVector { source_index, ..AddressVector::to(*destination) })
        });
        match route {
            Some(route) => self.general_services.send(route, *payload, &mut verbs.counters),
            None => verbs.counters.dropped_unknown += 1,
        }
    }

    /// Returns true if the ICRC of a datagram for queue pair 1 is right; for any identification, if the
    /// driver does not see identifications.
    fn is_icrc_valid(&mut self, datagram: &Datagram<'_>) -> bool {
        match self.icrc.check(&datagram.flow, datagram.bytes) {
            IcrcCheck::Valid => true,
            IcrcCheck::ValidForIdent(_) => !self.config.sees_identifications,
            IcrcCheck::Wrong => false,
        }
    }

    /// Returns true if ACKs echo congestion marks by BECN, in place of CNPs. The ICRC does not cover BECN.
    #[inline]
    pub(super) fn echoes_marks(&self) -> bool {
        matches!(self.config.congestion, Congestion::Dctcp)
    }
}

/// A parsed packet.
pub(crate) struct Packet<'a> {
    pub(super) message: Message,
    pub(super) pkey: PKey,
    pub(super) incoming: Incoming<'a>,
}

impl Shared for RoceShared {
    type Config = RoceConfig;
    type Packet<'a> = Packet<'a>;

    const PORT: Option<u16> = Some(ROCE_PORT);

    fn new(environment: &Environment, config: RoceConfig) -> Self {
        Self {
            environment: environment.clone(),
            config,
            icrc: IcrcChecker::default(),
            held_pool: HeldPool::default(),
            general_services: GeneralServices::default(),
        }
    }

    #[inline]
    fn read<'a, M: Memory>(
        &mut self,
        datagram: &Datagram<'a>,
        verbs: &mut Verbs<M>,
    ) -> Option<(QpNumber, Packet<'a>)> {
        let Ok((Repr { bth, message }, payload)) = Repr::parse(datagram.bytes) else {
            verbs.counters.dropped_malformed += 1;
            return None;
        };
        let incoming = Incoming {
            psn: bth.psn,
            srq: if let Message::Xrc(srq, _) = message { srq } else { SrqNumber::default() },
            ack_request: bth.flags.contains(BthFlags::ACK_REQUEST),
            solicited: bth.flags.contains(BthFlags::SOLICITED),
            selective: bth.flags.contains(BthFlags::SELECTIVE),
            ecn_echo: self.echoes_marks() && bth.flags.contains(BthFlags::BECN),
            payload,
            addresses: datagram.flow.addresses,
            traffic_class: datagram.traffic_class,
        };
        if bth.dest_qp == QpNumber::GENERAL_SERVICES {
            let is_icrc_valid = self.is_icrc_valid(datagram);
            let counters = &mut verbs.counters;
            self.general_services.receive(&message, bth.pkey, &incoming, is_icrc_valid, counters);
            return None;
        }
        Some((bth.dest_qp, Packet { message, pkey: bth.pkey, incoming }))
    }

    #[inline]
    fn write<M: Memory>(&mut self, room: &mut Room<'_>, verbs: &mut Verbs<M>) -> bool {
        self.general_services.write(room, &mut verbs.counters)
    }
}
