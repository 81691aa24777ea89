//! Synchronization primitives of buffer return paths. `tests/loom` compiles `pool.rs` and `xdp/return_list.rs` with
//! loom's versions.

pub(crate) use std::sync::atomic::{AtomicU32, Ordering};
pub(crate) use std::sync::{Arc, Mutex, MutexGuard};
