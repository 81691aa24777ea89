//! StaR at the device: its set-up, its packets, and what the stateless side's card does.

use nichrome_wire::SeqNumber;
use nichrome_wire::rdma::RKey;
use nichrome_wire::star::{Element, PacketCheck, Registration, Repr};

use super::Device;
use super::transport::Transport;
use crate::core::memory::Memory;
use crate::core::protection::Region;
use crate::core::slab::Handle;
use crate::error::{ConnectError, ObjectError, ObjectKind};
use crate::kind;
use crate::qp::attributes::{QpState, QpType};
use crate::qp::{QueuePair, Receives, Settings};
use crate::roce::packet::Datagram;
use crate::star::driver::Driver;
use crate::star::endpoint::{Endpoint, Seal};
use crate::star::packet::Incoming;
use crate::star::stateful::Stateful;
use crate::star::{
    Admission, CardCounters, Credentials, EgressCounters, Offer, QueueDepth, Room, StarRole, StatelessCard,
    Timers, Wish,
};

impl<M: Memory> Device<M> {
    /// Has a reliable connection's queue pair wait until it is known which transport it is on: requests can be posted, and
    /// nothing is sent or taken in before [`Device::connect_star`] or [`Device::release_qp`], or a reset.
    ///
    /// # Errors
    /// The queue pair does not exist, is no reliable connection, or may have sent already.
    pub fn hold_qp(&mut self, handle: Handle<kind::Qp>) -> Result<(), ConnectError> {
        let state = self.reliable(handle)?.state;
        match self.qps.get_mut(handle) {
            Some(Transport::Roce(connection)) if matches!(state, QpState::Init | QpState::Rtr) => {
                connection.qp.on_hold = true;
                Ok(())
            }
            _ => Err(ConnectError::State(state)),
        }
    }

    /// The transport of a queue pair that was held is RoCE.
    ///
    /// # Errors
    /// The queue pair does not exist.
    pub fn release_qp(&mut self, handle: Handle<kind::Qp>) -> Result<(), ConnectError> {
        let transport = self.qps.get_mut(handle).ok_or(ObjectError::Unknown(ObjectKind::Qp))?;
        transport.qp_mut().on_hold = false;
        self.settle(handle.index());
        Ok(())
    }

    /// Whether the device has room for the state of the connections that exist, those to be connected included. Where it
    /// has not, a new one can only be stateless here.
    pub fn room(&self) -> Room {
        let keeping = self.qps.len() - self.stateless;
        match self.config.star.connection_budget {
            Some(budget) if keeping > budget => Room::Full,
            _ => Room::Free,
        }
    }

    /// What set-up tells of a queue pair, by its attributes as they are. `first_element` is best chosen at random.
    ///
    /// # Errors
    /// The queue pair does not exist, or is no reliable connection.
    pub fn star_offer(
        &self,
        qp: Handle<kind::Qp>,
        wish: Wish,
        first_element: SeqNumber,
    ) -> Result<Offer, ConnectError> {
        let qp = self.reliable(qp)?;
        let settings = &qp.settings;
        let source = settings.path.map_or(0, |path| usize::from(path.source_index));
        let address = self.config.addresses.get(source).or(self.config.addresses.first());
        let receives = match &qp.receives {
            Receives::Own(_) => crate::star::Receives::Own,
            Receives::Shared(_) => crate::star::Receives::Shared,
        };
        let depth =
            QueueDepth { sends: qp.capacity.send_wrs as u32, receives: qp.capacity.receive_wrs as u32 };
        let timers = Timers {
            timeout: settings.timeout,
            retry_count: settings.retry_count,
            rnr_retry: settings.rnr_retry,
            min_rnr_timer: settings.min_rnr_timer.code(),
        };
        Ok(Offer {
            wish,
            room: self.room(),
            receives,
            connection: qp.number,
            peer_connection: settings.destination,
            address: *address.ok_or(ObjectError::Address(0))?,
            path_mtu: settings.path_mtu,
            access: settings.access,
            first_element,
            depth,
            timers,
        })
    }

    /// What the stateless side tells the peer that it admits.
    ///
    /// # Errors
    /// The queue pair does not exist, or is no reliable connection.
    pub fn star_admission(&self, qp: Handle<kind::Qp>, peer: &Offer) -> Result<Admission, ConnectError> {
        let domain = self.reliable(qp)?.domain;
        let star = &self.config.star;
        let credentials = star.authentication.as_ref().map(|authentication| Credentials {
            key: authentication.secret.connection_key(peer.address, peer.connection, domain.name()),
            clock: self.answers.card().clock(self.verbs.now),
            lifetime_ms: authentication.lifetime_ms,
        });
        let regions = self.verbs.protection.regions_of(domain);
        let regions = regions.map(|(key, region)| registration(key, region)).collect();
        Ok(Admission { epoch: star.epoch, domain: domain.name(), credentials, regions })
    }

    fn reliable(&self, qp: Handle<kind::Qp>) -> Result<&QueuePair, ConnectError> {
        let qp = self.qps.get(qp).ok_or(ObjectError::Unknown(ObjectKind::Qp))?.qp();
        if qp.kind == QpType::Rc { Ok(qp) } else { Err(ConnectError::Service(qp.kind)) }
    }

    /// Puts a reliable connection on StaR, as set-up has brought it about: `ours` and `theirs` are what both sides have
    /// told, and the role is the one that follows. From then on what was posted is done that way, until the queue pair
    /// is reset.
    ///
    /// # Errors
    /// The queue pair does not exist, is no reliable connection, is on StaR already, in a state to be connected no more,
    /// or sends were posted although it was not held; the stateless side has no receives of its own.
    pub fn connect_star(
        &mut self,
        handle: Handle<kind::Qp>,
        ours: &Offer,
        theirs: &Offer,
        role: &StarRole,
    ) -> Result<(), ConnectError> {
        let qp = self.reliable(handle)?;
        let is_roce = matches!(self.qps.get(handle), Some(Transport::Roce(_)));
        let connectable = matches!(qp.state, QpState::Init | QpState::Rtr | QpState::Rts);
        if !is_roce || !connectable || qp.sends.len() > 0 && !qp.on_hold {
            return Err(ConnectError::State(qp.state));
        }
        if *role == StarRole::Stateless && matches!(qp.receives, Receives::Shared(_)) {
            return Err(ConnectError::SharedReceives);
        }
        let (domain, number) = (qp.domain, qp.number);
        if let StarRole::Stateful(admission) = role {
            self.verbs.egress.admit(number, theirs.address, theirs.access, admission);
        }
        let Self { qps, config, verbs, stateless, .. } = self;
        let star = &config.star;
        qps.replace(handle, |transport| {
            let Transport::Roce(connection) = transport else { return transport };
            let mut qp = QueuePair { on_hold: false, ..connection.qp };
            if qp.state != QpState::Rts {
                // A program that only receives never says them, and the client sends for both sides.
                let Timers { timeout, retry_count, rnr_retry, .. } = ours.timers;
                qp.settings = Settings { timeout, retry_count, rnr_retry, ..qp.settings };
            }
            match role {
                StarRole::Stateful(admission) => Transport::Stateful(Box::new(Stateful::new(
                    qp, ours, theirs, admission, config, verbs.now,
                ))),
                StarRole::Stateless => {
                    let proof = star.authentication.as_ref().map(|authentication| {
                        let domain = domain.name();
                        (
                            authentication.secret.connection_key(theirs.address, theirs.connection, domain),
                            domain,
                        )
                    });
                    let seal = Seal { check: PacketCheck::new(star.epoch), proof };
                    verbs.egress.serve();
                    *stateless += 1;
                    Transport::Stateless(Box::new(Driver::new(qp, ours, theirs, seal)))
                }
            }
        });
        self.settle(handle.index());
        Ok(())
    }

    /// What the stateless card has done.
    pub fn card_counters(&self) -> &CardCounters {
        self.answers.card().counters()
    }

    /// What of StaR has left this device, and what its security module has not let out.
    pub fn egress_counters(&self) -> &EgressCounters {
        self.verbs.egress.counters()
    }

    /// Connections whose state the peer keeps.
    pub fn stateless_connections(&self) -> usize {
        self.stateless
    }

    /// Bytes that a card would hold for the connections of this device: the stateless card and the state of each transport.
    /// What lies in the host's memory with any card is not counted: the programs' queues, and the driver of the stateless
    /// side.
    pub fn card_state_bytes(&self) -> usize {
        let states =
            (0..self.qps.places()).filter_map(|index| self.qps.at(index)).map(Transport::state_bytes);
        size_of::<StatelessCard>() + states.sum::<usize>()
    }

    /// Takes in a datagram for the port of StaR.
    pub(super) fn receive_star(&mut self, datagram: &Datagram<'_>) {
        let Ok((repr, payload, authentication)) = Repr::parse(datagram.bytes) else {
            self.verbs.counters.dropped_malformed += 1;
            return;
        };
        if repr.message.packet_type().is_for_card() {
            // A card that serves nobody knows no packets of StaR.
            match self.stateless {
                0 => self.verbs.counters.dropped_unknown += 1,
                _ => self.answers.receive(datagram, repr.message.packet_type(), &mut self.verbs),
            }
            return;
        }
        let index = self.place_of(repr.connection);
        let found = index.and_then(|index| Some((index, self.qps.at_mut(index)?)));
        let Some((index, transport)) = found.filter(|(_, found)| is_from_peer(found.qp(), datagram)) else {
            self.verbs.counters.dropped_unknown += 1;
            return;
        };
        let packet = Incoming { repr, payload, authentication, ecn: datagram.traffic_class.ecn() };
        let Self { config, verbs, .. } = self;
        match transport {
            Transport::Roce(_) => verbs.counters.dropped_unknown += 1,
            Transport::Stateful(client) => take_in(client.as_mut(), datagram, &packet, config, verbs),
            Transport::Stateless(driver) => take_in(driver.as_mut(), datagram, &packet, config, verbs),
        }
        self.settle(index);
    }

    /// Memory of a domain was registered, or is no longer: the clients of its stateless connections are told.
    pub(super) fn tell_clients(&mut self, domain: Handle<kind::Domain>, element: Element) {
        if self.stateless == 0 {
            return;
        }
        for index in 0..self.qps.places() {
            let Some(Transport::Stateless(driver)) = self.qps.at_mut(index) else { continue };
            if driver.qp.domain == domain {
                driver.tell(element);
                self.settle(index);
            }
        }
    }

    /// What clients are told of a region.
    pub(super) fn tell_registered(&mut self, handle: Handle<kind::Key>) {
        let protection = &self.verbs.protection;
        if let Some((region, key)) = protection.region(handle).zip(protection.key_of(handle)) {
            let element = Element::Register(registration(key, region));
            self.tell_clients(region.domain, element);
        }
    }

    /// What clients are told of a region that goes.
    pub(super) fn tell_deregistered(&mut self, domain: Handle<kind::Domain>, key: u32) {
        self.tell_clients(domain, Element::Deregister(RKey(key)));
    }
}

fn take_in<M: Memory>(
    endpoint: &mut impl Endpoint<M>,
    datagram: &Datagram<'_>,
    packet: &Incoming<'_>,
    config: &crate::Config,
    verbs: &mut crate::core::verbs::Verbs<M>,
) {
    if endpoint.seal().is_right(&datagram.flow, datagram.bytes, packet.authentication.as_ref()) {
        endpoint.receive(packet, config, verbs);
    } else {
        verbs.counters.dropped_icrc += 1;
    }
}

fn registration(key: u32, region: &Region) -> Registration {
    let Region { access, io_address, len, .. } = *region;
    Registration { key: RKey(key), address: io_address, len, rights: access.bits() }
}

/// Whether a datagram comes from where the connection's packets go.
fn is_from_peer(qp: &QueuePair, datagram: &Datagram<'_>) -> bool {
    let (ours, theirs) = match &qp.route {
        Some(route) => (&route.flow.addresses, &datagram.flow.addresses),
        None => return false,
    };
    ours.src() == theirs.dst() && ours.dst() == theirs.src()
}
