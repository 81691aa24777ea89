//! Transports of the literature that crates/rdma has no engine for: the packets of an operation, and the
//! effect of each packet on contexts on the server's card. No packet is lost or retransmitted.
//!
//! | transport | context at the server | packets of a WRITE | source |
//! |---|---|---|---|
//! | datagrams | one for all | request; response by software | Kalia, Kaminsky, Andersen: eRPC, NSDI 2019 |
//! | dynamic | from the connect packet to the disconnect | connect, its ACK, data, ACK, disconnect | US 8,761,189 (Mellanox), claim 1; Subramoni et al.: MPI library with DCT, ISC 2014 |
//! | ephemeral | from the first packet of data to the close | data, ACK, close and its ACK | Ultra Ethernet Specification 1.0, 3.5: packet delivery contexts (PDC) |
//! | solicited | none | request, read, data, completion | Singhvi et al.: 1RMA, SIGCOMM 2020: solicitation |
//!
//! A card without a free context refuses: a connect NAK of the dynamic transport, a NACK of the ephemeral
//! one. Contexts of the client are not modelled, since a client has few connections.
//!
//! Header lengths of Ultra Ethernet are from XDP2's structures (`uet/pds.h`, `uet/ses.h`), except for the
//! NACK, which is assumed to be as long as a control packet. No public text has the header lengths of DCT and
//! 1RMA.

use nichrome_wire::rdma::{Aeth, BthHeader, ICRC_LEN, Reth};

use super::lengths::{UNDERLAY, datagram_len};
use super::operation::{Message, Operation};
use super::side::Side;

/// The DC extended transport header, with access key and initiator's numbers. Assumed: no specification is
/// public.
const DCETH: usize = 16;
/// PDS headers (Ultra Ethernet 1.0, 3.5) of an RUD or ROD request or an ACK without congestion control, and
/// of a NACK or control packet.
const PDS: usize = 12;
const PDS_CONTROL: usize = 16;
/// The standard SES header (Ultra Ethernet 1.0, 3.4) of a request, and that of a response.
const SES: usize = 44;
const SES_RESPONSE: usize = 12;
/// Ultra Ethernet's optional CRC.
const UET_CRC: usize = 4;
/// A header of 1RMA with its authentication tag. Assumed: 32 bytes for command, addresses and length, and a
/// tag of AES-GCM.
const ONE_RMA: usize = 32 + 16;

/// A transport without an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Baseline {
    /// Unreliable datagrams, and software that answers every request, including WRITEs.
    Datagrams,
    /// A connection per operation, as the dynamically connected transport has when each operation has another
    /// peer.
    Dynamic,
    /// A context per operation, without a handshake.
    Ephemeral,
    /// No connections: the server reads what a client asks to write.
    Solicited,
}

/// The flights of an operation: all operations have the same ones.
#[derive(Clone, Debug)]
pub(super) struct Outline {
    pub(super) baseline: Baseline,
    pub(super) flights: Vec<Flight>,
}

/// The effect of a packet on its connection's context on the server's card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContextUse {
    /// Nothing.
    None,
    /// Takes a context, or is refused.
    Opens,
    /// Needs the context; the card drops the packet without it.
    Needs,
    /// Frees the context.
    Closes,
}

/// The sender of a flight after the previous one has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    /// The card, at once.
    Card,
    /// Software on a core of the server.
    Software,
}

/// Packets that are sent together. The next flight is sent when the last of them has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flight {
    pub(super) from: Side,
    pub(super) sender: Sender,
    /// Length of each packet from the Ethernet header on, and its effect on the context.
    pub(super) packets: Vec<(u32, ContextUse)>,
    /// True if the operation completes when the flight has arrived.
    pub(super) completes: bool,
}

impl Flight {
    /// Creates a flight of one packet, from a card, with `header` bytes behind the UDP header.
    fn control(from: Side, header: usize, context: ContextUse) -> Self {
        let packets = vec![((UNDERLAY + header) as u32, context)];
        Self { from, sender: Sender::Card, packets, completes: false }
    }

    /// Creates the flight of a client's message. `first` is the effect of the first packet on the context; if
    /// that is not [`ContextUse::None`], the other packets need the context.
    fn data(message: Message, header: impl Fn(u32) -> usize, first: ContextUse) -> Self {
        let rest = if first == ContextUse::None { ContextUse::None } else { ContextUse::Needs };
        let packet = |nth: u32| {
            let len = (UNDERLAY + header(nth)) as u32 + message.payload(nth);
            (len, if nth == 0 { first } else { rest })
        };
        let packets = (0..message.packets).map(packet).collect();
        Self { from: Side::Client, sender: Sender::Card, packets, completes: false }
    }

    fn completing(self) -> Self {
        Self { completes: true, ..self }
    }
}

impl Baseline {
    /// Returns the flights of an operation; `None` if the model has WRITEs of the transport only.
    pub(super) fn flights(self, request: Message, operation: Operation) -> Option<Vec<Flight>> {
        match (self, operation) {
            (Self::Datagrams, Operation::Write) => Some(datagrams(request, Message::new(0, 1))),
            (Self::Datagrams, Operation::Rpc { response, .. }) => Some(datagrams(request, response)),
            (_, Operation::Rpc { .. }) => None,
            (Self::Dynamic, Operation::Write) => Some(dynamic(request)),
            (Self::Ephemeral, Operation::Write) => Some(ephemeral(request)),
            (Self::Solicited, Operation::Write) => Some(solicited(request)),
        }
    }

    /// Returns the length of the packet that refuses a context.
    pub(super) const fn refusal_len(self) -> u32 {
        let header = match self {
            Self::Dynamic => BthHeader::LEN + Aeth::LEN + ICRC_LEN,
            Self::Ephemeral => PDS_CONTROL + UET_CRC,
            Self::Datagrams | Self::Solicited => 0,
        };
        (UNDERLAY + header) as u32
    }
}

fn datagrams(request: Message, response: Message) -> Vec<Flight> {
    let flight = |from, sender, message: Message| {
        let packet = |nth| (datagram_len(message.payload(nth)), ContextUse::None);
        let packets = (0..message.packets).map(packet).collect();
        Flight { from, sender, packets, completes: from == Side::Server }
    };
    vec![flight(Side::Client, Sender::Card, request), flight(Side::Server, Sender::Software, response)]
}

/// The initiator waits for the acknowledgement of its connect packet, which has the session's number (claim
/// 1).
fn dynamic(request: Message) -> Vec<Flight> {
    let base = BthHeader::LEN + ICRC_LEN;
    let header = |nth| if nth == 0 { base + Reth::LEN } else { base };
    let acknowledgement = Flight::control(Side::Server, base + Aeth::LEN, ContextUse::None);
    vec![
        Flight::control(Side::Client, base + DCETH, ContextUse::Opens),
        acknowledgement.clone(),
        Flight::data(request, header, ContextUse::Needs),
        acknowledgement.completing(),
        Flight::control(Side::Client, base, ContextUse::Closes),
    ]
}

fn ephemeral(request: Message) -> Vec<Flight> {
    vec![
        Flight::data(request, |_| PDS + SES + UET_CRC, ContextUse::Opens),
        Flight::control(Side::Server, PDS + SES_RESPONSE + UET_CRC, ContextUse::None).completing(),
        Flight::control(Side::Client, PDS_CONTROL + UET_CRC, ContextUse::Closes),
        Flight::control(Side::Server, PDS + UET_CRC, ContextUse::None),
    ]
}

fn solicited(request: Message) -> Vec<Flight> {
    vec![
        Flight::control(Side::Client, ONE_RMA, ContextUse::None),
        Flight::control(Side::Server, ONE_RMA, ContextUse::None),
        Flight::data(request, |_| ONE_RMA, ContextUse::None),
        Flight::control(Side::Server, ONE_RMA, ContextUse::None).completing(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Baseline; 4] =
        [Baseline::Datagrams, Baseline::Dynamic, Baseline::Ephemeral, Baseline::Solicited];

    fn of(baseline: Baseline, bytes: u32) -> Vec<Flight> {
        baseline.flights(Message::new(bytes, 1400), Operation::Write).unwrap_or_default()
    }

    #[test]
    fn flights_go_there_and_back_and_one_completes_the_operation() {
        for flights in ALL.map(|baseline| of(baseline, 2800)) {
            let sides = [Side::Client, Side::Server].into_iter().cycle();
            assert!(flights.iter().map(|flight| flight.from).eq(sides.take(flights.len())));
            let completing: Vec<_> = flights.iter().filter(|flight| flight.completes).collect();
            assert!(matches!(completing[..], [flight] if flight.from == Side::Server));
        }
    }

    #[test]
    fn a_context_that_is_opened_is_closed() {
        for flights in ALL.map(|baseline| of(baseline, 2800)) {
            let of = |context| {
                let uses = flights.iter().flat_map(|flight| &flight.packets).map(|(_, uses)| *uses);
                uses.filter(|other| *other == context).count()
            };
            assert_eq!(of(ContextUse::Opens), of(ContextUse::Closes));
        }
    }

    #[test]
    fn messages_are_carried_whole() {
        for baseline in ALL {
            let bytes = |len| -> u32 {
                of(baseline, len).iter().flat_map(|flight| &flight.packets).map(|(len, _)| len).sum()
            };
            assert_eq!(bytes(1008) - bytes(8), 1000, "{baseline:?}");
        }
    }
}
