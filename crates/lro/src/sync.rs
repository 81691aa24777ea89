//! Synchronization primitives of the recycler. `tests/loom` compiles `recycle.rs` with loom's in their place.

pub(crate) use std::sync::{Arc, Mutex};
