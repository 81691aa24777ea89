//! Headers and messages against independent implementations: captures, tshark, etherparse, scapy; and
//! properties of any packet.
#![allow(clippy::panic, clippy::unwrap_used)]

mod captures;
mod cm;
mod exhaustive;
#[path = "../../../../tests/installed.rs"]
mod installed;
mod iwarp;
mod oracle;
mod properties;
mod roce;
#[path = "../../../../tests/siw_streams.rs"]
mod siw_streams;
mod star;
