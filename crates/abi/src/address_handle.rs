//! Address handles: `ibv_create_ah`, `ibv_destroy_ah`, `ibv_init_ah_from_wc`.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_uint};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use nichrome_rdma::{AddressHandle as Handle, AddressVector};
use nichrome_wire::TrafficClass;

use crate::adapter::Adapter;
use crate::domain::Domain;
use crate::errno::{Errno, minus_one, pointer, status};
use crate::header::{ibv_ah, ibv_ah_attr, ibv_context, ibv_global_route, ibv_grh, ibv_pd, ibv_wc};
use crate::object::{Object, cell, known, take_back, zeroed};
use crate::port::{GIDS, PORT, address_in, gid};

/// An address handle.
#[repr(C)]
pub(crate) struct AddressHandle {
    abi: UnsafeCell<ibv_ah>,
    adapter: Arc<Adapter>,
    pub(crate) handle: Handle,
}

// SAFETY: `repr(C)`, and the structure is the first field.
unsafe impl Object for AddressHandle {
    type Abi = ibv_ah;

    fn handle_in(abi: &ibv_ah) -> u32 {
        abi.handle
    }
}

/// Converts a multicast GID of the form `ffXX::ffff:a.b.c.d`, with which programs name IPv4 groups too, to the group's IPv4
/// address on a device whose address `local` is an IPv4 address. Returns any other address unchanged.
pub(crate) fn in_family_of(local: IpAddr, destination: IpAddr) -> IpAddr {
    let IpAddr::V6(ip) = destination else { return destination };
    let [0xFF00..=0xFFFF, 0, 0, 0, 0, 0xFFFF, ..] = ip.segments() else { return destination };
    let [.., a, b, c, d] = ip.octets();
    let group = Ipv4Addr::new(a, b, c, d);
    if local.is_ipv4() && group.is_multicast() { IpAddr::V4(group) } else { destination }
}

/// Default hop limit, used if the program passes 0.
const HOP_LIMIT: u8 = 64;

/// Converts address attributes to the engine's address vector. Fails with `EINVAL` without a global route, which RoCE
/// requires, and for another port than the only one. GID indices 0 to `GIDS` − 1 are one address and map to the engine's index 0.
pub(crate) fn vector(attributes: &ibv_ah_attr) -> Result<AddressVector, Errno> {
    if attributes.is_global == 0 || attributes.port_num != PORT {
        return Err(Errno::INVALID);
    }
    let ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class } = attributes.grh;
    Ok(AddressVector {
        source_index: if sgid_index < GIDS { 0 } else { sgid_index },
        destination: address_in(dgid),
        traffic_class: TrafficClass(traffic_class),
        flow_label: flow_label & 0xF_FFFF,
        hop_limit: if hop_limit == 0 { HOP_LIMIT } else { hop_limit },
    })
}

/// Converts an address vector to address attributes.
pub(crate) fn attributes(vector: &AddressVector) -> ibv_ah_attr {
    let grh = ibv_global_route {
        dgid: gid(vector.destination),
        flow_label: vector.flow_label,
        sgid_index: vector.source_index,
        hop_limit: vector.hop_limit,
        traffic_class: vector.traffic_class.0,
    };
    ibv_ah_attr { grh, is_global: 1, port_num: PORT, ..zeroed() }
}

unsafe fn create(pd: *mut ibv_pd, attributes: &ibv_ah_attr) -> Result<*mut ibv_ah, Errno> {
    let mut vector = vector(attributes)?;
    // SAFETY: the program passes a domain that it created.
    let (domain, context) = unsafe { (known::<Domain>(pd)?, (*pd).context) };
    let adapter = Arc::clone(&domain.adapter);
    vector.destination = in_family_of(adapter.address(), vector.destination);
    let handle = adapter.driver.call(|device| device.create_address(domain.handle, vector))?;
    let abi = cell(ibv_ah { context, pd, handle: handle.index() });
    Ok(Box::new(AddressHandle { abi, adapter, handle }).into_abi())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_ah(pd: *mut ibv_pd, attributes: *mut ibv_ah_attr) -> *mut ibv_ah {
    // SAFETY: the program passes a domain that it created, and attributes.
    pointer(unsafe { create(pd, &*attributes) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: the program passes a handle that it created.
    let this = match unsafe { known::<AddressHandle>(ah) } {
        Ok(this) => this,
        Err(errno) => return status(Err(errno)),
    };
    let destroyed = this.adapter.driver.call(|device| device.destroy_address(this.handle));
    if destroyed.is_ok() {
        // SAFETY: the program does not use it after this call.
        drop(unsafe { take_back::<AddressHandle>(ah) });
    }
    status(destroyed)
}

/// Returns the address vector of a datagram's sender from the 40 bytes before the payload: an IPv6 header, or 20 unused
/// bytes and an IPv4 header. `None` if they hold neither.
fn reply_vector(header: &[u8; 40]) -> Option<AddressVector> {
    let (destination, traffic_class) = if header[0] >> 4 == 6 {
        let source: [u8; 16] = header[8..24].try_into().ok()?;
        (IpAddr::V6(Ipv6Addr::from(source)), header[0] << 4 | header[1] >> 4)
    } else if header[20] >> 4 == 4 {
        let source: [u8; 4] = header[32..36].try_into().ok()?;
        (IpAddr::V4(Ipv4Addr::from(source)), header[21])
    } else {
        return None;
    };
    Some(AddressVector { traffic_class: TrafficClass(traffic_class), ..AddressVector::to(destination) })
}

/// The flag of a completion with an IP header before the payload.
const IBV_WC_GRH: c_uint = 1;

/// Returns the attributes of the path back to the sender of a completed UD receive.
unsafe fn from_completion(port: u8, completion: &ibv_wc, header: *mut ibv_grh) -> Result<ibv_ah_attr, Errno> {
    if completion.wc_flags & IBV_WC_GRH == 0 || port != PORT {
        return Err(Errno::INVALID);
    }
    // SAFETY: with this flag, 40 bytes of header precede the payload.
    let header = unsafe { &*header.cast::<[u8; 40]>() };
    Ok(attributes(&reply_vector(header).ok_or(Errno::INVALID)?))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_init_ah_from_wc(
    _context: *mut ibv_context,
    port: u8,
    completion: *mut ibv_wc,
    header: *mut ibv_grh,
    out: *mut ibv_ah_attr,
) -> c_int {
    // SAFETY: the program passes a completion, the header before its payload, and memory for attributes.
    minus_one(unsafe { from_completion(port, &*completion, header).map(|found| *out = found) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ibv_pd,
    completion: *mut ibv_wc,
    header: *mut ibv_grh,
    port: u8,
) -> *mut ibv_ah {
    // SAFETY: the program passes a domain that it created, a completion and the header before its payload.
    pointer(unsafe {
        from_completion(port, &*completion, header).and_then(|attributes| create(pd, &attributes))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::header::ibv_gid;

    #[test]
    fn a_multicast_gid_that_ends_in_an_ipv4_group_is_that_group_on_an_ipv4_device() {
        let converted = |local: &str, gid: &str| {
            let gid = ibv_gid { raw: gid.parse::<Ipv6Addr>().unwrap().octets() };
            in_family_of(local.parse().unwrap(), address_in(gid)).to_string()
        };
        assert_eq!(converted("10.0.0.1", "::ffff:239.1.2.3"), "239.1.2.3");
        assert_eq!(converted("10.0.0.1", "ff0e::ffff:239.1.2.3"), "239.1.2.3");
        assert_eq!(converted("10.0.0.1", "ff1e::ffff:239.1.2.3"), "239.1.2.3");
        assert_eq!(converted("10.0.0.1", "ff0e::ffff:10.1.2.3"), "ff0e::ffff:a01:203");
        assert_eq!(converted("fd00::1", "ff0e::ffff:239.1.2.3"), "ff0e::ffff:ef01:203");
        assert_eq!(converted("10.0.0.1", "ff15::77"), "ff15::77");
        assert_eq!(converted("10.0.0.1", "::ffff:10.0.0.2"), "10.0.0.2");
    }

    #[test]
    fn the_senders_address_is_read_from_either_ip_header() {
        let mut header = [0u8; 40];
        header[20..22].copy_from_slice(&[0x45, 0x10]);
        header[32..36].copy_from_slice(&[192, 0, 2, 7]);
        let vector = reply_vector(&header).unwrap();
        assert_eq!((vector.destination.to_string().as_str(), vector.traffic_class.0), ("192.0.2.7", 0x10));
        header = [0; 40];
        header[..2].copy_from_slice(&[0x61, 0x00]);
        header[8..24].copy_from_slice(&"fe80::7".parse::<Ipv6Addr>().unwrap().octets());
        let vector = reply_vector(&header).unwrap();
        assert_eq!((vector.destination.to_string().as_str(), vector.traffic_class.0), ("fe80::7", 0x10));
        assert_eq!(reply_vector(&[0; 40]), None);
    }
}
