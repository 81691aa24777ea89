//! `nichrome sim`: results, files, sweeps, traces and errors.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../../tests/installed.rs"]
mod installed;
#[path = "../common/interrupt.rs"]
mod interrupt;

mod command;
mod errors;
mod results;
mod sweeps;
mod tables;
mod traces;
