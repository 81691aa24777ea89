//! Values of the `/sys` attributes that differ between processes, for `libnichrome-devices.so` and for
//! mounted files.

use std::ffi::{CStr, OsString, c_char};
use std::net::IpAddr;
use std::ptr;

use nichrome_hca::Transport;

use crate::adapter::Adapter;
use crate::configuration::{address_at, configured_address, transport};
use crate::device::{guid, guid_at};
use crate::port::{GIDS, capabilities, gid_of, gid_type_name, interface_of};

/// Returns the address of the open device, else the configured one. `None` if neither exists: the device
/// chooses an address in 127.0.0.0/8 when it opens.
fn address() -> Option<IpAddr> {
    Adapter::open_address().or_else(configured_address)
}

/// Formats bytes in groups of two, as the kernel formats GIDs and GUIDs.
fn groups(bytes: &[u8]) -> String {
    let groups: Vec<String> =
        bytes.chunks(2).map(|pair| pair.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    groups.join(":")
}

/// Returns an attribute's value in this process, or `None` if it is the same in all processes.
fn value(name: &str) -> Option<String> {
    value_at(name, transport(), guid, address)
}

/// Returns the value of an attribute of a device with this transport, GUID and address, or `None` if it
/// depends on none of them.
fn value_at(
    name: &str,
    transport: Transport,
    guid: impl Fn() -> u64,
    address: impl Fn() -> Option<IpAddr>,
) -> Option<String> {
    let is_gid = |index: &str| index.parse::<u8>().is_ok_and(|index| index < GIDS);
    match name {
        "node_type" => return (transport == Transport::Iwarp).then(|| "4: RNIC".to_owned()),
        "node_guid" | "sys_image_guid" => return Some(groups(&guid().to_ne_bytes())),
        _ => {}
    }
    let attribute = name.strip_prefix("ports/1/")?;
    if attribute == "cap_mask" {
        return Some(format!("{:#010x}", capabilities(transport)));
    }
    if attribute.strip_prefix("gid_attrs/types/").is_some_and(is_gid) {
        return Some(gid_type_name(transport).to_owned());
    }
    if let Some(index) = attribute.strip_prefix("gids/") {
        let number = index.parse().ok().filter(|_| is_gid(index))?;
        let gid = |address| gid_of(transport, guid, number, address).raw;
        return Some(groups(&address().map_or([0; 16], gid)));
    }
    let index = attribute.strip_prefix("gid_attrs/ndevs/")?;
    let interface = || address().and_then(interface_of).unwrap_or_else(|| "lo".to_owned());
    is_gid(index).then(interface)
}

/// Returns the value of an attribute, named by its path below nichrome0's folder, in a process with this
/// transport and these values of `NICHROME_IP` and `NICHROME_IFACE` that has not opened the device. `None` if
/// the attribute is the same in all processes.
#[must_use]
pub fn configured(name: &str, transport: Transport, place: &[Option<OsString>; 2]) -> Option<String> {
    value_at(name, transport, || guid_at(place), || address_at(place))
}

/// Writes an attribute's value and a line feed to `out`. Returns their length in bytes, or −1 if the
/// attribute is the same in all processes or longer than `size`.
#[unsafe(no_mangle)]
unsafe extern "C" fn nichrome_attribute(name: *const c_char, out: *mut c_char, size: usize) -> isize {
    // SAFETY: the caller passes a string.
    let name = unsafe { CStr::from_ptr(name) };
    let Some(line) = name.to_str().ok().and_then(value).map(|value| value + "\n") else { return -1 };
    if line.len() > size {
        return -1;
    }
    // SAFETY: the caller passes memory for `size` bytes.
    unsafe { ptr::copy_nonoverlapping(line.as_ptr(), out.cast(), line.len()) };
    line.len() as isize
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_kernels_format() {
        assert_eq!(groups(&[0xFE, 0x80, 0, 1]), "fe80:0001");
        let empty = "0000:0000:0000:0000:0000:0000:0000:0000".to_owned();
        assert_eq!(value("ports/1/gids/3"), Some(empty), "no device is open");
        assert_eq!(value("ports/1/gid_attrs/ndevs/0"), Some("lo".to_owned()));
        assert_eq!(value("node_guid").map(|guid| guid.len()), Some(19));
    }

    #[test]
    fn the_configured_address_determines_the_gid_and_the_guid() {
        let place = |ip: &str| [Some(ip.into()), None];
        let configured = |name: &str, ip: &str| configured(name, Transport::Roce, &place(ip));
        let gid = |ip: &str| configured("ports/1/gids/1", ip).unwrap();
        assert_eq!(gid("192.0.2.7"), "0000:0000:0000:0000:0000:ffff:c000:0207");
        assert_eq!(gid("2001:db8::1"), "2001:0db8:0000:0000:0000:0000:0000:0001");
        let guid = |ip: &str| configured("node_guid", ip).unwrap();
        assert_ne!(guid("192.0.2.7"), guid("192.0.2.8"));
        assert_eq!(configured("node_type", "192.0.2.7"), None);
    }

    #[test]
    fn the_configured_transport_determines_what_programs_tell_rnics_by() {
        let place = [Some("192.0.2.7".into()), None];
        let both =
            |name| [Transport::Roce, Transport::Iwarp].map(|transport| configured(name, transport, &place));
        let of = |roce: &str, iwarp: &str| [roce, iwarp].map(|value| Some(value.to_owned()));
        assert_eq!(both("node_type"), [None, Some("4: RNIC".to_owned())]);
        assert_eq!(both("ports/1/cap_mask"), of("0x04000000", "0x00090000"));
        assert_eq!(both("ports/1/gid_attrs/types/0"), of("RoCE v2", "IB/RoCE v1"));
        let (ip, hardware) =
            ("0000:0000:0000:0000:0000:ffff:c000:0207", "0200:c000:0207:0000:0000:0000:0000:0000");
        assert_eq!((both("ports/1/gids/0"), both("ports/1/gids/1")), (of(ip, hardware), of(ip, ip)));
    }

    #[test]
    fn attributes_that_are_the_same_in_all_processes_have_no_value_here() {
        for name in
            ["ports/1/gids/4", "ports/1/gids/", "ports/1/gid_attrs/types/4", "ports/2/gids/0", "node_type"]
        {
            assert_eq!(value(name), None, "{name}");
        }
    }
}
