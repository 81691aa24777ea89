//! Active ACK (lro-npu V.C): acknowledgements that the card sends by itself, and what it must know of the host first.
//!
//! | rule | `paper` | `safe` |
//! |---|---|---|
//! | when | for every data packet | when data was handed to the host |
//! | ACK number | nextseq: what is buffered counts | what the host was handed without a gap, and not yet acknowledged |
//! | window | 0xFFFF | up to the right edge that the host itself has advertised; none without its window scale |
//! | timestamps | the values of the packet, exchanged | the host's latest value, as seen on the transmit path |
//! | off | never | on a gap, SACK or other options, ECN echo or CE, a zero window, an unknown host |
//!
//! As the paper has it, bytes are acknowledged that the host may never get (it drops an aggregate, it stops reading),
//! and the connection breaks: the sender has forgotten them. `safe` acknowledges only what was handed over.

use std::fmt;

use nichrome_wire::checksum::{self, Sum};
use nichrome_wire::{SeqNumber, TcpFlags, TcpOption, TcpOptions};

use crate::flow::FlowKey;
use crate::recycle::{Recycle, Recycled};
use crate::segment::{Layout, Segment};

/// The longest: Ethernet with two VLAN tags, IPv6, TCP with timestamps.
const MAX_LEN: usize = 14 + 8 + 40 + 20 + 12;

/// When the card acknowledges by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ActiveAck {
    /// Never.
    #[default]
    Off,
    /// As lro-npu V.C says. It can break connections: see the [module](self).
    Paper,
    /// Only what the host was handed, within the window that the host has advertised.
    Safe,
}

/// The bytes of an acknowledgement.
pub(crate) struct AckBytes {
    bytes: [u8; MAX_LEN],
    len: usize,
}

impl AckBytes {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; MAX_LEN], len: 0 }
    }
}

impl Recycle for AckBytes {
    fn clear(&mut self) {
        self.len = 0;
    }
}

/// An acknowledgement, ready for the wire, checksums complete.
pub struct AckFrame(Recycled<AckBytes>);

impl AckFrame {
    pub(crate) fn new(bytes: Recycled<AckBytes>) -> Self {
        Self(bytes)
    }

    /// The frame's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0.bytes[..self.0.len]
    }
}

impl fmt::Debug for AckFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AckFrame").field(&self.bytes()).finish()
    }
}

/// What an acknowledgement says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acknowledgement {
    pub(crate) seq: SeqNumber,
    pub(crate) ack: SeqNumber,
    /// As it stands in the header, scaled.
    pub(crate) window: u16,
    /// Value and echo of the timestamps option.
    pub(crate) timestamps: Option<(u32, u32)>,
}

impl Acknowledgement {
    /// What the paper's rule says to a data packet: nextseq, and the largest window that fits.
    pub(crate) fn paper(segment: &Segment, nextseq: SeqNumber) -> Self {
        Self {
            seq: segment.ack,
            ack: nextseq,
            window: 0xFFFF,
            timestamps: segment.timestamps.map(|timestamps| (timestamps.echo, timestamps.value)),
        }
    }

    /// Writes the answer to a frame with the header of `received`, from the receiver to the sender of it.
    pub(crate) fn write(&self, received: &[u8], layout: Layout, out: &mut AckBytes) -> Option<()> {
        let network = usize::from(layout.network);
        let transport = usize::from(layout.transport);
        let ip_len = if layout.is_ipv4() { 20 } else { 40 };
        let tcp_len = if self.timestamps.is_some() { 32 } else { 20 };
        out.len = network + ip_len + tcp_len;
        let (link, rest) = out.bytes.get_mut(..out.len)?.split_at_mut(network);
        let (ip, tcp) = rest.split_at_mut(ip_len);
        link.copy_from_slice(received.get(..network)?);
        if let Some(addresses) = link.first_chunk_mut::<12>() {
            addresses.rotate_left(6);
        }
        write_ip(received.get(network..)?, ip, tcp_len)?;
        tcp.fill(0);
        tcp[..2].copy_from_slice(received.get(transport + 2..transport + 4)?);
        tcp[2..4].copy_from_slice(received.get(transport..transport + 2)?);
        tcp[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        tcp[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        tcp[12] = (tcp_len as u8 / 4) << 4;
        tcp[13] = TcpFlags::ACK.bits() as u8;
        tcp[14..16].copy_from_slice(&self.window.to_be_bytes());
        if let Some((value, echo)) = self.timestamps {
            tcp[20..24].copy_from_slice(&[1, 1, 8, 10]);
            tcp[24..28].copy_from_slice(&value.to_be_bytes());
            tcp[28..32].copy_from_slice(&echo.to_be_bytes());
        }
        let addresses = &ip[ip_len - if ip_len == 20 { 8 } else { 32 }..];
        let sum = Sum::new().add_bytes(addresses).add_u32(6).add_u32(tcp_len as u32).add_bytes(tcp).finish();
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        Some(())
    }
}

/// Writes an IP header that answers `received`, for `payload` bytes.
fn write_ip(received: &[u8], ip: &mut [u8], payload: usize) -> Option<()> {
    const HOPS: u8 = 64;
    const TCP: u8 = 6;
    ip.fill(0);
    if let Ok(ip) = <&mut [u8; 20]>::try_from(&mut *ip) {
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&(20 + payload as u16).to_be_bytes());
        ip[6] = 0x40; // do not fragment
        ip[8] = HOPS;
        ip[9] = TCP;
        ip[12..16].copy_from_slice(received.get(16..20)?);
        ip[16..20].copy_from_slice(received.get(12..16)?);
        let sum = checksum::checksum(ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    } else {
        ip[0] = 0x60;
        ip[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
        ip[6] = TCP;
        ip[7] = HOPS;
        ip[8..24].copy_from_slice(received.get(24..40)?);
        ip[24..40].copy_from_slice(received.get(8..24)?);
    }
    Some(())
}

/// What the transmit path has shown of the host's side of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostSide {
    seen: Option<HostAck>,
    /// How far the host's window field is shifted (RFC 7323), known from both SYNs.
    scale: Option<u8>,
    /// Every byte before this was handed to the host; known since the host first acknowledged something.
    solid: Option<SeqNumber>,
    /// The last ACK number that the card sent.
    sent: Option<SeqNumber>,
}

/// The host's latest acknowledgement.
#[derive(Clone, Copy, Debug)]
struct HostAck {
    ack: SeqNumber,
    /// What it has sent: the sequence number of its next byte.
    next: SeqNumber,
    window: u16,
    timestamp: Option<u32>,
    /// Plain: no SACK or other options, no ECN echo, no flag but ACK and PSH.
    plain: bool,
}

impl HostSide {
    /// Learns from a segment that the host sends.
    pub(crate) fn observe(&mut self, segment: &Segment, scale: Option<u8>) {
        if !segment.flags.contains(TcpFlags::ACK) {
            return;
        }
        if self.seen.is_some_and(|seen| segment.ack.before(seen.ack)) {
            return;
        }
        let ends = segment.flags.intersects(TcpFlags::SYN | TcpFlags::FIN);
        let next = segment.end() + u32::from(ends);
        self.seen = Some(HostAck {
            ack: segment.ack,
            next: self.seen.map_or(next, |seen| seen.next.later(next)),
            window: segment.window,
            timestamp: segment.timestamps.map(|timestamps| timestamps.value),
            plain: !segment.other_options
                && segment.flags.difference(TcpFlags::ACK | TcpFlags::PSH).is_empty(),
        });
        self.scale = self.scale.or(scale);
        self.solid = Some(self.solid.map_or(segment.ack, |solid| solid.later(segment.ack)));
    }

    /// Whether the scale of the host's window is still to be looked up.
    pub(crate) fn needs_scale(&self) -> bool {
        self.scale.is_none()
    }

    /// Notes that the bytes from `seq` to `end` were handed to the host.
    #[inline]
    pub(crate) fn handed(&mut self, seq: SeqNumber, end: SeqNumber) {
        if let Some(solid) = self.solid
            && !seq.after(solid)
        {
            self.solid = Some(solid.later(end));
        }
    }

    /// Whether the host has acknowledged every byte before `end`.
    pub(crate) fn has_acknowledged(&self, end: SeqNumber) -> bool {
        self.seen.is_some_and(|seen| !end.after(seen.ack))
    }

    /// What may be acknowledged now, `newest` being the newest timestamp value handed to the host; `None` where it
    /// says nothing new, or the host would not have said it.
    pub(crate) fn acknowledgement(&mut self, newest: Option<u32>) -> Option<Acknowledgement> {
        let (seen, solid) = (self.seen?, self.solid?);
        if !seen.plain || !solid.after(seen.ack) || self.sent.is_some_and(|sent| !solid.after(sent)) {
            return None;
        }
        let scale = self.scale?;
        let right_edge = seen.ack + (u32::from(seen.window) << scale);
        let room = u32::try_from(right_edge.since(solid)).ok()?;
        let window = u16::try_from(room >> scale).ok().filter(|window| *window > 0)?;
        let timestamps = match newest {
            Some(echo) => Some((seen.timestamp?, echo)),
            None => None,
        };
        self.sent = Some(solid);
        Some(Acknowledgement { seq: seen.next, ack: solid, window, timestamps })
    }

    /// What repeats the host's own acknowledgement, as the host would answer a duplicate; `None` where the card has
    /// acknowledged more by itself, because that must not be taken back.
    pub(crate) fn repetition(&self, newest: Option<u32>) -> Option<Acknowledgement> {
        let seen = self.seen.filter(|seen| seen.plain && seen.window > 0)?;
        if self.sent.is_some_and(|sent| sent.after(seen.ack)) {
            return None;
        }
        let timestamps = match newest {
            Some(echo) => Some((seen.timestamp?, echo)),
            None => None,
        };
        Some(Acknowledgement { seq: seen.next, ack: seen.ack, window: seen.window, timestamps })
    }
}

/// The window scales of connections that were opened lately. A fixed number of places: under a flood of SYNs places
/// are lost, and with them active ACK on new connections, but nothing grows.
pub(crate) struct Handshakes {
    places: Box<[Handshake]>,
}

#[derive(Clone, Copy, Default)]
struct Handshake {
    /// The flow towards the host.
    flow: FlowKey,
    /// The window scale option in the host's SYN, and whether there was one.
    host: Option<Option<u8>>,
    /// Whether the peer's SYN had one.
    peer: Option<bool>,
}

impl Handshakes {
    const PLACES: usize = 1024;

    pub(crate) fn new() -> Self {
        Self { places: vec![Handshake::default(); Self::PLACES].into() }
    }

    fn place(&mut self, hash: u32, flow: FlowKey) -> &mut Handshake {
        let place = &mut self.places[hash as usize % Self::PLACES];
        if place.flow != flow {
            *place = Handshake { flow, ..Handshake::default() };
        }
        place
    }

    /// Notes a SYN from the peer, on a flow towards the host.
    pub(crate) fn peer_syn(&mut self, hash: u32, flow: FlowKey, options: &[u8]) {
        let peer = window_scale(options).is_some();
        *self.place(hash, flow) = Handshake { peer: Some(peer), ..*self.place(hash, flow) };
    }

    /// Notes a SYN from the host; `flow` is the one towards the host.
    pub(crate) fn host_syn(&mut self, hash: u32, flow: FlowKey, options: &[u8]) {
        let host = window_scale(options);
        *self.place(hash, flow) = Handshake { host: Some(host), ..*self.place(hash, flow) };
    }

    /// How far the host's window is shifted: by nothing unless both SYNs had the option; `None` where not both SYNs
    /// were seen.
    pub(crate) fn scale(&self, hash: u32, flow: &FlowKey) -> Option<u8> {
        let place = self.places.get(hash as usize % Self::PLACES).filter(|place| place.flow == *flow)?;
        let (host, peer) = (place.host?, place.peer?);
        // 14 is the largest shift (RFC 7323 section 2.3).
        Some(if peer { host.unwrap_or(0).min(14) } else { 0 })
    }
}

fn window_scale(options: &[u8]) -> Option<u8> {
    TcpOptions::new(options).map_while(Result::ok).find_map(|option| match option {
        TcpOption::WindowScale(shift) => Some(shift),
        _ => None,
    })
}
