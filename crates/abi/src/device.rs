//! The list of devices: there is one.

use std::env;
use std::ffi::{CStr, c_char, c_int};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ptr;
use std::sync::OnceLock;

use crate::configuration::{INTERFACE, IP};
use crate::doctor::record;
use crate::errno::{Errno, pointer};
use crate::header::{IBV_NODE_CA, IBV_TRANSPORT_IB, ibv_device};
use crate::object::zeroed;

/// The device's name.
pub(crate) const NAME: &CStr = c"nichrome0";

/// Libraries of drivers ask every device whose it is by a pointer behind the structure, where rdma-core has the
/// operations of the driver: it is compared, never followed.
#[repr(C)]
struct Device {
    abi: ibv_device,
    operations: *const u8,
    rest: [u64; 64],
}

// SAFETY: nothing in it is ever changed.
unsafe impl Send for Device {}
// SAFETY: nothing in it is ever changed.
unsafe impl Sync for Device {}

fn the_device() -> *mut ibv_device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    static OPERATIONS: u8 = 0;
    let device = DEVICE.get_or_init(|| {
        let mut abi: ibv_device = zeroed();
        (abi.node_type, abi.transport_type) = (IBV_NODE_CA, IBV_TRANSPORT_IB);
        put(&mut abi.name, NAME);
        put(&mut abi.dev_name, c"uverbs0");
        put(&mut abi.dev_path, c"/sys/class/infiniband_verbs/uverbs0");
        put(&mut abi.ibdev_path, c"/sys/class/infiniband/nichrome0");
        Device { abi, operations: &raw const OPERATIONS, rest: [0; 64] }
    });
    (&raw const device.abi).cast_mut()
}

/// Writes a text into an array of C, which is long enough.
pub(crate) fn put(room: &mut [c_char], text: &CStr) {
    for (place, byte) in room.iter_mut().zip(text.to_bytes_with_nul()) {
        *place = *byte as c_char;
    }
}

/// The node's GUID in network byte order: of this machine and the configured place, and marked as locally administered.
pub(crate) fn guid() -> u64 {
    let mut hasher = DefaultHasher::new();
    std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default().hash(&mut hasher);
    [IP, INTERFACE].map(env::var_os).hash(&mut hasher);
    let mut bytes = hasher.finish().to_be_bytes();
    bytes[0] = 0x02;
    u64::from_ne_bytes(bytes)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    record("ibv_get_device_list");
    // SAFETY: room for two pointers; it is C's, because programs have been seen to free it themselves.
    let list = unsafe { libc::malloc(2 * size_of::<*mut ibv_device>()) }.cast::<*mut ibv_device>();
    if list.is_null() {
        return pointer(Err(Errno::NO_MEMORY));
    }
    // SAFETY: two pointers fit; the program passes room for a number, or nothing.
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
    // SAFETY: the program passes a list that it was given.
    unsafe { libc::free(list.cast()) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the program passes the device.
    unsafe { (&raw const (*device).name).cast() }
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_guid(_device: *mut ibv_device) -> u64 {
    guid()
}

/// The kernel has no such device.
#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_index(_device: *mut ibv_device) -> c_int {
    -1
}
