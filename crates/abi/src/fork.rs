//! fork(2) with an open device, and the verbs around `ibv_fork_init`.
//!
//! Registered pages need no treatment, because no hardware accesses them by DMA. The device does: a child inherits its
//! parent's objects, but the socket stays the parent's and the driver's thread does not exist in the child. So the device is
//! paused during a fork, and the child's copy is cut off from the network. A device that the child opens is its own. The table of
//! live objects, which most verbs lock, is locked too: the child finds it unlocked and whole.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::mem;
use std::sync::{Arc, Once};

use nichrome_hca::Paused;

use crate::adapter::{Adapter, Current};
use crate::live_objects::{self, Held};
use crate::process_memory::ProcessMemory;

/// The locks that a thread holds while it forks.
struct Forking {
    _objects: Held,
    /// Declared before the adapter that it borrows from, so that it is dropped first.
    device: Option<Paused<'static, ProcessMemory>>,
    _adapter: Option<Arc<Adapter>>,
    _current: Current,
}

thread_local! {
    static FORKING: RefCell<Option<Forking>> = const { RefCell::new(None) };
}

extern "C" fn prepare() {
    let current = Adapter::current();
    let adapter = current.upgrade();
    let device = adapter.as_ref().map(|adapter| {
        // SAFETY: the adapter is kept alive by the field beside it, which is dropped after it.
        unsafe {
            mem::transmute::<Paused<'_, ProcessMemory>, Paused<'static, ProcessMemory>>(
                adapter.driver.pause(),
            )
        }
    });
    // Verbs lock the table after the device.
    let objects = live_objects::hold();
    FORKING.set(Some(Forking { _objects: objects, device, _adapter: adapter, _current: current }));
}

extern "C" fn in_parent() {
    FORKING.take();
}

extern "C" fn in_child() {
    if let Some(Forking { device: Some(mut device), _adapter: adapter, .. }) = FORKING.take() {
        device.cut_off();
        drop(device);
        drop(adapter);
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
