//! Real kernels, a card each, and a wire between them that may be bad.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod active_ack;
mod answers;
mod ends;
mod files;
mod hosts;
mod ledger;
mod memory;
mod sockets;
mod transfers;
mod workers;
