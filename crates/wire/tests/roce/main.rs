//! RoCEv2 against independent implementations: captures of Linux's rxe, tshark, scapy; and properties of any packet.
#![allow(clippy::panic, clippy::unwrap_used)]

mod captures;
mod generated;
#[path = "../../../../tests/installed.rs"]
mod installed;
mod properties;
mod scapy;
mod tshark;
