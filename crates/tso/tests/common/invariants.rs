//! Invariants for any frame and any virtio header; the fuzz target checks the same.

use nichrome_tso::{Limit, SegmentError, Segments, complete_checksum};
use nichrome_wire::checksum::checksum;
use nichrome_wire::{
    AddressPair, ChecksumState, EtherType, Gso, GsoType, IpProtocol, Ipv4Header, Ipv6Header, LinkHeader,
    PppoeHeader, TcpHeader, UdpHeader, VirtioNetHeader, VirtioNetRepr,
};

/// Segments `frame` as `header` requests: for any frame and header, the packets keep all invariants, or there
/// is an error.
///
/// # Panics
/// An invariant is violated.
pub(crate) fn check_invariants(frame: &[u8], header: &VirtioNetHeader) {
    // Pretends that the frame has the maximum length, so that the code under test must check the bounds
    // itself.
    let Ok(virtio) = VirtioNetRepr::parse(header, usize::MAX) else { return };
    let Ok(segments) = Segments::new(frame, &virtio) else {
        assert!(virtio.gso.is_some() || complete_checksum(&mut frame.to_vec(), &virtio).is_err());
        return;
    };
    let mut with_partial_checksums = segments.clone();
    assert_eq!(packets_in_place(&segments, frame), packets(segments.clone()));
    let packets = packets(segments);
    if let Some(state) = with_partial_checksums.leave_tcp_checksums() {
        assert_eq!(completed(with_partial_checksums, state), packets);
    }
    match virtio.gso {
        Some(gso) if is_tunneled(frame, virtio.checksum) => {
            check_tunneled(&virtio, gso, &packets);
        }
        Some(gso) => check_segments(frame, gso, &packets),
        None => {
            let mut in_place = frame.to_vec();
            complete_checksum(&mut in_place, &virtio).expect("it was done in a copy");
            assert_eq!(packets, [in_place]);
        }
    }
}

/// Returns true if a partial checksum is behind the frame's own transport header.
fn is_tunneled(frame: &[u8], checksum: ChecksumState) -> bool {
    let transport = Carried::read(frame).transport_at();
    matches!(checksum, ChecksumState::Partial { start, .. } if usize::from(start) > transport)
}

/// Checks packets in a tunnel: lengths and checksums of both headers are right, and each is segmented into
/// itself.
fn check_tunneled(virtio: &VirtioNetRepr, gso: Gso, whole: &[Vec<u8>]) {
    assert!(!whole.is_empty() && whole.len() < 65_535);
    let ChecksumState::Partial { start, .. } = virtio.checksum else { panic!("not in a tunnel") };
    for packet in whole {
        let outer = Carried::read(packet);
        assert_eq!(outer.end, packet.len());
        assert!(outer.contains(packet, |inner| inner.transport_at() == usize::from(start)));
        let transport = &packet[usize::from(start)..];
        let header_len = match gso.gso_type {
            GsoType::Udp | GsoType::UdpL4 => UdpHeader::LEN,
            GsoType::TcpV4(_) | GsoType::TcpV6(_) => TcpHeader::new(transport).unwrap().header_len(),
        };
        assert!(transport.len() - header_len <= usize::from(gso.size.get()));
        let again = Segments::new(packet, virtio).expect("a packet like the frame");
        assert_eq!(packets(again), std::slice::from_ref(packet));
    }
}

/// Segments `frame` to an MTU, also within a tunnel: for any frame, the packets fit and are complete, or
/// there is an error.
///
/// # Panics
/// A packet is too long, or cannot be parsed as the frame was.
pub(crate) fn check_invariants_within(frame: &[u8], mtu: u16) {
    let limit = Limit::Packet(mtu);
    let within = |frame: &[u8]| Segments::within(frame, limit).map(packets);
    let within_any_tunnel = |frame: &[u8]| Segments::within_any_tunnel(frame, limit).map(packets);
    let found = within(frame);
    check_within(frame, &found, mtu, within);
    found.iter().flatten().for_each(|packet| assert_complete(packet));
    let in_any_tunnel = within_any_tunnel(frame);
    // Skipped if both results are equal: a later packet of a plain datagram may look like a tunnel's.
    if in_any_tunnel != found {
        check_within(frame, &in_any_tunnel, mtu, within_any_tunnel);
        for packet in in_any_tunnel.iter().flatten() {
            assert!(Carried::read(packet).contains(packet, |_| true));
        }
    }
}

/// Checks the checksums of a packet, also within IP and PPP over Ethernet.
fn assert_complete(packet: &[u8]) {
    let link = LinkHeader::new(packet).unwrap();
    let whole = if link.ethertype() == EtherType::PPPOE_SESSION {
        let ethertype = PppoeHeader::new(link.payload()).unwrap().ethertype();
        Carried::at(packet, ethertype, link.header_len() + PppoeHeader::LEN).unwrap()
    } else {
        Carried::read(packet)
    };
    if [IpProtocol::IPV4, IpProtocol::IPV6].contains(&whole.protocol) {
        assert!(whole.contains(packet, |_| true));
    } else {
        assert!(whole.end == packet.len() && whole.has_right_header);
        whole.assert_checksum(whole.transport);
    }
}

type Packets = Result<Vec<Vec<u8>>, SegmentError>;

/// Checks the packets of `frame`, which `within` has cut to an MTU.
fn check_within(frame: &[u8], found: &Packets, mtu: u16, within: impl Fn(&[u8]) -> Packets) {
    let Ok(found) = found else { return };
    let link = LinkHeader::new(frame).unwrap().header_len();
    for packet in found {
        assert!(packet.len() <= link + usize::from(mtu), "{} bytes", packet.len());
        let again = within(packet).expect("a packet like the frame");
        assert_eq!(again, std::slice::from_ref(packet));
    }
}

/// Returns all packets; checks that their number and lengths are as announced.
fn packets(mut segments: Segments<'_>) -> Vec<Vec<u8>> {
    let (count, bytes) = (segments.remaining(), segments.bytes_remaining());
    let mut packets: Vec<Vec<u8>> = Vec::new();
    let (mut out, mut expected_len) = (Vec::new(), segments.packet_len());
    while segments.append_next(&mut out) {
        assert_eq!(out.len(), expected_len);
        expected_len = segments.packet_len();
        packets.push(std::mem::take(&mut out));
    }
    assert_eq!((packets.len(), packets.iter().map(Vec::len).sum::<usize>()), (count, bytes));
    packets
}

/// Returns all packets, each written behind the one before it.
fn packets_behind_each_other(mut segments: Segments<'_>) -> Vec<u8> {
    let mut out = vec![0xAA; segments.bytes_remaining()];
    let mut written = 0;
    while segments.remaining() > 0 {
        written += segments.write_next(&mut out[written..]);
    }
    assert_eq!((written, segments.write_next(&mut [])), (out.len(), 0));
    out
}

/// Returns all packets, written over the frame; checks that nothing else is written.
fn packets_in_place(segments: &Segments<'_>, frame: &[u8]) -> Vec<Vec<u8>> {
    let (count, packet_len) = (segments.remaining(), segments.packet_len());
    let in_place = segments.clone().in_place();
    let (before, after) = ([0x55; 3], [0x66; 5]);
    let mut memory = [&before[..], &vec![0; in_place.needs_before()], frame, &after].concat();
    let frame_at = memory.len() - after.len() - frame.len();
    let placed = in_place.write(&mut memory, frame_at);
    assert_eq!((placed.packets.start, placed.packet_len), (before.len(), packet_len));
    assert!(memory.starts_with(&before) && memory.ends_with(&after));
    let all = &memory[placed.packets];
    assert_eq!(all, packets_behind_each_other(segments.clone()));
    let mut packets: Vec<Vec<u8>> = all.chunks(packet_len.max(1)).map(<[u8]>::to_vec).collect();
    if all.is_empty() {
        packets.push(Vec::new());
    }
    assert_eq!(packets.len(), count);
    packets
}

/// Returns all packets of `segments`, whose checksums have this state, with complete checksums.
fn completed(segments: Segments<'_>, checksum: ChecksumState) -> Vec<Vec<u8>> {
    assert!(matches!(checksum, ChecksumState::Partial { .. }));
    let mut packets = packets(segments);
    for packet in &mut packets {
        complete_checksum(packet, &VirtioNetRepr { checksum, gso: None })
            .expect("the field is in the header");
    }
    packets
}

fn check_segments(frame: &[u8], gso: Gso, packets: &[Vec<u8>]) {
    assert!(!packets.is_empty() && packets.len() < 65_535);
    let whole = Carried::read(frame);
    let repeated = match gso.gso_type {
        GsoType::Udp if packets.len() > 1 => 0,
        GsoType::Udp | GsoType::UdpL4 => UdpHeader::LEN,
        GsoType::TcpV4(_) | GsoType::TcpV6(_) => TcpHeader::new(whole.transport).unwrap().header_len(),
    };
    let mut payload = Vec::new();
    for packet in packets {
        let part = Carried::read(packet);
        assert!(part.end == packet.len() && part.has_right_header);
        assert!(part.transport.len() - repeated <= usize::from(gso.size.get()));
        if repeated > 0 {
            part.assert_checksum(part.transport);
        }
        payload.extend(&part.transport[repeated..]);
    }
    if repeated == 0 {
        // The fragments contain the UDP header with the complete checksum.
        whole.assert_checksum(&payload);
        payload[6..8].copy_from_slice(&whole.transport[6..8]);
    }
    assert!(payload == whole.transport[repeated..]);
}

/// An Ethernet frame in a tunnel (RFC 7637 section 3.2).
const BRIDGED: EtherType = EtherType(0x6558);

/// The payload of an IP packet.
struct Carried<'a> {
    /// The checksum of the IP header is right, if it has one.
    has_right_header: bool,
    addresses: AddressPair,
    protocol: IpProtocol,
    transport: &'a [u8],
    /// Offset of its end in the frame.
    end: usize,
}

impl<'a> Carried<'a> {
    /// Reads the frame's own IP packet.
    fn read(frame: &'a [u8]) -> Self {
        let link = LinkHeader::new(frame).unwrap();
        Self::at(frame, link.ethertype(), link.header_len()).unwrap()
    }

    /// Reads the IP packet at `network` in a frame; `None` if there is none.
    fn at(frame: &'a [u8], ethertype: EtherType, network: usize) -> Option<Self> {
        let packet = frame.get(network..)?;
        if ethertype == EtherType::IPV4 {
            let ip = Ipv4Header::new(packet)?;
            Some(Self {
                has_right_header: ip.has_valid_checksum(),
                addresses: AddressPair::V4 { src: ip.src(), dst: ip.dst() },
                protocol: ip.protocol(),
                transport: ip.payload()?,
                end: network + usize::from(ip.total_len()),
            })
        } else if ethertype == EtherType::IPV6 {
            let ip = Ipv6Header::new(packet)?;
            let upper = ip.upper_layer().ok()?;
            Some(Self {
                has_right_header: true,
                addresses: AddressPair::V6 { src: ip.src(), dst: ip.dst() },
                protocol: upper.protocol,
                transport: ip.payload()?.get(upper.offset..)?,
                end: network + Ipv6Header::LEN + usize::from(ip.payload_len()),
            })
        } else {
            None
        }
    }

    /// Offset of the transport header in the frame.
    fn transport_at(&self) -> usize {
        self.end - self.transport.len()
    }

    /// Returns true if this packet is a tunnel's, its checksums are right, and it ends with a packet for
    /// which `predicate` holds and whose checksums are right. UDP may omit its checksum (RFC 7348 section 5,
    /// RFC 8926 section 3.3).
    fn contains(&self, frame: &'a [u8], predicate: impl Fn(&Self) -> bool) -> bool {
        let (at, transport) = (self.transport_at(), self.transport);
        let is_right = match self.protocol {
            IpProtocol::UDP => transport[6..8] == [0; 2] || self.has_right_checksum(transport),
            IpProtocol::GRE => transport[0] & 0x80 == 0 || checksum(transport) == 0,
            _ => true,
        };
        let ethertype_at =
            |at: usize| EtherType(frame.get(at..at + 2).map_or(0, |at| u16::from_be_bytes([at[0], at[1]])));
        let places = match self.protocol {
            IpProtocol::IPV4 => vec![(EtherType::IPV4, at)],
            IpProtocol::IPV6 => vec![(EtherType::IPV6, at)],
            IpProtocol::UDP => {
                let (vxlan, geneve) = (at + UdpHeader::LEN + 8, at + UdpHeader::LEN);
                let options = 4 * usize::from(frame[geneve] & 0x3F);
                vec![(BRIDGED, vxlan), (ethertype_at(geneve + 2), geneve + 8 + options)]
            }
            IpProtocol::GRE => {
                let fields = (transport[0] & 0xA0).count_ones() as usize;
                vec![(ethertype_at(at + 2), at + 4 + 4 * fields)]
            }
            other => panic!("no tunnel: {other:?}"),
        };
        let inner = places.into_iter().filter_map(|(ethertype, at)| match ethertype {
            BRIDGED => {
                let link = LinkHeader::new(frame.get(at..)?)?;
                Self::at(frame, link.ethertype(), at + link.header_len())
            }
            other => Self::at(frame, other, at),
        });
        let is_complete = |inner: &Self| {
            inner.has_right_header && inner.has_right_checksum(inner.transport) && predicate(inner)
        };
        self.has_right_header
            && is_right
            && inner.filter(|inner| inner.end == self.end).any(|inner| is_complete(&inner))
    }

    fn has_right_checksum(&self, transport: &[u8]) -> bool {
        let sum = self.addresses.pseudo_header(self.protocol, transport.len() as u32);
        sum.add_bytes(transport).finish() == 0
    }

    fn assert_checksum(&self, transport: &[u8]) {
        assert!(self.has_right_checksum(transport));
    }
}
