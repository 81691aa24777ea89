//! Congestion control: the window and pace of a connection. RoCE and StaR use the same controllers.
//!
//! | file | controller | signal |
//! |---|---|---|
//! | `window.rs` | a window that halves on loss (RFC 5681) | loss, CNPs |
//! | `dctcp.rs` | a window reduced by the fraction of marked packets (RFC 8257) | ECN echoes, loss |
//! | `dcqcn.rs` | a rate, and a window for losses | CNPs, ECN echoes, loss |
//! | `fixed.rs` | none: always the maximum window | |
//!
//! `controller.rs` is the trait, `control.rs` the enum of all controllers; `window.rs` and `dctcp.rs` share
//! `reduction.rs`.

mod control;
mod controller;
mod dcqcn;
mod dctcp;
mod fixed;
mod reduction;
mod window;

pub use control::Congestion;
pub(crate) use control::Control;
pub use controller::SendWindow;
pub(crate) use controller::{Acknowledged, Controller, Mark};
pub use dcqcn::Dcqcn;
