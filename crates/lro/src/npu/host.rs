//! What active ACK `safe` must know of the host: its window, what it has acknowledged, what it was handed.

use nichrome_wire::{SeqNumber, TcpFlags, TcpOption, TcpOptions};

use super::ack::Acknowledgement;
use crate::flow::FlowKey;
use crate::segment::Segment;

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
    /// What is before this is for the host to acknowledge.
    left_to_host: Option<SeqNumber>,
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

    /// Begins anew where the host opens a connection. Where it answers the peer's SYN, what it was handed since may be of
    /// this connection: a mark that arrived before the answer still waits for its echo.
    fn open(&mut self, flags: TcpFlags) {
        if flags.contains(TcpFlags::ACK) {
            self.stop();
        } else {
            *self = Self::default();
        }
    }

    /// Acknowledges nothing until the host has spoken again: there was a RST, or it did not take a packet. Whether a RST is
    /// heeded is not known (RFC 5961 section 3.2); where the connection goes on, nothing that was sent may be taken back,
    /// and no mark be forgotten.
    pub(crate) fn stop(&mut self) {
        *self = Self { sent: self.sent, left_to_host: self.left_to_host, ..Self::default() };
    }

    /// Notes that the bytes from `seq` to `end` were handed to the host. Beyond a gap, the host has something to say.
    #[inline]
    pub(crate) fn handed(&mut self, seq: SeqNumber, end: SeqNumber) {
        match self.solid {
            Some(solid) if seq.after(solid) => self.leave_to_host(end),
            Some(solid) => self.solid = Some(solid.later(end)),
            // Whether there is a gap before it, only the host knows.
            None => self.leave_to_host(end),
        }
    }

    /// Acknowledges nothing until the host has acknowledged every byte before `end`: there is a gap to report, or a
    /// mark to echo.
    pub(crate) fn leave_to_host(&mut self, end: SeqNumber) {
        self.left_to_host = Some(self.left_to_host.map_or(end, |left| left.later(end)));
    }

    /// Whether the host has acknowledged every byte before `end`.
    pub(crate) fn has_acknowledged(&self, end: SeqNumber) -> bool {
        self.seen.is_some_and(|seen| !end.after(seen.ack))
    }

    /// What may be acknowledged now, `newest` being the newest timestamp value handed to the host; `None` where it
    /// says nothing new, or the host would not have said it.
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

    /// What repeats the host's own acknowledgement, as the host would answer a duplicate; `None` where it is not
    /// known well enough, and where the card has acknowledged more by itself, because that must not be taken back.
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

    /// Notes a SYN from the peer. One that answers none begins another connection, of which the host has said nothing.
    pub(crate) fn peer_syn(&mut self, hash: u32, flow: FlowKey, flags: TcpFlags, options: &[u8]) {
        let place = self.place(hash, flow);
        place.peer = Some(window_scale(options).is_some());
        place.host = place.host.filter(|_| flags.contains(TcpFlags::ACK));
    }

    /// Notes a SYN from the host, likewise; `flow` is the one towards the host.
    pub(crate) fn host_syn(&mut self, hash: u32, flow: FlowKey, flags: TcpFlags, options: &[u8]) {
        let place = self.place(hash, flow);
        place.host = Some(window_scale(options));
        place.peer = place.peer.filter(|_| flags.contains(TcpFlags::ACK));
    }

    /// Forgets a connection whose descriptor is given back, and with it what the card has acknowledged and what is left
    /// to the host. Without the window scale, it acknowledges nothing that would contradict that.
    pub(crate) fn forget(&mut self, hash: u32, flow: &FlowKey) {
        if let Some(place) =
            self.places.get_mut(hash as usize % Self::PLACES).filter(|place| place.flow == *flow)
        {
            *place = Handshake::default();
        }
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
