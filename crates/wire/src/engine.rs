//! The contract between an engine (a protocol state machine without I/O) and its driver.
//!
//! An engine has no sockets, clocks, threads, logging or randomness of its own. A driver feeds it from live
//! interfaces, capture files or a simulator. The rules:
//!
//! 1. `now` never goes backwards.
//! 2. After every input (`receive`, `receive_batch`, `end_of_batch`, `handle_timeout`) the driver drains
//!    [`Engine::poll`] until it is empty, or calls [`Engine::poll_all`]. An engine relies on that to bound its memory;
//!    nothing is lost when a driver breaks the rule.
//! 3. The driver calls [`Engine::handle_timeout`] no earlier than [`Engine::poll_timeout`] says, and soon after. A
//!    timeout with nothing to do is allowed.
//! 4. Everything given to `receive` comes out of `poll` once: passed on, transformed, or dropped with a reason.
//!
//! [`deliver`], [`deliver_batch`], [`deliver_batch_into`], [`end_batch`] and [`advance`] are that loop, written once;
//! every driver uses them.

use std::iter;

use crate::Instant;

/// A protocol state machine: see the [module](self) for the rules.
pub trait Engine {
    /// What the driver gives: a frame, a verb, a piece of a byte stream.
    type Input;
    /// What comes out: frames, completions, drops with a reason.
    type Output;

    /// Takes one input that arrived at `now`.
    fn receive(&mut self, input: Self::Input, now: Instant);

    /// Takes inputs that arrived together, in order, and leaves the vector empty. Engines do better than one by one
    /// where knowing what comes next saves time.
    fn receive_batch(&mut self, inputs: &mut Vec<Self::Input>, now: Instant) {
        for input in inputs.drain(..) {
            self.receive(input, now);
        }
    }

    /// Says that the driver has no more input at hand: a card's receive batch is over.
    fn end_of_batch(&mut self, now: Instant) {
        let _ = now;
    }

    /// The next output, in the order in which it must leave.
    fn poll(&mut self) -> Option<Self::Output>;

    /// Moves every output to the end of `outputs`, in order. An engine may exchange its memory for that of an empty vector
    /// instead, which costs least where a driver gives the same one each time.
    fn poll_all(&mut self, outputs: &mut Vec<Self::Output>) {
        outputs.extend(iter::from_fn(|| self.poll()));
    }

    /// When [`Engine::handle_timeout`] is wanted; `None` where time alone changes nothing.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Does what was due at or before `now`.
    fn handle_timeout(&mut self, now: Instant);
}

/// Fires every timer due at or before `now`, each at its own time; outputs go to `sink` with the time they left.
#[inline]
pub fn advance<E: Engine>(engine: &mut E, now: Instant, sink: &mut impl FnMut(Instant, E::Output)) {
    while let Some(due) = engine.poll_timeout() {
        if due > now {
            break;
        }
        engine.handle_timeout(due);
        drain(engine, due, sink);
    }
}

/// Gives one input to the engine after every timer that was due before it.
#[inline]
pub fn deliver<E: Engine>(
    engine: &mut E,
    input: E::Input,
    now: Instant,
    sink: &mut impl FnMut(Instant, E::Output),
) {
    advance(engine, now, sink);
    engine.receive(input, now);
    drain(engine, now, sink);
}

/// Gives a card's receive batch to the engine, after every timer that was due before it, and ends the batch.
#[inline]
pub fn deliver_batch<E: Engine>(
    engine: &mut E,
    inputs: &mut Vec<E::Input>,
    now: Instant,
    sink: &mut impl FnMut(Instant, E::Output),
) {
    advance(engine, now, sink);
    engine.receive_batch(inputs, now);
    engine.end_of_batch(now);
    drain(engine, now, sink);
}

/// As [`deliver_batch`], for a driver that does not mind when an output left: all are moved to the end of `outputs`.
#[inline]
pub fn deliver_batch_into<E: Engine>(
    engine: &mut E,
    inputs: &mut Vec<E::Input>,
    now: Instant,
    outputs: &mut Vec<E::Output>,
) {
    while let Some(due) = engine.poll_timeout().filter(|due| *due <= now) {
        engine.handle_timeout(due);
        engine.poll_all(outputs);
    }
    engine.receive_batch(inputs, now);
    engine.end_of_batch(now);
    engine.poll_all(outputs);
}

/// Ends the receive batch.
#[inline]
pub fn end_batch<E: Engine>(engine: &mut E, now: Instant, sink: &mut impl FnMut(Instant, E::Output)) {
    engine.end_of_batch(now);
    drain(engine, now, sink);
}

#[inline]
fn drain<E: Engine>(engine: &mut E, now: Instant, sink: &mut impl FnMut(Instant, E::Output)) {
    while let Some(output) = engine.poll() {
        sink(now, output);
    }
}
