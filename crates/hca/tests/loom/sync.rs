//! The contents of `src/sync.rs`, for the model checker.
//!
//! loom treats a SeqCst access as an AcqRel one. The SeqCst fences around such accesses here, which loom does
//! model, give them their total order; all other orderings are passed on.

pub(crate) use loom::sync::atomic::Ordering;
use loom::sync::atomic::fence;
use loom::sync::{Condvar, Mutex};
use rustix::io;

macro_rules! atomic {
    ($($name:ident: $value:ty),*) => {$(
        pub(crate) struct $name(loom::sync::atomic::$name);

        impl $name {
            pub(crate) fn new(value: $value) -> Self {
                Self(loom::sync::atomic::$name::new(value))
            }

            pub(crate) fn load(&self, order: Ordering) -> $value {
                ordered(order, || self.0.load(order))
            }

            pub(crate) fn store(&self, value: $value, order: Ordering) {
                ordered(order, || self.0.store(value, order));
            }

            pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                ordered(order, || self.0.swap(value, order))
            }

            pub(crate) fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                change: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                ordered(set, || self.0.fetch_update(set, fetch, change))
            }
        }
    )*};
}

atomic!(AtomicBool: bool, AtomicU64: u64, AtomicUsize: usize);

impl AtomicUsize {
    pub(crate) fn fetch_add(&self, value: usize, order: Ordering) -> usize {
        ordered(order, || self.0.fetch_add(value, order))
    }

    pub(crate) fn fetch_sub(&self, value: usize, order: Ordering) -> usize {
        ordered(order, || self.0.fetch_sub(value, order))
    }
}

impl AtomicU64 {
    pub(crate) fn fetch_min(&self, value: u64, order: Ordering) {
        ordered(order, || self.0.fetch_min(value, order));
    }
}

fn ordered<T>(order: Ordering, access: impl FnOnce() -> T) -> T {
    let is_total = order == Ordering::SeqCst;
    if is_total {
        fence(Ordering::SeqCst);
    }
    let value = access();
    if is_total {
        fence(Ordering::SeqCst);
    }
    value
}

loom::lazy_static! {
    /// The wakers of an execution: how many there are, and which of them are signalled.
    static ref WAKERS: Mutex<Vec<bool>> = Mutex::new(Vec::new());
    static ref SIGNALLED: Condvar = Condvar::new();
}

/// An eventfd.
pub(crate) struct Waker(usize);

pub(crate) type Source<'a> = &'a Waker;

pub(crate) trait AsFd {
    fn as_fd(&self) -> Source<'_>;
}

impl AsFd for Waker {
    fn as_fd(&self) -> Source<'_> {
        self
    }
}

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        let mut wakers = WAKERS.lock().unwrap();
        wakers.push(false);
        Ok(Self(wakers.len() - 1))
    }

    pub(crate) fn wake(&self) {
        WAKERS.lock().unwrap()[self.0] = true;
        SIGNALLED.notify_all();
    }

    pub(crate) fn clear(&self) {
        WAKERS.lock().unwrap()[self.0] = false;
    }
}

/// Time stands still: a wait ends by a signal, or at once if its end is not after [`super::DUE`].
pub(crate) mod clock {
    use super::*;
    use nichrome_wire::Instant;

    pub(crate) fn now() -> Instant {
        Instant::ZERO
    }

    pub(crate) fn wait<const N: usize>(
        sources: [Source<'_>; N],
        until: Option<Instant>,
    ) -> io::Result<[bool; N]> {
        let mut wakers = WAKERS.lock().unwrap();
        loop {
            let signalled = sources.map(|source| wakers[source.0]);
            if signalled.contains(&true) || until.is_some_and(|until| until <= crate::DUE) {
                return Ok(signalled);
            }
            wakers = SIGNALLED.wait(wakers).unwrap();
        }
    }
}
