//! Fork. No hardware reads the program's pages behind the processor's back, so they need no care. The device does: a child
//! has its parent's objects, but the socket is the parent's, and the thread is not there. The child finds the device whole
//! and cut off from the network; one that it opens is its own.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::mem;
use std::sync::{Arc, Once};

use nichrome_hca::Paused;

use crate::adapter::{Adapter, Current};
use crate::process_memory::ProcessMemory;

/// What a thread that forks holds on to.
struct Forking {
    /// Before the adapter that it is of.
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
        // SAFETY: what it is of lives as long, beside it, and is dropped after it.
        unsafe {
            mem::transmute::<Paused<'_, ProcessMemory>, Paused<'static, ProcessMemory>>(
                adapter.driver.pause(),
            )
        }
    });
    FORKING.set(Some(Forking { device, _adapter: adapter, _current: current }));
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

/// Looks after the device of a process that forks, from now on.
pub(crate) fn prepare_for_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the functions are there as long as the library, which is never unloaded.
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
