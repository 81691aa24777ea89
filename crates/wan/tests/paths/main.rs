//! Impairments in virtual time.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/generated.rs"]
#[allow(unreachable_pub)]
mod generated;

mod allocations;
mod bottleneck;
mod degen;
mod determinism;
mod fragments;
mod property;
mod reconfigure;
mod statistics;
