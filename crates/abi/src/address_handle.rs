//! Address handles: `ibv_create_ah`, `ibv_destroy_ah`, `ibv_init_ah_from_wc`.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_uint};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use nichrome_rdma::{AddressHandle as Handle, AddressVector};
use nichrome_wire::{IpProtocol, Ipv4Header, Ipv6Header, TrafficClass};

use crate::adapter::Adapter;
use crate::context::Context;
use crate::domain::Domain;
use crate::errno::{Errno, minus_one, pointer, status};
use crate::header::{ibv_ah, ibv_ah_attr, ibv_context, ibv_gid, ibv_global_route, ibv_grh, ibv_pd, ibv_wc};
use crate::object::{Object, cell, known, reclaim, zeroed};
use crate::port::{GIDS, PORT, address_in, gid, gid_at};

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

/// Converts a multicast GID of the form `ffXX::ffff:a.b.c.d`, by which programs also name IPv4 groups, to the
/// group's IPv4 address if the device's address `local` is IPv4. Returns any other address unchanged.
pub(crate) fn in_family_of(local: IpAddr, destination: IpAddr) -> IpAddr {
    let IpAddr::V6(ip) = destination else { return destination };
    let [0xFF00..=0xFFFF, 0, 0, 0, 0, 0xFFFF, ..] = ip.segments() else { return destination };
    let [.., a, b, c, d] = ip.octets();
    let group = Ipv4Addr::new(a, b, c, d);
    if local.is_ipv4() && group.is_multicast() { IpAddr::V4(group) } else { destination }
}

/// Default hop limit, used if the program passes 0.
const HOP_LIMIT: u8 = 64;

/// Converts address attributes to the engine's address vector. Fails with `EINVAL` without a global route,
/// which RoCE requires, and for a port other than 1. GID indices 0 to `GIDS` − 1 name one address and map to
/// the engine's index 0.
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
    let handle = adapter.driver().call(|device| device.create_address(domain.handle, vector))?;
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
    let destroyed = this.adapter.driver().call(|device| device.destroy_address(this.handle));
    if destroyed.is_ok() {
        // SAFETY: the program does not use it after this call.
        drop(unsafe { reclaim::<AddressHandle>(ah) });
    }
    status(destroyed)
}

/// The 40 bytes before the payload of a datagram: an IPv6 header, or 20 unused bytes and an IPv4 header.
struct ReceivedHeader<'a> {
    v6: Ipv6Header<'a>,
    v4: Ipv4Header<'a>,
}

impl<'a> ReceivedHeader<'a> {
    /// Reads the headers; `None` if there are fewer than 40 bytes.
    fn new(bytes: &'a [u8]) -> Option<Self> {
        Some(Self { v6: Ipv6Header::new(bytes)?, v4: Ipv4Header::new(bytes.get(IPV4_AT..)?)? })
    }

    /// Returns true if the header is IPv4. The unused bytes before an IPv4 header may look like the start of
    /// an IPv6 header, so an IPv4 header with a correct checksum takes precedence. Fails with
    /// `EPROTONOSUPPORT` if there is neither.
    fn is_v4(&self) -> Result<bool, Errno> {
        match (self.v6.version(), self.v4.version()) {
            (6, _) => Ok(self.v4.header_len() == Ipv4Header::LEN && self.v4.has_valid_checksum()),
            (_, 4) => Ok(true),
            _ => Err(Errno::UNKNOWN_PROTOCOL),
        }
    }

    /// Returns the route back to the sender. `index_of` returns the index of a GID of this host.
    fn return_route(&self, index_of: impl Fn(ibv_gid) -> Option<u8>) -> Result<ibv_global_route, Errno> {
        let is_v4 = self.is_v4()?;
        let (from, to, hop_limit, class) = if is_v4 {
            let v4 = &self.v4;
            (IpAddr::V4(v4.src()), IpAddr::V4(v4.dst()), v4.ttl(), v4.tos())
        } else {
            let v6 = &self.v6;
            (IpAddr::V6(v6.src()), IpAddr::V6(v6.dst()), v6.hop_limit(), v6.traffic_class())
        };
        if to.is_multicast() {
            return Err(Errno::INVALID);
        }
        if !is_v4 && self.v6.next_header() != IpProtocol::UDP {
            return Err(Errno::UNKNOWN_PROTOCOL);
        }
        let sgid_index = index_of(gid(to)).ok_or(Errno::INVALID)?;
        let flow_label = self.v6.flow_label().value();
        Ok(ibv_global_route { dgid: gid(from), flow_label, sgid_index, hop_limit, traffic_class: class.0 })
    }
}

/// Offset of an IPv4 header in the 40 bytes.
const IPV4_AT: usize = 20;

/// The flag of a completion with an IP header before the payload.
const IBV_WC_GRH: c_uint = 1;

/// Returns the attributes of the path back to the sender of a completed receive, as rdma-core computes them
/// (libibverbs/verbs.c, `ibv_init_ah_from_wc`).
unsafe fn from_completion(
    context: *mut ibv_context,
    port: u8,
    completion: &ibv_wc,
    header: *mut ibv_grh,
) -> Result<ibv_ah_attr, Errno> {
    let &ibv_wc { wc_flags, slid: dlid, sl, dlid_path_bits: src_path_bits, .. } = completion;
    let mut found = ibv_ah_attr { dlid, sl, src_path_bits, port_num: port, ..zeroed() };
    if wc_flags & IBV_WC_GRH == 0 {
        return Ok(found);
    }
    // SAFETY: the program passes an open context.
    let local = unsafe { Context::known(context) }?.adapter().address();
    // SAFETY: with this flag, 40 bytes of header precede the payload.
    let header = unsafe { &*header.cast::<[u8; 40]>() };
    let index_of = |gid| (0..GIDS).find(|index| port == PORT && gid_at(u32::from(*index), local) == gid);
    found.grh = ReceivedHeader::new(header).ok_or(Errno::INVALID)?.return_route(index_of)?;
    found.is_global = 1;
    Ok(found)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ibv_context,
    port: u8,
    completion: *mut ibv_wc,
    header: *mut ibv_grh,
    out: *mut ibv_ah_attr,
) -> c_int {
    // SAFETY: the program passes an open context, a completion, the header before its payload, and memory for
    // attributes.
    minus_one(unsafe { from_completion(context, port, &*completion, header).map(|found| *out = found) })
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
        let attributes =
            known::<Domain>(pd).and_then(|_| from_completion((*pd).context, port, &*completion, header));
        attributes.and_then(|attributes| create(pd, &attributes))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::Ipv6Addr;

    use nichrome_wire::Ipv4HeaderMut;

    use super::*;

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

    /// The address of the receiving host.
    const V4: &str = "::ffff:192.0.2.9";
    const V6: &str = "fe80::9";

    /// Returns the route back to the sender: its GID, flow label, hop limit and traffic class.
    fn return_route(header: &[u8; 40]) -> Result<(String, u32, u8, u8), Errno> {
        let local = [V4, V6].map(|gid| gid.parse::<Ipv6Addr>().unwrap().octets());
        let index_of = |gid: ibv_gid| local.contains(&gid.raw).then_some(0);
        let route = ReceivedHeader::new(header).unwrap().return_route(index_of)?;
        let ibv_global_route { dgid, flow_label, sgid_index: 0, hop_limit, traffic_class } = route else {
            panic!("another GID")
        };
        Ok((IpAddr::from(dgid.raw).to_canonical().to_string(), flow_label, hop_limit, traffic_class))
    }

    /// Returns the header of a datagram over IPv4, with its right checksum, behind zeros.
    fn over_v4() -> [u8; 40] {
        let mut header = [0u8; 40];
        header[20..22].copy_from_slice(&[0x45, 0x10]);
        header[28..30].copy_from_slice(&[63, 17]);
        header[32..36].copy_from_slice(&[192, 0, 2, 7]);
        header[36..40].copy_from_slice(&[192, 0, 2, 9]);
        Ipv4HeaderMut::new(&mut header[20..]).unwrap().fill_checksum();
        header
    }

    /// Returns the header of a datagram over IPv6.
    fn over_v6() -> [u8; 40] {
        let mut header = [0u8; 40];
        header[..4].copy_from_slice(&[0x61, 0x0A, 0xBC, 0xDE]);
        header[6..8].copy_from_slice(&[17, 62]);
        header[8..24].copy_from_slice(&"fe80::7".parse::<Ipv6Addr>().unwrap().octets());
        header[24..40].copy_from_slice(&V6.parse::<Ipv6Addr>().unwrap().octets());
        header
    }

    #[test]
    fn the_way_back_has_the_fields_of_either_ip_header() {
        assert_eq!(return_route(&over_v4()), Ok(("192.0.2.7".into(), 0, 63, 0x10)));
        assert_eq!(return_route(&over_v6()), Ok(("fe80::7".into(), 0xABCDE, 62, 0x10)));
        assert_eq!(return_route(&[0; 40]), Err(Errno::UNKNOWN_PROTOCOL));
    }

    #[test]
    fn an_ipv4_header_behind_what_looks_like_ipv6_is_believed_if_its_checksum_is_right() {
        let mut header = over_v4();
        header[0] = 0x60;
        assert_eq!(return_route(&header), Ok(("192.0.2.7".into(), 0, 63, 0x10)));
        header[30] ^= 1;
        assert_eq!(return_route(&header), Err(Errno::UNKNOWN_PROTOCOL), "an IPv6 header without UDP");
    }

    #[test]
    fn there_is_no_way_back_from_a_group_or_an_unknown_address() {
        let mut header = over_v4();
        header[36] = 239;
        assert_eq!(return_route(&header), Err(Errno::INVALID));
        header[36..40].copy_from_slice(&[192, 0, 2, 8]);
        assert_eq!(return_route(&header), Err(Errno::INVALID));
        let mut header = over_v6();
        header[24] = 0xFF;
        assert_eq!(return_route(&header), Err(Errno::INVALID));
    }
}
