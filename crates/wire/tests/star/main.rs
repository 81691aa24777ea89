//! StaR packets: properties of any packet, and checks by independent implementations.
#![allow(clippy::panic, clippy::unwrap_used)]

mod broken;
mod generated;
#[path = "../../../../tests/installed.rs"]
mod installed;
mod properties;
mod wireshark;
mod zlib;
