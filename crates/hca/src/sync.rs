//! The primitives of the hand-over. `tests/loom` compiles `handover.rs` with those of a model checker in
//! their place.

pub(crate) use std::os::fd::AsFd;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

pub(crate) use nichrome_port::{Waker, clock};

/// A descriptor to wait for.
pub(crate) type Source<'a> = std::os::fd::BorrowedFd<'a>;
