//! iWARP: RDMAP over DDP over MPA over a byte stream (RFC 5040, RFC 5041, RFC 5044, RFC 6581, RFC 7306).
//!
//! | file | concept |
//! |---|---|
//! | [`setup`] | MPA's start-up of a stream |
//! | `terms.rs` | what the two ends agree on before the first FPDU |

pub mod setup;
mod terms;

pub use terms::{Role, RtrMessage, Terms};
