//! The stateless card: an answer is a function of the packet and the host's registered memory only.
//!
//! | packet | check, in this order | if it fails |
//! |---|---|---|
//! | any | form, type RDP or GD, integrity check (which covers the epoch) | dropped |
//! | authenticated | the tag, by the key computed from the secret and the packet | dropped |
//! | authenticated | the stamp's distance from the card's clock | refused: [`Reason::Stamp`] |
//! | not authenticated | the card requires no authentication | refused: [`Reason::Unauthenticated`] |
//! | GD | the bytes fit in a packet | refused: [`Reason::Length`] |
//! | RDP, GD | key, protection domain, right, bounds, as for every other access of a peer | refused, with the reason |
//!
//! The card looks up no connection: it copies the connection's number into the answer and sends that to the packet's
//! source, authenticated with the packet's key.

use nichrome_wire::rdma::UdpFlow;
use nichrome_wire::star::{
    Authentication, Epoch, Flags, Message, PacketCheck, PacketType, PacketWriter, Reason, Repr, STAR_PORT,
    Span, Stamp,
};
use nichrome_wire::{AddressPair, Ecn, Instant, TrafficClass};

use super::memory_table::{KeyKind, Reach, RegisteredMemory};
use super::tag::{ConnectionKey, ServerSecret, stamp_of};
use crate::core::access::Access;
use crate::core::memory::Memory;
use crate::net::{Datagram, Route};

/// The configuration of a stateless card.
#[derive(Clone, Debug)]
pub struct CardConfig {
    /// Identifies this start of the card, chosen at random.
    pub epoch: Epoch,
    /// Most bytes of payload in an SDP.
    pub max_payload: u16,
    /// Hop limit of answers.
    pub hop_limit: u8,
    /// Requires authenticated packets; `None` takes only packets without.
    pub authentication: Option<CardAuthentication>,
}

/// The authentication of packets.
#[derive(Clone, Debug)]
pub struct CardAuthentication {
    /// Keys of connections are derived from it.
    pub secret: ServerSecret,
    /// Most milliseconds between a stamp and the card's clock: the time in which a packet can be replayed.
    pub lifetime_ms: u32,
}

/// The counters of a card since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardCounters {
    /// RDPs whose payload was stored.
    pub stored: u64,
    /// GDs that were answered with data.
    pub fetched: u64,
    /// Bytes of payload stored.
    pub bytes_stored: u64,
    /// Bytes of payload sent.
    pub bytes_fetched: u64,
    /// Packets received with a congestion mark.
    pub congestion_marks: u64,
    /// Refused: key, owner, right, bounds or state did not allow it, or the memory is gone.
    pub refused_memory: u64,
    /// Refused: more bytes than fit a packet.
    pub refused_length: u64,
    /// Refused: the stamp is too far from the clock: a replayed packet, or a client with a wrong clock.
    pub refused_stamp: u64,
    /// Refused: not authenticated.
    pub refused_unauthenticated: u64,
    /// Dropped: not an RDP or GD.
    pub dropped_malformed: u64,
    /// Dropped: wrong integrity check, by damage or another epoch.
    pub dropped_check: u64,
    /// Dropped: wrong tag, or one that the card does not take.
    pub dropped_tag: u64,
    /// Dropped: the driver's buffer is too short for the answer.
    pub dropped_buffer: u64,
}

/// An answer at the front of the driver's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The route. A driver whose socket has one source port may use that instead.
    pub route: Route,
    /// Bytes.
    pub len: usize,
}

/// The card of the stateless side. Its size does not depend on the number of connections, and it uses no heap.
#[derive(Clone, Debug)]
pub struct StatelessCard {
    config: CardConfig,
    counters: CardCounters,
}

/// A request with a valid integrity check and tag.
struct CardRequest<'a> {
    repr: Repr,
    payload: &'a [u8],
    proof: Option<Proof>,
}

/// The key and protection domain of an authenticated packet and of its answer.
#[derive(Clone, Copy)]
struct Proof {
    key: ConnectionKey,
    domain: u32,
}

impl StatelessCard {
    /// A card that starts.
    pub fn new(config: CardConfig) -> Self {
        Self { config, counters: CardCounters::default() }
    }

    /// The counters since the start.
    pub const fn counters(&self) -> &CardCounters {
        &self.counters
    }

    /// The time of the card's clock at `now`, for set-up.
    pub fn clock(&self, now: Instant) -> Stamp {
        stamp_of(now)
    }

    /// Executes an RDP or GD that arrived at `now` and builds the answer at the front of `buffer`. Drops and counts invalid
    /// packets, with `None`.
    #[inline]
    pub fn respond<M: Memory>(
        &mut self,
        datagram: &Datagram<'_>,
        now: Instant,
        registered: &impl RegisteredMemory,
        memory: &mut M,
        buffer: &mut [u8],
    ) -> Option<Answer> {
        let (request, admitted) = self.authenticate(datagram, now)?;
        let mut outcome = match (admitted, request.repr.message) {
            (Ok(()), Message::Rdp(span)) => self.store(&request, span, registered, memory),
            (Ok(()), Message::Gd(span, len)) => self.locate(&request, span, len, registered),
            (Err(reason), _) => Err(reason),
            _ => return None,
        };
        let is_marked = datagram.traffic_class.ecn() == Ecn::Ce;
        self.counters.congestion_marks += u64::from(is_marked);
        let answer = answer_to(&request.repr, &outcome, is_marked);
        let payload_len = match (answer.message, outcome) {
            (Message::Sdp(Ok(())), Ok(Done { len, .. })) => usize::from(len),
            _ => 0,
        };
        let Some(mut writer) = PacketWriter::new(&answer, payload_len, buffer) else {
            self.counters.dropped_buffer += 1;
            return None;
        };
        if payload_len > 0
            && let Ok(Done { address, .. }) = outcome
            && memory.read(address, writer.payload()).is_err()
        {
            outcome = Err(Reason::Fault);
            writer = PacketWriter::new(&answer_to(&request.repr, &outcome, is_marked), 0, buffer)?;
        }
        self.count(&request.repr.message, outcome);
        let is_data = payload_len > 0 && outcome.is_ok();
        let route = self.route_back(datagram, is_data);
        Some(Answer { route, len: self.finish(writer, &route.flow, request.proof, now) })
    }

    /// Parses a packet and checks it, apart from its memory. Returns `None` if it drops the packet, an error if the answer is
    /// a refusal.
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
        if !PacketCheck::new(self.config.epoch).is_right(&datagram.flow, datagram.bytes) {
            self.counters.dropped_check += 1;
            return None;
        }
        let (proof, admitted) = match (&self.config.authentication, authentication) {
            (None, None) => (None, Ok(())),
            (Some(_), None) => (None, Err(Reason::Unauthenticated)),
            (Some(config), Some(authentication)) => {
                let Authentication { domain, stamp, .. } = authentication;
                let client = datagram.flow.addresses.src();
                let key = config.secret.connection_key(client, repr.connection, domain);
                if !key.is_right(&datagram.flow, datagram.bytes, &authentication) {
                    self.counters.dropped_tag += 1;
                    return None;
                }
                let fresh = is_fresh(stamp, stamp_of(now), config.lifetime_ms);
                (Some(Proof { key, domain }), if fresh { Ok(()) } else { Err(Reason::Stamp) })
            }
            (None, Some(_)) => {
                self.counters.dropped_tag += 1;
                return None;
            }
        };
        Some((CardRequest { repr, payload, proof }, admitted))
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
        let right = Reach::storing(request.key_kind());
        let address = registered.resolve(&request.reach(span, len, right))?;
        memory.write(address, request.payload).map_err(|_| Reason::Fault)?;
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
            return Err(Reason::Length);
        }
        let right = Reach::fetching(request.key_kind());
        let address = registered.resolve(&request.reach(span, len, right))?;
        Ok(Done { address, len })
    }

    #[inline]
    fn count(&mut self, message: &Message, outcome: Result<Done, Reason>) {
        let counters = &mut self.counters;
        match (message, outcome) {
            (Message::Rdp(_), Ok(Done { len, .. })) => {
                counters.stored += 1;
                counters.bytes_stored += u64::from(len);
            }
            (_, Ok(Done { len, .. })) => {
                counters.fetched += 1;
                counters.bytes_fetched += u64::from(len);
            }
            (_, Err(Reason::Length)) => counters.refused_length += 1,
            (_, Err(Reason::Stamp)) => counters.refused_stamp += 1,
            (_, Err(Reason::Unauthenticated)) => counters.refused_unauthenticated += 1,
            (_, Err(_)) => counters.refused_memory += 1,
        }
    }

    /// The route of an answer: addresses exchanged, the client's source port, which determines the path. Routers may mark
    /// data, not acknowledgements.
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
    fn finish(&self, writer: PacketWriter<'_>, flow: &UdpFlow, proof: Option<Proof>, now: Instant) -> usize {
        let check = PacketCheck::new(self.config.epoch);
        match proof {
            Some(Proof { key, domain }) => {
                writer.finish_authenticated(flow, check, domain, stamp_of(now), |addresses, covered| {
                    key.tag(addresses, covered)
                })
            }
            None => writer.finish(flow, check),
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
    #[inline]
    fn key_kind(&self) -> KeyKind {
        if self.repr.flags.contains(Flags::LOCAL_KEY) { KeyKind::Local } else { KeyKind::Remote }
    }

    #[inline]
    fn reach(&self, span: Span, len: u16, right: Access) -> Reach {
        Reach { span, len, right, domain: self.proof.map(|proof| proof.domain) }
    }
}

/// The headers of an answer: those of the request, with the outcome.
#[inline]
fn answer_to(request: &Repr, outcome: &Result<Done, Reason>, is_marked: bool) -> Repr {
    let message = match request.message.packet_type() {
        PacketType::Rdp => Message::Ra(outcome.map(|done| done.len)),
        _ => Message::Sdp(outcome.map(|_| ())),
    };
    let echo = if is_marked { Flags::ECN_ECHO } else { Flags::NONE };
    Repr { flags: request.flags | echo, message, ..*request }
}

/// Whether a stamp is at most `lifetime_ms` milliseconds before or after `now`.
#[inline]
fn is_fresh(stamp: Stamp, now: Stamp, lifetime_ms: u32) -> bool {
    now.0.wrapping_sub(stamp.0).cast_signed().unsigned_abs() <= lifetime_ms
}
