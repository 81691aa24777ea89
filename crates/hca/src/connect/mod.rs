//! Setting up connections over TCP, for any transport: one thread with one epoll carries the bytes of
//! [`Handshake`]s.
//!
//! | file | |
//! |---|---|
//! | `handshake` | the trait of a transport's handshake, without I/O, and the state that handshakes share |
//! | `held` | requests to connect held queue pairs |
//! | `expected` | requests whose peer connects |
//! | `requests` | all requests that are not complete: their count, and reports of those that fail |
//! | `stream` | one handshake on its TCP socket |
//! | `key` | the pre-shared key, and its errors |
//! | `sealed` | encrypts the bytes of a handshake under a pre-shared key |
//! | `listener` | TCP ports that peers connect to |
//! | `source_shares`, `inbound` | the places of inbound streams, shared fairly between their sources |
//! | `reactor` | the thread: requests, listener, streams, bounds |

mod expected;
mod handshake;
mod held;
mod inbound;
mod key;
mod listener;
mod reactor;
mod requests;
mod sealed;
mod source_shares;
mod stream;

pub(crate) use expected::Ends;
pub(crate) use handshake::{Cause, Context, Handshake, Phase, Route};
pub(crate) use held::{ConnectRequest, fail};
pub(crate) use key::{PreSharedKey, SealError};
pub(crate) use listener::{listen, open_port, reserve_port};
pub(crate) use reactor::{Connector, Limits};
pub(crate) use requests::{PROGRAM_TIMEOUT, Requests};
pub(crate) use sealed::Sealed;
pub(crate) use source_shares::SourceShares;
pub(crate) use stream::{HandshakeStream, dial_from};
