//! Cards between real kernels, over a wire that may have impairments.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod active_ack;
mod answers;
mod ends;
mod files;
mod hosts;
mod ledger;
mod memory;
mod segmentation;
mod sockets;
mod transfers;
mod wires;
mod workers;
