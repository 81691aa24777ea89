//! The device list (`ibv_get_device_list`), which holds the one device.

use std::ffi::c_int;
use std::ptr;

use crate::cancellation::Uncancelled;
use crate::device::the_device;
use crate::doctor::record;
use crate::errno::{Errno, pointer};
use crate::header::ibv_device;
use crate::rdma_cm::redirect_librdmacm;

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    let _uncancelled = Uncancelled::begin();
    record("ibv_get_device_list");
    redirect_librdmacm();
    // SAFETY: allocates two pointers. Allocated by malloc, because some programs pass the list to free()
    // themselves.
    let list = unsafe { libc::malloc(2 * size_of::<*mut ibv_device>()) }.cast::<*mut ibv_device>();
    if list.is_null() {
        return pointer(Err(Errno::NO_MEMORY));
    }
    // SAFETY: the list holds two pointers; the program passes memory for a number, or a null pointer.
    unsafe {
        list.write(the_device());
        list.add(1).write(ptr::null_mut());
        if !count.is_null() {
            count.write(1);
        }
    }
    list
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: the program passes a list that it received.
    unsafe { libc::free(list.cast()) };
}
