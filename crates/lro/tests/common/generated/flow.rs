//! One direction of a connection: the segments of the peer, and the host's answers.

use nichrome_wire::{
    EtherType, FlowLabel, IpProtocol, MacAddr, Network, SeqNumber, TcpFlags, TcpFrame, TrafficClass, VlanTag,
};

use super::choose::Choose;
use super::traffic::Step;

/// SYN options with a window scale of 7, of 14, and without.
const SYN_OPTIONS: [&[u8]; 3] = [&[2, 4, 5, 180, 1, 3, 3, 7], &[2, 4, 5, 180, 1, 3, 3, 14], &[2, 4, 5, 180]];

/// How the IPv4 identification advances.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ident {
    Incrementing,
    Fixed,
    Random,
}

/// One direction of a connection, and the host that receives it.
pub struct Flow {
    /// The header fields that do not change; `seq` is that of the next new byte.
    next: TcpFrame,
    /// The first byte of the stream.
    start: SeqNumber,
    mss: usize,
    /// Percentage of cases in which the flow just continues with data.
    calm: u32,
    ident: Ident,
    timestamp: Option<u32>,
    /// The flags of a SYN that is due from the peer, and from the host.
    peer_syn: Option<TcpFlags>,
    host_syn: Option<TcpFlags>,
    /// The options of both SYNs.
    syn_options: &'static [u8],
    /// The sequence number of the host's next byte.
    host_next: SeqNumber,
    host_window: u16,
}

impl Flow {
    pub fn new(choose: &mut impl Choose, nth: u16, calm: u32) -> Self {
        let mut next = TcpFrame { src_port: 40_000 + nth, ..TcpFrame::default() };
        if choose.chance(40) {
            let address = |host: u16| [0xFD00, 0, 0, 0, 0, 0, 0, host].into();
            next.network = Network::ipv6(address(1), address(2));
        }
        let tag = |tpid, tci| VlanTag { tpid, tci };
        next.tags = match choose.below(8) {
            6 => vec![tag(EtherType::VLAN, 5)],
            7 => vec![tag(EtherType::QINQ, 5), tag(EtherType::VLAN, 0x6007)],
            _ => Vec::new(),
        };
        let mut flow = Self {
            next,
            start: SeqNumber(1),
            mss: 1448,
            calm,
            ident: Ident::Incrementing,
            timestamp: None,
            peer_syn: None,
            host_syn: None,
            syn_options: &[],
            host_next: SeqNumber(1),
            host_window: 2048,
        };
        flow.restart(choose);
        if choose.chance(50) {
            (flow.peer_syn, flow.host_syn) = (Some(TcpFlags::SYN), Some(TcpFlags::SYN | TcpFlags::ACK));
        }
        flow
    }

    /// Takes a new initial sequence number, often just before the wrap.
    fn restart(&mut self, choose: &mut impl Choose) {
        self.mss = choose.one_of(&[100, 1448, 64, 1, 1460, 8000, 5]);
        self.ident = choose.one_of(&[Ident::Incrementing, Ident::Fixed, Ident::Random]);
        self.timestamp = choose.chance(50).then(|| choose.one_of(&[1, u32::MAX - 3, 1 << 31]));
        self.next.seq = SeqNumber(choose.one_of(&[1, u32::MAX - 20_000, u32::MAX, 1 << 30]));
        self.start = self.next.seq;
        self.syn_options = choose.one_of(&SYN_OPTIONS);
    }

    /// The header fields that stay.
    pub fn fields(&self) -> &TcpFrame {
        &self.next
    }

    /// The next segment of the peer.
    pub fn send(&mut self, choose: &mut impl Choose) -> TcpFrame {
        let calm = choose.chance(self.calm);
        if !calm && choose.chance(8) {
            self.change(choose);
        }
        if let Network::Ipv4 { ident, .. } = &mut self.next.network {
            match self.ident {
                Ident::Incrementing => *ident = ident.wrapping_add(1),
                Ident::Fixed => {}
                Ident::Random => *ident = choose.below(1 << 16) as u16,
            }
        }
        self.next.options = self.timestamp.map(timestamps).unwrap_or_default();
        if let Some(flags) = self.peer_syn.take() {
            return self.syn(choose, flags);
        }
        match choose.below(64) {
            _ if calm => self.data(choose),
            0..48 => self.data(choose),
            48..54 => self.old(choose),
            54 => self.ahead(choose),
            _ => self.control(choose),
        }
    }

    /// New bytes.
    fn data(&mut self, choose: &mut impl Choose) -> TcpFrame {
        let len = match choose.below(16) {
            _ if choose.chance(self.calm) => self.mss,
            0..13 => self.mss,
            13 => self.mss / 2 + 1,
            14 => 1,
            _ => self.mss + 1,
        };
        let mut frame = segment(&self.next, self.next.seq, len);
        if choose.chance(5) {
            frame.flags = frame.flags | TcpFlags::PSH;
        }
        self.next.seq += len as u32;
        frame
    }

    /// Bytes that were sent before, perhaps with new ones after them.
    fn old(&mut self, choose: &mut impl Choose) -> TcpFrame {
        let whole = choose.below(6) * self.mss as u32;
        let back = whole + choose.one_of(&[self.mss as u32, self.mss as u32, 1, 41]);
        let len = choose.one_of(&[self.mss, self.mss, self.mss, 1, 2 * self.mss]);
        let seq = self.start.later(SeqNumber(self.next.seq.0.wrapping_sub(back)));
        let frame = segment(&self.next, seq, len);
        self.next.seq = self.next.seq.later(seq + len as u32);
        frame
    }

    /// Bytes after a gap, which may never be filled.
    fn ahead(&mut self, choose: &mut impl Choose) -> TcpFrame {
        let gap = choose.one_of(&[self.mss as u32, 3 * self.mss as u32, 100_000, 2_000_000, 1 << 30]);
        let frame = segment(&self.next, self.next.seq + gap, self.mss);
        if gap < 1 << 30 && choose.chance(50) {
            self.next.seq += gap + self.mss as u32;
        }
        frame
    }

    /// A segment that is not plain data: flags, options, no payload, a random sequence number.
    fn control(&mut self, choose: &mut impl Choose) -> TcpFrame {
        const BITS: [TcpFlags; 5] =
            [TcpFlags::URG, TcpFlags::CWR, TcpFlags::ECE, TcpFlags::AE, TcpFlags::RST];
        let mut frame = segment(&self.next, self.next.seq, 0);
        match choose.below(16) {
            0..4 => {}
            4 => frame.flags = frame.flags | choose.one_of(&BITS),
            5 => {
                frame = self.data(choose);
                frame.flags = frame.flags | choose.one_of(&BITS);
            }
            6 => {
                self.restart(choose);
                self.host_syn = choose.chance(80).then_some(TcpFlags::SYN | TcpFlags::ACK);
                frame = self.syn(choose, TcpFlags::SYN);
            }
            7 => {
                if choose.chance(50) {
                    frame = self.data(choose);
                }
                frame.flags = frame.flags | TcpFlags::FIN;
                self.next.seq += 1;
            }
            8 => {
                // a keepalive
                let seq = self.start.later(SeqNumber(self.next.seq.0.wrapping_sub(1)));
                frame = segment(&self.next, seq, choose.below(2) as usize);
            }
            9 => frame = segment(&self.next, self.next.seq, 1), // a window probe: not counted as sent
            10 => frame.options = [&[1, 1, 5, 10][..], &[0; 8]].concat(),
            11 => {
                frame = self.data(choose);
                frame.options = choose
                    .one_of(&[&[19, 18, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9][..], &[253, 4, 1, 2]])
                    .to_vec();
            }
            12 => {
                frame.flags =
                    TcpFlags::from_bits_truncate(choose.below(512) as u16).difference(TcpFlags::SYN);
            }
            13 => {
                frame = self.data(choose);
                frame.flags = TcpFlags::from_bits_truncate(choose.below(512) as u16);
                frame.flags = frame.flags.difference(TcpFlags::SYN);
            }
            14 => {
                frame = self.data(choose);
                with_ip_extras(choose, &mut frame.network);
            }
            _ => frame.seq = SeqNumber(choose.below(u32::MAX)),
        }
        frame
    }

    /// The peer's SYN.
    fn syn(&mut self, choose: &mut impl Choose, flags: TcpFlags) -> TcpFrame {
        let mut frame = segment(&self.next, self.next.seq, choose.one_of(&[0, 0, 0, 33]));
        (frame.flags, frame.options) = (flags, self.syn_options.to_vec());
        self.next.seq += 1 + frame.payload.len() as u32;
        self.start += 1;
        frame
    }

    /// Changes a header field, as routers or the connection's state do.
    fn change(&mut self, choose: &mut impl Choose) {
        match choose.below(14) {
            0..3 => self.next.ack += choose.one_of(&[1, 1448, 100_000]),
            3 => self.next.window ^= 1 << choose.below(16),
            4..7 => {
                let step = choose.one_of(&[1, 10, u32::MAX, 1 << 31]);
                self.timestamp = self.timestamp.map(|value| value.wrapping_add(step));
            }
            7 => self.mss = choose.one_of(&[1448, 536, 100, 1]),
            8 => self.ident = choose.one_of(&[Ident::Incrementing, Ident::Fixed, Ident::Random]),
            9 => self.next.src_mac = MacAddr([2, 0, 0, 0, 0, choose.below(3) as u8]),
            10 => self.next.tags.iter_mut().for_each(|tag| tag.tci ^= 0x2000),
            11 => self.timestamp = if self.timestamp.is_some() { None } else { Some(7) },
            _ => self.change_network(choose),
        }
    }

    fn change_network(&mut self, choose: &mut impl Choose) {
        let marks = choose.one_of(&[0, 2, 3, 1, 0x40]);
        match &mut self.next.network {
            Network::Ipv4 { ttl, tos, dont_fragment, ident, .. } => match choose.below(6) {
                0 => *ttl ^= 1,
                1 => *dont_fragment = !*dont_fragment,
                2 => *ident = 0xFFFE,
                _ => *tos = TrafficClass(marks),
            },
            Network::Ipv6 { hop_limit, class, flow_label, .. } => match choose.below(6) {
                0 => *hop_limit ^= 1,
                1 => *flow_label = FlowLabel::new(choose.below(3)).unwrap_or_default(),
                _ => *class = TrafficClass(marks),
            },
        }
    }

    /// A segment of the host.
    pub fn host_sends(&mut self, choose: &mut impl Choose) -> Step {
        if self.peer_syn.is_some() {
            return Step::Wait(0); // the host sends nothing while the peer's SYN is due
        }
        let next = &self.next;
        let mut frame = TcpFrame {
            src_mac: next.dst_mac,
            dst_mac: next.src_mac,
            tags: next.tags.clone(),
            network: reversed(&next.network),
            src_port: next.dst_port,
            dst_port: next.src_port,
            ..TcpFrame::default()
        };
        match choose.below(12) {
            _ if choose.chance(self.calm) => {}
            0 => self.host_window = choose.one_of(&[2048, 512, 0, 1, u16::MAX]),
            1 => {
                self.restart(choose);
                self.peer_syn = Some(TcpFlags::SYN | TcpFlags::ACK);
                if choose.chance(20) {
                    return Step::Wait(0); // the card does not see the host's SYN
                }
                self.host_syn = Some(TcpFlags::SYN);
            }
            2 => {
                let more = choose.one_of(&[TcpFlags::ECE, TcpFlags::FIN, TcpFlags::RST, TcpFlags::PSH]);
                frame.flags = frame.flags | more;
            }
            5 => frame.flags = TcpFlags::RST,
            3 => frame.options = [&[1, 1, 5, 10][..], &[0; 8]].concat(),
            4 => frame.payload = vec![7; 100],
            _ => {}
        }
        if let Some(flags) = self.host_syn.take() {
            (frame.flags, frame.options) = (flags, self.syn_options.to_vec());
        }
        if let (Some(value), true) = (self.timestamp, frame.options.is_empty()) {
            frame.options = timestamps(value);
        }
        (frame.seq, frame.window) = (self.host_next, self.host_window);
        self.host_next += frame.payload.len() as u32;
        Step::HostSends { segment: frame, start: self.start, share: choose.one_of(&[1, 1, 1, 1, 2, 8]) }
    }
}

/// A segment with these header fields, and the bytes of the stream at `seq`.
fn segment(fields: &TcpFrame, seq: SeqNumber, len: usize) -> TcpFrame {
    let at = |n: usize| seq.0.wrapping_add(n as u32).wrapping_add(u32::from(fields.src_port));
    let payload = (0..len).map(|n| (at(n) ^ at(n) >> 8 ^ at(n) >> 16) as u8).collect();
    TcpFrame { seq, payload, ..fields.clone() }
}

fn timestamps(value: u32) -> Vec<u8> {
    [&[1, 1, 8, 10][..], &value.to_be_bytes(), &[0, 0, 0, 9]].concat()
}

/// IP options, or extension headers.
fn with_ip_extras(choose: &mut impl Choose, network: &mut Network) {
    match network {
        Network::Ipv4 { options, .. } => *options = vec![1; 4 * (1 + choose.below(10) as usize)],
        Network::Ipv6 { next_header, extensions, .. } => {
            *next_header = choose.one_of(&[
                IpProtocol::DESTINATION_OPTIONS,
                IpProtocol::HOP_BY_HOP,
                IpProtocol::FRAGMENT,
                IpProtocol::ROUTING,
            ]);
            *extensions = vec![IpProtocol::TCP.0, 0, 1, 4, 0, 0, 0, 0];
            if *next_header == IpProtocol::DESTINATION_OPTIONS && choose.chance(50) {
                // A home address.
                *extensions = [&[IpProtocol::TCP.0, 2, 1, 2, 0, 0, 0xC9, 16][..], &[0xFD; 16]].concat();
            }
            if *next_header == IpProtocol::FRAGMENT {
                extensions[2..4].copy_from_slice(&choose.one_of(&[[0, 0], [0, 1], [1, 0]]));
            }
        }
    }
}

fn reversed(network: &Network) -> Network {
    match network {
        Network::Ipv4 { src, dst, .. } => Network::ipv4(*dst, *src),
        Network::Ipv6 { src, dst, .. } => Network::ipv6(*dst, *src),
    }
}
