//! The host's side of a connection, for active ACK `safe`: its window, its ACK number, the bytes delivered to
//! it.

use nichrome_wire::{SeqNumber, TcpFlags, TcpOption, TcpOptions};

use super::ack::Acknowledgement;
use crate::flow::FlowKey;
use crate::segment::Segment;

/// The host's side of a connection, as learned from its transmitted segments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostSide {
    seen: Option<HostAck>,
    /// The host's window scale (RFC 7323), known from both SYNs.
    scale: Option<u8>,
    /// Every byte before this was delivered to the host; known from the host's first ACK on.
    solid: Option<SeqNumber>,
    /// The last ACK number that the card generated.
    sent: Option<SeqNumber>,
    /// Only the host may acknowledge bytes before this.
    left_to_host: Option<SeqNumber>,
}

/// The host's latest acknowledgement.
#[derive(Clone, Copy, Debug)]
struct HostAck {
    ack: SeqNumber,
    /// The sequence number of the host's next byte.
    next: SeqNumber,
    window: u16,
    timestamp: Option<u32>,
    /// True without SACK or other options, ECN echo, or a flag except ACK and PSH.
    plain: bool,
}

impl HostSide {
    /// Learns from a segment that the host transmits.
    pub(crate) fn observe(&mut self, segment: &Segment, scale: Option<u8>) {
        if segment.flags.contains(TcpFlags::RST) {
            return self.stop();
        }
        if segment.flags.contains(TcpFlags::SYN) {
            self.open(segment.flags);
        }
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
        self.left_to_host = self.left_to_host.filter(|left| segment.ack.before(*left));
        self.scale = self.scale.or(scale);
        self.solid = Some(self.solid.map_or(segment.ack, |solid| solid.later(segment.ack)));
    }

    /// Resets the state when the host opens a connection. A SYN-ACK answers the peer's SYN: bytes delivered
    /// since may belong to the new connection, so a CE mark among them still waits for the host's echo.
    fn open(&mut self, flags: TcpFlags) {
        if flags.contains(TcpFlags::ACK) {
            self.stop();
        } else {
            *self = Self::default();
        }
    }

    /// Suspends active ACK until the host transmits again, after a RST or a refused packet. The host may
    /// ignore the RST (RFC 5961 section 3.2): if the connection continues, the ACK number must not go back
    /// and no CE mark may be lost.
    pub(crate) fn stop(&mut self) {
        *self = Self { sent: self.sent, left_to_host: self.left_to_host, ..Self::default() };
    }

    /// Records that the bytes from `seq` to `end` were delivered to the host. Behind a gap, only the host may
    /// acknowledge.
    #[inline]
    pub(crate) fn handed(&mut self, seq: SeqNumber, end: SeqNumber) {
        match self.solid {
            Some(solid) if seq.after(solid) => self.leave_to_host(end),
            Some(solid) => self.solid = Some(solid.later(end)),
            // Only the host knows whether there is a gap before it.
            None => self.leave_to_host(end),
        }
    }

    /// Suspends active ACK until the host has acknowledged every byte before `end`: it has a gap to report or
    /// a CE mark to echo.
    pub(crate) fn leave_to_host(&mut self, end: SeqNumber) {
        self.left_to_host = Some(self.left_to_host.map_or(end, |left| left.later(end)));
    }

    /// Returns true if the host has acknowledged every byte before `end`.
    pub(crate) fn has_acknowledged(&self, end: SeqNumber) -> bool {
        self.seen.is_some_and(|seen| !end.after(seen.ack))
    }

    /// Returns the ACK to generate now; `newest` is the newest timestamp value delivered to the host. `None`
    /// if the ACK would be no news, or one that the host itself would not send.
    pub(crate) fn acknowledgement(&mut self, newest: Option<u32>) -> Option<Acknowledgement> {
        let (seen, solid) = (self.seen?, self.solid?);
        if self.left_to_host.is_some()
            || !seen.plain
            || !solid.after(seen.ack)
            || self.sent.is_some_and(|sent| !solid.after(sent))
        {
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

    /// Returns a copy of the host's last ACK, which answers a duplicate. `None` if the host's state is
    /// incomplete, or if the card has acknowledged more: an ACK number must not go back.
    pub(crate) fn repetition(&self, newest: Option<u32>) -> Option<Acknowledgement> {
        let seen = self.seen.filter(|seen| seen.plain && seen.window > 0 && self.scale.is_some())?;
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

/// The window scales from recent SYNs, in a fixed number of entries. A SYN flood overwrites entries, and
/// disables active ACK for the new connections, but allocates nothing.
pub(crate) struct Handshakes {
    places: Box<[Handshake]>,
}

#[derive(Clone, Copy, Default)]
struct Handshake {
    /// The flow towards the host.
    flow: FlowKey,
    /// The window scale in the host's SYN, if the SYN was seen; `Some(None)` without the option.
    host: Option<Option<u8>>,
    /// True if the peer's SYN had the option, if the SYN was seen.
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

    /// Records a SYN of the peer. Without ACK it opens another connection, whose host SYN is not seen yet.
    pub(crate) fn peer_syn(&mut self, hash: u32, flow: FlowKey, flags: TcpFlags, options: &[u8]) {
        let place = self.place(hash, flow);
        place.peer = Some(window_scale(options).is_some());
        place.host = place.host.filter(|_| flags.contains(TcpFlags::ACK));
    }

    /// Records a SYN of the host, likewise; `flow` is the one towards the host.
    pub(crate) fn host_syn(&mut self, hash: u32, flow: FlowKey, flags: TcpFlags, options: &[u8]) {
        let place = self.place(hash, flow);
        place.host = Some(window_scale(options));
        place.peer = place.peer.filter(|_| flags.contains(TcpFlags::ACK));
    }

    /// Forgets a removed connection. Without the window scale, active ACK stays off, and cannot contradict
    /// what the card acknowledged before.
    pub(crate) fn forget(&mut self, hash: u32, flow: &FlowKey) {
        if let Some(place) =
            self.places.get_mut(hash as usize % Self::PLACES).filter(|place| place.flow == *flow)
        {
            *place = Handshake::default();
        }
    }

    /// Returns the host's window scale: 0 unless both SYNs had the option; `None` unless both SYNs were seen.
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
