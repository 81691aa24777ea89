//! StaR packets: properties of any packet, and what others compute of them.
#![allow(clippy::panic, clippy::unwrap_used)]

mod broken;
mod generated;
#[path = "../../../../tests/installed.rs"]
mod installed;
mod properties;
mod wireshark;
mod zlib;
