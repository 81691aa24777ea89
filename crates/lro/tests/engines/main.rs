//! The coalescing engines. One executable: they are generic over buffers, and each executable compiles all of
//! them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/generated/mod.rs"]
mod generated;

mod active_ack;
mod active_ack_window;
mod allocations;
mod captures;
mod checksums;
mod datagrams;
mod gro;
mod gro_acks;
mod gro_bursts;
mod headers;
mod linux_selftest;
mod netfpga;
mod npu;
mod npu_bursts;
mod npu_exhaustive;
mod npu_forged;
mod npu_sparse;
mod npu_timeouts;
mod npu_undescribed;
mod profiles;
mod property;
mod tunnels;
mod verify;
