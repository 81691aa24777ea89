//! `nichrome nic` on a virtual wire between two kernels.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod hostile;
mod lab;
mod lifecycle;
mod refusals;
mod reports;
mod transfers;
