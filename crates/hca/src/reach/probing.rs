//! The state of a measurement by probes: sent and answered probes, and round trips.

use std::time::Duration;

use nichrome_wire::Instant;

use super::path::PathQuality;

/// Bytes of a probe and of its answer: mark 8, kind 4, sequence number 4, token 8.
pub(super) const LEN: usize = 24;

const MARK: &[u8; 8] = b"nichrome";
const PROBE: [u8; 4] = [0, 0, 0, 1];
const ANSWER: [u8; 4] = [0, 0, 0, 2];

/// Probes of one measurement.
pub(super) struct Probing {
    /// Distinguishes answers from those to other measurements.
    token: u64,
    /// When each probe was sent; `None` once it is answered.
    unanswered: Vec<Option<Instant>>,
    answered: u32,
    round_trip: Duration,
}

impl Probing {
    /// A measurement with a random token.
    pub(super) const fn new(token: u64) -> Self {
        Self { token, unanswered: Vec::new(), answered: 0, round_trip: Duration::MAX }
    }

    /// The next probe, which is sent now.
    pub(super) fn send(&mut self, now: Instant) -> [u8; LEN] {
        let number = self.unanswered.len() as u32;
        self.unanswered.push(Some(now));
        let mut probe = [0; LEN];
        probe[..8].copy_from_slice(MARK);
        probe[8..12].copy_from_slice(&PROBE);
        probe[12..16].copy_from_slice(&number.to_be_bytes());
        probe[16..].copy_from_slice(&self.token.to_be_bytes());
        probe
    }

    /// Takes a datagram. All but the first answer to each probe is ignored.
    pub(super) fn receive(&mut self, datagram: &[u8], now: Instant) {
        let Some(number) = self.answered_by(datagram) else { return };
        if let Some(sent) = self.unanswered.get_mut(number).and_then(Option::take) {
            self.answered += 1;
            self.round_trip = self.round_trip.min(now - sent);
        }
    }

    /// The number of the probe that a datagram answers.
    fn answered_by(&self, datagram: &[u8]) -> Option<usize> {
        let (head, token) = datagram.split_at_checked(16).filter(|(_, token)| token.len() == 8)?;
        let number = head.strip_prefix(MARK)?.strip_prefix(&ANSWER)?;
        (token == self.token.to_be_bytes()).then_some(u32::from_be_bytes(number.try_into().ok()?) as usize)
    }

    /// Returns true if every probe that was sent is answered.
    pub(super) fn is_complete(&self) -> bool {
        self.answered as usize == self.unanswered.len()
    }

    /// The measured quality; `None` if no probe was answered.
    pub(super) fn quality(&self) -> Option<PathQuality> {
        let sent = self.unanswered.len() as u32;
        let Self { answered, round_trip, .. } = *self;
        (answered > 0).then_some(PathQuality { round_trip, sent, lost: sent - answered })
    }
}

/// The answer to a probe; `None` to anything else.
pub(super) fn answer_to(datagram: &[u8]) -> Option<[u8; LEN]> {
    let mut answer: [u8; LEN] = datagram.try_into().ok()?;
    let is_probe = answer.starts_with(MARK) && answer[8..12] == PROBE;
    answer[8..12].copy_from_slice(&ANSWER);
    is_probe.then_some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    #[test]
    fn the_shortest_round_trip_and_the_lost_probes_are_measured() {
        let mut probing = Probing::new(7);
        let probes = [0, 100, 200, 300].map(|micros| probing.send(at(micros)));
        assert_eq!(probing.quality(), None);
        // Out of order; the second is lost.
        for (nth, micros) in [(2, 250), (0, 260), (3, 340)] {
            probing.receive(&answer_to(&probes[nth]).unwrap(), at(micros));
        }
        let expected = PathQuality { round_trip: Duration::from_micros(40), sent: 4, lost: 1 };
        assert_eq!(probing.quality(), Some(expected));
        assert!(!probing.is_complete());
        probing.receive(&answer_to(&probes[1]).unwrap(), at(900));
        assert!(probing.is_complete());
    }

    #[test]
    fn duplicates_and_answers_to_others_do_not_count() {
        let (mut probing, mut other) = (Probing::new(7), Probing::new(8));
        let (probe, theirs) = (probing.send(at(0)), other.send(at(0)));
        let mut beyond = answer_to(&probe).unwrap();
        beyond[15] = 9;
        for stranger in [answer_to(&theirs).unwrap(), beyond, probe] {
            probing.receive(&stranger, at(1));
        }
        probing.receive(&[], at(1));
        probing.receive(&answer_to(&probe).unwrap()[..23], at(1));
        assert_eq!(probing.quality(), None);
        for micros in [5, 2] {
            probing.receive(&answer_to(&probe).unwrap(), at(micros));
        }
        let expected = PathQuality { round_trip: Duration::from_micros(5), sent: 1, lost: 0 };
        assert_eq!(probing.quality(), Some(expected));
    }

    #[test]
    fn only_probes_are_answered_and_no_answer_is() {
        let probe = Probing::new(7).send(at(0));
        let answer = answer_to(&probe).unwrap();
        assert_eq!(answer_to(&answer), None, "two that answer would never end");
        assert_eq!(answer_to(&probe[1..]), None);
        assert_eq!(answer_to(&[0; LEN]), None);
    }
}
