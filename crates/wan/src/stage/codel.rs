//! CoDel (RFC 8289 section 5), with Linux's extension for ECN: packets of ECN-capable senders are marked
//! instead of dropped. As in Linux, the longest packet seen stands for the MTU.

use nichrome_wire::{Ecn, Instant};

use super::backlog::{Backlog, Waiting};
use crate::exits::Exits;
use crate::{CoDel, DropReason, Packet};

/// The treatment of an ECN-capable packet that CoDel would drop.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WouldDrop {
    Drop,
    Mark,
}

/// The state of CoDel, with the RFC's names.
pub(super) struct Controller {
    parameters: CoDel,
    would_drop: WouldDrop,
    first_above_time: Option<Instant>,
    drop_next: Instant,
    count: u32,
    last_count: u32,
    dropping: bool,
    max_packet: u64,
}

/// The head of the queue, and whether it may be dropped.
struct Head<P> {
    waiting: Option<Waiting<P>>,
    ok_to_drop: bool,
}

impl Controller {
    pub(super) fn new(parameters: CoDel, would_drop: WouldDrop) -> Self {
        Self {
            parameters,
            would_drop,
            first_above_time: None,
            drop_next: Instant::ZERO,
            count: 0,
            last_count: 0,
            dropping: false,
            max_packet: 0,
        }
    }

    pub(super) fn is_configured_as(&self, parameters: CoDel, would_drop: WouldDrop) -> bool {
        self.parameters == parameters && self.would_drop == would_drop
    }

    /// Drops head packets as CoDel requires; returns the packet to send at `now` (`deque`).
    pub(super) fn dequeue<P: Packet>(
        &mut self,
        backlog: &mut Backlog<P>,
        now: Instant,
        exits: &mut Exits<P>,
    ) -> Option<Waiting<P>> {
        let mut head = self.head(backlog, now);
        if self.dropping {
            self.dropping = head.ok_to_drop;
            while self.dropping && now >= self.drop_next {
                self.count = self.count.saturating_add(1);
                if self.marked(&mut head, exits) {
                    self.drop_next = self.control_law(self.drop_next);
                    break;
                }
                head = self.next_head(head, backlog, now, exits);
                self.dropping = head.ok_to_drop;
                if self.dropping {
                    self.drop_next = self.control_law(self.drop_next);
                }
            }
        } else if head.ok_to_drop {
            if !self.marked(&mut head, exits) {
                head = self.next_head(head, backlog, now, exits);
            }
            self.start_dropping(now);
        }
        head.waiting
    }

    /// Returns the next packet, and whether the delay has exceeded the target for an interval (`dodequeue`).
    fn head<P: Packet>(&mut self, backlog: &mut Backlog<P>, now: Instant) -> Head<P> {
        let Some(waiting) = backlog.pop() else {
            self.first_above_time = None;
            return Head { waiting: None, ok_to_drop: false };
        };
        self.max_packet = self.max_packet.max(waiting.transit.packet.wire_len() as u64);
        let sojourn = now.nanos_since(waiting.since);
        if sojourn < self.parameters.target().nanos() || backlog.bytes() <= self.max_packet {
            self.first_above_time = None;
            return Head { waiting: Some(waiting), ok_to_drop: false };
        }
        let after_interval = now.plus_nanos(self.parameters.interval().nanos());
        let first_above_time = *self.first_above_time.get_or_insert(after_interval);
        Head { waiting: Some(waiting), ok_to_drop: now >= first_above_time }
    }

    fn next_head<P: Packet>(
        &mut self,
        head: Head<P>,
        backlog: &mut Backlog<P>,
        now: Instant,
        exits: &mut Exits<P>,
    ) -> Head<P> {
        if let Some(waiting) = head.waiting {
            exits.drop(waiting.transit, DropReason::CoDel);
        }
        self.head(backlog, now)
    }

    /// Marks the head if marking replaces drops; returns true if it carries CE and need not be dropped.
    fn marked<P: Packet>(&self, head: &mut Head<P>, exits: &mut Exits<P>) -> bool {
        match &mut head.waiting {
            Some(waiting) if self.would_drop == WouldDrop::Mark => mark(&mut waiting.transit.packet, exits),
            _ => false,
        }
    }

    /// Starts with the previous drop rate if dropping ended only recently.
    fn start_dropping(&mut self, now: Instant) {
        self.dropping = true;
        let delta = self.count.saturating_sub(self.last_count);
        let is_recent = now.nanos_since(self.drop_next) < 16 * self.parameters.interval().nanos();
        self.count = if delta > 1 && is_recent { delta } else { 1 };
        self.drop_next = self.control_law(now);
        self.last_count = self.count;
    }

    fn control_law(&self, from: Instant) -> Instant {
        let interval = self.parameters.interval().nanos() as f64 / f64::from(self.count).sqrt();
        from.plus_nanos(interval as u64)
    }
}

/// Marks an ECN-capable packet; returns false for others.
pub(super) fn mark<P: Packet>(packet: &mut P, exits: &mut Exits<P>) -> bool {
    match packet.ecn() {
        Ecn::NotEct => false,
        Ecn::Ce => true,
        Ecn::Ect0 | Ecn::Ect1 => {
            packet.mark_ce();
            exits.stats.ce_marked += 1;
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Aqm, Dummy, Limit};

    const MS: u64 = 1_000_000;

    fn controller() -> Controller {
        let Ok(Aqm::CoDel(parameters)) = "codel:5ms,100ms".parse() else { panic!("a CoDel") };
        Controller::new(parameters, WouldDrop::Drop)
    }

    /// RFC 8289 section 5.5: the delay is below the target only if `sojourn_time < TARGET`.
    #[test]
    fn a_delay_of_exactly_the_target_is_not_below_it() {
        let drops = |sojourn: u64| {
            let (mut codel, mut exits) = (controller(), Exits::new(Limit::default()));
            for millis in 0..200 {
                let now = Instant::from_nanos((1000 + millis) * MS);
                let since = Instant::from_nanos(now.as_nanos() - sojourn);
                let mut backlog = Backlog::new();
                for _ in 0..3 {
                    let packet = Dummy { len: 1514, ..Dummy::default() };
                    backlog.push(exits.admit(packet, since).expect("the limit is higher"), since);
                }
                codel.dequeue(&mut backlog, now, &mut exits);
            }
            exits.stats.drops.get(DropReason::CoDel)
        };
        assert_eq!(drops(5 * MS - 1), 0);
        assert!(drops(5 * MS) > 0);
    }

    /// RFC 8289 section 5.5: only if `now - drop_next_ < 16.0 * INTERVAL`, dropping resumes at the previous
    /// rate.
    #[test]
    fn dropping_resumes_at_its_rate_for_less_than_sixteen_intervals() {
        let count_after = |nanos: u64| {
            let mut codel = Controller { count: 9, last_count: 2, ..controller() };
            codel.start_dropping(codel.drop_next.plus_nanos(nanos));
            (codel.count, codel.last_count)
        };
        assert_eq!(count_after(1600 * MS - 1), (7, 7));
        assert_eq!(count_after(1600 * MS), (1, 1));
    }
}
