//! Packets of a simulated network: whole frames, or outlines without bytes.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use nichrome_lro::Packet as Received;
use nichrome_wan::ethernet;
use nichrome_wire::{Ecn, EthernetHeader, LinkHeader, MacAddr};

use crate::{Fingerprint, TraceHash};

/// 10.0.0.1.
const FIRST_ADDRESS: u32 = 0x0A00_0001;

/// The number of a host in a simulated network. Its addresses derive from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u16);

impl HostId {
    /// Returns the MAC address: locally administered, with the number in the last two bytes.
    pub const fn mac(self) -> MacAddr {
        let [high, low] = self.0.to_be_bytes();
        MacAddr([2, 0, 0, 0, high, low])
    }

    /// Returns the IP address: 10.0.0.1 for number 0, and so on.
    pub fn ip(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(FIRST_ADDRESS + u32::from(self.0))
    }

    /// Returns the host with an IP address.
    pub fn of_ip(ip: Ipv4Addr) -> Option<Self> {
        ip.to_bits().checked_sub(FIRST_ADDRESS).and_then(|number| u16::try_from(number).ok()).map(Self)
    }

    /// Returns the host with a MAC address.
    pub fn of(mac: MacAddr) -> Option<Self> {
        let MacAddr([2, 0, 0, 0, high, low]) = mac else { return None };
        Some(Self(u16::from_be_bytes([high, low])))
    }
}

/// A packet. Moved, never shared: a frame stays in one allocation from its sender to its receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Packet {
    /// An Ethernet frame with all its bytes.
    Frame(Vec<u8>),
    /// A packet without bytes.
    Outline(Outline),
}

/// A packet without bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// Length including the link header, without frame check sequence, in bytes.
    pub len: u32,
    /// The destination.
    pub to: HostId,
    /// The flow's number; ignored by parts.
    pub flow: u32,
    /// The packet's number in its flow; ignored by parts.
    pub number: u64,
    /// The ECN bits.
    pub ecn: Ecn,
    /// True if a bit was flipped.
    pub corrupt: bool,
}

impl Packet {
    /// Returns the length including the link header, without frame check sequence, in bytes.
    pub fn wire_len(&self) -> usize {
        match self {
            Self::Frame(frame) => frame.len(),
            Self::Outline(outline) => outline.len as usize,
        }
    }

    /// Returns the destination; `None` if the address is no host's.
    pub fn destination(&self) -> Option<HostId> {
        match self {
            Self::Frame(frame) => HostId::of(LinkHeader::new(frame)?.dst()),
            Self::Outline(outline) => Some(outline.to),
        }
    }

    /// Returns a frame's bytes.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Frame(frame) => Some(frame),
            Self::Outline(_) => None,
        }
    }
}

/// Returns an engine's output as contiguous bytes.
pub(crate) fn in_one_piece(packet: &Received<Vec<u8>>) -> Cow<'_, [u8]> {
    match packet {
        Received::Frame(frame) => Cow::Borrowed(frame.bytes()),
        Received::Aggregate(aggregate) => {
            let mut bytes = Vec::with_capacity(aggregate.len());
            aggregate.copy_to(&mut bytes);
            Cow::Owned(bytes)
        }
    }
}

impl From<Vec<u8>> for Packet {
    fn from(frame: Vec<u8>) -> Self {
        Self::Frame(frame)
    }
}

impl From<Outline> for Packet {
    fn from(outline: Outline) -> Self {
        Self::Outline(outline)
    }
}

/// Bytes of a frame that enter its fingerprint: the headers, and with the TCP or UDP checksum the payload.
const FINGERPRINTED: usize = 64;

impl Fingerprint for Packet {
    fn fingerprint(&self) -> u64 {
        match self {
            Self::Frame(frame) => {
                let mut hash = TraceHash::default();
                hash.add(frame.len() as u64);
                hash.add_bytes(&frame[..frame.len().min(FINGERPRINTED)]);
                hash.value()
            }
            Self::Outline(Outline { len, to, flow, number, ecn, corrupt }) => {
                let places =
                    u64::from(*len) << 32 | u64::from(to.0) << 8 | u64::from(*corrupt) << 2 | *ecn as u64;
                TraceHash::of(&[places, u64::from(*flow), *number])
            }
        }
    }
}

/// Frames and outlines can both pass a wide-area path.
impl nichrome_wan::Packet for Packet {
    fn wire_len(&self) -> usize {
        self.wire_len()
    }

    fn network_len(&self) -> usize {
        match self {
            Self::Frame(frame) => ethernet::network_len(frame),
            Self::Outline(outline) => (outline.len as usize).saturating_sub(EthernetHeader::LEN),
        }
    }

    fn flip_bit(&mut self, bit: usize) {
        match self {
            Self::Frame(frame) => ethernet::flip_bit(frame, bit),
            Self::Outline(outline) => outline.corrupt |= bit / 8 < outline.len as usize,
        }
    }

    fn duplicate(&self) -> Option<Self> {
        Some(self.clone())
    }

    fn ecn(&self) -> Ecn {
        match self {
            Self::Frame(frame) => ethernet::ecn(frame),
            Self::Outline(outline) => outline.ecn,
        }
    }

    fn mark_ce(&mut self) {
        match self {
            Self::Frame(frame) => ethernet::mark_ce(frame),
            Self::Outline(outline) => outline.ecn = Ecn::Ce,
        }
    }
}

#[cfg(test)]
mod tests {
    use nichrome_wire::TcpFrame;

    use super::*;

    #[test]
    fn addresses_lead_back_to_the_host() {
        for id in [HostId(0), HostId(1), HostId(300), HostId(u16::MAX)] {
            assert_eq!((HostId::of(id.mac()), HostId::of_ip(id.ip())), (Some(id), Some(id)));
            let frame = TcpFrame { dst_mac: id.mac(), ..TcpFrame::default() }.build();
            assert_eq!(Packet::from(frame).destination(), Some(id));
        }
        assert_eq!(HostId(299).ip(), Ipv4Addr::new(10, 0, 1, 44));
        assert_eq!(HostId::of(MacAddr([0xFF; 6])), None);
        assert_eq!(HostId::of_ip(Ipv4Addr::new(10, 1, 0, 1)), None);
        assert_eq!(Packet::Frame(vec![0; 5]).destination(), None);
    }

    #[test]
    fn a_fingerprint_changes_with_any_field() {
        let outline =
            Outline { len: 1514, to: HostId(1), flow: 2, number: 3, ecn: Ecn::Ect0, corrupt: false };
        let changed = [
            Outline { len: 1513, ..outline },
            Outline { to: HostId(2), ..outline },
            Outline { flow: 3, ..outline },
            Outline { number: 4, ..outline },
            Outline { ecn: Ecn::Ce, ..outline },
            Outline { corrupt: true, ..outline },
        ];
        for other in changed {
            assert_ne!(Packet::from(other).fingerprint(), Packet::from(outline).fingerprint(), "{other:?}");
        }
        // The frames differ in the last byte of the payload, and so in the checksum.
        let frames = [0, 1]
            .map(|byte| TcpFrame { payload: [vec![0; 999], vec![byte]].concat(), ..TcpFrame::default() });
        let [one, other] = frames.map(|frame| Packet::from(frame.build()).fingerprint());
        assert_ne!(one, other);
    }
}
