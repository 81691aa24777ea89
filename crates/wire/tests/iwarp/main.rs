//! iWARP against independent implementations: a capture of Linux's siw, tshark; and properties of any message.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod generated;
mod properties;
mod siw;
mod tshark_reads;

#[path = "../../../../tests/installed.rs"]
mod installed;
#[path = "../../../../tests/siw_streams.rs"]
mod siw_streams;
