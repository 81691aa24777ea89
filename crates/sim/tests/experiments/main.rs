//! Experiments: captures of their packets, their figures and statements.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod capture;
mod netfpga;
mod overip;
mod overip_claims;
mod star;
mod trace;
mod xls416;
