//! The ends of a connection: the operations that the figures measure, over any bearer.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};

use super::processors::{Processors, Role};
use crate::side::Side;

/// Time limit for anything that an end waits for.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);

/// Length in bytes of messages without data: a request, START, REPLY, FIN.
pub(super) const CONTROL: usize = 32;

/// One end of a connection. Messages alternate: an end that has sent one receives one before it sends again.
pub(super) trait End: Send {
    /// Sends a message of `len` bytes: by RDMA a WRITE into the peer's memory.
    fn send(&mut self, len: usize) -> anyhow::Result<()>;

    /// Waits for the next message, which has `len` bytes.
    fn receive(&mut self, len: usize) -> anyhow::Result<()>;

    /// Fetches `len` bytes of the peer's memory: with RDMA by READ, else by a request that the peer's program
    /// answers.
    fn fetch(&mut self, len: usize) -> anyhow::Result<()>;

    /// Puts `len` bytes into the buffer of the peer's program and notifies it: with RDMA by a WRITE and a
    /// message after it.
    fn put(&mut self, len: usize) -> anyhow::Result<()>;

    /// Waits for the peer's [`End::put`].
    fn await_put(&mut self, len: usize) -> anyhow::Result<()>;

    /// Starts sending `len` bytes to the peer; returns false if there is no room now.
    fn push(&mut self, len: usize) -> anyhow::Result<bool>;

    /// Receives the peer's pushed bytes until `stop` is set, and adds their number to `taken`. With RDMA the
    /// card receives them.
    fn absorb(&mut self, stop: &AtomicBool, taken: &AtomicU64) -> anyhow::Result<()>;

    /// Returns the pushed bytes that arrived without work by the peer's program: with RDMA, the bytes of
    /// completed requests.
    fn placed(&self) -> u64;

    /// Returns true if fetches and pushes need no call by the peer's program.
    fn is_one_sided(&self) -> bool;
}

/// The two ends of a connection, the left one first.
pub(super) type Pair = [Box<dyn End>; 2];

/// Calls `attempt` until it returns a value. From `spin` on, yields the processor after each call.
pub(super) fn poll_until<T>(
    spin: Duration,
    mut attempt: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let mut start = None;
    loop {
        if let Some(found) = attempt()? {
            return Ok(found);
        }
        let waited = start.get_or_insert_with(Instant::now).elapsed();
        if waited > TIMEOUT {
            bail!("the peer has sent nothing for {TIMEOUT:?}");
        }
        if waited >= spin {
            thread::yield_now();
        }
    }
}

/// Runs the programs of both hosts, each on its processor. Returns their results, the left one's first.
pub(super) fn run_both<L: Send, R: Send>(
    processors: &Processors,
    measured: Side,
    left: impl FnOnce() -> anyhow::Result<L> + Send,
    right: impl FnOnce() -> anyhow::Result<R> + Send,
) -> anyhow::Result<(L, R)> {
    let role = |side| if side == measured { Role::Application } else { Role::Peer };
    thread::scope(|scope| {
        let left = scope.spawn(|| processors.on(role(Side::Left), left));
        let right = scope.spawn(|| processors.on(role(Side::Right), right));
        Ok((joined(left)?, joined(right)?))
    })
}

/// Returns the result of a program's thread.
fn joined<T>(thread: ScopedJoinHandle<'_, anyhow::Result<T>>) -> anyhow::Result<T> {
    thread.join().unwrap_or_else(|_| Err(anyhow!("a program has panicked")))
}
