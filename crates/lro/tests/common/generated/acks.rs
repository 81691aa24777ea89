//! A reference model of `ActiveAck::Safe`: tracks, independently of the engine, which ACKs the card may send.

use std::collections::HashMap;

use nichrome_lro::{FlowKey, Medium};
use nichrome_wire::{
    AddressPair, Ecn, EtherType, IpProtocol, Ipv4Header, Ipv6Header, LinkHeader, SeqNumber, TcpFlags,
    TcpFrame, TcpHeader, TcpOption, TcpOptions,
};

/// A TCP segment, read by a simple parser of its own.
pub struct Tcp<'a> {
    pub flow: FlowKey,
    pub seq: SeqNumber,
    pub ack: SeqNumber,
    pub flags: TcpFlags,
    pub window: u16,
    pub options: Vec<TcpOption<'a>>,
    pub payload: &'a [u8],
    /// True if a router has marked it with CE.
    pub is_marked: bool,
    pub checksums_are_right: bool,
}

impl<'a> Tcp<'a> {
    /// Reads a frame; `None` if it is not a whole TCP segment.
    pub fn read(frame: &'a [u8], medium: Medium) -> Option<Self> {
        let (packet, vlans) = match medium {
            Medium::Ip => (frame, Vec::new()),
            Medium::Ethernet => {
                let link = LinkHeader::new(frame)?;
                let version = match link.ethertype() {
                    EtherType::IPV4 => 4,
                    EtherType::IPV6 => 6,
                    _ => return None,
                };
                if link.payload().first().is_none_or(|first| first >> 4 != version) {
                    return None;
                }
                (link.payload(), link.tags().as_slice().iter().map(|tag| tag.vid()).collect())
            }
        };
        let (addresses, segment, ecn, ip_is_right) = match packet.first()? >> 4 {
            4 => {
                let ip = Ipv4Header::new(packet)?;
                let whole = !ip.is_fragment() && ip.protocol() == IpProtocol::TCP;
                let addresses = AddressPair::V4 { src: ip.src(), dst: ip.dst() };
                (addresses, ip.payload().filter(|_| whole)?, ip.ecn(), ip.has_valid_checksum())
            }
            6 => {
                let ip = Ipv6Header::new(packet)?;
                let upper = ip.upper_layer().ok().filter(|upper| upper.protocol == IpProtocol::TCP)?;
                let whole = upper.fragment.is_none_or(|header| header.is_atomic());
                let segment = ip.payload().filter(|_| whole)?.get(upper.offset..)?;
                (AddressPair::V6 { src: ip.src(), dst: ip.dst() }, segment, ip.ecn(), true)
            }
            _ => return None,
        };
        let tcp = TcpHeader::new(segment)?;
        let (src, dst) = (tcp.src_port(), tcp.dst_port());
        let flow = match addresses {
            AddressPair::V4 { src: from, dst: to } => FlowKey::ipv4(from, to, src, dst),
            AddressPair::V6 { src: from, dst: to } => FlowKey::ipv6(from, to, src, dst),
        };
        let sum = addresses.pseudo_header(IpProtocol::TCP, segment.len() as u32).add_bytes(segment).finish();
        Some(Self {
            flow: vlans.into_iter().fold(flow, FlowKey::in_vlan),
            seq: tcp.seq(),
            ack: tcp.ack(),
            flags: tcp.flags(),
            window: tcp.window(),
            options: TcpOptions::new(tcp.options()?).map_while(Result::ok).collect(),
            payload: tcp.payload()?,
            is_marked: ecn == Ecn::Ce,
            checksums_are_right: ip_is_right && sum == 0,
        })
    }

    fn end(&self) -> SeqNumber {
        self.seq + self.payload.len() as u32 + u32::from(self.flags.contains(TcpFlags::SYN))
    }

    fn window_scale(&self) -> Option<u8> {
        self.options.iter().find_map(|option| match option {
            TcpOption::WindowScale(shift) => Some((*shift).min(14)),
            _ => None,
        })
    }
}

/// One connection, by the flow towards the host.
#[derive(Default)]
struct Connection {
    /// The window scale option of each side's SYN, if the SYN was seen.
    peer_scale: Option<Option<u8>>,
    host_scale: Option<Option<u8>>,
    /// ACK number and window of the host's latest acknowledgement.
    host: Option<(SeqNumber, u16)>,
    /// The right edge of that window, if the window scale is known: the host discards bytes beyond it.
    edge: Option<SeqNumber>,
    /// True if that acknowledgement had no flags but ACK and PSH, and no options but timestamps.
    plain: bool,
    /// The last ACK number that the card sent.
    card: Option<SeqNumber>,
    /// The start of the stream, and the end of the bytes that the host has without a gap.
    start: Option<SeqNumber>,
    delivered_until: SeqNumber,
    /// The end of the last CE-marked segment that was delivered to the host.
    marked: Option<SeqNumber>,
    /// True if bytes beyond a gap were delivered to the host, and the host has sent no ACK since.
    gap: bool,
    /// Ranges beyond a gap that were delivered to the host: start, end.
    beyond: Vec<(SeqNumber, SeqNumber)>,
}

impl Connection {
    fn start_at(&mut self, start: SeqNumber) {
        (self.start, self.delivered_until) = (Some(start), start);
        self.absorb();
    }

    /// Extends `delivered_until` by the ranges that have no gap before them any more.
    fn absorb(&mut self) {
        let next = |delivered_until: SeqNumber, (from, to): (SeqNumber, SeqNumber)| {
            !from.after(delivered_until) && to.after(delivered_until)
        };
        while let Some((_, to)) = self.beyond.iter().find(|range| next(self.delivered_until, **range)) {
            self.delivered_until = *to;
        }
        self.beyond.retain(|(_, to)| to.after(self.delivered_until));
    }
}

/// The hosts' side of every connection: the bytes that the hosts have, and thus the ACKs that the card may
/// send.
pub struct Acks {
    medium: Medium,
    connections: HashMap<FlowKey, Connection>,
}

impl Acks {
    pub fn new(medium: Medium) -> Self {
        Self { medium, connections: HashMap::new() }
    }

    /// The host sends a segment on a connection whose stream towards the host begins at `start`. The segment
    /// acknowledges one `share`th of the bytes that the host has and has not acknowledged.
    pub fn host_sends(&mut self, mut segment: TcpFrame, start: SeqNumber, share: u32) -> Vec<u8> {
        let build = |segment: &TcpFrame| match self.medium {
            Medium::Ethernet => segment.build(),
            Medium::Ip => segment.build_ip(),
        };
        let bytes = build(&segment);
        let Some(tcp) = Tcp::read(&bytes, self.medium) else { return bytes };
        let connection = self.connections.entry(tcp.flow.reversed()).or_default();
        if connection.start != Some(start) {
            connection.start_at(start);
            (connection.host, connection.edge) = (None, None);
        }
        if tcp.flags.contains(TcpFlags::SYN) {
            connection.host_scale = Some(tcp.window_scale());
            if !tcp.flags.contains(TcpFlags::ACK) {
                connection.peer_scale = None;
            }
        }
        let before = connection.host.map_or(start, |(ack, _)| ack);
        segment.ack = before + connection.delivered_until.since(before).max(0).cast_unsigned() / share;
        if tcp.flags.contains(TcpFlags::ACK) {
            connection.host = Some((segment.ack, segment.window));
            let scales = connection.peer_scale.zip(connection.host_scale);
            let scale = scales.map(|(peer, host)| peer.and(host).unwrap_or(0));
            let scale = if tcp.flags.contains(TcpFlags::SYN) { Some(0) } else { scale };
            connection.edge = scale.map(|scale| segment.ack + (u32::from(segment.window) << scale));
            connection.gap = false;
            let timestamps_only = |option: &TcpOption<'_>| {
                matches!(option, TcpOption::NoOperation | TcpOption::Timestamps { .. })
            };
            connection.plain = tcp.options.iter().all(timestamps_only)
                && tcp.flags.difference(TcpFlags::ACK | TcpFlags::PSH).is_empty();
        }
        if tcp.flags.contains(TcpFlags::RST) {
            (connection.host, connection.edge) = (None, None);
        }
        build(&segment)
    }

    /// Records that a packet was delivered to the host.
    pub fn note_delivered(&mut self, packet: &[u8]) {
        let Some(tcp) = Tcp::read(packet, self.medium).filter(|tcp| tcp.checksums_are_right) else { return };
        if !tcp.flags.intersects(TcpFlags::ACK | TcpFlags::SYN) {
            return; // discarded: RFC 9293 section 3.10.7.4
        }
        let connection = self.connections.entry(tcp.flow).or_default();
        if tcp.flags.contains(TcpFlags::SYN) {
            // A SYN without ACK begins a connection; the host's SYN is still to come.
            let host_scale = connection.host_scale.filter(|_| tcp.flags.contains(TcpFlags::ACK));
            *connection = Connection { host_scale, ..Connection::default() };
            connection.peer_scale = Some(tcp.window_scale());
            connection.start_at(tcp.seq + 1);
        }
        let end = connection.edge.filter(|edge| edge.before(tcp.end())).unwrap_or(tcp.end());
        if end.before(tcp.seq) || (end == tcp.seq && !tcp.payload.is_empty()) {
            return;
        }
        if tcp.is_marked && !tcp.payload.is_empty() {
            connection.marked = Some(connection.marked.map_or(end, |marked| marked.later(end)));
        }
        connection.beyond.push((tcp.seq, end));
        if connection.start.is_some() {
            connection.absorb();
            connection.gap |= tcp.seq.after(connection.delivered_until);
        }
        if connection.beyond.len() > 4096 {
            connection.beyond.remove(0);
        }
    }

    /// Checks a segment that the card dropped as a duplicate: an error if the host has not acknowledged all
    /// of it.
    pub fn dropped(&mut self, frame: &[u8]) -> Result<(), String> {
        let Some(tcp) = Tcp::read(frame, self.medium) else { return Err("no segment was dropped".into()) };
        let host = self.connections.get(&tcp.flow).and_then(|connection| connection.host);
        match host {
            Some((ack, _)) if !tcp.end().after(ack) => Ok(()),
            _ => Err(format!("{}: {} was dropped and is not acknowledged", tcp.flow, tcp.seq.0)),
        }
    }

    /// Checks an ACK that the card sent: the error names the rule that it breaks.
    pub fn sent(&mut self, frame: &[u8]) -> Result<(), String> {
        let tcp = Tcp::read(frame, self.medium).ok_or("an acknowledgement is not TCP")?;
        let broken = |what: &str| Err(format!("{}: acknowledging {} {what}", tcp.flow, tcp.ack.0));
        if !tcp.checksums_are_right || !tcp.payload.is_empty() || tcp.flags != TcpFlags::ACK {
            return broken("has a wrong checksum, payload, or other flags");
        }
        let connection = self.connections.entry(tcp.flow.reversed()).or_default();
        let Some((host_ack, host_window)) = connection.host else {
            return broken("before the host has acknowledged anything");
        };
        if !connection.plain {
            return broken("though the host's last segment says more than an ACK number");
        }
        if tcp.ack.before(host_ack) {
            return broken("goes back behind the host");
        }
        if connection.card.is_some_and(|card| tcp.ack.before(card)) {
            return broken("goes back behind the card's last");
        }
        connection.card = Some(tcp.ack);
        if host_window == 0 || tcp.window == 0 {
            return broken("with a zero window");
        }
        let (Some(peer), Some(host)) = (connection.peer_scale, connection.host_scale) else {
            return broken("without the window scale");
        };
        if tcp.ack == host_ack {
            let same = tcp.window == host_window;
            return if same { Ok(()) } else { broken("repeats the host's with another window") };
        }
        let scale = peer.and(host).unwrap_or(0);
        let edge = |ack: SeqNumber, window: u16| ack + (u32::from(window) << scale);
        if edge(tcp.ack, tcp.window).after(edge(host_ack, host_window)) {
            return broken("goes beyond the host's window");
        }
        if connection.marked.is_some_and(|end| end.after(host_ack)) {
            return broken("though the host has not acknowledged a mark of congestion");
        }
        if connection.gap {
            return broken("though the host was delivered something beyond a gap");
        }
        if tcp.ack.after(connection.delivered_until) {
            return broken(&format!("though the host was delivered {} only", connection.delivered_until.0));
        }
        Ok(())
    }
}
