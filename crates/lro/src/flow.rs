//! The flow key: addresses, ports, protocol and VLANs.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// One direction of one TCP connection, or of one exchange of UDP datagrams: the four-tuple (lro-npu IV.A),
/// the protocol, the IP version and the VLAN identifiers. The ACK number is not part of it: it changes within
/// a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// Source and destination: both in the first word for IPv4, two words each for IPv6.
    addresses: (u64, u64, u64, u64),
    /// Source port above destination port.
    ports: u32,
    /// IP version in the top 4 bits, then the bits [`UDP`] and [`TUNNEL`], then the number of VLAN tags in 2
    /// bits, then up to two VLAN identifiers of 12 bits.
    network: u32,
}

/// Bit of [`FlowKey::network`]: UDP if set, else TCP.
const UDP: u32 = 1 << 27;
/// Bit of [`FlowKey::network`]: within a tunnel.
const TUNNEL: u32 = 1 << 26;

impl FlowKey {
    /// A TCP flow over IPv4 without VLAN tags.
    #[inline]
    pub fn ipv4(src: Ipv4Addr, dst: Ipv4Addr, src_port: u16, dst_port: u16) -> Self {
        Self::ipv4_words(
            u64::from(u32::from(src)) << 32 | u64::from(u32::from(dst)),
            ports(src_port, dst_port),
        )
    }

    /// As [`FlowKey::ipv4`], from both addresses and both ports as they are adjacent in a packet.
    #[inline(always)]
    pub(crate) fn ipv4_words(addresses: u64, ports: u32) -> Self {
        Self { addresses: (addresses, 0, 0, 0), ports, network: 4 << 28 }
    }

    /// Returns true if this equals [`FlowKey::ipv4_words`] of these words, with fewer comparisons than `==`.
    #[inline(always)]
    pub(crate) fn is_of_ipv4_words(&self, addresses: u64, ports: u32) -> bool {
        let other = Self::ipv4_words(addresses, ports);
        let words = self.addresses.0 ^ other.addresses.0;
        words | u64::from((self.ports ^ other.ports) | (self.network ^ other.network)) == 0
    }

    /// A TCP flow over IPv6 without VLAN tags.
    #[inline]
    pub fn ipv6(src: Ipv6Addr, dst: Ipv6Addr, src_port: u16, dst_port: u16) -> Self {
        let [src, dst] = [src, dst].map(u128::from);
        let addresses = ((src >> 64) as u64, src as u64, (dst >> 64) as u64, dst as u64);
        Self { addresses, ports: ports(src_port, dst_port), network: 6 << 28 }
    }

    /// The same flow between these ports.
    #[inline]
    pub(crate) fn with_ports(self, src_port: u16, dst_port: u16) -> Self {
        Self { ports: ports(src_port, dst_port), ..self }
    }

    /// The UDP flow between the same addresses and ports.
    #[inline]
    #[must_use]
    pub fn over_udp(self) -> Self {
        Self { network: self.network | UDP, ..self }
    }

    /// The same flow within a tunnel; the kind of tunnel is not part of the key.
    #[inline]
    #[must_use]
    pub fn in_tunnel(self) -> Self {
        Self { network: self.network | TUNNEL, ..self }
    }

    /// The same flow within the first `count` of these VLANs, outermost first.
    #[inline]
    pub(crate) fn with_vlans(self, (vids, count): ([u16; 2], usize)) -> Self {
        vids.iter().take(count).fold(self, |flow, vid| flow.in_vlan(*vid))
    }

    /// The same flow within one more VLAN, `vid` being its identifier (0 to 4095); at most two.
    #[inline]
    #[must_use]
    pub fn in_vlan(self, vid: u16) -> Self {
        let tags = self.network >> 24 & 3;
        let vids = (self.network & 0xFFF) << 12 | u32::from(vid & 0xFFF);
        Self { network: self.network & (0xF << 28 | UDP | TUNNEL) | (tags + 1) << 24 | vids, ..self }
    }

    /// The other direction of the same connection.
    #[inline]
    #[must_use]
    pub fn reversed(self) -> Self {
        let (a, b, c, d) = self.addresses;
        let addresses = if self.is_ipv4() { (a.rotate_left(32), 0, 0, 0) } else { (c, d, a, b) };
        Self { addresses, ports: self.ports.rotate_left(16), ..self }
    }

    /// Returns true for IPv4, false for IPv6.
    #[inline]
    pub fn is_ipv4(&self) -> bool {
        self.network >> 28 == 4
    }

    /// Returns true for UDP, false for TCP.
    #[inline]
    pub fn is_udp(&self) -> bool {
        self.network & UDP != 0
    }

    /// Returns true for a flow within a tunnel.
    #[inline]
    pub fn is_tunneled(&self) -> bool {
        self.network & TUNNEL != 0
    }

    /// Source address and port.
    pub fn source(&self) -> SocketAddr {
        SocketAddr::new(self.address(0), (self.ports >> 16) as u16)
    }

    /// Destination address and port.
    pub fn destination(&self) -> SocketAddr {
        SocketAddr::new(self.address(1), self.ports as u16)
    }

    fn address(&self, which: usize) -> IpAddr {
        if self.is_ipv4() {
            let both = self.addresses.0;
            let bits = if which == 0 { (both >> 32) as u32 } else { both as u32 };
            Ipv4Addr::from(bits).into()
        } else {
            let (a, b, c, d) = self.addresses;
            let (high, low) = if which == 0 { (a, b) } else { (c, d) };
            Ipv6Addr::from(u128::from(high) << 64 | u128::from(low)).into()
        }
    }
}

const fn ports(src: u16, dst: u16) -> u32 {
    (src as u32) << 16 | dst as u32
}

impl fmt::Display for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {}", self.source(), self.destination())?;
        if self.is_udp() {
            f.write_str(" udp")?;
        }
        if self.is_tunneled() {
            f.write_str(" in a tunnel")?;
        }
        match self.network >> 24 & 3 {
            0 => Ok(()),
            1 => write!(f, " vlan {}", self.network & 0xFFF),
            _ => write!(f, " vlan {}.{}", self.network >> 12 & 0xFFF, self.network & 0xFFF),
        }
    }
}

/// A keyed hash of flows: folded multiplication, as in wyhash. The keys derive from a seed: a sender that
/// does not know the seed cannot choose addresses and ports that collide.
#[derive(Clone, Copy)]
pub(crate) struct KeyHasher {
    keys: [u64; 5],
}

impl KeyHasher {
    pub(crate) fn new(seed: u64) -> Self {
        let mut state = seed;
        Self { keys: std::array::from_fn(|_| split_mix(&mut state)) }
    }

    #[inline]
    pub(crate) fn hash(&self, flow: &FlowKey) -> u32 {
        let [_, _, c, d, e] = self.keys;
        let head = self.head(flow);
        let hash = if flow.is_ipv4() {
            head
        } else {
            let tail = folded(flow.addresses.1 ^ c, flow.addresses.2 ^ d).rotate_left(23) ^ flow.addresses.3;
            folded(head ^ tail, e)
        };
        halved(hash)
    }

    /// As [`KeyHasher::hash`], for a flow over IPv4.
    #[inline(always)]
    pub(crate) fn hash_ipv4(&self, flow: &FlowKey) -> u32 {
        halved(self.head(flow))
    }

    #[inline(always)]
    fn head(&self, flow: &FlowKey) -> u64 {
        let [a, b, ..] = self.keys;
        let rest = u64::from(flow.ports) << 32 | u64::from(flow.network);
        folded(flow.addresses.0 ^ a, rest ^ b)
    }
}

/// Folds the upper half of a hash into the lower half.
#[inline]
fn halved(hash: u64) -> u32 {
    (hash ^ hash >> 32) as u32
}

#[inline]
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// SplitMix64 (Steele, Lea, Flood 2014): turns any seed into well-mixed keys.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ *state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn words_of_ipv4_are_of_one_flow() {
        let flow = FlowKey::ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 3, 4);
        let (addresses, ports) = (0x0A00_0001_0A00_0002, 0x0003_0004);
        assert!(flow.is_of_ipv4_words(addresses, ports));
        let others = [
            FlowKey::ipv4([10, 0, 0, 2].into(), [10, 0, 0, 2].into(), 3, 4),
            FlowKey::ipv4([10, 0, 0, 1].into(), [10, 0, 0, 1].into(), 3, 4),
            FlowKey::ipv6((u128::from(addresses) << 64).into(), 0.into(), 3, 4),
            flow.with_ports(4, 3),
            flow.over_udp(),
        ];
        assert!(others.iter().all(|other| !other.is_of_ipv4_words(addresses, ports)));
    }

    #[test]
    fn a_flow_reads_as_it_was_made() {
        let v4 = FlowKey::ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 1234, 80);
        assert_eq!(v4.to_string(), "10.0.0.1:1234 > 10.0.0.2:80");
        assert_eq!(v4.reversed().to_string(), "10.0.0.2:80 > 10.0.0.1:1234");
        assert_eq!(v4.in_vlan(7).to_string(), "10.0.0.1:1234 > 10.0.0.2:80 vlan 7");
        assert_eq!(v4.in_vlan(7).in_vlan(9).to_string(), "10.0.0.1:1234 > 10.0.0.2:80 vlan 7.9");
        assert_eq!(v4.over_udp().in_vlan(7).to_string(), "10.0.0.1:1234 > 10.0.0.2:80 udp vlan 7");
        let tunneled = v4.in_tunnel().in_vlan(7);
        assert_eq!(tunneled.to_string(), "10.0.0.1:1234 > 10.0.0.2:80 in a tunnel vlan 7");
        assert!(tunneled.is_tunneled() && tunneled.is_ipv4() && !v4.is_tunneled());
        let v6 = FlowKey::ipv6(Ipv6Addr::new(0xFD00, 1, 2, 3, 4, 5, 6, 7), Ipv6Addr::UNSPECIFIED, 1, 2);
        assert_eq!(v6.to_string(), "[fd00:1:2:3:4:5:6:7]:1 > [::]:2");
        assert_eq!(v6.reversed().reversed(), v6);
        let nowhere = Ipv6Addr::UNSPECIFIED;
        assert_ne!(FlowKey::ipv6(nowhere, nowhere, 0, 0), FlowKey::default());
    }

    #[test]
    fn flows_that_differ_in_one_thing_are_not_equal() {
        let base = FlowKey::ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 1234, 80);
        let others = [
            FlowKey::ipv4([10, 0, 0, 3].into(), [10, 0, 0, 2].into(), 1234, 80),
            FlowKey::ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 1234, 81),
            base.reversed(),
            base.over_udp(),
            base.in_vlan(0),
            base.in_vlan(0).over_udp(),
            base.in_tunnel(),
            base.in_vlan(1).in_vlan(2),
            base.in_vlan(2).in_vlan(1),
        ];
        assert!(others.iter().all(|other| *other != base));
        assert_eq!(others.iter().collect::<HashSet<_>>().len(), others.len());
    }

    /// The first numbers of the authors' `splitmix64.c` from the seed 1234567.
    #[test]
    fn keys_are_those_of_split_mix() {
        let keys = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(KeyHasher::new(1_234_567).keys, keys);
    }

    #[test]
    fn each_bit_of_a_flow_changes_half_of_its_hash() {
        let hasher = KeyHasher::new(7);
        let mut state = 1;
        let mut next = || split_mix(&mut state);
        let flows: Vec<FlowKey> = (0..200)
            .map(|nth| {
                let [src, dst] = [0, 1].map(|_| u128::from(next()) << 64 | u128::from(next()));
                let ports = next().to_be_bytes();
                let [src_port, dst_port] =
                    [[ports[0], ports[1]], [ports[2], ports[3]]].map(u16::from_be_bytes);
                match nth % 2 {
                    0 => FlowKey::ipv6(src.into(), dst.into(), src_port, dst_port),
                    _ => FlowKey::ipv4((src as u32).into(), (dst as u32).into(), src_port, dst_port),
                }
            })
            .collect();
        let changed = |is_ipv4: bool, flip: &dyn Fn(&mut FlowKey)| {
            let bits = flows.iter().filter(|flow| flow.is_ipv4() == is_ipv4).map(|flow| {
                let mut other = *flow;
                flip(&mut other);
                (hasher.hash(flow) ^ hasher.hash(&other)).count_ones()
            });
            bits.sum::<u32>()
        };
        // 16 of 32 bits of 100 flows; the sum deviates from that by 28 on average.
        let is_half = |changed: u32| (1400..=1800).contains(&changed);
        for bit in 0..64 {
            for (is_ipv4, word) in [(true, 0), (false, 0), (false, 1), (false, 2), (false, 3)] {
                let changed = changed(is_ipv4, &|flow| {
                    let (a, b, c, d) = &mut flow.addresses;
                    *[a, b, c, d][word] ^= 1 << bit;
                });
                assert!(is_half(changed), "bit {bit} of word {word}: {changed}");
            }
        }
        for bit in 0..32 {
            for is_ipv4 in [true, false] {
                let changed = changed(is_ipv4, &|flow| flow.ports ^= 1 << bit);
                assert!(is_half(changed), "bit {bit} of the ports: {changed}");
            }
        }
    }

    #[test]
    fn hashes_spread_flows_that_differ_only_in_ports() {
        let hasher = KeyHasher::new(7);
        let mut buckets = vec![0u32; 1 << 12];
        for port in 0..1u16 << 14 {
            let flow = FlowKey::ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), port, 80);
            buckets[hasher.hash(&flow) as usize % (1 << 12)] += 1;
        }
        // Four a bucket on average; the fullest of a random spread has about 15.
        assert!(*buckets.iter().max().unwrap() < 24);
    }
}
