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
    /// An input: a frame, a verb, a part of a byte stream.
    type Input;
    /// An output: a frame, a completion, a drop with its reason.
    type Output;

    /// Processes one input that arrived at `now`.
    fn receive(&mut self, input: Self::Input, now: Instant);

    /// Processes inputs that arrived together, in order, and empties the vector. Engines override this where knowing
    /// the next input saves time.
    fn receive_batch(&mut self, inputs: &mut Vec<Self::Input>, now: Instant) {
        for input in inputs.drain(..) {
            self.receive(input, now);
        }
    }

    /// Ends a card's receive batch: the driver has no more input for now.
    fn end_of_batch(&mut self, now: Instant) {
        let _ = now;
    }

    /// Returns the next output in transmission order.
    fn poll(&mut self) -> Option<Self::Output>;

    /// Appends all outputs to `outputs`, in order. If `outputs` is empty, an engine may swap it for its own vector
    /// instead, which is cheapest if a driver passes the same one each time.
    fn poll_all(&mut self, outputs: &mut Vec<Self::Output>) {
        outputs.extend(iter::from_fn(|| self.poll()));
    }

    /// Returns when to call [`Engine::handle_timeout`]; `None` if no timer is set.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Fires the timers due at or before `now`.
    fn handle_timeout(&mut self, now: Instant);
}

/// Fires every timer due at or before `now`, each at its own time; `sink` gets the outputs with the time at which they
/// left.
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

/// Passes one input to the engine, after every timer that was due before it.
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

/// Passes a card's receive batch to the engine, after every timer that was due before it, and ends the batch.
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

/// As [`deliver_batch`], but without the outputs' times: appends them to `outputs`.
#[inline]
pub fn deliver_batch_into<E: Engine>(
    engine: &mut E,
    inputs: &mut Vec<E::Input>,
    now: Instant,
    outputs: &mut Vec<E::Output>,
) {
    if engine.poll_timeout().is_some_and(|due| due <= now) {
        engine.handle_timeout(now);
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
