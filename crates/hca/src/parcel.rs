//! A datagram on an impaired path.

use nichrome_rdma::Datagram;
use nichrome_wan::Packet;
use nichrome_wire::rdma::UdpFlow;
use nichrome_wire::{AddressPair, Ecn, EthernetHeader, Ipv4Header, Ipv6Header, TrafficClass, UdpHeader};

/// A datagram on an impaired path, with the fields of its IP header that matter there.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    pub(crate) flow: UdpFlow,
    pub(crate) traffic_class: TrafficClass,
    pub(crate) hop_limit: Option<u8>,
    pub(crate) bytes: Vec<u8>,
    /// A bit of its Ethernet, IP or UDP header was flipped: the receiver drops it.
    pub(crate) is_damaged: bool,
}

impl Parcel {
    pub(crate) fn new(datagram: &Datagram<'_>, hop_limit: Option<u8>) -> Self {
        let Datagram { flow, traffic_class, bytes } = *datagram;
        Self { flow, traffic_class, hop_limit, bytes: bytes.to_vec(), is_damaged: false }
    }

    pub(crate) fn as_datagram(&self) -> Datagram<'_> {
        Datagram { flow: self.flow, traffic_class: self.traffic_class, bytes: &self.bytes }
    }

    fn header_len(&self) -> usize {
        let ip = match self.flow.addresses {
            AddressPair::V4 { .. } => Ipv4Header::LEN,
            AddressPair::V6 { .. } => Ipv6Header::LEN,
        };
        EthernetHeader::LEN + ip + UdpHeader::LEN
    }
}

impl Packet for Parcel {
    fn wire_len(&self) -> usize {
        self.header_len() + self.bytes.len()
    }

    fn flip_bit(&mut self, bit: usize) {
        let at = bit / 8;
        match at.checked_sub(self.header_len()) {
            None => self.is_damaged = true,
            Some(at) => {
                if let Some(byte) = self.bytes.get_mut(at) {
                    *byte ^= 1 << (bit % 8);
                }
            }
        }
    }

    fn duplicate(&self) -> Option<Self> {
        Some(self.clone())
    }

    fn ecn(&self) -> Ecn {
        self.traffic_class.ecn()
    }

    fn mark_ce(&mut self) {
        self.traffic_class = self.traffic_class.with_ecn(Ecn::Ce);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parcel() -> Parcel {
        let addresses = AddressPair::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() };
        Parcel {
            flow: UdpFlow::to_roce(addresses, 4791),
            traffic_class: TrafficClass::from(Ecn::Ect0),
            hop_limit: None,
            bytes: vec![0; 20],
            is_damaged: false,
        }
    }

    #[test]
    fn a_flipped_bit_damages_the_headers_or_changes_the_datagram() {
        let mut damaged = parcel();
        damaged.flip_bit(42 * 8 - 1);
        assert!(damaged.is_damaged && damaged.bytes == [0; 20]);
        let mut changed = parcel();
        changed.flip_bit(42 * 8 + 3);
        assert!(!changed.is_damaged && changed.bytes[0] == 8);
        changed.flip_bit(62 * 8);
        assert_eq!((changed.wire_len(), changed.network_len()), (62, 48));
    }

    #[test]
    fn a_mark_is_seen_by_the_receiver() {
        let mut marked = parcel();
        marked.mark_ce();
        assert_eq!((marked.ecn(), marked.as_datagram().traffic_class.ecn()), (Ecn::Ce, Ecn::Ce));
    }
}
