//! Whom to tell of the device's events.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nichrome_rdma::{CqHandle, Event, QpHandle, SrqHandle};

use crate::async_target::{AsyncTarget, EventType};
use crate::cq_events::CqEvents;

/// Whom to tell of events.
#[derive(Default)]
pub(crate) struct Listeners {
    pub(crate) cqs: Table<CqHandle, CqEvents>,
    pub(crate) qps: Table<QpHandle, AsyncTarget>,
    pub(crate) srqs: Table<SrqHandle, AsyncTarget>,
}

impl Listeners {
    /// Called under the device's lock.
    pub(crate) fn tell(&self, event: Event) {
        let qp = |handle, event_type| {
            if let Some(target) = self.qps.get(&handle) {
                target.tell(event_type);
            }
        };
        match event {
            Event::Completion(handle) => {
                if let Some(cq) = self.cqs.get(&handle) {
                    CqEvents::tell(&cq);
                }
            }
            Event::CqError(handle) => {
                if let Some(cq) = self.cqs.get(&handle) {
                    cq.asynchronous.tell(EventType::CqError);
                }
            }
            Event::SrqLimit(handle) => {
                if let Some(srq) = self.srqs.get(&handle) {
                    srq.tell(EventType::SrqLimitReached);
                }
            }
            Event::QpFatal(handle) => qp(handle, EventType::QpFatal),
            Event::QpRequestError(handle) => qp(handle, EventType::QpRequestError),
            Event::QpAccessError(handle) => qp(handle, EventType::QpAccessError),
            Event::Established(handle) => qp(handle, EventType::Established),
            Event::SendQueueDrained(handle) => qp(handle, EventType::SendQueueDrained),
            Event::LastReceiveReached(handle) => qp(handle, EventType::LastReceiveReached),
        }
    }
}

/// Listeners by the object that they belong to.
pub(crate) struct Table<K, V>(Mutex<HashMap<K, Arc<V>>>);

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V> Table<K, V> {
    pub(crate) fn insert(&self, key: K, listener: Arc<V>) {
        self.entries().insert(key, listener);
    }

    pub(crate) fn remove(&self, key: &K) {
        self.entries().remove(key);
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<K, Arc<V>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, key: &K) -> Option<Arc<V>> {
        self.entries().get(key).cloned()
    }
}
