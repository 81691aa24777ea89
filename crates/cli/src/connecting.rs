//! Measures connections that several threads set up: the time of each, and their rate.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use nichrome_wan::DelayHistogram;
use serde::Serialize;

/// The number of connections that are still to be set up, shared by threads.
pub(crate) struct Remaining(AtomicU32);

impl Remaining {
    pub(crate) const fn new(count: u32) -> Self {
        Self(AtomicU32::new(count))
    }

    /// Takes one connection from the number; returns false if none is left.
    pub(crate) fn take(&self) -> bool {
        let one_less = |count: u32| count.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }
}

/// Runs `work` on `count` threads and returns the items of all, or the first error.
pub(crate) fn on_threads<T: Send>(
    count: u32,
    work: impl Fn() -> anyhow::Result<Vec<T>> + Sync,
) -> anyhow::Result<Vec<T>> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(&work)).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().map_err(|_| anyhow!("a thread panicked"))??);
        }
        Ok(all)
    })
}

/// The times at which a connection was requested, was established, and had received its first message.
#[derive(Clone, Copy)]
pub(crate) struct Moments {
    begun: Instant,
    connected: Instant,
    greeted: Instant,
}

impl Moments {
    /// Calls `connect`, then `greet` with the connection, and records the times.
    pub(crate) fn measure<T>(
        connect: impl FnOnce() -> anyhow::Result<T>,
        greet: impl FnOnce(&mut T) -> anyhow::Result<()>,
    ) -> anyhow::Result<(T, Self)> {
        let begun = Instant::now();
        let mut made = connect()?;
        let connected = Instant::now();
        greet(&mut made)?;
        Ok((made, Self { begun, connected, greeted: Instant::now() }))
    }
}

/// The set-up times and rate of connections. The names of the fields are JSON keys.
#[derive(Serialize)]
pub(crate) struct Connecting {
    pub(crate) seconds: f64,
    pub(crate) connections_per_s: f64,
    /// Time until the connection is established at the client, in microseconds.
    pub(crate) connect_p50_us: f64,
    pub(crate) connect_p99_us: f64,
    /// Time until the client has received the server's first message, in microseconds.
    pub(crate) first_message_p50_us: f64,
    pub(crate) first_message_p99_us: f64,
}

impl Connecting {
    /// Summarizes connections that were set up within `time`.
    pub(crate) fn of(all: &[Moments], time: Duration) -> Self {
        let (mut connect, mut first_message) = (DelayHistogram::new(), DelayHistogram::new());
        for Moments { begun, connected, greeted } in all {
            connect.record(*connected - *begun);
            first_message.record(*greeted - *begun);
        }
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let seconds = time.as_secs_f64();
        Self {
            seconds,
            connections_per_s: all.len() as f64 / seconds,
            connect_p50_us: micros(connect.p50()),
            connect_p99_us: micros(connect.p99()),
            first_message_p50_us: micros(first_message.p50()),
            first_message_p99_us: micros(first_message.p99()),
        }
    }
}
