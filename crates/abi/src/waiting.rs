//! Announces to the driver that a thread blocks until an event comes. The announcement ends with the wait, or
//! with the thread, which may be cancelled while it waits.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use nichrome_wire::Instant;

use crate::adapter::Adapter;

/// A wait of this thread.
struct Waiting {
    adapter: Weak<Adapter>,
    since: Instant,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(adapter) = self.adapter.upgrade() {
            adapter.driver().end_descriptor_wait();
        }
    }
}

thread_local! {
    static WAITING: RefCell<Option<Waiting>> = const { RefCell::new(None) };
}

/// Announces that this thread blocks until [`end`]; it began to wait at `since`.
pub(crate) fn begin(adapter: &Arc<Adapter>, since: Instant) {
    adapter.driver().begin_descriptor_wait();
    let waiting = Waiting { adapter: Arc::downgrade(adapter), since };
    // In a thread that is ending, the thread-local no longer exists: the announcement is dropped at once.
    let _ = WAITING.try_with(|place| place.replace(Some(waiting)));
}

/// Ends the announcement. Returns when this thread began to wait, if it did.
pub(crate) fn end() -> Option<Instant> {
    let waiting = WAITING.try_with(RefCell::take).ok().flatten()?;
    Some(waiting.since)
}
