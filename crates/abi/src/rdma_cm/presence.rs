//! Whether the process has a librdmacm.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_PRESENT: AtomicBool = AtomicBool::new(false);

/// Returns true if the calls of a librdmacm were redirected.
pub(crate) fn is_present() -> bool {
    IS_PRESENT.load(Ordering::Relaxed)
}

/// The calls of a librdmacm were redirected.
pub(super) fn set() {
    IS_PRESENT.store(true, Ordering::Relaxed);
}
