//! A simulation in parts, which may run on several threads.
//!
//! Parts affect each other by messages only, which take at least the lookahead, such as the delay of a link.
//! Time is cut into windows of that length: within a window each part runs alone, and at its end messages are
//! exchanged, in the order of sender and sending. So a run does not depend on the number of threads
//! (conservative windows: Nicol, JACM 40(2), 1993).

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{hint, thread};

use nichrome_wire::Instant;

use crate::TraceHash;
use crate::simulation::{Advance, Progress, Simulation, Stop, World};

/// A world that is a part of a larger one.
pub trait Part: World {
    /// Returns the messages for other parts since the last call, in order.
    fn take_messages(&mut self) -> Vec<Message<Self::Event>>;
}

/// An event for another part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<E> {
    /// The part.
    pub to: usize,
    /// When it happens, at least the lookahead from when it was sent.
    pub time: Instant,
    /// What happens.
    pub event: E,
}

/// A running simulation in parts.
#[derive(Debug)]
pub struct Parts<W: Part> {
    parts: Vec<Simulation<W>>,
    threads: usize,
    lookahead: u64,
    /// The last nanosecond of the current window.
    window_end: Instant,
    mailboxes: Mailboxes<W::Event>,
}

/// Messages between two windows, by receiver and sender.
type Mailboxes<E> = Vec<Vec<Mutex<Vec<Message<E>>>>>;

/// What all threads of a run share.
struct Shared<'a, E> {
    lookahead: u64,
    limit: Instant,
    mailboxes: &'a Mailboxes<E>,
    barrier: Barrier,
    is_interrupted: AtomicBool,
    events: AtomicU64,
}

/// The barrier of a run's threads. They poll, since a window is shorter than the wake-up of a thread.
struct Barrier {
    threads: usize,
    arrived: AtomicUsize,
    generation: AtomicUsize,
}

impl Barrier {
    /// Number of polls after which a waiting thread yields, in case there are fewer processors than threads.
    const POLLS_PER_YIELD: u32 = 10_000;

    fn new(threads: usize) -> Self {
        Self { threads, arrived: AtomicUsize::new(0), generation: AtomicUsize::new(0) }
    }

    /// Returns when all threads have called this.
    fn wait(&self) {
        let generation = self.generation.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.generation.fetch_add(1, Ordering::Release);
            return;
        }
        let mut polls: u32 = 0;
        while self.generation.load(Ordering::Acquire) == generation {
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(Self::POLLS_PER_YIELD) {
                thread::yield_now();
            }
            hint::spin_loop();
        }
    }
}

/// The parts that one thread runs, and the number of the first of them.
struct PartGroup<'a, W: Part> {
    first: usize,
    parts: &'a mut [Simulation<W>],
}

type ProgressHook<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

impl<W: Part> Parts<W> {
    /// Creates a simulation of these parts that uses up to `threads` threads, at least 1. Messages take at
    /// least `lookahead` nanoseconds, at least 1; a single part sends none.
    pub fn new(parts: Vec<Simulation<W>>, lookahead: u64, threads: usize) -> Self {
        let lookahead = if parts.len() > 1 { lookahead.max(1) } else { u64::MAX };
        let mailboxes = parts.iter().map(|_| parts.iter().map(|_| Mutex::default()).collect()).collect();
        let window_end = Instant::from_nanos(lookahead - 1);
        Self { threads: threads.clamp(1, parts.len().max(1)), parts, lookahead, window_end, mailboxes }
    }

    /// Returns the worlds of all parts.
    pub fn worlds(&self) -> impl Iterator<Item = &W> {
        self.parts.iter().map(|part| &part.world)
    }

    /// Returns the worlds of all parts, to change them between runs.
    pub fn worlds_mut(&mut self) -> impl Iterator<Item = &mut W> {
        self.parts.iter_mut().map(|part| &mut part.world)
    }

    /// Returns the number of events handled.
    pub fn events(&self) -> u64 {
        self.parts.iter().map(Simulation::events).sum()
    }

    /// Returns the hash of the trace hashes of all parts, in order; the trace hash itself if there is one
    /// part.
    pub fn trace_hash(&self) -> u64 {
        match &self.parts[..] {
            [part] => part.trace_hash(),
            parts => TraceHash::of(&parts.iter().map(Simulation::trace_hash).collect::<Vec<_>>()),
        }
    }

    fn stopped_at_limit(&self) -> Stop {
        let is_idle = self.parts.iter().all(|part| part.queue.is_empty());
        let is_empty = self.mailboxes.iter().flatten().all(|mailbox| lock(mailbox).is_empty());
        if is_idle && is_empty { Stop::Idle } else { Stop::Limit }
    }
}

impl<W: Part + Send> Advance for Parts<W>
where
    W::Event: Send,
{
    type View = Self;

    fn view(&self) -> &Self {
        self
    }

    fn now(&self) -> Instant {
        self.parts.first().map_or(Instant::ZERO, Simulation::now)
    }

    fn run_until(&mut self, limit: Instant) -> Stop {
        self.run_with_progress(limit, &mut |_| ControlFlow::Continue(()))
    }

    fn run_with_progress(
        &mut self,
        limit: Instant,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Stop {
        if let [part] = &mut self.parts[..] {
            return part.run_with_progress(limit, progress);
        }
        let each = self.parts.len().div_ceil(self.threads);
        let events = AtomicU64::new(self.events());
        let groups = self.parts.chunks_mut(each).enumerate();
        let mut groups: Vec<_> = groups.map(|(nth, parts)| PartGroup { first: nth * each, parts }).collect();
        let shared = Shared {
            lookahead: self.lookahead,
            limit,
            mailboxes: &self.mailboxes,
            barrier: Barrier::new(groups.len()),
            is_interrupted: AtomicBool::new(false),
            events,
        };
        let Some((mine, others)) = groups.split_first_mut() else { return Stop::Idle };
        let begins = self.window_end;
        self.window_end = thread::scope(|scope| {
            for group in others {
                let shared = &shared;
                scope.spawn(move || group.run(begins, shared, &mut |_| ControlFlow::Continue(())));
            }
            mine.run(begins, &shared, progress)
        });
        if shared.is_interrupted.into_inner() { Stop::Interrupted } else { self.stopped_at_limit() }
    }
}

impl<W: Part> PartGroup<'_, W> {
    /// Runs windows up to the limit, the first of which ends at `end`; returns the end of the next window.
    fn run(
        &mut self,
        mut end: Instant,
        shared: &Shared<'_, W::Event>,
        progress: ProgressHook<'_>,
    ) -> Instant {
        let mut shown = shared.events.load(Ordering::Relaxed);
        loop {
            let until = end.min(shared.limit);
            self.run_window(until, shared);
            if until < end {
                return end;
            }
            self.exchange(shared);
            end = end.plus_nanos(shared.lookahead);
            let events = shared.events.load(Ordering::Relaxed);
            if events - shown >= Simulation::<W>::EVENTS_PER_PROGRESS {
                shown = events;
                let is_interrupted = progress(Progress { now: until, events }).is_break();
                shared.is_interrupted.fetch_or(is_interrupted, Ordering::Relaxed);
            }
            // No thread starts the next window before all have scheduled their messages and progress was
            // shown.
            shared.barrier.wait();
            if until == shared.limit || shared.is_interrupted.load(Ordering::Relaxed) {
                return end;
            }
        }
    }

    fn run_window(&mut self, until: Instant, shared: &Shared<'_, W::Event>) {
        for (from, part) in (self.first..).zip(self.parts.iter_mut()) {
            let before = part.events();
            part.run_until(until);
            shared.events.fetch_add(part.events() - before, Ordering::Relaxed);
            for message in part.world.take_messages() {
                lock(&shared.mailboxes[message.to][from]).push(message);
            }
        }
    }

    /// Schedules the messages of all parts to these parts.
    fn exchange(&mut self, shared: &Shared<'_, W::Event>) {
        shared.barrier.wait();
        for (to, part) in (self.first..).zip(self.parts.iter_mut()) {
            for message in shared.mailboxes[to].iter().flat_map(|mailbox| std::mem::take(&mut *lock(mailbox)))
            {
                part.queue.schedule(message.time, message.event);
            }
        }
    }
}

/// Locks a mailbox, also after another thread has panicked: the content is intact.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventQueue;

    /// Nanoseconds from one part to another.
    const DELAY: u64 = 1000;

    /// Counts balls, each of which bounces within the part for some time and then goes on to the next one.
    struct Player {
        number: usize,
        players: usize,
        seen: Vec<(u64, u64)>,
        sent: Vec<Message<u64>>,
    }

    impl World for Player {
        type Event = u64;

        fn handle(&mut self, ball: u64, queue: &mut EventQueue<u64>) {
            let now = queue.now();
            self.seen.push((now.as_nanos(), ball));
            let bounces = TraceHash::of(&[ball, now.as_nanos()]) % 8;
            if bounces > 0 {
                queue.schedule_in(bounces * 70, ball);
            } else {
                let to = (self.number + 1 + (ball as usize) % (self.players - 1)) % self.players;
                self.sent.push(Message { to, time: now.plus_nanos(DELAY + ball % 3), event: ball });
            }
        }
    }

    impl Part for Player {
        fn take_messages(&mut self) -> Vec<Message<u64>> {
            std::mem::take(&mut self.sent)
        }
    }

    fn players(players: usize, threads: usize) -> Parts<Player> {
        let player = |number| {
            let player = Player { number, players, seen: Vec::new(), sent: Vec::new() };
            let mut simulation = Simulation::new(player);
            for ball in 0..5 {
                simulation.queue.schedule(Instant::from_nanos(ball), ball * 10 + number as u64);
            }
            simulation
        };
        Parts::new((0..players).map(player).collect(), DELAY, threads)
    }

    #[test]
    fn a_run_does_not_depend_on_the_number_of_threads_nor_on_how_it_is_cut() {
        let limit = Instant::from_nanos(200_000);
        let run = |threads, cuts: &[u64]| {
            let mut parts = players(4, threads);
            for cut in cuts {
                assert_eq!(parts.run_until(Instant::from_nanos(*cut)), Stop::Limit);
                assert_eq!(parts.now().as_nanos(), *cut);
            }
            assert_eq!(parts.run_until(limit), Stop::Limit);
            let seen: Vec<_> = parts.worlds().map(|player| player.seen.clone()).collect();
            (parts.trace_hash(), parts.events(), seen)
        };
        let alone = run(1, &[]);
        assert!(alone.1 > 10_000);
        for threads in 1..=5 {
            assert!(run(threads, &[]) == alone, "{threads} threads");
            assert!(run(threads, &[0, 1, 998, 999, 1000, 77_777]) == alone, "{threads} threads, cut");
        }
    }

    #[test]
    fn balls_are_neither_lost_nor_doubled_and_come_no_sooner_than_the_delay() {
        let mut parts = players(3, 2);
        parts.run_until(Instant::from_nanos(1_000_000));
        for ball in (0..5).flat_map(|ball| (0..3).map(move |number| ball * 10 + number)) {
            let mut seen: Vec<(u64, usize)> = Vec::new();
            for player in parts.worlds() {
                seen.extend(
                    player
                        .seen
                        .iter()
                        .filter(|(_, other)| *other == ball)
                        .map(|(at, _)| (*at, player.number)),
                );
            }
            seen.sort_unstable();
            for pair in seen.windows(2) {
                let ([(from, before), (to, after)], bounce) = ([pair[0], pair[1]], 7 * 70);
                let most = if before == after { bounce } else { DELAY + 2 };
                let least = if before == after { 70 } else { DELAY };
                assert!((least..=most).contains(&(to - from)), "{ball}: {pair:?}");
            }
            assert!(seen.last().is_some_and(|(at, _)| *at > 990_000), "{ball}: {:?}", seen.last());
        }
    }

    #[test]
    fn the_progress_hook_can_end_a_run() {
        for threads in [1, 2] {
            let mut parts = players(2, threads);
            let mut calls = 0;
            let stop = parts.run_with_progress(Instant::from_nanos(u64::MAX / 2), &mut |progress| {
                calls += 1;
                assert!(progress.events >= calls * Simulation::<Player>::EVENTS_PER_PROGRESS);
                if calls == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert_eq!((stop, calls), (Stop::Interrupted, 2));
        }
    }
}
