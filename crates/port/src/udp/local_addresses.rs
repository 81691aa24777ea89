//! The addresses of this machine (getifaddrs(3)).

use std::ffi::CStr;
use std::net::{IpAddr, SocketAddr};
use std::ptr;

use rustix::io;

use crate::interface_name::InterfaceName;
use crate::netlink::{Interface, Netlink, is_link_local};
use crate::packet_options::check;

use super::raw_address::RawAddress;

/// Returns the addresses of this machine that adapters can have, in the network namespace of this thread,
/// with their interfaces: all but IPv6 link-local ones, which need a scope.
#[allow(unsafe_code)]
pub fn local_addresses() -> io::Result<Vec<(InterfaceName, IpAddr)>> {
    let mut list = ptr::null_mut();
    // SAFETY: getifaddrs(3) makes a list and writes where it begins.
    check(unsafe { libc::getifaddrs(&raw mut list) })?;
    let mut addresses = Vec::new();
    let mut next = list;
    // SAFETY: the list's elements are valid until it is freed, and the last one's `ifa_next` is null.
    while let Some(element) = unsafe { next.as_ref() } {
        // SAFETY: `ifa_name` is a C string, and `ifa_addr` null or a socket address of its family's length.
        let (name, address) =
            unsafe { (CStr::from_ptr(element.ifa_name), RawAddress::read(element.ifa_addr)) };
        let name = name.to_str().ok().and_then(interface_with_label);
        let address = address.as_ref().map(SocketAddr::ip).filter(|address| !is_link_local(address));
        addresses.extend(name.zip(address));
        next = element.ifa_next;
    }
    // SAFETY: getifaddrs allocated the list, and no reference to it is kept.
    unsafe { libc::freeifaddrs(list) };
    Ok(addresses)
}

/// Returns the interface of an address with a label: getifaddrs(3) returns the label as the interface's name.
/// The label is the name, which may be followed by a colon and more (ip-address(8)).
fn interface_with_label(label: &str) -> Option<InterfaceName> {
    label.split(':').next()?.parse().ok()
}

/// Returns the address that an adapter uses on an interface: the first IPv4 address, else the first IPv6
/// address.
pub fn interface_address(interface: InterfaceName) -> io::Result<Option<IpAddr>> {
    let addresses = local_addresses()?.into_iter().filter(|(name, _)| *name == interface);
    Ok(addresses.map(|(_, address)| address).min_by_key(IpAddr::is_ipv6))
}

/// Returns the MTU of the interface that has address `ip`, in bytes; `None` if unknown.
pub(super) fn interface_mtu(ip: IpAddr) -> Option<usize> {
    usize::try_from(interface_of(ip)?.mtu).ok()
}

/// Returns the index of the interface that has address `ip`, if any.
pub(super) fn interface_index(ip: IpAddr) -> Option<u32> {
    interface_of(ip).map(|interface| interface.index)
}

/// Returns the interface that has address `ip`, if any.
pub(super) fn interface_of(ip: IpAddr) -> Option<Interface> {
    let name = if ip.is_loopback() {
        "lo".parse().ok()
    } else {
        local_addresses().ok()?.into_iter().find(|(_, address)| *address == ip).map(|(name, _)| name)
    };
    Netlink::open().ok()?.interface(name?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn loopback_is_among_the_addresses() {
        let lo = ("lo".parse().unwrap(), IpAddr::V4(Ipv4Addr::LOCALHOST));
        assert!(local_addresses().unwrap().contains(&lo));
        assert_eq!(interface_address(lo.0), Ok(Some(lo.1)));
        assert_eq!(interface_address("nosuch0".parse().unwrap()), Ok(None));
        assert_eq!(interface_mtu(Ipv4Addr::new(127, 9, 9, 9).into()), Some(65_536));
        assert_eq!(interface_mtu(Ipv4Addr::new(192, 0, 2, 1).into()), None);
    }
}
