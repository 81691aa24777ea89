//! Dispatches the device's events to the objects that programs hold.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nichrome_rdma::{CqHandle, Event, QpHandle, SrqHandle};

use crate::async_source::{AsyncSource, AsyncSources, EventType};
use crate::cq_notifier::CqNotifier;

/// The receivers of the device's events, by object. Used under the device's lock only. A thread that forks
/// holds that lock, so its child finds the tables unlocked.
#[derive(Default)]
pub(crate) struct EventDispatcher {
    pub(crate) cqs: Table<CqHandle, CqNotifier>,
    pub(crate) qps: Table<QpHandle, AsyncSources>,
    pub(crate) srqs: Table<SrqHandle, AsyncSource>,
}

impl EventDispatcher {
    /// Delivers an event.
    pub(crate) fn dispatch(&self, event: Event) {
        let qp = |handle, event_type| {
            if let Some(sources) = self.qps.get(&handle) {
                sources.raise(event_type);
            }
        };
        match event {
            Event::Completion(handle) => {
                if let Some(cq) = self.cqs.get(&handle) {
                    CqNotifier::notify(&cq);
                }
            }
            Event::CqError(handle) => {
                if let Some(cq) = self.cqs.get(&handle) {
                    cq.asynchronous.raise(EventType::CqError);
                }
            }
            Event::SrqLimit(handle) => {
                if let Some(srq) = self.srqs.get(&handle) {
                    srq.raise(EventType::SrqLimitReached);
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

/// Receivers of events by the handle of their object.
pub(crate) struct Table<K, V>(Mutex<HashMap<K, Arc<V>>>);

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V> Table<K, V> {
    pub(crate) fn insert(&self, key: K, receiver: Arc<V>) {
        self.entries().insert(key, receiver);
    }

    pub(crate) fn remove(&self, key: &K) {
        self.entries().remove(key);
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<K, Arc<V>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, key: &K) -> Option<Arc<V>> {
        self.entries().get(key).cloned()
    }
}
