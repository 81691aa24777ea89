//! Congestion control: how many packets a connection has outstanding, and when the next may leave. RoCE and StaR use the
//! same controllers.
//!
//! | file | controller | signal |
//! |---|---|---|
//! | `window.rs` | a window that halves on loss (RFC 5681) | loss, congestion notifications |
//! | `dctcp.rs` | a window that shrinks by the share of marked packets (RFC 8257) | ECN echoes, loss |
//! | `dcqcn.rs` | a rate, over a window for losses | congestion notifications, ECN echoes |
//! | `fixed.rs` | none: the largest window at all times | |
//!
//! `controller.rs` says what a controller is; `control.rs` chooses one.

mod control;
mod controller;
mod dcqcn;
mod dctcp;
mod fixed;
mod window;

pub use control::Congestion;
pub(crate) use control::Control;
pub use controller::SendWindow;
pub(crate) use controller::{Acknowledged, Controller, Mark};
pub use dcqcn::Dcqcn;
