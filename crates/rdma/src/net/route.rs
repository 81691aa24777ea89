//! Routes: addresses, ports and IP header fields of sent packets.

use std::net::IpAddr;
use std::sync::Arc;

use nichrome_wire::rdma::UdpFlow;
use nichrome_wire::{AddressPair, TrafficClass};

use crate::core::attributes::AddressVector;

/// Addresses, ports and IP header fields of sent packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Route {
    /// Addresses and ports.
    pub flow: UdpFlow,
    /// Traffic class (type of service).
    pub traffic_class: TrafficClass,
    /// IPv6 flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit (time to live).
    pub hop_limit: u8,
}

impl Route {
    /// Returns true if packets with these addresses come from the route's destination.
    #[inline]
    pub(crate) fn is_reverse_of(&self, addresses: &AddressPair) -> bool {
        match (self.flow.addresses, *addresses) {
            (AddressPair::V4 { src, dst }, AddressPair::V4 { src: from, dst: to }) => {
                src == to && dst == from
            }
            (AddressPair::V6 { src, dst }, AddressPair::V6 { src: from, dst: to }) => {
                src == to && dst == from
            }
            _ => false,
        }
    }
}

/// The device's addresses: its GID table.
#[derive(Clone, Debug)]
pub(crate) struct LocalAddresses(Arc<[IpAddr]>);

impl LocalAddresses {
    pub(crate) fn new(addresses: &[IpAddr]) -> Self {
        Self(addresses.into())
    }

    /// Returns the route of an address vector between these UDP ports; `None` if the device has no address of
    /// this index and of the destination's family.
    #[inline]
    pub(crate) fn route(&self, vector: &AddressVector, src_port: u16, dst_port: u16) -> Option<Route> {
        let AddressVector { source_index, destination, traffic_class, flow_label, hop_limit } = *vector;
        let addresses = match (*self.0.get(usize::from(source_index))?, destination) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => AddressPair::V4 { src, dst },
            (IpAddr::V6(src), IpAddr::V6(dst)) => AddressPair::V6 { src, dst },
            _ => return None,
        };
        Some(Route { flow: UdpFlow { addresses, src_port, dst_port }, traffic_class, flow_label, hop_limit })
    }

    /// Returns the index of an address; `None` if it is not the device's.
    pub(crate) fn index_of(&self, address: IpAddr) -> Option<u8> {
        self.0.iter().position(|own| *own == address).and_then(|index| u8::try_from(index).ok())
    }

    /// Returns the source address of an address vector; the first address if there is none.
    pub(crate) fn source(&self, vector: Option<AddressVector>) -> Option<IpAddr> {
        let index = vector.map_or(0, |vector| usize::from(vector.source_index));
        self.0.get(index).or(self.0.first()).copied()
    }
}
