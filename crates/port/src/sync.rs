//! The primitives that buffers and frames come back by. `tests/loom` compiles `pool.rs` and `xdp/return_list.rs` with those of
//! a model checker in their place.

pub(crate) use std::sync::atomic::{AtomicU32, Ordering};
pub(crate) use std::sync::{Arc, Mutex, MutexGuard};
