//! `nichrome nic` and `nichrome demo` on virtual wires between two kernels.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/until.rs"]
mod until;

mod demo;
mod hostile;
mod lab;
mod lifecycle;
mod refusals;
mod reports;
mod syns;
mod transfers;
