//! A server that processes jobs one at a time: a CPU core, a hardware thread, a bus.

use std::collections::VecDeque;

use nichrome_wire::Instant;
use thiserror::Error;

/// A host CPU's costs of received packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuCosts {
    /// Per interrupt, in nanoseconds.
    pub per_interrupt: u64,
    /// Per packet, in nanoseconds.
    pub per_packet: u64,
    /// Per byte, in picoseconds.
    pub picos_per_byte: u64,
}

/// Work of a CPU.
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
    /// Returns the cost of the work in nanoseconds, rounded to nearest.
    pub fn of(&self, work: Work) -> u64 {
        let bytes = work.bytes.saturating_mul(self.picos_per_byte).saturating_add(500) / 1000;
        let interrupts = work.interrupts.saturating_mul(self.per_interrupt);
        interrupts.saturating_add(work.packets.saturating_mul(self.per_packet)).saturating_add(bytes)
    }
}

/// A FIFO server: each job occupies it for the job's cost.
#[derive(Clone, Debug)]
pub struct Server {
    /// Maximum queued jobs, without the one in service.
    max_queued: usize,
    /// Start times of the queued jobs.
    waiting: VecDeque<Instant>,
    idle_from: Instant,
    accepted: u64,
    refused: u64,
    /// Total cost of all accepted jobs, in nanoseconds.
    work: u64,
}

/// The queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the backlog is full")]
pub struct BacklogFull;

impl Server {
    /// Creates an idle server with a queue for `max_queued` jobs.
    pub fn new(max_queued: usize) -> Self {
        let (waiting, idle_from) = (VecDeque::new(), Instant::ZERO);
        Self { max_queued, waiting, idle_from, accepted: 0, refused: 0, work: 0 }
    }

    /// Accepts a job that arrives at `now` and costs `cost` nanoseconds; returns its completion time. `now`
    /// must not decrease.
    ///
    /// # Errors
    /// The queue is full: the job is rejected.
    pub fn serve(&mut self, cost: u64, now: Instant) -> Result<Instant, BacklogFull> {
        while self.waiting.front().is_some_and(|begins| *begins <= now) {
            self.waiting.pop_front();
        }
        if self.idle_from > now {
            if self.waiting.len() >= self.max_queued {
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

    /// Returns the number of queued jobs at `now`, which is not before the last job.
    pub fn waiting(&self, now: Instant) -> usize {
        self.waiting.len() - self.waiting.iter().take_while(|begins| **begins <= now).count()
    }

    /// Returns when the server becomes idle.
    pub fn idle_from(&self) -> Instant {
        self.idle_from
    }

    /// Returns the busy time until `now` in nanoseconds; `now` is not before the last job. The difference of
    /// two calls is the load of the interval.
    pub fn busy_nanos(&self, now: Instant) -> u64 {
        self.work.saturating_sub(self.idle_from.nanos_since(now))
    }

    /// Returns the number of accepted jobs.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Returns the number of rejected jobs.
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
        /// Jobs never overlap, the server is never idle while a job waits, and the queue keeps its limit.
        #[test]
        fn a_server_does_one_job_after_the_other(
            max_queued in 0..8usize,
            jobs in prop::collection::vec((0..500u64, 0..700u64), 1..300),
        ) {
            let mut server = Server::new(max_queued);
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
                        prop_assert!(server.waiting(now) <= max_queued);
                    }
                    Err(BacklogFull) => prop_assert!(waiting == max_queued && idle_from > now),
                }
                prop_assert!(server.busy_nanos(now) <= now.as_nanos());
            }
            prop_assert_eq!(server.busy_nanos(idle_from), work);
        }
    }
}
