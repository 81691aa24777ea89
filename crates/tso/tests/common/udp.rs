//! Builds UDP frames for the tests.

use nichrome_wire::{
    AddressPair, EtherType, EthernetRepr, Fragment, HeaderOptions, IpProtocol, Ipv4Repr, Ipv6Repr, MacAddr,
    Network, Tags, UdpChecksum, UdpRepr, VirtioNetRepr, VlanTag,
};
use nichrome_wire::{FragmentOffset, GsoType};

use super::{network_at, partial, transport_at, virtio};

/// A datagram in its frame.
#[derive(Clone, Debug)]
pub struct UdpFrame {
    pub tags: Vec<VlanTag>,
    pub network: Network,
    pub src_port: u16,
    pub dst_port: u16,
    pub payload: Vec<u8>,
}

impl UdpFrame {
    pub fn new(network: Network, payload: Vec<u8>) -> Self {
        Self { tags: Vec::new(), network, src_port: 40_000, dst_port: 443, payload }
    }

    /// Returns the frame with correct lengths and checksums.
    pub fn build(&self) -> Vec<u8> {
        self.build_around(&self.datagram(), Fragment::default())
    }

    /// Returns the frame as a kernel passes it on for segmentation, with a partial checksum, and its virtio
    /// header.
    pub fn to_be_cut(&self, gso_type: GsoType, size: u16) -> (Vec<u8>, VirtioNetRepr) {
        let mut bytes = self.build();
        let transport = transport_at(&bytes, &self.network);
        bytes[transport + 6..transport + 8].fill(0xAA);
        (bytes, partial(virtio(gso_type, size), transport, 6))
    }

    /// Returns the datagrams, each built as a sender would build it.
    pub fn datagrams(&self, size: usize) -> Vec<Vec<u8>> {
        let count = self.payload.len().div_ceil(size).max(1);
        let datagram = |nth: usize| {
            let start = nth * size;
            let payload = self.payload[start..(start + size).min(self.payload.len())].to_vec();
            Self { payload, network: network_at(&self.network, nth as u16), ..self.clone() }.build()
        };
        (0..count).map(datagram).collect()
    }

    /// Returns the fragments; all but the last have `size` bytes of the datagram.
    pub fn fragments(&self, size: usize) -> Vec<Vec<u8>> {
        let datagram = self.datagram();
        let mut whole = self.clone();
        if let Network::Ipv4 { dont_fragment, .. } = &mut whole.network {
            *dont_fragment = false;
        }
        let fragment = |(nth, bytes): (usize, &[u8])| {
            let offset = FragmentOffset::from_bytes((nth * size) as u16).unwrap();
            let more_fragments = nth * size + bytes.len() < datagram.len();
            whole.build_around(bytes, Fragment { offset, more_fragments })
        };
        datagram.chunks(size).enumerate().map(fragment).collect()
    }

    fn datagram(&self) -> Vec<u8> {
        let addresses = match self.network {
            Network::Ipv4 { src, dst, .. } => AddressPair::V4 { src, dst },
            Network::Ipv6 { src, dst, .. } => AddressPair::V6 { src, dst },
        };
        let mut out = Vec::new();
        let Self { src_port, dst_port, .. } = *self;
        let udp = UdpRepr { src_port, dst_port, checksum: UdpChecksum::Present };
        udp.emit(&addresses, &self.payload, &mut out).unwrap();
        out
    }

    fn build_around(&self, carried: &[u8], fragment: Fragment) -> Vec<u8> {
        let ethertype = match self.network {
            Network::Ipv4 { .. } => EtherType::IPV4,
            Network::Ipv6 { .. } => EtherType::IPV6,
        };
        let (dst, src) = (MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 1]));
        let mut out = Vec::new();
        let tags = Tags::from_slice(&self.tags).unwrap();
        EthernetRepr::new(dst, src, tags, ethertype).unwrap().emit(&mut out);
        match self.network {
            Network::Ipv4 { src, dst, ident, dont_fragment, ttl, tos, ref options } => {
                let (protocol, options) = (IpProtocol::UDP, HeaderOptions::new(options).unwrap());
                let ip = Ipv4Repr { src, dst, protocol, ttl, tos, ident, dont_fragment, fragment, options };
                ip.emit(carried.len(), &mut out).unwrap();
            }
            Network::Ipv6 { src, dst, hop_limit, class, flow_label, next_header, ref extensions } => {
                let ip = Ipv6Repr { src, dst, next_header, hop_limit, traffic_class: class, flow_label };
                ip.emit(extensions.len() + carried.len(), &mut out).unwrap();
                out.extend(extensions);
            }
        }
        out.extend(carried);
        out
    }
}
