//! The contract between an engine (a protocol state machine without I/O) and its driver.
//!
//! An engine has no sockets, clocks, threads, logging or randomness of its own. A driver feeds it from live
//! interfaces, capture files or a simulator. The rules:
//!
//! 1. `now` never goes backwards.
//! 2. After every input (`receive`, `receive_batch`, `end_of_batch`, `handle_timeout`) the driver drains
//!    [`Engine::poll`] until it is empty, or calls [`Engine::poll_all`]. An engine relies on that to bound
//!    its memory; nothing is lost when a driver breaks the rule.
//! 3. The driver calls [`Engine::handle_timeout`] no earlier than [`Engine::poll_timeout`] says, and soon
//!    after. A timeout with nothing to do is allowed.
//! 4. Everything given to `receive` comes out of `poll` once: passed on, transformed, or dropped with a
//!    reason.
//!
//! [`deliver`], [`deliver_batch`], [`deliver_batch_into`], [`end_batch`] and [`advance`] are that loop,
//! written once; every driver uses them.

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

    /// Processes inputs that arrived together, in order, and empties the vector. Engines override this where
    /// knowing the next input saves time.
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

    /// Appends all outputs to `outputs`, in order. If `outputs` is empty, an engine may swap it for its own
    /// vector instead, which is cheapest if a driver passes the same one each time.
    fn poll_all(&mut self, outputs: &mut Vec<Self::Output>) {
        outputs.extend(iter::from_fn(|| self.poll()));
    }

    /// Returns when to call [`Engine::handle_timeout`]; `None` if no timer is set.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Fires the timers due at or before `now`.
    fn handle_timeout(&mut self, now: Instant);
}

/// Fires every timer due at or before `now`, each at its own time; `sink` gets the outputs with the time at
/// which they left.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds each input for 100 ns; the end of a batch releases all.
    #[derive(Default)]
    struct Holder {
        held: Vec<(char, Instant)>,
        left: Vec<char>,
    }

    impl Holder {
        fn release(&mut self, is_due: impl Fn(Instant) -> bool) {
            self.left.extend(self.held.iter().filter(|(_, due)| is_due(*due)).map(|(input, _)| input));
            self.held.retain(|(_, due)| !is_due(*due));
        }
    }

    impl Engine for Holder {
        type Input = char;
        type Output = char;

        fn receive(&mut self, input: char, now: Instant) {
            self.held.push((input, now.plus_nanos(100)));
        }

        fn end_of_batch(&mut self, _: Instant) {
            self.release(|_| true);
        }

        fn poll(&mut self) -> Option<char> {
            (!self.left.is_empty()).then(|| self.left.remove(0))
        }

        fn poll_timeout(&self) -> Option<Instant> {
            self.held.iter().map(|(_, due)| *due).min()
        }

        fn handle_timeout(&mut self, now: Instant) {
            self.release(|due| due <= now);
        }
    }

    /// An engine that holds `a` until 100 ns and `b` until 130 ns, and the outputs so far with their times.
    fn holding() -> (Holder, Vec<(u64, char)>) {
        let (mut engine, mut outputs) = (Holder::default(), Vec::new());
        for (input, nanos) in [('a', 0), ('b', 30)] {
            deliver(&mut engine, input, Instant::from_nanos(nanos), &mut |at, output| {
                outputs.push((at.as_nanos(), output));
            });
        }
        assert_eq!(outputs, []);
        (engine, outputs)
    }

    #[test]
    fn timers_fire_at_their_own_times_until_now() {
        for (now, expected) in
            [(99, &[][..]), (100, &[(100, 'a')]), (129, &[(100, 'a')]), (500, &[(100, 'a'), (130, 'b')])]
        {
            let (mut engine, mut outputs) = holding();
            advance(&mut engine, Instant::from_nanos(now), &mut |at, output| {
                outputs.push((at.as_nanos(), output));
            });
            assert_eq!(outputs, expected, "{now}");
        }
    }

    #[test]
    fn an_input_comes_after_the_timers_that_were_due_before_it() {
        let (mut engine, mut outputs) = holding();
        let mut sink = |at: Instant, output| outputs.push((at.as_nanos(), output));
        deliver(&mut engine, 'c', Instant::from_nanos(110), &mut sink);
        end_batch(&mut engine, Instant::from_nanos(120), &mut sink);
        assert_eq!(outputs, [(100, 'a'), (120, 'b'), (120, 'c')]);
    }

    #[test]
    fn a_batch_is_received_in_order_and_ended() {
        let (mut engine, mut outputs) = holding();
        let mut batch = vec!['c', 'd'];
        deliver_batch(&mut engine, &mut batch, Instant::from_nanos(110), &mut |at, output| {
            outputs.push((at.as_nanos(), output));
        });
        assert_eq!((outputs, batch), (vec![(100, 'a'), (110, 'b'), (110, 'c'), (110, 'd')], vec![]));
    }

    #[test]
    fn a_batches_outputs_are_appended_behind_those_of_timers() {
        /// Outputs how many inputs each timeout and each end of a batch released, in order.
        struct Counter(Holder, Vec<usize>);

        impl Engine for Counter {
            type Input = char;
            type Output = usize;

            fn receive(&mut self, input: char, now: Instant) {
                self.0.receive(input, now);
            }

            fn end_of_batch(&mut self, now: Instant) {
                self.0.end_of_batch(now);
                self.1.push(std::mem::take(&mut self.0.left).len());
            }

            fn poll(&mut self) -> Option<usize> {
                (!self.1.is_empty()).then(|| self.1.remove(0))
            }

            fn poll_timeout(&self) -> Option<Instant> {
                self.0.poll_timeout()
            }

            fn handle_timeout(&mut self, now: Instant) {
                self.0.handle_timeout(now);
                self.1.push(std::mem::take(&mut self.0.left).len());
            }
        }

        for (now, expected) in [(99, &[7, 4][..]), (100, &[7, 1, 3]), (130, &[7, 2, 2])] {
            let mut engine = Counter(holding().0, Vec::new());
            let (mut batch, mut outputs) = (vec!['c', 'd'], vec![7]);
            deliver_batch_into(&mut engine, &mut batch, Instant::from_nanos(now), &mut outputs);
            assert_eq!((&outputs[..], batch), (expected, vec![]), "{now}");
        }
    }
}
