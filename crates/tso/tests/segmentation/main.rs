//! Segmentation: cuts by kind, refusals, limits, and checks of the packets by independent implementations.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod allocations;
#[path = "../common/mod.rs"]
mod common;
mod gro;
mod one_packet;
mod property;
mod refused;
mod tcp;
mod tunneled;
mod udp;
mod within;
