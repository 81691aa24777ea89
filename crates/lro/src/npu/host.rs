//! The host's side of a connection, for active ACK `safe`: its window, its ACK number, the bytes delivered to
//! it.

use nichrome_wire::{SeqNumber, TcpFlags, TcpOption, TcpOptions};

use super::ack::Acknowledgement;
use crate::flow::FlowKey;
use crate::segment::Segment;

/// The host's side of a connection, as learned from its transmitted segments.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostSide {
    last_ack: Option<HostAck>,
    /// The host's window scale (RFC 7323), known from both SYNs.
    scale: Option<u8>,
    /// Every byte before this was delivered to the host; known from the host's first ACK on.
    delivered_until: Option<SeqNumber>,
    /// The last ACK number that the card generated.
    sent: Option<SeqNumber>,
    /// Only the host may acknowledge bytes before this.
    left_to_host: Option<SeqNumber>,
    /// The host discards bytes from here on: the end of the window that it has advertised; known with the
    /// window scale.
    right_edge: Option<SeqNumber>,
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
            self.right_edge = None;
            return self.stop();
        }
        if segment.flags.contains(TcpFlags::SYN) {
            self.open(segment.flags);
        }
        if !segment.flags.contains(TcpFlags::ACK) {
            return;
        }
        if self.last_ack.is_some_and(|last| segment.ack.before(last.ack)) {
            return;
        }
        let ends = segment.flags.intersects(TcpFlags::SYN | TcpFlags::FIN);
        let next = segment.end() + u32::from(ends);
        self.last_ack = Some(HostAck {
            ack: segment.ack,
            next: self.last_ack.map_or(next, |last| last.next.later(next)),
            window: segment.window,
            timestamp: segment.timestamps.map(|timestamps| timestamps.value),
            plain: !segment.other_options
                && segment.flags.difference(TcpFlags::ACK | TcpFlags::PSH).is_empty(),
        });
        self.left_to_host = self.left_to_host.filter(|left| segment.ack.before(*left));
        self.scale = self.scale.or(scale);
        // RFC 7323 section 2.2: the window of a SYN is not scaled.
        let shift = if segment.flags.contains(TcpFlags::SYN) { Some(0) } else { self.scale };
        self.right_edge = shift.map(|shift| segment.ack + (u32::from(segment.window) << shift));
        self.delivered_until = Some(
            self.delivered_until.map_or(segment.ack, |delivered_until| delivered_until.later(segment.ack)),
        );
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
        let Self { sent, left_to_host, right_edge, .. } = *self;
        *self = Self { sent, left_to_host, right_edge, ..Self::default() };
    }

    /// Returns the end of the bytes before `end` that the host does not discard.
    fn within_window(&self, end: SeqNumber) -> SeqNumber {
        self.right_edge.filter(|edge| edge.before(end)).unwrap_or(end)
    }

    /// Returns true if the host discards data with this ACK number: it covers bytes that the host has not
    /// sent, or is older than any window (RFC 9293 section 3.10.7.4, RFC 5961 section 5).
    pub(crate) fn discards(&self, ack: SeqNumber) -> bool {
        const OLDEST: i32 = 1 << 30;
        self.last_ack.is_some_and(|last| !(0..=OLDEST).contains(&last.next.since(ack)))
    }

    /// Records that the bytes from `seq` to `end` were delivered to the host. Behind a gap, only the host may
    /// acknowledge.
    #[inline]
    pub(crate) fn note_delivered(&mut self, seq: SeqNumber, end: SeqNumber) {
        let end = self.within_window(end);
        if end.before(seq) {
            return;
        }
        match self.delivered_until {
            Some(delivered_until) if seq.after(delivered_until) => self.leave_to_host(seq, end),
            Some(delivered_until) => self.delivered_until = Some(delivered_until.later(end)),
            // Only the host knows whether there is a gap before it.
            None => self.leave_to_host(seq, end),
        }
    }

    /// Suspends active ACK until the host has acknowledged the bytes from `seq` to `end` that are within its
    /// window: it has a gap to report or a CE mark to echo.
    pub(crate) fn leave_to_host(&mut self, seq: SeqNumber, end: SeqNumber) {
        if self.right_edge.is_some_and(|edge| !seq.before(edge)) {
            return;
        }
        let end = self.within_window(end);
        self.left_to_host = Some(self.left_to_host.map_or(end, |left| left.later(end)));
    }

    /// Returns true if the host has acknowledged every byte before `end`.
    pub(crate) fn has_acknowledged(&self, end: SeqNumber) -> bool {
        self.last_ack.is_some_and(|last| !end.after(last.ack))
    }

    /// Returns the ACK to generate now; `newest` is the newest timestamp value delivered to the host. `None`
    /// if it would acknowledge nothing new, or if the host itself would not send it.
    pub(crate) fn acknowledgement(&mut self, newest: Option<u32>) -> Option<Acknowledgement> {
        let (last, delivered_until) = (self.last_ack?, self.delivered_until?);
        if self.left_to_host.is_some()
            || !last.plain
            || !delivered_until.after(last.ack)
            || self.sent.is_some_and(|sent| !delivered_until.after(sent))
        {
            return None;
        }
        let scale = self.scale?;
        let room = u32::try_from(self.right_edge?.since(delivered_until)).ok()?;
        let window = u16::try_from(room >> scale).ok().filter(|window| *window > 0)?;
        let timestamps = match newest {
            Some(echo) => Some((last.timestamp?, echo)),
            None => None,
        };
        self.sent = Some(delivered_until);
        Some(Acknowledgement { seq: last.next, ack: delivered_until, window, timestamps })
    }

    /// Returns a copy of the host's last ACK, as the answer to a duplicate. `None` if the host's state is
    /// incomplete, or if the card has acknowledged more: an ACK number must not go back.
    pub(crate) fn repetition(&self, newest: Option<u32>) -> Option<Acknowledgement> {
        let last = self.last_ack.filter(|last| last.plain && last.window > 0 && self.scale.is_some())?;
        if self.sent.is_some_and(|sent| sent.after(last.ack)) {
            return None;
        }
        let timestamps = match newest {
            Some(echo) => Some((last.timestamp?, echo)),
            None => None,
        };
        Some(Acknowledgement { seq: last.next, ack: last.ack, window: last.window, timestamps })
    }
}

/// The window scales from recent SYNs, in a fixed number of entries. A SYN flood overwrites entries, and
/// disables active ACK for the new connections, but allocates nothing.
pub(crate) struct Handshakes {
    entries: Box<[Handshake]>,
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
    const ENTRIES: usize = 1024;

    pub(crate) fn new() -> Self {
        Self { entries: vec![Handshake::default(); Self::ENTRIES].into() }
    }

    fn entry(&mut self, hash: u32, flow: FlowKey) -> &mut Handshake {
        let entry = &mut self.entries[hash as usize % Self::ENTRIES];
        if entry.flow != flow {
            *entry = Handshake { flow, ..Handshake::default() };
        }
        entry
    }

    /// Records a SYN of the peer. Without ACK it opens another connection, whose host SYN is not seen yet.
    pub(crate) fn peer_syn(&mut self, hash: u32, flow: FlowKey, flags: TcpFlags, options: &[u8]) {
        let entry = self.entry(hash, flow);
        entry.peer = Some(window_scale(options).is_some());
        entry.host = entry.host.filter(|_| flags.contains(TcpFlags::ACK));
    }

    /// As [`Handshakes::peer_syn`], for a SYN of the host; `flow` is the one towards the host.
    pub(crate) fn host_syn(&mut self, hash: u32, flow: FlowKey, flags: TcpFlags, options: &[u8]) {
        let entry = self.entry(hash, flow);
        entry.host = Some(window_scale(options));
        entry.peer = entry.peer.filter(|_| flags.contains(TcpFlags::ACK));
    }

    /// Forgets a removed connection. Without the window scale, active ACK stays off, and cannot contradict
    /// what the card acknowledged before.
    pub(crate) fn forget(&mut self, hash: u32, flow: &FlowKey) {
        if let Some(entry) =
            self.entries.get_mut(hash as usize % Self::ENTRIES).filter(|entry| entry.flow == *flow)
        {
            *entry = Handshake::default();
        }
    }

    /// Returns the host's window scale: 0 unless both SYNs had the option; `None` unless both SYNs were seen.
    pub(crate) fn scale(&self, hash: u32, flow: &FlowKey) -> Option<u8> {
        let entry = self.entries.get(hash as usize % Self::ENTRIES).filter(|entry| entry.flow == *flow)?;
        let (host, peer) = (entry.host?, entry.peer?);
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

#[cfg(test)]
mod tests {
    use nichrome_wire::TcpFrame;

    use super::*;
    use crate::parse::{Parsed, parse};
    use crate::segment::Medium;

    /// Length of the stream in bytes; its sequence numbers wrap at the third.
    const BYTES: u32 = 3;
    /// Number of events in a sequence.
    const DEPTH: usize = 5;
    const SCALE: u8 = 1;

    fn seq(at: u32) -> SeqNumber {
        SeqNumber(u32::MAX - 1) + at
    }

    /// An event of a connection.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        /// The host acknowledges the bytes before this one, with a window field.
        Acknowledges {
            at: u32,
            window: u16,
            plain: bool,
        },
        /// The card delivers these bytes, and the host takes them.
        Handed {
            from: u32,
            to: u32,
        },
        /// The card delivers these bytes, and the host refuses them.
        Refused {
            from: u32,
            to: u32,
        },
        /// The card leaves the acknowledgement of the byte before this one to the host.
        Left {
            at: u32,
        },
        Reset,
    }

    fn all_events() -> Vec<Event> {
        let ranges = || (0..BYTES).flat_map(|from| (from + 1..=BYTES).map(move |to| (from, to)));
        let mut events = vec![Event::Reset];
        for at in 0..=BYTES {
            events.push(Event::Acknowledges { at, window: 2, plain: true });
            events.push(Event::Acknowledges { at, window: 0, plain: true });
            events.push(Event::Acknowledges { at, window: 4, plain: false });
        }
        events.extend(ranges().map(|(from, to)| Event::Handed { from, to }));
        events.extend(ranges().map(|(from, to)| Event::Refused { from, to }));
        events.extend((1..=BYTES).map(|at| Event::Left { at }));
        events
    }

    /// The true state of the host, beside the card's view of it.
    #[derive(Clone, Copy)]
    struct ReferenceHost {
        host: HostSide,
        /// Bit mask of the bytes that the host has.
        has: u32,
        /// The host's latest ACK number, right edge and kind of segment since the last suspension, as
        /// offsets.
        acknowledged: Option<(u32, u32, bool)>,
        /// The host's latest right edge, as an offset.
        edge: Option<u32>,
        /// The host's latest ACK number, which never goes back, as an offset.
        host_ack: u32,
        /// The highest ACK number that the card has generated or the host has sent.
        highest: u32,
        left: u32,
    }

    impl ReferenceHost {
        /// Returns the end of the bytes that the host has without a gap.
        fn contiguous(&self) -> u32 {
            self.has.trailing_ones()
        }

        /// Applies an event; returns false if a host never causes it.
        fn apply(&mut self, event: Event, sample: &Segment) -> bool {
            match event {
                Event::Acknowledges { at, .. } if at > self.contiguous() || at < self.host_ack => {
                    return false;
                }
                Event::Acknowledges { at, window, plain } => {
                    let segment = Segment { ack: seq(at), window, other_options: !plain, ..*sample };
                    self.host.observe(&segment, Some(SCALE));
                    self.host_ack = at;
                    if self.acknowledged.is_none_or(|(last, ..)| at >= last) {
                        let edge = at + (u32::from(window) << SCALE);
                        self.acknowledged = Some((at, edge, plain));
                        self.edge = Some(edge);
                        self.highest = self.highest.max(at);
                        self.left = if at >= self.left { 0 } else { self.left };
                    }
                }
                Event::Handed { from, to } => {
                    // The host discards bytes beyond its window.
                    let edge = self.edge.unwrap_or(BYTES).min(to);
                    self.has |= (1 << edge) - (1 << from.min(edge));
                    self.host.note_delivered(seq(from), seq(to));
                }
                Event::Refused { from, to } => {
                    self.host.note_delivered(seq(from), seq(to));
                    // The driver discards the ACK for refused bytes.
                    self.host.acknowledgement(None);
                    self.suspend();
                }
                Event::Left { at } => {
                    if self.edge.is_none_or(|edge| at <= edge) {
                        self.left = self.left.max(at);
                    }
                    self.host.leave_to_host(seq(at - 1), seq(at));
                }
                Event::Reset => self.suspend(),
            }
            true
        }

        fn suspend(&mut self) {
            self.host.stop();
            self.acknowledged = None;
        }

        /// Checks the ACK that the card generates now, if any.
        fn check(&mut self, events: &[Event]) {
            let Some(ack) = self.host.acknowledgement(None) else { return };
            let at = ack.ack.since(seq(0)).cast_unsigned();
            let (last, edge, plain) = self.acknowledged.expect("an ACK while suspended");
            assert!(at <= self.contiguous(), "{at} is not delivered: {events:?}");
            assert_eq!(self.has >> self.contiguous(), 0, "there is a gap: {events:?}");
            assert!(at > last && at > self.highest, "{at} is no news: {events:?}");
            assert!(plain && self.left == 0, "{at} is for the host to acknowledge: {events:?}");
            let new_edge = at + (u32::from(ack.window) << SCALE);
            assert!(ack.window > 0 && new_edge <= edge, "the edge {new_edge} is beyond {edge}: {events:?}");
            self.highest = at;
        }
    }

    /// Continues a sequence with each event, up to [`DEPTH`] events; returns how many ACKs the card
    /// generated.
    fn continue_with_all(
        reference: ReferenceHost,
        events: &mut Vec<Event>,
        all: &[Event],
        sample: &Segment,
    ) -> u64 {
        if events.len() == DEPTH {
            return 0;
        }
        let mut count = 0;
        for event in all {
            let mut next = reference;
            if !next.apply(*event, sample) {
                continue;
            }
            events.push(*event);
            let before = next.highest;
            next.check(events);
            count += u64::from(next.highest != before) + continue_with_all(next, events, all, sample);
            events.pop();
        }
        count
    }

    #[test]
    fn no_sequence_of_events_acknowledges_bytes_that_the_host_has_not_got() {
        let frame = TcpFrame { payload: Vec::new(), ..TcpFrame::default() }.build();
        let Parsed::Tcp(sample) = parse(&frame, Medium::Ethernet) else { panic!("no segment") };
        let reference = ReferenceHost {
            host: HostSide::default(),
            has: 0,
            acknowledged: None,
            edge: None,
            host_ack: 0,
            highest: 0,
            left: 0,
        };
        let count = continue_with_all(reference, &mut Vec::new(), &all_events(), &sample);
        assert!(count > 1000, "only {count} ACKs");
    }
}
