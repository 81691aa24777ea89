//! The stateless card: an answer is a function of the packet and the host's registered memory only.
//!
//! | packet | check, in this order | if it fails |
//! |---|---|---|
//! | any | form, type RDP, GD or AOP, integrity check (which covers the epoch) | dropped |
//! | authenticated | the tag, by lease key and grant code computed from the secret and the packet | dropped |
//! | not authenticated | the card requires no authentication | refused: [`Reason::Denied`] |
//! | any | the packet has not expired, and expires within [`LONGEST`] | refused: [`Reason::Expired`] |
//! | authenticated | the lease has not ended, and is not void | refused: [`Reason::Lease`] |
//! | GD | the bytes fit in a packet | refused: [`Reason::Length`] |
//! | RDP, GD, AOP | rights and bytes of the capability | refused, with the reason |
//! | RDP, GD, AOP whose result is not in its slot | key, right and bounds of the region | refused, with the reason |
//! | AOP whose result is not in its slot | the ticket and the alignment (`result_slots.rs`) | refused: [`Reason::Atomic`] |
//!
//! A refusal of a packet that is not authenticated has no reason other than [`Reason::Expired`] and
//! [`Reason::Denied`]. The card looks up no connection: it copies the connection's number into the answer and
//! sends that to the packet's source, authenticated with the packet's lease key.

use nichrome_wire::rdma::{QpNumber, UdpFlow};
use nichrome_wire::star::{
    Atomic, Authentication, Capability, Epoch, Flags, GrantCode, Lease, Message, PacketCheck, PacketType,
    PacketWriter, Reason, Repr, Rights, STAR_PORT, Span, Stamp,
};
use nichrome_wire::{AddressPair, Ecn, Instant, TrafficClass};

use super::grants::{Grant, GrantCache};
use super::memory_table::{Reach, RegisteredMemory};
use super::result_slots::ResultSlots;
use super::revoked::Revoked;
use super::server_clock::{LONGEST, stamp_of};
use super::tag::{ConnectionKey, Ends, ServerSecret};
use crate::core::memory::Memory;
use crate::net::{Datagram, Route};

/// The configuration of a stateless card.
#[derive(Clone, Debug)]
pub struct CardConfig {
    /// Identifies this start of the card, chosen at random.
    pub epoch: Epoch,
    /// Maximum payload bytes of an SDP.
    pub max_payload: u16,
    /// Hop limit of answers.
    pub hop_limit: u8,
    /// Requires authenticated packets; `None` accepts only packets without authentication.
    pub authentication: Option<CardAuthentication>,
}

/// The authentication of packets.
#[derive(Clone, Debug)]
pub struct CardAuthentication {
    /// The secret from which the card derives the keys of connections.
    pub secret: ServerSecret,
}

/// The counters of a card since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardCounters {
    /// RDPs whose payload was stored.
    pub stored: u64,
    /// GDs that were answered with data.
    pub fetched: u64,
    /// AOPs that were answered with data.
    pub atomics: u64,
    /// Bytes of payload stored.
    pub bytes_stored: u64,
    /// Bytes of payload sent.
    pub bytes_fetched: u64,
    /// Packets received with a congestion mark.
    pub congestion_marks: u64,
    /// Refused: key, owner, right, bounds or state did not allow the access, or the memory is not mapped.
    pub refused_memory: u64,
    /// Refused: more bytes than fit a packet.
    pub refused_length: u64,
    /// Refused: expired, by delay or as a replay; or a client has a wrong clock.
    pub refused_expired: u64,
    /// Refused: not authenticated.
    pub refused_unauthenticated: u64,
    /// Refused: the lease has ended, or the connection is closed.
    pub refused_lease: u64,
    /// Dropped: not an RDP, GD or AOP.
    pub dropped_malformed: u64,
    /// Dropped: wrong integrity check, by damage or another epoch.
    pub dropped_check: u64,
    /// Dropped: wrong tag, or any tag if the card has no authentication.
    pub dropped_tag: u64,
    /// Dropped: the driver's buffer is too short for the answer.
    pub dropped_buffer: u64,
}

impl CardCounters {
    /// Returns the number of payload bytes in the answers.
    pub(super) const fn bytes_sent(&self) -> u64 {
        self.bytes_fetched + Atomic::WORD as u64 * self.atomics
    }
}

/// An answer at the front of the driver's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The route. A driver whose socket has one source port may use that instead.
    pub route: Route,
    /// Length in bytes.
    pub len: usize,
}

/// The card of the stateless side. Its size does not depend on the number of connections; the card allocates
/// all its memory at its start.
#[derive(Clone, Debug)]
pub struct StatelessCard {
    config: CardConfig,
    counters: CardCounters,
    revoked: Revoked,
    grants: GrantCache,
}

/// An RA that is not built yet.
#[derive(Clone, Copy)]
pub(super) struct Acknowledgement {
    repr: Repr,
    pub(super) route: Route,
    key: Option<ConnectionKey>,
}

impl Acknowledgement {
    /// Returns the length of the packet in bytes.
    pub(super) fn len(&self) -> usize {
        self.repr.datagram_len(0)
    }

    /// Returns the client's number of the connection.
    pub(super) fn connection(&self) -> QpNumber {
        self.repr.connection
    }

    /// Merges `later` into this answer if one packet can acknowledge both: stored RDPs of one connection, at
    /// most 16 apart.
    #[inline]
    pub(super) fn merge(&mut self, later: &Self) -> bool {
        let (Message::Ra(Ok(before)), Message::Ra(Ok(0))) = (self.repr.message, later.repr.message) else {
            return false;
        };
        let distance = later.repr.sequence.since(self.repr.sequence);
        let Ok(distance @ 1..=u16::BITS) = u32::try_from(distance) else { return false };
        let like = Repr { sequence: self.repr.sequence, message: self.repr.message, ..later.repr };
        let is_like = self.repr.flags.with(Flags::LAST) == like.flags.with(Flags::LAST)
            && self.repr.connection == like.connection
            && (self.route, self.key) == (later.route, later.key);
        if !is_like || u32::from(before).leading_zeros() - 16 < distance {
            return false;
        }
        let before = u32::from(before) << distance | 1 << (distance - 1);
        self.repr = Repr { message: Message::Ra(Ok(before as u16)), ..later.repr };
        true
    }
}

/// A request with a valid integrity check and tag.
struct CardRequest<'a> {
    repr: Repr,
    payload: &'a [u8],
    /// The key of an authenticated packet, and of its answer.
    key: Option<ConnectionKey>,
}

impl StatelessCard {
    /// Bytes of its memory.
    pub(super) const BYTES: usize = size_of::<Self>() + Revoked::BYTES + GrantCache::BYTES;

    /// Starts a card.
    pub fn new(config: CardConfig) -> Self {
        let (counters, revoked, grants) = (CardCounters::default(), Revoked::new(), GrantCache::new());
        Self { config, counters, revoked, grants }
    }

    /// Returns the counters since the start.
    pub const fn counters(&self) -> &CardCounters {
        &self.counters
    }

    /// Returns the time of the card's clock at `now`, for set-up.
    pub fn clock(&self, now: Instant) -> Stamp {
        stamp_of(now)
    }

    /// Returns the lease of a connection that begins at `now`.
    pub fn lease(&self, server: QpNumber, now: Instant) -> Lease {
        self.revoked.begin(server, now)
    }

    /// Returns the leases that are void.
    pub(super) const fn revoked(&self) -> &Revoked {
        &self.revoked
    }

    /// Ends the leases of a closed connection at once, the last of which is `last`.
    pub fn revoke(&mut self, server: QpNumber, last: Lease, now: Instant) {
        self.revoked.revoke(server, last, now);
    }

    /// Executes an RDP, GD or AOP that arrived at `now` and builds the answer at the front of `buffer`. Drops
    /// and counts invalid packets, with `None`.
    #[inline]
    pub fn respond<M: Memory>(
        &mut self,
        datagram: &Datagram<'_>,
        now: Instant,
        registered: &impl RegisteredMemory,
        (memory, slots): (&mut M, &mut ResultSlots),
        buffer: &mut [u8],
    ) -> Option<Answer> {
        let (request, admitted) = self.authenticate(datagram, now)?;
        let mut found = 0;
        let mut outcome = match request.repr.message {
            Message::Rdp(span) => {
                let stored = admitted.and_then(|()| self.store(&request, span, registered, memory));
                let acknowledgement = self.acknowledge(&request, stored, datagram);
                return self.write(&acknowledgement, now, buffer);
            }
            Message::Gd(span, len) => admitted.and_then(|()| self.locate(&request, span, len, registered)),
            Message::Aop(span, atomic) => admitted.and_then(|()| {
                let before = execute(span, &atomic, registered, memory, slots);
                found = before.map_err(|why| request.reason_for_answer(why))?;
                Ok(Done { address: span.address, len: Atomic::WORD })
            }),
            _ => return None,
        };
        let is_marked = datagram.traffic_class.ecn() == Ecn::Ce;
        self.counters.congestion_marks += u64::from(is_marked);
        let clock = stamp_of(now);
        let answer = answer_to(&request.repr, &outcome, is_marked, clock);
        let payload_len = match (answer.message, outcome) {
            (Message::Sdp(Ok(())), Ok(Done { len, .. })) => usize::from(len),
            _ => 0,
        };
        let Some(mut writer) = PacketWriter::new(&answer, payload_len, buffer) else {
            self.counters.dropped_buffer += 1;
            return None;
        };
        if let Message::Aop(..) = request.repr.message
            && payload_len > 0
        {
            writer.payload().copy_from_slice(&found.to_ne_bytes());
        } else if payload_len > 0
            && let Ok(Done { address, .. }) = outcome
            && memory.read(address, writer.payload()).is_err()
        {
            outcome = Err(request.reason_for_answer(Reason::Fault));
            writer = PacketWriter::new(&answer_to(&request.repr, &outcome, is_marked, clock), 0, buffer)?;
        }
        self.count(&request.repr.message, outcome);
        let is_data = payload_len > 0 && outcome.is_ok();
        let route = self.route_back(datagram, is_data);
        Some(Answer { route, len: self.finish(writer, &route.flow, request.key) })
    }

    /// Executes an RDP that arrived at `now`, and returns its RA. Returns `None` if the packet is invalid,
    /// which is dropped and counted, or is not an RDP.
    #[inline]
    pub(super) fn execute_rdp<M: Memory>(
        &mut self,
        datagram: &Datagram<'_>,
        now: Instant,
        registered: &impl RegisteredMemory,
        memory: &mut M,
    ) -> Option<Acknowledgement> {
        let (request, admitted) = self.authenticate(datagram, now)?;
        let Message::Rdp(span) = request.repr.message else { return None };
        let stored = admitted.and_then(|()| self.store(&request, span, registered, memory));
        Some(self.acknowledge(&request, stored, datagram))
    }

    #[inline]
    fn acknowledge(
        &mut self,
        request: &CardRequest<'_>,
        stored: Result<Done, Reason>,
        datagram: &Datagram<'_>,
    ) -> Acknowledgement {
        self.count(&request.repr.message, stored);
        let is_marked = datagram.traffic_class.ecn() == Ecn::Ce;
        self.counters.congestion_marks += u64::from(is_marked);
        let repr = answer_to(&request.repr, &stored, is_marked, Stamp(0));
        Acknowledgement { repr, route: self.route_back(datagram, false), key: request.key }
    }

    /// Builds an RA at the front of `buffer`, with the card's clock at `now`.
    #[inline]
    pub(super) fn write(&mut self, ra: &Acknowledgement, now: Instant, buffer: &mut [u8]) -> Option<Answer> {
        let repr = Repr { stamp: stamp_of(now), ..ra.repr };
        let Some(writer) = PacketWriter::new(&repr, 0, buffer) else {
            self.counters.dropped_buffer += 1;
            return None;
        };
        Some(Answer { route: ra.route, len: self.finish(writer, &ra.route.flow, ra.key) })
    }

    /// Parses a packet and checks it, apart from its memory. Returns `None` if it drops the packet, an error
    /// if the answer is a refusal.
    #[inline]
    fn authenticate<'a>(
        &mut self,
        datagram: &Datagram<'a>,
        now: Instant,
    ) -> Option<(CardRequest<'a>, Result<(), Reason>)> {
        let (repr, payload, authentication) = match Repr::parse(datagram.bytes) {
            Ok(parsed) if parsed.0.message.packet_type().is_for_card() => parsed,
            _ => {
                self.counters.dropped_malformed += 1;
                return None;
            }
        };
        let Some(authentication) = authentication else {
            if !PacketCheck::new(self.config.epoch).is_valid(&datagram.flow, datagram.bytes) {
                self.counters.dropped_check += 1;
                return None;
            }
            let admitted = match self.config.authentication {
                None => is_current(repr.stamp, stamp_of(now)),
                Some(_) => Err(Reason::Denied),
            };
            return Some((CardRequest { repr, payload, key: None }, admitted));
        };
        let key = self.lease_key(datagram, &repr, &authentication);
        self.counters.dropped_tag += u64::from(key.is_none());
        let Capability { server, lease, .. } = repr.message.span()?.capability;
        let admitted = is_current(repr.stamp, stamp_of(now))
            .and_then(|()| if self.revoked.admits(server, lease, now) { Ok(()) } else { Err(Reason::Lease) });
        Some((CardRequest { repr, payload, key: Some(key?) }, admitted))
    }

    /// Returns the lease key of a packet if its tag is right: a client of this server sent it, for memory
    /// that it was granted.
    #[inline]
    fn lease_key(
        &mut self,
        datagram: &Datagram<'_>,
        repr: &Repr,
        authentication: &Authentication,
    ) -> Option<ConnectionKey> {
        let secret = &self.config.authentication.as_ref()?.secret;
        let span = repr.message.span()?;
        let Capability { base, len, rights, server, lease } = span.capability;
        let ends = Ends { address: datagram.flow.addresses.src(), client: repr.connection, server };
        let grant = Grant { ends, lease, key: span.key, range: (base, len), rights };
        let input = self.grants.tag_input(&grant, secret);
        if !input.key.is_valid(input.code, &datagram.flow, datagram.bytes, authentication) {
            return None;
        }
        self.grants.keep(&grant, input);
        Some(input.key)
    }

    /// Stores the payload of an RDP.
    #[inline]
    fn store<M: Memory>(
        &self,
        request: &CardRequest<'_>,
        span: Span,
        registered: &impl RegisteredMemory,
        memory: &mut M,
    ) -> Result<Done, Reason> {
        let len = u16::try_from(request.payload.len()).map_err(|_| Reason::Length)?;
        let address = request.resolve(span, len, Rights::STORE, registered)?;
        memory.write(address, request.payload).map_err(|_| request.reason_for_answer(Reason::Fault))?;
        Ok(Done { address, len })
    }

    /// Checks a GD and returns the address of its bytes.
    #[inline]
    fn locate(
        &self,
        request: &CardRequest<'_>,
        span: Span,
        len: u16,
        registered: &impl RegisteredMemory,
    ) -> Result<Done, Reason> {
        if len > self.config.max_payload {
            return Err(request.reason_for_answer(Reason::Length));
        }
        let address = request.resolve(span, len, Rights::FETCH, registered)?;
        Ok(Done { address, len })
    }

    #[inline]
    fn count(&mut self, message: &Message, outcome: Result<Done, Reason>) {
        let Self { counters, config, .. } = self;
        match (message, outcome) {
            (Message::Rdp(_), Ok(Done { len, .. })) => {
                counters.stored += 1;
                counters.bytes_stored += u64::from(len);
            }
            (Message::Aop(..), Ok(_)) => counters.atomics += 1,
            (_, Ok(Done { len, .. })) => {
                counters.fetched += 1;
                counters.bytes_fetched += u64::from(len);
            }
            (_, Err(Reason::Length)) => counters.refused_length += 1,
            (_, Err(Reason::Expired)) => counters.refused_expired += 1,
            (_, Err(Reason::Lease)) => counters.refused_lease += 1,
            (_, Err(Reason::Denied)) if config.authentication.is_some() => {
                counters.refused_unauthenticated += 1;
            }
            (_, Err(_)) => counters.refused_memory += 1,
        }
    }

    /// Returns the route of an answer: addresses exchanged, and the client's source port, which determines
    /// the path. Routers may mark data, not acknowledgements.
    #[inline]
    fn route_back(&self, datagram: &Datagram<'_>, is_data: bool) -> Route {
        let addresses = match datagram.flow.addresses {
            AddressPair::V4 { src, dst } => AddressPair::V4 { src: dst, dst: src },
            AddressPair::V6 { src, dst } => AddressPair::V6 { src: dst, dst: src },
        };
        let flow = UdpFlow { addresses, src_port: datagram.flow.src_port, dst_port: STAR_PORT };
        let ecn = if is_data { Ecn::Ect0 } else { Ecn::NotEct };
        let traffic_class = TrafficClass(datagram.traffic_class.0).with_ecn(ecn);
        Route { flow, traffic_class, flow_label: 0, hop_limit: self.config.hop_limit }
    }

    #[inline]
    fn finish(&self, writer: PacketWriter<'_>, flow: &UdpFlow, key: Option<ConnectionKey>) -> usize {
        match key {
            Some(key) => writer.finish_authenticated(flow, |addresses, covered| {
                key.tag(GrantCode::default(), addresses, covered)
            }),
            None => writer.finish(flow, PacketCheck::new(self.config.epoch)),
        }
    }
}

/// The memory that a request stored to or fetches from.
#[derive(Clone, Copy)]
struct Done {
    address: u64,
    len: u16,
}

impl CardRequest<'_> {
    /// Checks capability and region; returns the address in the program's memory.
    #[inline]
    fn resolve(
        &self,
        span: Span,
        len: u16,
        right: Rights,
        registered: &impl RegisteredMemory,
    ) -> Result<u64, Reason> {
        let reached = Reach::new(span, len, right).and_then(|reach| registered.resolve(&reach));
        reached.map_err(|reason| self.reason_for_answer(reason))
    }

    /// Returns the reason for the answer: `Denied` for peers that are not authenticated.
    #[inline]
    fn reason_for_answer(&self, reason: Reason) -> Reason {
        if self.key.is_some() { reason } else { Reason::Denied }
    }
}

/// Executes an AOP unless its result is known; returns the previous value.
fn execute<M: Memory>(
    span: Span,
    atomic: &Atomic,
    registered: &impl RegisteredMemory,
    memory: &mut M,
    slots: &mut ResultSlots,
) -> Result<u64, Reason> {
    let reach = Reach::new(span, Atomic::WORD, Rights::ATOMIC)?;
    let server = span.capability.server;
    // The server's program may have seen the effect and deregistered the memory since.
    match slots.result(server, atomic) {
        Some(before) => Ok(before),
        None => slots.execute(server, atomic, registered.resolve(&reach)?, memory),
    }
}

/// Returns the headers of an answer at `clock`: those of the request, with the outcome.
#[inline]
fn answer_to(request: &Repr, outcome: &Result<Done, Reason>, is_marked: bool, clock: Stamp) -> Repr {
    let message = match request.message.packet_type() {
        PacketType::Rdp => Message::Ra(outcome.map(|_| 0)),
        _ => Message::Sdp(outcome.map(|_| ())),
    };
    let echo = if is_marked { Flags::ECN_ECHO } else { Flags::NONE };
    Repr { flags: request.flags | echo, stamp: clock, message, ..*request }
}

/// Checks that a packet's stamp is at most [`LONGEST`] after `now`, and not before.
#[inline]
fn is_current(stamp: Stamp, now: Stamp) -> Result<(), Reason> {
    if stamp.0.wrapping_sub(now.0) <= LONGEST { Ok(()) } else { Err(Reason::Expired) }
}
