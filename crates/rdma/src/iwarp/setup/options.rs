//! The options that one end requests in MPA's start-up.

use std::time::Duration;

use nichrome_wire::iwarp::{Enhanced, MpaFlags, Rtr};

use crate::iwarp::Terms;

/// How long the initiator waits for the Reply, as siw does.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the responder waits for the Request after TCP's accept, as siw does.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The revision of MPA that an initiator proposes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Revision {
    /// RFC 5044: without IRD, ORD and peer-to-peer mode.
    One,
    /// RFC 6581.
    #[default]
    Two,
}

/// The options that one end requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The revision to propose. A responder takes the initiator's.
    pub revision: Revision,
    /// Asks for CRCs. They are used if either end asks.
    pub crc: bool,
    /// Requests markers in the received stream. siw refuses.
    pub markers: bool,
    /// READ and atomic requests accepted at once, at most 0x3FFE.
    pub ird: u16,
    /// READ and atomic requests sent at once, at most 0x3FFE.
    pub ord: u16,
    /// Ready-to-receive messages offered by an initiator in revision 2. None for client-server mode.
    pub rtr: Rtr,
    /// The longest DDP segment to send, in bytes; with markers at most
    /// [`MAX_MARKED_ULPDU`](nichrome_wire::iwarp::MAX_MARKED_ULPDU).
    pub max_ulpdu: u16,
}

impl Default for Options {
    /// CRCs on request of the peer only, no markers, depths of 16, client-server mode.
    fn default() -> Self {
        Self {
            revision: Revision::Two,
            crc: false,
            markers: false,
            ird: 16,
            ord: 16,
            rtr: Rtr::default(),
            max_ulpdu: Terms::LONGEST_ULPDU,
        }
    }
}

impl Options {
    pub(super) const fn is_peer_to_peer(&self) -> bool {
        self.rtr.send || self.rtr.write || self.rtr.read
    }

    pub(super) const fn flags(&self) -> MpaFlags {
        MpaFlags { markers: self.markers, crc: self.crc, reject: false }
    }

    /// Returns the enhanced connection data of a Request; `None` in revision 1.
    pub(super) fn enhanced(&self) -> Option<Enhanced> {
        (self.revision == Revision::Two).then_some(Enhanced {
            ird: Some(self.ird),
            ord: Some(self.ord),
            peer_to_peer: self.is_peer_to_peer(),
            rtr: self.rtr,
        })
    }
}
