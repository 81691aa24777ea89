//! The primitives that objects come back by. `tests/loom` compiles `recycle.rs` with those of a model checker in their place.

pub(crate) use std::sync::{Arc, Mutex};
