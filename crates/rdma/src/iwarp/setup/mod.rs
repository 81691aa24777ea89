//! MPA's start-up of a stream (RFC 5044 section 7.1, RFC 6581): bytes in, bytes out, a deadline. No I/O, and
//! no queue pair.
//!
//! ```text
//! initiator   Request ────►                    ≤ 5 s after TCP's accept
//! responder   ◄──── Reply                      ≤ 10 s after the Request: accepted, or rejected with private data
//! initiator   RTR ────►                        in peer-to-peer mode, sent by the stream's transport
//! ```
//!
//! | case | RFC | here |
//! |---|---|---|
//! | CRC | 5044 7.1.1: used if either end requests it | as the RFC |
//! | markers | 5044 7.1.1: in the stream that the requesting end receives | as the RFC; this end requests them only by [`Options::markers`], since siw refuses them |
//! | the initiator's ORD above the Reply's IRD | 6581 9.1: lowered, or TERMINATE | lowered |
//! | the Reply's ORD above the initiator's IRD | 6581 9.1: TERMINATE, LLP 6 | as the RFC |
//! | peer-to-peer without a message in common | 6581 9.2: TERMINATE, LLP 7 | the initiator sends it; the responder rejects |
//! | a READ as the ready-to-receive message, to a responder with IRD 0 | 6581: open | IRD 1, as Chelsio's RNICs do |
//! | Reply of revision 1 to a Request of revision 2 | 6581 4.1: close | accepted: this end's requested options apply, without peer-to-peer mode |
//! | data behind the Request | 5044 7.1.3: not sent before the Reply | refused, as siw does |
//! | data behind the Reply | 5044 7.1.3: not sent before the initiator's first FPDU | accepted, since siw sends it |
//!
//! | file | concept |
//! |---|---|
//! | `options.rs` | the options that one end requests, timeouts |
//! | `identity.rs` | the private data between two ends of this crate |
//! | `agreement.rs` | the terms that follow from Request and Reply |
//! | `initiator.rs`, `responder.rs` | the two ends |
//! | `error.rs` | why a start-up fails |

mod agreement;
mod error;
mod identity;
mod initiator;
mod options;
mod responder;
#[cfg(test)]
mod tests;

pub use error::SetupError;
pub use identity::Identity;
pub use initiator::Initiator;
pub use options::{Options, REPLY_TIMEOUT, REQUEST_TIMEOUT, Revision};
pub use responder::Responder;

use super::Terms;

/// A connection that is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Established {
    /// The terms that both ends agreed on.
    pub terms: Terms,
    /// The private data of the peer's frame.
    pub private_data: Vec<u8>,
    /// Bytes that the peer sent behind its frame: the first of its stream.
    pub rest: Vec<u8>,
}
