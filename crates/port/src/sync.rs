//! Synchronization primitives of buffer return paths and of memory that processes share. `tests/loom`
//! compiles `pool.rs`, `xdp/return_list.rs` and `udp/ring_positions.rs` with loom's versions.

pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub(crate) use std::sync::{Arc, Mutex, MutexGuard};
