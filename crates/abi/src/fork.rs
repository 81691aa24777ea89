//! fork(2) with an open device, and the verbs around `ibv_fork_init`.
//!
//! Registered pages need no treatment, because no hardware accesses them by DMA. The device does: a child
//! inherits its parent's objects, but the socket remains the parent's, and the driver's thread does not exist
//! in the child. So the forking thread pauses the device, and the child disconnects its copy from the
//! network. A child that needs a device opens its own. The forking thread also holds the locks of this
//! library, so that the child finds their data unlocked and consistent. A thread that needs several of these
//! locks takes them in the order of [`prepare`].

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::mem;
use std::sync::{Arc, Once};

use nichrome_hca::Paused;

use crate::adapter::{Adapter, Current};
use crate::cancellation::Uncancelled;
use crate::process_memory::ProcessMemory;
use crate::rdma_cm::{file, manager};
use crate::{event_queue, live_objects, retired, sharing, xrc_domain};

/// The locks that a thread holds while it forks. Fields drop in order: the lock taken last is released first.
struct Forking {
    _events: event_queue::Held,
    _retired: retired::Held,
    _objects: live_objects::Held,
    _files: file::Held,
    /// Borrows from the adapter, which is dropped after it.
    device: Option<Paused<'static, ProcessMemory>>,
    _domains: xrc_domain::Held,
    _contexts: sharing::Held,
    _current: Current,
    _manager: manager::Held,
    _adapter: Option<Arc<Adapter>>,
    _uncancelled: Uncancelled,
}

thread_local! {
    static FORKING: RefCell<Option<Forking>> = const { RefCell::new(None) };
}

extern "C" fn prepare() {
    let uncancelled = Uncancelled::begin();
    let manager = manager::hold();
    let current = Adapter::current();
    let (contexts, domains) = (sharing::hold(), xrc_domain::hold());
    let adapter = current.upgrade();
    let device = adapter.as_ref().map(|adapter| {
        // SAFETY: the field `_adapter` keeps the adapter alive, and is dropped after `device`.
        unsafe {
            mem::transmute::<Paused<'_, ProcessMemory>, Paused<'static, ProcessMemory>>(
                adapter.driver().pause(),
            )
        }
    });
    let (files, objects) = (file::hold(), live_objects::hold());
    let (retired, events) = (retired::hold(), event_queue::hold());
    FORKING.set(Some(Forking {
        _events: events,
        _retired: retired,
        _objects: objects,
        _files: files,
        device,
        _domains: domains,
        _contexts: contexts,
        _current: current,
        _manager: manager,
        _adapter: adapter,
        _uncancelled: uncancelled,
    }));
}

extern "C" fn in_parent() {
    FORKING.take();
}

extern "C" fn in_child() {
    if let Some(Forking { device: Some(device), .. }) = &mut FORKING.take() {
        device.close_in_child();
    }
}

/// Registers the pthread_atfork(3) handlers, once.
pub(crate) fn prepare_for_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the library is never unloaded, so the handlers stay valid.
        unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
    });
}

#[unsafe(no_mangle)]
extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// `IBV_FORK_UNNEEDED`.
#[unsafe(no_mangle)]
extern "C" fn ibv_is_fork_initialized() -> c_int {
    2
}

#[unsafe(no_mangle)]
extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn no_other_thread_has_a_lock_while_one_forks() {
        let locks: [fn(); 8] = [
            || drop(manager::hold()),
            || drop(Adapter::current()),
            || drop(sharing::hold()),
            || drop(xrc_domain::hold()),
            || drop(file::hold()),
            || drop(live_objects::hold()),
            || drop(retired::hold()),
            || drop(event_queue::hold()),
        ];
        prepare();
        let (locked, all_locked) = mpsc::channel();
        for (nth, lock) in locks.into_iter().enumerate() {
            let locked = locked.clone();
            thread::spawn(move || {
                lock();
                locked.send(nth).unwrap();
            });
        }
        // A lock that the forking thread does not hold is taken at once.
        assert_eq!(all_locked.recv_timeout(Duration::from_millis(50)), Err(mpsc::RecvTimeoutError::Timeout));
        in_parent();
        for _ in locks {
            all_locked.recv_timeout(Duration::from_secs(60)).unwrap();
        }
    }
}
