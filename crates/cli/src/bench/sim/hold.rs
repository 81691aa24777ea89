//! The hold model (Jones, "An Empirical Comparison of Priority-Queue and Event-Set Implementations", CACM
//! 1986): each step takes the next event and schedules another one after a random time, so that the number of
//! pending events is constant.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;

use nichrome_sim::{EventQueue, TraceHash};
use nichrome_wire::Instant;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};

/// Pending events.
pub(super) const PENDING: usize = 65_000;
/// Events per run.
const EVENTS: u64 = 1_000_000;
/// Maximum time to the next event in nanoseconds, uniformly distributed.
const MAX_STEP: u64 = 1_000_000;

/// An event queue under test.
pub(super) trait Hold {
    fn schedule(&mut self, time: u64, event: u64);
    fn pop(&mut self) -> Option<(u64, u64)>;
    fn state(&mut self) -> &mut State;
}

/// Common state: random numbers, and a hash of the event order.
pub(super) struct State {
    random: Pcg64Mcg,
    order: TraceHash,
}

impl State {
    fn new() -> Self {
        Self { random: Pcg64Mcg::seed_from_u64(1), order: TraceHash::default() }
    }

    fn later(&mut self) -> u64 {
        ((u128::from(self.random.next_u64()) * u128::from(MAX_STEP)) >> 64) as u64
    }
}

/// Runs the hold model; returns the number of events.
pub(super) fn run(hold: &mut impl Hold) -> u64 {
    for _ in 0..EVENTS {
        let Some((time, event)) = hold.pop() else { break };
        let state = hold.state();
        state.order.add(event);
        let later = time + state.later();
        hold.schedule(later, black_box(event));
    }
    EVENTS
}

fn fill(hold: &mut impl Hold) {
    for event in 0..PENDING as u64 {
        let time = hold.state().later();
        hold.schedule(time, event);
    }
}

/// The simulator's queue.
pub(super) struct Queue {
    queue: EventQueue<u64>,
    state: State,
}

impl Queue {
    pub(super) fn new() -> Self {
        let mut queue = Self { queue: EventQueue::new(), state: State::new() };
        fill(&mut queue);
        queue
    }

    pub(super) fn order(&self) -> u64 {
        self.state.order.value()
    }
}

impl Hold for Queue {
    fn schedule(&mut self, time: u64, event: u64) {
        self.queue.schedule(Instant::from_nanos(time), event);
    }

    fn pop(&mut self) -> Option<(u64, u64)> {
        self.queue.pop().map(|(time, event)| (time.as_nanos(), event))
    }

    fn state(&mut self) -> &mut State {
        &mut self.state
    }
}

/// The standard library's heap, keyed by time and sequence.
pub(super) struct Heap {
    heap: BinaryHeap<Reverse<(u64, u64, u64)>>,
    sequence: u64,
    state: State,
}

impl Heap {
    pub(super) fn new() -> Self {
        let mut heap = Self { heap: BinaryHeap::new(), sequence: 0, state: State::new() };
        fill(&mut heap);
        heap
    }

    pub(super) fn order(&self) -> u64 {
        self.state.order.value()
    }
}

impl Hold for Heap {
    fn schedule(&mut self, time: u64, event: u64) {
        self.heap.push(Reverse((time, self.sequence, event)));
        self.sequence += 1;
    }

    fn pop(&mut self) -> Option<(u64, u64)> {
        self.heap.pop().map(|Reverse((time, _, event))| (time, event))
    }

    fn state(&mut self) -> &mut State {
        &mut self.state
    }
}
