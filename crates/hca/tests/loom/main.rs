//! All interleavings of the hand-over between programs and the driver's thread, and the memory model's
//! reorderings of its accesses:
//!
//!     RUSTFLAGS='--cfg loom' cargo test --release --package nichrome-hca --test loom
//!
//! `handover.rs` is compiled here with loom's primitives ([`sync`]). Waits have no end but a signal, so a
//! lost wake-up is a deadlock, which loom reports.
#![cfg(loom)]
#![allow(dead_code, reason = "the models use a part of the hand-over each")]

#[path = "../../src/handover.rs"]
mod handover;
mod sync;

use std::time::Duration;

use handover::Handover;
use loom::sync::{Arc, Mutex};
use loom::thread;
use nichrome_wire::Instant;
use sync::{AsFd, Waker};

/// A timer that is due: waits until it end at once.
const DUE: Instant = Instant::from_nanos(1);
/// A timer that is never due in a model.
const LATER: Instant = Instant::from_nanos(1000);

/// Runs `program` on its own thread, concurrently with the driver's thread.
fn beside<T>(shared: &Arc<T>, program: fn(&T), driver: impl FnOnce(&T)) -> thread::JoinHandle<()>
where
    T: Send + Sync + 'static,
{
    let theirs = Arc::clone(shared);
    let running = thread::spawn(move || program(&theirs));
    driver(shared);
    running
}

fn parts() -> (Handover, Waker) {
    (Handover::new().unwrap(), Waker::new().unwrap())
}

/// Rule 1 of the hand-over. `first` is the device's timer before the program sets an earlier one.
fn an_earlier_timer_ends_the_wait(first: Option<Instant>) {
    loom::model(move || {
        let (handover, ports) = parts();
        let shared = Arc::new((handover, ports, Mutex::new(first)));
        let program = |(handover, _, deadline): &(Handover, Waker, Mutex<Option<Instant>>)| {
            *deadline.lock().unwrap() = Some(DUE);
            handover.wake_by(Some(DUE));
        };
        let running = beside(&shared, program, |(handover, ports, deadline)| {
            handover.arm();
            let due = *deadline.lock().unwrap();
            handover.sleep(due, ports.as_fd(), None).unwrap();
        });
        running.join().unwrap();
    });
}

#[test]
fn a_first_timer_ends_the_threads_wait() {
    an_earlier_timer_ends_the_wait(None);
}

#[test]
fn an_earlier_timer_ends_the_threads_wait() {
    an_earlier_timer_ends_the_wait(Some(LATER));
}

/// Rule 2.
#[test]
fn a_program_that_begins_to_wait_for_an_event_ends_a_nap() {
    loom::model(|| {
        let shared = Arc::new(Handover::new().unwrap());
        beside(&shared, Handover::begin_descriptor_wait, |handover| handover.nap(Duration::from_secs(1)))
            .join()
            .unwrap();
    });
}

/// Rule 3. There is traffic, which no other thread receives.
#[test]
fn a_program_that_stops_waiting_leaves_the_ports_to_the_thread() {
    loom::model(|| {
        let shared = Arc::new(parts());
        let (handover, ports) = &*shared;
        handover.begin_wait();
        ports.wake();
        let program = |(handover, _): &(Handover, Waker)| handover.end_wait();
        let running = beside(&shared, program, |(handover, ports)| {
            handover.arm();
            handover.sleep(None, ports.as_fd(), None).unwrap();
        });
        running.join().unwrap();
    });
}

#[test]
fn the_thread_ends_when_its_owner_says_so() {
    loom::model(|| {
        let shared = Arc::new(parts());
        let program = |(handover, _): &(Handover, Waker)| handover.end();
        let running = beside(&shared, program, |(handover, ports)| {
            while !handover.is_ended() {
                handover.arm();
                handover.sleep(Some(LATER), ports.as_fd(), None).unwrap();
            }
        });
        running.join().unwrap();
    });
}
