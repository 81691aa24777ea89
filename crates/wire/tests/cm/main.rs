//! Connection management against independent implementations: a capture of Linux's rxe, tshark; and properties of any message.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod captures;
mod generated;
mod properties;
mod tshark_reads;

#[path = "../../../../tests/installed.rs"]
mod installed;
