//! The port: its attributes, GIDs and partition keys.

use std::ffi::{c_int, c_uint};
use std::mem::offset_of;
use std::net::IpAddr;
use std::ptr;

use nichrome_rdma::PathMtu;

use crate::context::Context;
use crate::errno::{Errno, minus_one, status};
use crate::header::{
    IBV_GID_TYPE_ROCE_V2, IBV_LINK_LAYER_ETHERNET, IBV_PORT_ACTIVE, ibv_context, ibv_gid, ibv_gid_entry,
    ibv_port_attr,
};
use crate::object::zeroed;

/// The only port.
const PORT: u8 = 1;

/// The only partition, with full membership, in network byte order.
const DEFAULT_PARTITION: u16 = 0xFFFF;

/// `enum ibv_mtu`.
pub(crate) fn mtu_code(mtu: PathMtu) -> c_int {
    PathMtu::ALL.into_iter().zip(1..).find(|(known, _)| *known == mtu).map_or(1, |(_, code)| code)
}

/// The path MTU of `enum ibv_mtu`.
pub(crate) fn mtu(code: c_int) -> Option<PathMtu> {
    PathMtu::ALL.into_iter().zip(1..).find(|(_, known)| *known == code).map(|(mtu, _)| mtu)
}

/// The GID of an address.
pub(crate) fn gid(address: IpAddr) -> ibv_gid {
    let raw = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    ibv_gid { raw }
}

fn attributes(active: PathMtu, longest_message: u32) -> ibv_port_attr {
    ibv_port_attr {
        state: IBV_PORT_ACTIVE,
        max_mtu: mtu_code(PathMtu::B4096),
        active_mtu: mtu_code(active),
        gid_tbl_len: 1,
        // IP-based GIDs.
        port_cap_flags: 1 << 26,
        max_msg_sz: longest_message,
        pkey_tbl_len: 1,
        max_vl_num: 1,
        // One lane of 25 Gb/s: the standard has no value for a link without a speed.
        active_width: 1,
        active_speed: 32,
        // Link up.
        phys_state: 5,
        link_layer: IBV_LINK_LAYER_ETHERNET,
        ..zeroed()
    }
}

/// Programs of older headers have room for less.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    room: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    if port != PORT {
        return status(Err(Errno::INVALID));
    }
    // SAFETY: the program passes an open context.
    let adapter = unsafe { Context::of(context) }.adapter();
    let all = attributes(adapter.mtu, adapter.driver.call(|device| device.limits().message));
    let len = size.min(size_of::<ibv_port_attr>());
    // SAFETY: the program passes room for `size` bytes.
    unsafe { ptr::copy_nonoverlapping((&raw const all).cast::<u8>(), room.cast(), len) };
    0
}

/// For programs that were compiled before the structure grew.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port(context: *mut ibv_context, port: u8, room: *mut ibv_port_attr) -> c_int {
    // SAFETY: the program passes an open context and room for what the structure was then.
    unsafe { query_port(context, port, room, offset_of!(ibv_port_attr, port_cap_flags2)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    room: *mut ibv_gid,
) -> c_int {
    if port != PORT || index != 0 {
        return minus_one(Err(Errno::INVALID));
    }
    // SAFETY: the program passes an open context and room for a GID.
    unsafe { *room = gid(Context::of(context).adapter().address()) };
    0
}

unsafe fn entry(context: *mut ibv_context) -> ibv_gid_entry {
    // SAFETY: the program passes an open context.
    let gid = gid(unsafe { Context::of(context) }.adapter().address());
    let (gid_index, port_num) = (0, u32::from(PORT));
    ibv_gid_entry { gid, gid_index, port_num, gid_type: IBV_GID_TYPE_ROCE_V2, ndev_ifindex: 0 }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    room: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> c_int {
    if flags != 0 {
        return status(Err(Errno::UNSUPPORTED));
    }
    if port != u32::from(PORT) || size < size_of::<ibv_gid_entry>() {
        return status(Err(Errno::INVALID));
    }
    if index != 0 {
        return status(Err(Errno(libc::ENODATA)));
    }
    // SAFETY: the program passes an open context and room for an entry.
    unsafe { *room = entry(context) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    room: *mut ibv_gid_entry,
    most: usize,
    flags: u32,
    size: usize,
) -> isize {
    if flags != 0 {
        return -(Errno::UNSUPPORTED.0 as isize);
    }
    if most < 1 || size < size_of::<ibv_gid_entry>() {
        return -(Errno::INVALID.0 as isize);
    }
    // SAFETY: the program passes an open context and room for an entry.
    unsafe { *room = entry(context) };
    1
}

/// As `/sys` says it: 0 for RoCE v1 and InfiniBand, 1 for RoCE v2.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid_type(
    _context: *mut ibv_context,
    port: u8,
    index: c_uint,
    room: *mut c_int,
) -> c_int {
    if port != PORT || index != 0 {
        return minus_one(Err(Errno::INVALID));
    }
    // SAFETY: the program passes room for the type.
    unsafe { *room = 1 };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_pkey(
    _context: *mut ibv_context,
    port: u8,
    index: c_int,
    room: *mut u16,
) -> c_int {
    if port != PORT || index != 0 {
        return minus_one(Err(Errno::INVALID));
    }
    // SAFETY: the program passes room for a key.
    unsafe { *room = DEFAULT_PARTITION };
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_pkey_index(_context: *mut ibv_context, port: u8, key: u16) -> c_int {
    if port == PORT && key == DEFAULT_PARTITION { 0 } else { minus_one(Err(Errno::INVALID)) }
}
