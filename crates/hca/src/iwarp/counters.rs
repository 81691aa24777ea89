//! Counters of refused connections of peers, by reason.

use std::sync::atomic::{AtomicU64, Ordering};

use nichrome_rdma::iwarp::setup::SetupError;

/// Inbound connections that were closed before they were set up, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IwarpCounters {
    /// The bytes were no MPA Request, or had lengths that no Request has.
    pub garbage: u64,
    /// Data followed the Request before the Reply.
    pub early_data: u64,
    /// The private data named no queue pair.
    pub foreign: u64,
    /// No Request arrived within 5 s, or no program of this side requested the connection within 60 s.
    pub timed_out: u64,
    /// A newer connection displaced it.
    pub displaced: u64,
    /// The peer closed the connection first.
    pub closed: u64,
}

/// The counters, which the threads that set up connections share.
#[derive(Debug, Default)]
pub(crate) struct SharedCounters {
    garbage: AtomicU64,
    early_data: AtomicU64,
    foreign: AtomicU64,
    timed_out: AtomicU64,
    displaced: AtomicU64,
    closed: AtomicU64,
}

/// Why an inbound connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Garbage,
    EarlyData,
    Foreign,
    TimedOut,
    Displaced,
    Closed,
}

impl From<&SetupError> for Refused {
    fn from(error: &SetupError) -> Self {
        match error {
            SetupError::EarlyData => Self::EarlyData,
            SetupError::Timeout => Self::TimedOut,
            SetupError::Closed => Self::Closed,
            _ => Self::Garbage,
        }
    }
}

impl SharedCounters {
    pub(crate) fn count(&self, why: Refused) {
        let counter = match why {
            Refused::Garbage => &self.garbage,
            Refused::EarlyData => &self.early_data,
            Refused::Foreign => &self.foreign,
            Refused::TimedOut => &self.timed_out,
            Refused::Displaced => &self.displaced,
            Refused::Closed => &self.closed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> IwarpCounters {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        IwarpCounters {
            garbage: load(&self.garbage),
            early_data: load(&self.early_data),
            foreign: load(&self.foreign),
            timed_out: load(&self.timed_out),
            displaced: load(&self.displaced),
            closed: load(&self.closed),
        }
    }
}
