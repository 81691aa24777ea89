//! The device's port: attributes, GIDs, partition keys.

use std::ffi::{CString, c_int, c_uint};
use std::mem::offset_of;
use std::net::IpAddr;
use std::ptr;

use nichrome_hca::Transport;
use nichrome_port::udp::local_addresses;
use nichrome_rdma::PathMtu;

use crate::cancellation::Uncancelled;
use crate::configuration::{is_iwarp, transport};
use crate::context::Context;
use crate::device::guid;
use crate::doctor::record;
use crate::errno::{Errno, minus_one, status};
use crate::header::{
    IBV_GID_TYPE_IB, IBV_GID_TYPE_ROCE_V2, IBV_LINK_LAYER_ETHERNET, IBV_PORT_ACTIVE, ibv_context, ibv_gid,
    ibv_gid_entry, ibv_port_attr,
};
use crate::object::zeroed;

/// Number of the only port.
pub(crate) const PORT: u8 = 1;

/// Number of GID indices. All name the device's address, except index 0 on iWARP. Adapters usually have a
/// RoCE v1 and a RoCE v2 GID for each address, and programs written for them expect the RoCE v2 GID of an
/// IPv4 address at a fixed index, often 3.
pub(crate) const GIDS: u8 = 4;

/// Port speed in units of 100 Mb/s: one lane of 25 Gb/s.
const PORT_SPEED: u64 = 250;

/// Key of the only partition: the default one, full membership, in network byte order.
const DEFAULT_PARTITION: u16 = 0xFFFF;

/// Converts a path MTU to `enum ibv_mtu`.
pub(crate) fn mtu_code(mtu: PathMtu) -> c_int {
    PathMtu::ALL.into_iter().zip(1..).find(|(known, _)| *known == mtu).map_or(1, |(_, code)| code)
}

/// Converts `enum ibv_mtu` to a path MTU.
pub(crate) fn mtu(code: c_int) -> Option<PathMtu> {
    PathMtu::ALL.into_iter().zip(1..).find(|(_, known)| *known == code).map(|(mtu, _)| mtu)
}

/// Returns the GID of an IP address.
pub(crate) fn gid(address: IpAddr) -> ibv_gid {
    let raw = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    ibv_gid { raw }
}

/// Entries of the GID table. Queries for higher indices below [`GIDS`] succeed, and return the GID of the IP
/// address.
const TABLE_LEN: u8 = 1;

/// The first bytes of an RNIC's hardware address, which is locally administered, if the device has an IPv4
/// address. The other bytes are the IPv4 address.
const RNIC_PREFIX: [u8; 2] = [2, 0];

/// Returns the GID at an index below [`GIDS`]. On iWARP, the GID at index 0 is the hardware address in the
/// first six bytes, as on RNICs (siw: `siw_query_gid`). If the device has an IPv4 address, the hardware
/// address contains it, so that programs that connect without rdma_cm reach the device; with an IPv6 address
/// they use another index.
pub(crate) fn gid_at(index: u32, address: IpAddr) -> ibv_gid {
    gid_of(transport(), guid, index, address)
}

/// As [`gid_at`], for a device with this transport and GUID.
pub(crate) fn gid_of(transport: Transport, guid: impl Fn() -> u64, index: u32, address: IpAddr) -> ibv_gid {
    if index > 0 || transport != Transport::Iwarp {
        return gid(address);
    }
    let hardware = match address {
        IpAddr::V4(address) => [&RNIC_PREFIX[..], &address.octets()].concat(),
        // Locally administered, as the GUID is.
        IpAddr::V6(_) => [&guid().to_ne_bytes()[..1], &guid().to_ne_bytes()[3..]].concat(),
    };
    let mut raw = [0; 16];
    raw[..6].copy_from_slice(&hardware);
    ibv_gid { raw }
}

/// Returns the IP address that a GID contains.
pub(crate) fn address_in(gid: ibv_gid) -> IpAddr {
    let [prefix @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _] = gid.raw;
    let [_, _, a, b, c, d, rest @ ..] = gid.raw;
    // No host has an IPv6 address in 0200::/7.
    if prefix == RNIC_PREFIX && rest == [0; 10] {
        return IpAddr::from([a, b, c, d]);
    }
    IpAddr::from(gid.raw).to_canonical()
}

/// Returns the type of all GIDs.
fn gid_type() -> u32 {
    if is_iwarp() { IBV_GID_TYPE_IB } else { IBV_GID_TYPE_ROCE_V2 }
}

/// The name of all GIDs' type in `/sys`.
pub(crate) fn gid_type_name(transport: Transport) -> &'static str {
    if transport == Transport::Iwarp { "IB/RoCE v1" } else { "RoCE v2" }
}

/// Returns the capability flags of the port. On iWARP, those of siw (connection management, device
/// management); else the flag that GIDs are IP addresses.
pub(crate) fn capabilities(transport: Transport) -> u32 {
    if transport == Transport::Iwarp { 1 << 16 | 1 << 19 } else { 1 << 26 }
}

fn attributes(active: PathMtu, longest_message: u32) -> ibv_port_attr {
    ibv_port_attr {
        state: IBV_PORT_ACTIVE,
        max_mtu: mtu_code(PathMtu::B4096),
        active_mtu: mtu_code(active),
        gid_tbl_len: TABLE_LEN.into(),
        port_cap_flags: capabilities(transport()),
        max_msg_sz: longest_message,
        pkey_tbl_len: 1,
        max_vl_num: 1,
        // One lane of 25 Gb/s: the standard has no value for an unknown speed.
        active_width: 1,
        active_speed: 32,
        // LinkUp.
        phys_state: 5,
        link_layer: IBV_LINK_LAYER_ETHERNET,
        ..zeroed()
    }
}

/// Writes the first `size` bytes of the attributes: programs built with older headers pass a shorter
/// structure.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    out: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    record("ibv_query_port");
    if port != PORT {
        return status(Err(Errno::INVALID));
    }
    // SAFETY: the program passes an open context.
    let adapter = match unsafe { Context::known(context) } {
        Ok(context) => context.adapter(),
        Err(errno) => return status(Err(errno)),
    };
    let all = attributes(adapter.mtu, adapter.driver().call(|device| device.limits().message));
    let len = size.min(size_of::<ibv_port_attr>());
    // SAFETY: the program passes memory for `size` bytes.
    unsafe { ptr::copy_nonoverlapping((&raw const all).cast::<u8>(), out.cast(), len) };
    0
}

/// For programs compiled before the structure had `port_cap_flags2`.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port(context: *mut ibv_context, port: u8, out: *mut ibv_port_attr) -> c_int {
    // SAFETY: the program passes an open context and memory for the structure up to that field.
    unsafe { query_port(context, port, out, offset_of!(ibv_port_attr, port_cap_flags2)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    out: *mut ibv_gid,
) -> c_int {
    record("ibv_query_gid");
    if port != PORT || !(0..c_int::from(GIDS)).contains(&index) {
        return minus_one(Err(Errno::INVALID));
    }
    // SAFETY: the program passes an open context and memory for a GID.
    minus_one(unsafe {
        Context::known(context).map(|opened| *out = gid_at(index as u32, opened.adapter().address()))
    })
}

/// Returns an entry of the GID table. Fails with `EINVAL` if the context is closed.
unsafe fn entry(context: *mut ibv_context, gid_index: u32) -> Result<ibv_gid_entry, Errno> {
    record("ibv_query_gid");
    let _uncancelled = Uncancelled::begin();
    // SAFETY: the program passes an open context.
    let address = unsafe { Context::known(context) }?.adapter().address();
    let (gid, port_num) = (gid_at(gid_index, address), u32::from(PORT));
    let ndev_ifindex = interface_of(address).map_or(0, |name| index_of(&name));
    Ok(ibv_gid_entry { gid, gid_index, port_num, gid_type: gid_type(), ndev_ifindex })
}

/// Returns the name of the interface that owns an address; loopback addresses belong to the loopback
/// interface.
pub(crate) fn interface_of(address: IpAddr) -> Option<String> {
    let addresses = local_addresses().ok()?;
    let is_owner = |owned: &IpAddr| *owned == address || owned.is_loopback() && address.is_loopback();
    addresses.iter().find(|(_, owned)| is_owner(owned)).map(|(name, _)| name.as_str().to_owned())
}

/// Returns the index of an interface, or 0 if it does not exist.
fn index_of(interface: &str) -> u32 {
    // SAFETY: the name is a valid C string during the call.
    CString::new(interface).map_or(0, |name| unsafe { libc::if_nametoindex(name.as_ptr()) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    out: *mut ibv_gid_entry,
    flags: u32,
    size: usize,
) -> c_int {
    if flags != 0 {
        return status(Err(Errno::UNSUPPORTED));
    }
    if port != u32::from(PORT) || size < size_of::<ibv_gid_entry>() {
        return status(Err(Errno::INVALID));
    }
    if index >= u32::from(GIDS) {
        return status(Err(Errno(libc::ENODATA)));
    }
    // SAFETY: the program passes an open context and memory for an entry.
    status(unsafe { entry(context, index).map(|found| *out = found) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    out: *mut ibv_gid_entry,
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
    let entries = usize::from(TABLE_LEN).min(most);
    for index in 0..entries {
        // SAFETY: the program passes an open context and memory for `most` entries.
        match unsafe { entry(context, index as u32) } {
            // SAFETY: as above.
            Ok(found) => unsafe { out.add(index).write(found) },
            Err(errno) => return -(errno.0 as isize),
        }
    }
    entries as isize
}

/// Writes the port speed in units of 100 Mb/s.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port_speed(_context: *mut ibv_context, port: u32, out: *mut u64) -> c_int {
    if port != u32::from(PORT) {
        return status(Err(Errno::INVALID));
    }
    // SAFETY: the program passes memory for the speed.
    unsafe { *out = PORT_SPEED };
    0
}

/// Writes the GID type by the numbers of `enum ibv_gid_type_sysfs`: 0 for InfiniBand and RoCE v1, 1 for RoCE
/// v2.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid_type(
    _context: *mut ibv_context,
    port: u8,
    index: c_uint,
    out: *mut c_int,
) -> c_int {
    if port != PORT || index >= c_uint::from(GIDS) {
        return minus_one(Err(Errno::INVALID));
    }
    // SAFETY: the program passes memory for the type.
    unsafe { *out = c_int::from(!is_iwarp()) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_pkey(
    _context: *mut ibv_context,
    port: u8,
    index: c_int,
    out: *mut u16,
) -> c_int {
    if port != PORT || index != 0 {
        return minus_one(Err(Errno::INVALID));
    }
    // SAFETY: the program passes memory for a key.
    unsafe { *out = DEFAULT_PARTITION };
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_pkey_index(_context: *mut ibv_context, port: u8, key: u16) -> c_int {
    if port == PORT && key == DEFAULT_PARTITION { 0 } else { minus_one(Err(Errno::INVALID)) }
}
