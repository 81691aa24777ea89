//! iWARP between two devices, over streams in virtual time.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/program.rs"]
mod program;
#[path = "../../../../tests/siw_streams.rs"]
mod siw_streams;

mod arrival;
mod foreign;
mod hostile;
mod property;
mod siw;
mod states;
mod stream;
mod support;
mod terminate;
mod verbs;
