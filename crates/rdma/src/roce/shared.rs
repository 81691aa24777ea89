//! What the queue pairs of a device share on RoCE.

use nichrome_wire::rdma::{BthFlags, IcrcChecker, Message, PKey, QpNumber, ROCE_PORT, Repr, SrqNumber};

use super::config::RoceConfig;
use super::packet::Incoming;
use super::responder::Spare;
use crate::congestion::Congestion;
use crate::core::attributes::AddressVector;
use crate::core::memory::Memory;
use crate::core::verbs::Verbs;
use crate::net::{Datagram, Route};
use crate::transport::{Environment, Shared};

/// What the queue pairs of a device share on RoCE.
pub(crate) struct RoceShared {
    pub(crate) environment: Environment,
    pub(crate) config: RoceConfig,
    pub(crate) icrc: IcrcChecker,
    /// Room for packets that arrive ahead of lost ones.
    pub(crate) spare: Spare,
}

impl RoceShared {
    /// The route of an address vector.
    #[inline]
    pub(super) fn route(&self, vector: &AddressVector) -> Option<Route> {
        self.environment.addresses.route(vector, self.config.source_port, ROCE_PORT)
    }

    /// Whether acknowledgements echo congestion marks, in place of congestion notifications. The flag is one that the ICRC
    /// does not cover.
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
        let (environment, icrc, spare) = (environment.clone(), IcrcChecker::default(), Spare::default());
        Self { environment, config, icrc, spare }
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
        Some((bth.dest_qp, Packet { message, pkey: bth.pkey, incoming }))
    }
}
