//! A card that keeps a context per connection. Its engines stall while a needed context is read from the
//! host's memory.
//!
//! An engine alternates between received packets and packets to send. Receiving takes no time, since the wire
//! paces it; sending takes the packet's transmission time. A cache miss is a PCIe read; the engine continues
//! with other connections until `overlap` misses are outstanding. With `overlap` = 1, a miss stalls
//! everything, as in section 3.3 of the paper.

use std::collections::VecDeque;

use nichrome_wire::Instant;

use super::context_cache::{ContextCache, Replacement};
use crate::{Pcie, PcieConfig};

/// The configuration of the card.
#[derive(Clone, Copy, Debug)]
pub(super) struct CardConfig {
    /// Capacity of the context cache.
    pub(super) contexts: usize,
    pub(super) replacement: Replacement,
    /// Length of a context, in bytes.
    pub(super) context_len: u64,
    pub(super) engines: Engines,
    /// Maximum outstanding misses per engine, at least 1.
    pub(super) overlap: usize,
    /// The bus, with as many outstanding reads.
    pub(super) pcie: PcieConfig,
}

/// The engines of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engines {
    /// One engine that receives and sends.
    Shared,
    /// One engine that receives and one that sends.
    Separate,
}

/// The origin of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Receive = 0,
    Send = 1,
}

/// The next step of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step<T> {
    /// Execute this task.
    Do(T),
    /// A context was requested; the engine may have more to do now.
    Fetch {
        /// The context.
        context: u32,
        /// Arrival time of the context.
        here: Instant,
    },
    /// Busy until this time: call [`Card::next`] again then.
    Wait(Instant),
    /// Idle until a new task or context arrives.
    Idle,
}

/// Counters of a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CardCounters {
    /// Context lookups.
    pub(super) needed: u64,
    /// Lookups that missed the cache.
    pub(super) missed: u64,
    /// Reads from the host's memory.
    pub(super) reads: u64,
    /// Bytes read and written back.
    pub(super) bytes: u64,
}

/// A card with tasks of type `T`, each of which needs the context of a connection.
#[derive(Clone, Debug)]
pub(super) struct Card<T> {
    config: CardConfig,
    cache: ContextCache,
    pcie: Pcie,
    engines: [Engine<T>; 2],
    needed: u64,
    missed: u64,
}

#[derive(Clone, Debug)]
struct Engine<T> {
    /// Queues by direction.
    queues: [VecDeque<(u32, T)>; 2],
    /// The direction whose turn is next.
    turn: usize,
    /// Tasks whose contexts have arrived.
    ready: VecDeque<T>,
    /// Outstanding context reads with the tasks that wait for them.
    fetching: Vec<(u32, Vec<T>)>,
    busy_until: Instant,
    /// True if a wake-up for the end of the busy time is scheduled.
    wake_up_scheduled: bool,
}

impl<T> Engine<T> {
    fn new() -> Self {
        Self {
            queues: [VecDeque::new(), VecDeque::new()],
            turn: 0,
            ready: VecDeque::new(),
            fetching: Vec::new(),
            busy_until: Instant::ZERO,
            wake_up_scheduled: false,
        }
    }

    fn take_in_turn(&mut self) -> Option<(u32, T)> {
        let first = self.turn;
        let (direction, taken) = match self.queues[first].pop_front() {
            Some(taken) => (first, taken),
            None => (1 - first, self.queues[1 - first].pop_front()?),
        };
        self.turn = 1 - direction;
        Some(taken)
    }

    fn has_work(&self) -> bool {
        !self.ready.is_empty() || self.queues.iter().any(|queue| !queue.is_empty())
    }
}

impl<T> Card<T> {
    /// Creates a card for contexts 0 to `contexts` - 1.
    pub(super) fn new(config: CardConfig, contexts: usize, seed: u64) -> Self {
        Self {
            config,
            cache: ContextCache::new(config.contexts, contexts, config.replacement, seed),
            pcie: Pcie::new(config.pcie),
            engines: [Engine::new(), Engine::new()],
            needed: 0,
            missed: 0,
        }
    }

    /// Returns the number of engines; they are numbered from 0.
    pub(super) fn engines(&self) -> usize {
        match self.config.engines {
            Engines::Shared => 1,
            Engines::Separate => 2,
        }
    }

    /// Queues a task for a context.
    #[inline]
    pub(super) fn submit(&mut self, direction: Direction, context: u32, task: T) {
        let engine = match self.config.engines {
            Engines::Shared => 0,
            Engines::Separate => direction as usize,
        };
        self.engines[engine].queues[direction as usize].push_back((context, task));
    }

    /// Returns an engine's next step at `now`.
    #[inline]
    pub(super) fn next(&mut self, engine: usize, now: Instant) -> Step<T> {
        let this = &mut self.engines[engine];
        if this.busy_until > now {
            let schedules = !this.wake_up_scheduled && this.has_work();
            this.wake_up_scheduled |= schedules;
            return if schedules { Step::Wait(this.busy_until) } else { Step::Idle };
        }
        if let Some(task) = this.ready.pop_front() {
            return Step::Do(task);
        }
        loop {
            let this = &mut self.engines[engine];
            if this.fetching.len() >= self.config.overlap {
                return Step::Idle;
            }
            let Some((context, task)) = this.take_in_turn() else { return Step::Idle };
            self.needed += 1;
            if let Some((_, tasks)) = this.fetching.iter_mut().find(|(other, _)| *other == context) {
                tasks.push(task);
            } else if self.cache.uses(context) {
                return Step::Do(task);
            } else {
                this.fetching.push((context, vec![task]));
                self.missed += 1;
                return Step::Fetch { context, here: self.pcie.read(self.config.context_len, now) };
            }
        }
    }

    /// Marks an engine busy with sending until `until`.
    #[inline]
    pub(super) fn occupy(&mut self, engine: usize, until: Instant) {
        let busy_until = &mut self.engines[engine].busy_until;
        *busy_until = until.max(*busy_until);
    }

    /// Processes the wake-up that [`Step::Wait`] requested.
    pub(super) fn wake_up_fired(&mut self, engine: usize) {
        self.engines[engine].wake_up_scheduled = false;
    }

    /// Inserts an arrived context; writes back the evicted one.
    pub(super) fn fetched(&mut self, engine: usize, context: u32, now: Instant) {
        let this = &mut self.engines[engine];
        let Some(place) = this.fetching.iter().position(|(other, _)| *other == context) else { return };
        let (_, tasks) = this.fetching.swap_remove(place);
        this.ready.extend(tasks);
        // Two engines may have requested the same context.
        if !self.cache.uses(context) && self.cache.insert(context).is_some() {
            self.pcie.write(self.config.context_len, now);
        }
    }

    /// Returns the number of queued tasks.
    pub(super) fn waiting(&self) -> usize {
        self.engines.iter().flat_map(|engine| &engine.queues).map(VecDeque::len).sum()
    }

    /// Returns the counters.
    pub(super) fn counters(&self) -> CardCounters {
        let pcie = self.pcie.counters();
        CardCounters {
            needed: self.needed,
            missed: self.missed,
            reads: pcie.read_requests,
            bytes: pcie.bytes_read + pcie.bytes_written,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::{NonZeroU32, NonZeroUsize};

    use proptest::prelude::*;

    use super::*;
    use crate::Rate;

    fn card(contexts: usize, engines: Engines, overlap: usize) -> Card<u32> {
        let pcie = PcieConfig {
            rate: Rate::new(1_000_000_000_000).unwrap(),
            latency: 500,
            max_payload: NonZeroU32::MAX,
            overhead: 0,
            max_read: NonZeroU32::MAX,
            outstanding_reads: NonZeroUsize::new(overlap).unwrap(),
        };
        let replacement = Replacement::Lru;
        let config = CardConfig { contexts, replacement, context_len: 125, engines, overlap, pcie };
        Card::new(config, 16, 1)
    }

    /// Runs the engines until no task is left. Sending a packet, a task from 100 on, takes 10 ns. Returns the
    /// tasks and when they were done.
    fn work(card: &mut Card<u32>) -> Vec<(u32, u64)> {
        let (mut done, mut due) = (Vec::new(), vec![(0, 0, None)]);
        while let Some(nth) = (0..due.len()).min_by_key(|nth| due[*nth].0) {
            let (now, engine, context) = due.remove(nth);
            let time = Instant::from_nanos(now);
            match context {
                Some(context) => card.fetched(engine, context, time),
                None => card.wake_up_fired(engine),
            }
            for engine in 0..card.engines() {
                loop {
                    match card.next(engine, time) {
                        Step::Do(task) => {
                            done.push((task, now));
                            if task >= 100 {
                                card.occupy(engine, time.plus_nanos(10));
                            }
                        }
                        Step::Fetch { context, here } => due.push((here.as_nanos(), engine, Some(context))),
                        Step::Wait(until) => due.push((until.as_nanos(), engine, None)),
                        Step::Idle => break,
                    }
                }
            }
        }
        done
    }

    #[test]
    fn a_miss_stalls_everything_behind_it() {
        let mut card = card(2, Engines::Shared, 1);
        for context in [0, 1, 0, 2, 0] {
            card.submit(Direction::Receive, context, context);
        }
        assert_eq!(work(&mut card), [(0, 1001), (1, 2002), (0, 2002), (2, 3003), (0, 3003)]);
        assert_eq!(card.counters(), CardCounters { needed: 5, missed: 3, reads: 3, bytes: 4 * 125 });
    }

    #[test]
    fn misses_overlap_as_far_as_they_may() {
        let mut card = card(8, Engines::Shared, 2);
        for context in [0, 0, 1, 2] {
            card.submit(Direction::Receive, context, context);
        }
        // The second task waits for the first's read; the second read's 125 B follow the first's.
        assert_eq!(work(&mut card), [(0, 1001), (0, 1001), (1, 1002), (2, 2002)]);
        assert_eq!(card.counters().reads, 3);
    }

    #[test]
    fn one_engine_sends_and_receives_in_turn_and_two_do_not_wait_for_each_other() {
        for (engines, received) in [(Engines::Shared, [0, 10, 20]), (Engines::Separate, [0, 0, 0])] {
            let mut card = card(16, engines, 1);
            for nth in 0..3 {
                card.submit(Direction::Receive, nth, nth);
                card.submit(Direction::Send, nth, 100 + nth);
            }
            let done = work(&mut card);
            let of = |sent| done.iter().filter(move |(task, _)| (*task >= 100) == sent).map(|(_, at)| *at);
            assert_eq!(of(true).collect::<Vec<_>>(), [0, 10, 20]);
            assert_eq!(of(false).collect::<Vec<_>>(), received);
        }
    }

    proptest! {
        /// Each task is done once, tasks of a context in order, and at most `overlap` reads are outstanding.
        #[test]
        fn everything_is_done_once_and_connections_keep_their_order(
            capacity in 1..6usize,
            overlap in 1..5usize,
            contexts in prop::collection::vec(0..12u32, 1..100),
        ) {
            let mut card = card(capacity, Engines::Shared, overlap);
            for (nth, context) in (0..).zip(&contexts) {
                card.submit(Direction::Receive, *context, nth * 16 + context);
            }
            let done = work(&mut card);
            prop_assert_eq!(done.len(), contexts.len());
            for context in 0..12 {
                let of_context: Vec<_> =
                    done.iter().filter(|(task, _)| task % 16 == context).map(|(task, _)| *task).collect();
                prop_assert!(of_context.is_sorted_by(|earlier, later| earlier < later));
            }
            let counters = card.counters();
            prop_assert_eq!((counters.needed, counters.reads), (contexts.len() as u64, counters.missed));
            prop_assert!(card.engines.iter().all(|engine| engine.fetching.is_empty()));
            prop_assert!(done.last().is_some_and(|(_, at)| *at >= counters.missed.div_ceil(overlap as u64) * 1000));
        }
    }
}
