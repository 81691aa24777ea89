//! A server that does one job after the other: a CPU core, a hardware thread, a bus that is held for a time.

use std::collections::VecDeque;

use nichrome_wire::Instant;
use thiserror::Error;

/// What a host CPU pays for received packets, in nanoseconds and, for a byte, picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuCosts {
    /// Of an interrupt.
    pub per_interrupt: u64,
    /// Of a packet, whatever its length.
    pub per_packet: u64,
    /// Of a byte, in picoseconds.
    pub picos_per_byte: u64,
}

/// Work for a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Interrupts taken.
    pub interrupts: u64,
    /// Packets handled.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl CpuCosts {
    /// What the work costs, in nanoseconds, rounded to the nearest.
    pub fn of(&self, work: Work) -> u64 {
        let bytes = work.bytes.saturating_mul(self.picos_per_byte).saturating_add(500) / 1000;
        let interrupts = work.interrupts.saturating_mul(self.per_interrupt);
        interrupts.saturating_add(work.packets.saturating_mul(self.per_packet)).saturating_add(bytes)
    }
}

/// Does jobs in the order in which they come, each for as long as it costs.
#[derive(Clone, Debug)]
pub struct Server {
    /// How many jobs may wait; the one that is being done does not count.
    most_waiting: usize,
    /// When each job that has not begun begins.
    waiting: VecDeque<Instant>,
    idle_from: Instant,
    accepted: u64,
    refused: u64,
    /// Nanoseconds of all jobs accepted.
    work: u64,
}

/// As many jobs wait as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the backlog is full")]
pub struct BacklogFull;

impl Server {
    /// An idle server before which at most `most_waiting` jobs wait.
    pub fn new(most_waiting: usize) -> Self {
        let (waiting, idle_from) = (VecDeque::new(), Instant::ZERO);
        Self { most_waiting, waiting, idle_from, accepted: 0, refused: 0, work: 0 }
    }

    /// Takes a job that comes at `now` and costs `cost` nanoseconds, and says when it is done; `now` must not go
    /// backwards.
    ///
    /// # Errors
    /// Too many are waiting: the job is refused.
    pub fn serve(&mut self, cost: u64, now: Instant) -> Result<Instant, BacklogFull> {
        while self.waiting.front().is_some_and(|begins| *begins <= now) {
            self.waiting.pop_front();
        }
        if self.idle_from > now {
            if self.waiting.len() >= self.most_waiting {
                self.refused += 1;
                return Err(BacklogFull);
            }
            self.waiting.push_back(self.idle_from);
        }
        self.accepted += 1;
        self.work = self.work.saturating_add(cost);
        self.idle_from = self.idle_from.max(now).plus_nanos(cost);
        Ok(self.idle_from)
    }

    /// How many jobs wait at `now`, a time no earlier than that of the last job.
    pub fn waiting(&self, now: Instant) -> usize {
        self.waiting.len() - self.waiting.iter().take_while(|begins| **begins <= now).count()
    }

    /// From when on it has nothing to do.
    pub fn idle_from(&self) -> Instant {
        self.idle_from
    }

    /// Nanoseconds that it has worked until `now`, a time no earlier than that of the last job: two of these make the
    /// load of the time between them.
    pub fn busy_nanos(&self, now: Instant) -> u64 {
        self.work.saturating_sub(self.idle_from.nanos_since(now))
    }

    /// Jobs that were accepted.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Jobs that were refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn costs_add_up() {
        let costs = CpuCosts { per_interrupt: 2000, per_packet: 300, picos_per_byte: 250 };
        assert_eq!(costs.of(Work { interrupts: 1, packets: 2, bytes: 3000 }), 2000 + 600 + 750);
        assert_eq!(costs.of(Work { bytes: 2, ..Work::default() }), 1);
    }

    #[test]
    fn jobs_are_done_in_turn_and_the_backlog_is_bounded() {
        let mut server = Server::new(1);
        assert_eq!(server.serve(100, at(50)), Ok(at(150)));
        assert_eq!(server.serve(100, at(60)), Ok(at(250)));
        assert_eq!(server.serve(100, at(149)), Err(BacklogFull));
        assert_eq!(server.serve(100, at(150)), Ok(at(350)));
        assert_eq!((server.accepted(), server.refused()), (3, 1));
        assert_eq!([150, 300, 350, 999].map(|now| server.busy_nanos(at(now))), [100, 250, 300, 300]);
    }

    proptest! {
        /// Never two jobs at once, never idle while one waits, never more waiting than may.
        #[test]
        fn a_server_does_one_job_after_the_other(
            most_waiting in 0..8usize,
            jobs in prop::collection::vec((0..500u64, 0..700u64), 1..300),
        ) {
            let mut server = Server::new(most_waiting);
            let (mut now, mut idle_from, mut work) = (Instant::ZERO, Instant::ZERO, 0);
            let mut begun = Vec::new();
            for (gap, cost) in jobs {
                now = now.plus_nanos(gap);
                let waiting = begun.iter().filter(|begins| **begins > now).count();
                match server.serve(cost, now) {
                    Ok(done) => {
                        begun.push(now.max(idle_from));
                        prop_assert_eq!(done, now.max(idle_from).plus_nanos(cost));
                        idle_from = done;
                        work += cost;
                        prop_assert!(server.waiting(now) <= most_waiting);
                    }
                    Err(BacklogFull) => prop_assert!(waiting == most_waiting && idle_from > now),
                }
                prop_assert!(server.busy_nanos(now) <= now.as_nanos());
            }
            prop_assert_eq!(server.busy_nanos(idle_from), work);
        }
    }
}
