//! One direction of a reliable connection: packets in order, acknowledged together, repeated from a place on ("go back N").

use super::window::Window;

/// The sender's and the receiver's state of one direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// Packets of all messages posted.
    posted: u32,
    /// The next packet to be sent, and the first that was never sent.
    next: u32,
    unsent: u32,
    /// The first that is not acknowledged.
    unacknowledged: u32,
    window: Window,
    /// The receiver: the next that it takes, and whether it has told of a gap before it.
    expected: u32,
    has_told: bool,
}

/// What a receiver makes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The next one.
    Next,
    /// One that it had.
    Again,
    /// One behind a gap, of which it tells.
    Gap,
    /// One behind a gap of which it has told.
    StillGap,
}

impl Stream {
    pub(super) fn new(window: Window) -> Self {
        Self { posted: 0, next: 0, unsent: 0, unacknowledged: 0, window, expected: 0, has_told: false }
    }

    /// A message of so many packets is to be sent.
    pub(super) fn post(&mut self, packets: u32) {
        self.posted += packets;
    }

    /// Whether a packet may be sent now.
    pub(super) fn can_send(&self) -> bool {
        self.next < self.posted && self.next - self.unacknowledged < self.window.packets()
    }

    /// The packet to be sent now, and whether it was sent before.
    pub(super) fn send(&mut self) -> Option<(u32, bool)> {
        if !self.can_send() {
            return None;
        }
        let sequence = self.next;
        self.next += 1;
        let is_repeat = sequence < self.unsent;
        self.unsent = self.unsent.max(self.next);
        Some((sequence, is_repeat))
    }

    /// The receiver gets a packet.
    pub(super) fn receive(&mut self, sequence: u32) -> Arrival {
        match sequence.cmp(&self.expected) {
            std::cmp::Ordering::Equal => {
                self.expected += 1;
                self.has_told = false;
                Arrival::Next
            }
            std::cmp::Ordering::Less => Arrival::Again,
            std::cmp::Ordering::Greater if self.has_told => Arrival::StillGap,
            std::cmp::Ordering::Greater => {
                self.has_told = true;
                Arrival::Gap
            }
        }
    }

    /// The next packet that the receiver takes: what its answers say.
    pub(super) fn expected(&self) -> u32 {
        self.expected
    }

    /// All packets before `expected` are acknowledged; says whether any was not before.
    pub(super) fn acknowledge(&mut self, expected: u32, marked: bool) -> bool {
        if expected <= self.unacknowledged {
            return false;
        }
        self.unacknowledged = expected;
        self.next = self.next.max(expected);
        self.window.answered(marked, expected, self.unsent);
        true
    }

    /// The receiver misses the packet `expected`, or nothing was heard of it for too long.
    pub(super) fn go_back(&mut self, expected: u32) {
        self.acknowledge(expected, false);
        self.next = self.unacknowledged;
        self.window.lost(self.unacknowledged, self.unsent);
    }

    /// The same after the timeout.
    pub(super) fn time_out(&mut self) {
        self.go_back(self.unacknowledged);
    }

    /// Whether something was sent that is not acknowledged.
    pub(super) fn is_under_way(&self) -> bool {
        self.unacknowledged < self.unsent
    }

    /// Whether all that was posted is acknowledged.
    pub(super) fn is_done(&self) -> bool {
        self.unacknowledged == self.posted
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::window::Congestion;
    use super::*;

    proptest! {
        /// Whatever is lost of packets and acknowledgements, all arrive, once and in order.
        #[test]
        fn everything_arrives_in_order(
            messages in prop::collection::vec(1..20u32, 1..6),
            window in 1..9u32,
            lost in prop::collection::vec(any::<bool>(), 0..200),
        ) {
            let mut stream = Stream::new(Window::new(window, Congestion::Dctcp));
            let mut lost = lost.into_iter().chain(std::iter::repeat(false));
            let mut arrived = 0;
            let all: u32 = messages.iter().sum();
            for packets in messages {
                stream.post(packets);
                while !stream.is_done() {
                    while let Some((sequence, _)) = stream.send() {
                        if lost.next() == Some(true) {
                            continue;
                        }
                        let answer = stream.receive(sequence);
                        arrived += u32::from(answer == Arrival::Next);
                        prop_assert_eq!(arrived, stream.expected());
                        match answer {
                            _ if lost.next() == Some(true) => {}
                            Arrival::Next | Arrival::Again => { stream.acknowledge(stream.expected(), false); }
                            Arrival::Gap => stream.go_back(stream.expected()),
                            Arrival::StillGap => {}
                        }
                    }
                    if stream.is_under_way() {
                        stream.time_out();
                    }
                }
            }
            prop_assert_eq!(arrived, all);
        }
    }

    #[test]
    fn a_gap_is_told_once_and_everything_behind_it_sent_again() {
        let mut stream = Stream::new(Window::new(9, Congestion::None));
        stream.post(4);
        let sent: Vec<_> = std::iter::from_fn(|| stream.send()).collect();
        assert_eq!(sent, [(0, false), (1, false), (2, false), (3, false)]);
        let arrivals = [0, 2, 3].map(|sequence| stream.receive(sequence));
        assert_eq!(arrivals, [Arrival::Next, Arrival::Gap, Arrival::StillGap]);
        stream.go_back(1);
        let again: Vec<_> = std::iter::from_fn(|| stream.send()).collect();
        assert_eq!(again, [(1, true), (2, true), (3, true)]);
        assert_eq!([1, 1].map(|sequence| stream.receive(sequence)), [Arrival::Next, Arrival::Again]);
    }
}
