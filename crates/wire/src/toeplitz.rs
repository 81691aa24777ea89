//! The Toeplitz hash of receive-side scaling (Microsoft, "RSS hashing types" and "Verifying the RSS hash
//! calculation").
//!
//! The hash is the XOR, over all set bits `i` of the input, of the 32 key bits from bit `i` on. A table holds
//! the contribution of each byte value at each position, so that a hash costs one load per byte.

use std::fmt;

use crate::bytes::be16;
use crate::{AddressPair, EtherType, IpProtocol, Ipv4Header, Ipv6Header, LinkHeader};

/// Maximum input length in bytes: two IPv6 addresses and two ports.
const MAX_INPUT: usize = 36;

/// A hash key of 40 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RssKey(pub [u8; Self::LEN]);

impl RssKey {
    /// Length of a key in bytes: the longest input, plus 4.
    pub const LEN: usize = MAX_INPUT + 4;

    /// Microsoft's key of the verification suite, the default of many drivers.
    pub const MICROSOFT: Self = Self([
        0x6D, 0x5A, 0x56, 0xDA, 0x25, 0x5B, 0x0E, 0xC2, 0x41, 0x67, 0x25, 0x3D, 0x43, 0xA3, 0x8F, 0xB0, 0xD0,
        0xCA, 0x2B, 0xCB, 0xAE, 0x7B, 0x30, 0xB4, 0x77, 0xCB, 0x2D, 0xA3, 0x80, 0x30, 0xF2, 0x0C, 0x6A, 0x42,
        0xB7, 0x3B, 0xBE, 0xAC, 0x01, 0xFA,
    ]);

    /// A key with a period of 16 bits, which gives both directions of a connection the same hash (Woo and
    /// Park, "Scalable TCP Session Monitoring with Symmetric Receive-side Scaling", 2012).
    pub const SYMMETRIC: Self = {
        let mut key = [0x6D; Self::LEN];
        let mut place = 1;
        while place < Self::LEN {
            key[place] = 0x5A;
            place += 2;
        }
        Self(key)
    };

    /// Returns the 32 bits of the key from bit `at` on, 0 to 287.
    const fn window(&self, at: usize) -> u32 {
        let Self(key) = self;
        let byte = at / 8;
        let bytes = [0, 0, 0, key[byte], key[byte + 1], key[byte + 2], key[byte + 3], key[byte + 4]];
        (u64::from_be_bytes(bytes) >> (8 - at % 8)) as u32
    }
}

/// A Toeplitz hash function with a key.
#[derive(Clone)]
pub struct Toeplitz {
    /// The contribution of each byte, by position and value: 36 KB, of which an IPv4 packet reads 12 rows.
    tables: Box<[[u32; 256]; MAX_INPUT]>,
}

impl Toeplitz {
    /// Precomputes the table for `key`.
    pub fn new(key: &RssKey) -> Self {
        let mut tables = Box::new([[0; 256]; MAX_INPUT]);
        for (place, table) in tables.iter_mut().enumerate() {
            for (value, sum) in (0..=u8::MAX).zip(table.iter_mut()) {
                *sum = (0..8)
                    .filter(|bit| value & (0x80 >> bit) != 0)
                    .fold(0, |sum, bit| sum ^ key.window(8 * place + bit));
            }
        }
        Self { tables }
    }

    /// Hashes the first 36 bytes of `input`.
    #[inline]
    pub fn hash(&self, input: &[u8]) -> u32 {
        self.tables.iter().zip(input).fold(0, |sum, (table, &byte)| sum ^ table[usize::from(byte)])
    }

    /// Hashes a packet's addresses.
    #[inline]
    pub fn hash_addresses(&self, addresses: &AddressPair) -> u32 {
        match addresses {
            AddressPair::V4 { src, dst } => self.part(0, src.octets()) ^ self.part(4, dst.octets()),
            AddressPair::V6 { src, dst } => self.part(0, src.octets()) ^ self.part(16, dst.octets()),
        }
    }

    /// Hashes a packet's addresses and ports, source first.
    #[inline]
    pub fn hash_flow(&self, addresses: &AddressPair, src_port: u16, dst_port: u16) -> u32 {
        let start = match addresses {
            AddressPair::V4 { .. } => 8,
            AddressPair::V6 { .. } => 32,
        };
        let ports = self.part(start, src_port.to_be_bytes()) ^ self.part(start + 2, dst_port.to_be_bytes());
        self.hash_addresses(addresses) ^ ports
    }

    /// Hashes `frame` as a card does to choose a queue: addresses and ports of TCP and UDP over IPv4 or IPv6,
    /// behind up to two VLAN tags and any IPv6 extension headers; only addresses of other packets and of all
    /// fragments, so that a packet's fragments stay together. `None` if it is not IP.
    #[inline]
    pub fn hash_frame(&self, frame: &[u8]) -> Option<u32> {
        let link = LinkHeader::new(frame)?;
        let (addresses, ports) = match link.ethertype() {
            EtherType::IPV4 => read_ipv4(link.payload())?,
            EtherType::IPV6 => read_ipv6(link.payload())?,
            _ => return None,
        };
        Some(match ports {
            Some([src_port, dst_port]) => self.hash_flow(&addresses, src_port, dst_port),
            None => self.hash_addresses(&addresses),
        })
    }

    /// Returns the contribution of `bytes` at offset `start` of the input.
    #[inline]
    fn part<const LEN: usize>(&self, start: usize, bytes: [u8; LEN]) -> u32 {
        let tables = self.tables[start..].iter();
        tables.zip(bytes).fold(0, |sum, (table, byte)| sum ^ table[usize::from(byte)])
    }
}

impl fmt::Debug for Toeplitz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Toeplitz").finish_non_exhaustive()
    }
}

/// The hashed fields: addresses, and ports unless it is a fragment.
type Flow = (AddressPair, Option<[u16; 2]>);

#[inline]
fn read_ipv4(packet: &[u8]) -> Option<Flow> {
    let ip = Ipv4Header::new(packet).filter(|ip| ip.version() == 4)?;
    let upper = ip.payload().filter(|_| has_ports(ip.protocol()) && !ip.is_fragment());
    Some((AddressPair::V4 { src: ip.src(), dst: ip.dst() }, upper.and_then(read_ports)))
}

#[inline]
fn read_ipv6(packet: &[u8]) -> Option<Flow> {
    let ip = Ipv6Header::new(packet).filter(|ip| ip.version() == 6)?;
    let upper = ip.upper_layer().ok().filter(|upper| {
        has_ports(upper.protocol) && upper.fragment.is_none_or(|fragment| fragment.is_atomic())
    });
    let upper = upper.and_then(|upper| ip.payload()?.get(upper.offset..));
    Some((AddressPair::V6 { src: ip.src(), dst: ip.dst() }, upper.and_then(read_ports)))
}

/// Returns true if the protocol's header begins with source and destination port.
#[inline]
const fn has_ports(protocol: IpProtocol) -> bool {
    matches!(protocol, IpProtocol::TCP | IpProtocol::UDP)
}

#[inline]
fn read_ports(upper: &[u8]) -> Option<[u16; 2]> {
    let start = upper.first_chunk::<4>()?;
    Some([be16(start, 0), be16(start, 2)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        EthernetRepr, Fragment, FragmentOffset, HeaderOptions, Ipv4Repr, MacAddr, Network, Tags, TcpFrame,
        TrafficClass, VlanTag,
    };
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

    /// Microsoft's "Verifying the RSS hash calculation": receiver, sender, hash of the addresses, and with
    /// ports.
    const SUITE: [(&str, &str, u32, u32); 8] = [
        ("161.142.100.80:1766", "66.9.149.187:2794", 0x323E_8FC2, 0x51CC_C178),
        ("65.69.140.83:4739", "199.92.111.2:14230", 0xD718_262A, 0xC626_B0EA),
        ("12.22.207.184:38024", "24.19.198.95:12898", 0xD2D0_A5DE, 0x5C2B_394A),
        ("209.142.163.6:2217", "38.27.205.30:48228", 0x8298_9176, 0xAFC7_327F),
        ("202.188.127.2:1303", "153.39.163.191:44251", 0x5D18_09C5, 0x10E8_28A2),
        ("[3ffe:2501:200:3::1]:1766", "[3ffe:2501:200:1fff::7]:2794", 0x2CC1_8CD5, 0x4020_7D3D),
        ("[ff02::1]:4739", "[3ffe:501:8::260:97ff:fe40:efab]:14230", 0x0F0C_461C, 0xDDE5_1BBF),
        (
            "[fe80::200:f8ff:fe21:67cf]:38024",
            "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251",
            0x4B61_E985,
            0x02D1_FEEF,
        ),
    ];

    /// The hash by its definition, bit by bit: the window slides over the key as the input is read.
    fn bitwise(RssKey(key): &RssKey, input: &[u8]) -> u32 {
        let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
        let mut window = (0..32).fold(0u32, |window, at| window << 1 | u32::from(bit(key, at)));
        let mut sum = 0;
        for at in 0..8 * input.len() {
            if bit(input, at) == 1 {
                sum ^= window;
            }
            window = window << 1 | if at + 32 < 8 * key.len() { u32::from(bit(key, at + 32)) } else { 0 };
        }
        sum
    }

    fn tcp(network: Network, src_port: u16, dst_port: u16, tags: &[VlanTag]) -> Vec<u8> {
        TcpFrame { network, src_port, dst_port, tags: tags.to_vec(), ..TcpFrame::default() }.build()
    }

    #[test]
    fn the_verification_suite_passes() {
        let hash = Toeplitz::new(&RssKey::MICROSOFT);
        for (receiver, sender, addresses_only, with_ports) in SUITE {
            let (dst, src): (SocketAddr, SocketAddr) = (receiver.parse().unwrap(), sender.parse().unwrap());
            let (addresses, network) = match (src.ip(), dst.ip()) {
                (IpAddr::V4(src), IpAddr::V4(dst)) => (AddressPair::V4 { src, dst }, Network::ipv4(src, dst)),
                (IpAddr::V6(src), IpAddr::V6(dst)) => (AddressPair::V6 { src, dst }, Network::ipv6(src, dst)),
                _ => panic!("{sender} and {receiver}"),
            };
            assert_eq!(hash.hash_addresses(&addresses), addresses_only);
            assert_eq!(hash.hash_flow(&addresses, src.port(), dst.port()), with_ports);
            assert_eq!(hash.hash_frame(&tcp(network, src.port(), dst.port(), &[])), Some(with_ports));
        }
    }

    #[test]
    fn tags_do_not_count() {
        let hash = Toeplitz::new(&RssKey::MICROSOFT);
        let tag = VlanTag { tpid: EtherType::VLAN, tci: 5 };
        let outer = VlanTag { tpid: EtherType::QINQ, tci: 6 };
        let [bare, tagged, twice] = [&[][..], &[tag], &[outer, tag]]
            .map(|tags| hash.hash_frame(&tcp(Network::default(), 1, 2, tags)));
        assert!(bare.is_some());
        assert_eq!((bare, bare), (tagged, twice));
    }

    #[test]
    fn fragments_and_other_protocols_go_by_their_addresses() {
        let hash = Toeplitz::new(&RssKey::MICROSOFT);
        let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let frame = |protocol, fragment| {
            let ethernet = EthernetRepr::new(MacAddr([2; 6]), MacAddr([4; 6]), Tags::NONE, EtherType::IPV4);
            let ip = Ipv4Repr {
                src,
                dst,
                protocol,
                ttl: 64,
                tos: TrafficClass::default(),
                ident: 1,
                dont_fragment: false,
                fragment,
                options: HeaderOptions::default(),
            };
            let mut frame = Vec::new();
            ethernet.unwrap().emit(&mut frame);
            ip.emit(16, &mut frame).unwrap();
            frame.extend(1..=16);
            frame
        };
        let addresses = AddressPair::V4 { src, dst };
        let addresses_only = Some(hash.hash_addresses(&addresses));
        let first = Fragment { offset: FragmentOffset::START, more_fragments: true };
        let later = Fragment { offset: FragmentOffset::from_units(2), more_fragments: false };
        for fragment in [first, later] {
            assert_eq!(hash.hash_frame(&frame(IpProtocol::UDP, fragment)), addresses_only);
        }
        assert_eq!(hash.hash_frame(&frame(IpProtocol::ICMP, Fragment::default())), addresses_only);
        let whole = frame(IpProtocol::UDP, Fragment::default());
        assert_eq!(hash.hash_frame(&whole), Some(hash.hash_flow(&addresses, 0x0102, 0x0304)));
    }

    #[test]
    fn ipv6_fragments_go_by_their_addresses_and_atomic_ones_by_their_ports() {
        let hash = Toeplitz::new(&RssKey::MICROSOFT);
        let (src, dst) = (Ipv6Addr::LOCALHOST, Ipv6Addr::UNSPECIFIED);
        let frame = |offset_and_more: u8| {
            let mut network = Network::ipv6(src, dst);
            if let Network::Ipv6 { next_header, extensions, .. } = &mut network {
                *next_header = IpProtocol::FRAGMENT;
                extensions.extend([IpProtocol::TCP.0, 0, 0, offset_and_more, 0, 0, 0, 9]);
            }
            tcp(network, 1000, 2000, &[])
        };
        let addresses = AddressPair::V6 { src, dst };
        assert_eq!(hash.hash_frame(&frame(0)), Some(hash.hash_flow(&addresses, 1000, 2000)));
        for part in [1, 8] {
            assert_eq!(hash.hash_frame(&frame(part)), Some(hash.hash_addresses(&addresses)));
        }
    }

    #[test]
    fn frames_other_than_ip_have_no_hash() {
        let hash = Toeplitz::new(&RssKey::MICROSOFT);
        let mut frame = tcp(Network::default(), 1, 2, &[]);
        for len in 0..34 {
            assert_eq!(hash.hash_frame(&frame[..len]), None);
        }
        frame[14] = 0x65;
        assert_eq!(hash.hash_frame(&frame), None, "version 6 announced as IPv4");
        frame[12..14].copy_from_slice(&EtherType::ARP.0.to_be_bytes());
        assert_eq!(hash.hash_frame(&frame), None);
    }

    proptest! {
        #[test]
        fn tables_and_definition_agree(key: [u8; RssKey::LEN], input in proptest::collection::vec(any::<u8>(), 0..=36)) {
            let key = RssKey(key);
            prop_assert_eq!(Toeplitz::new(&key).hash(&input), bitwise(&key, &input));
        }

        #[test]
        fn the_symmetric_key_takes_both_directions_alike(src: [u8; 16], dst: [u8; 16], ports: [u16; 2], v4: bool) {
            let hash = Toeplitz::new(&RssKey::SYMMETRIC);
            let pair = |src: [u8; 16], dst: [u8; 16]| {
                let short = |address: [u8; 16]| Ipv4Addr::new(address[0], address[1], address[2], address[3]);
                if v4 {
                    AddressPair::V4 { src: short(src), dst: short(dst) }
                } else {
                    AddressPair::V6 { src: src.into(), dst: dst.into() }
                }
            };
            let there = hash.hash_flow(&pair(src, dst), ports[0], ports[1]);
            let back = hash.hash_flow(&pair(dst, src), ports[1], ports[0]);
            prop_assert_eq!(there, back);
        }
    }
}
