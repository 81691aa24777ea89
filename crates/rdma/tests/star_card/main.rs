//! The stateless card and the security module: what each answers to any packet, forged ones included.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod card;
mod common;
mod examples;
mod forged;
mod security;
