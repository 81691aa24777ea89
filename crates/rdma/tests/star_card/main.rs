//! The stateless card and the egress module, with valid and forged packets.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod card;
mod common;
mod examples;
mod forged;
mod security;
