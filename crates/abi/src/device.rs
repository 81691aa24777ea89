//! The one device, `nichrome0`.

use std::env;
use std::ffi::{CStr, OsString, c_char, c_int};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;

use crate::cancellation::Uncancelled;
use crate::configuration::{INTERFACE, IP, is_iwarp};
use crate::header::{IBV_NODE_CA, IBV_NODE_RNIC, IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP, ibv_device};
use crate::object::zeroed;

/// The device's name.
pub(crate) const NAME: &CStr = c"nichrome0";

/// The device's structure, followed by the field in which rdma-core keeps a pointer to the driver's
/// operations. rdma-core's driver libraries compare this pointer with their own to recognise their devices,
/// and do not dereference it.
#[repr(C)]
struct Device {
    abi: ibv_device,
    operations: *const u8,
    rest: [u64; 64],
}

// SAFETY: the structure is never written to.
unsafe impl Send for Device {}
// SAFETY: the structure is never written to.
unsafe impl Sync for Device {}

pub(crate) fn the_device() -> *mut ibv_device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    static OPERATIONS: u8 = 0;
    let device = DEVICE.get_or_init(|| {
        let mut abi: ibv_device = zeroed();
        (abi.node_type, abi.transport_type) = match is_iwarp() {
            true => (IBV_NODE_RNIC, IBV_TRANSPORT_IWARP),
            false => (IBV_NODE_CA, IBV_TRANSPORT_IB),
        };
        put(&mut abi.name, NAME);
        put(&mut abi.dev_name, c"uverbs0");
        put(&mut abi.dev_path, c"/sys/class/infiniband_verbs/uverbs0");
        put(&mut abi.ibdev_path, c"/sys/class/infiniband/nichrome0");
        Device { abi, operations: &raw const OPERATIONS, rest: [0; 64] }
    });
    (&raw const device.abi).cast_mut()
}

/// Writes a string into a C array; the caller ensures that it fits.
pub(crate) fn put(array: &mut [c_char], text: &CStr) {
    for (place, byte) in array.iter_mut().zip(text.to_bytes_with_nul()) {
        *place = *byte as c_char;
    }
}

/// Returns the node GUID in network byte order.
pub(crate) fn guid() -> u64 {
    guid_at(&[IP, INTERFACE].map(env::var_os))
}

/// Returns the node GUID, in network byte order, of processes with these values of `NICHROME_IP` and
/// `NICHROME_IFACE`: locally administered, a hash of the host name and the values.
pub(crate) fn guid_at(place: &[Option<OsString>; 2]) -> u64 {
    let _uncancelled = Uncancelled::begin();
    let mut hasher = DefaultHasher::new();
    std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default().hash(&mut hasher);
    // An empty variable counts as unset.
    place.each_ref().map(|value| value.as_ref().filter(|value| !value.is_empty())).hash(&mut hasher);
    let mut bytes = hasher.finish().to_be_bytes();
    bytes[0] = 0x02;
    u64::from_ne_bytes(bytes)
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

/// Returns −1: the kernel has no index for this device.
#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_index(_device: *mut ibv_device) -> c_int {
    -1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_gives_the_guid_of_an_unset_one() {
        let guid =
            |address: Option<&str>| guid_at(&[address, Some("lo")].map(|value| value.map(OsString::from)));
        assert_eq!(guid(Some("")), guid(None));
        assert_ne!(guid(Some("192.0.2.7")), guid(None));
    }
}
