//! `nichrome wan` with the kernel of this machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../../tests/installed.rs"]
mod installed;
#[path = "../common/programs.rs"]
mod programs;
#[path = "../common/until.rs"]
mod until;

mod between;
mod capture;
mod control;
mod hosts;
mod idle;
mod near_and_far;
mod path_mtu;
mod refused;
mod run;
mod signals;
mod transfers;
mod unprivileged;
mod web;
