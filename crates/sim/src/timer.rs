//! The wake-up event of an engine in a world.

use nichrome_wire::Instant;

use crate::EventQueue;

/// Keeps one event scheduled for an engine's earliest timeout.
///
/// A timeout that moves later costs nothing: the event fires at the earlier time, the engine finds nothing
/// due, and the timer is armed again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timer {
    set: Option<Instant>,
}

impl Timer {
    /// Schedules `event` for `due`, unless this timer has an earlier event. Call after everything that may
    /// change the engine's timeout; `due` is its `poll_timeout`.
    pub fn arm<E>(&mut self, due: Option<Instant>, queue: &mut EventQueue<E>, event: E) {
        let now = queue.now();
        let is_set = |due: &Instant| self.set.is_some_and(|set| set >= now && set <= *due);
        if let Some(due) = due.filter(|due| !is_set(due)) {
            self.set = Some(due.max(now));
            queue.schedule(due, event);
        }
    }

    /// Notes that this timer's event has fired.
    pub fn fired(&mut self, now: Instant) {
        self.set = self.set.filter(|set| *set > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn only_an_earlier_time_schedules_again() {
        let mut queue = EventQueue::new();
        let mut timer = Timer::default();
        for due in [None, Some(at(500)), Some(at(700)), Some(at(300)), Some(at(300))] {
            timer.arm(due, &mut queue, ());
        }
        assert_eq!(queue.len(), 2);
        assert_eq!(queue.pop(), Some((at(300), ())));
        timer.fired(at(300));
        timer.arm(Some(at(700)), &mut queue, ());
        let times: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(time, ())| time.as_nanos()).collect();
        assert_eq!(times, [500, 700]);
    }
}
