//! `nichrome` on capture files, and its benchmarks, help and errors.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../../tests/installed.rs"]
mod installed;
#[path = "../common/interrupt.rs"]
mod interrupt;

mod bench;
mod coalesce;
mod errors;
mod folders;
mod foreign;
mod output;
mod pages;
mod run;
mod script;
mod segment;
mod streams;
