//! An end of an RDMA connection. Messages are WRITEs: the receiving program polls a mark in its memory.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use anyhow::{Context, bail};
use nichrome_hca::{Adapter, CompletionQueue, Connection, QueuePair, Region, RemoteRegion};
use nichrome_rdma::{Access, Completion, Operation, Payload, QpCapacity, SendFlags, SendRequest, Status};

use super::end::{CONTROL, End, poll_until};

/// Maximum number of outstanding requests.
const DEPTH: usize = 16;

/// Longest message that is posted inline, in bytes.
const INLINE: usize = 256;

/// ACK timeout: 4.096 µs · 2¹⁷ is four round trips of 128 ms.
const ACK_TIMEOUT: u8 = 17;

/// Time after which the program yields the processor between polls: never, because the adapter yields it.
const SPIN: Duration = Duration::MAX;

/// An end. Its region has three parts of equal length: received messages, sent messages, and the program's
/// buffer.
pub(super) struct VerbsEnd {
    queue_pair: QueuePair,
    completions: CompletionQueue,
    region: Region,
    /// The peer's memory region; `None` before [`VerbsEnd::connect`].
    peer: Option<RemoteRegion>,
    adapter: Adapter,
    max_len: usize,
    /// Mark of the last message sent, and of the last received: 1 to 255, in the last byte.
    marks: [u8; 2],
    /// Position of the last message's mark in the part for sent messages.
    marked: Option<usize>,
    outstanding: usize,
    done: Vec<Completion>,
    /// Length of pushed messages, and bytes of the completed ones.
    push_len: usize,
    placed: u64,
}

impl VerbsEnd {
    /// Creates an end for messages of up to `max_len` bytes.
    pub(super) fn new(adapter: &Adapter, max_len: usize) -> anyhow::Result<Self> {
        let max_len = max_len.max(CONTROL);
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
        let region = adapter.region(3 * max_len, access).context("cannot register memory")?;
        let completions = adapter.completion_queue(2 * DEPTH)?;
        let capacity =
            QpCapacity { send_wrs: DEPTH + 1, receive_wrs: 1, send_sges: 1, receive_sges: 1, inline: INLINE };
        let queue_pair = adapter.queue_pair(capacity, &completions, &completions)?;
        Ok(Self {
            queue_pair,
            completions,
            region,
            peer: None,
            adapter: adapter.clone(),
            max_len,
            marks: [0; 2],
            marked: None,
            outstanding: 0,
            done: Vec::new(),
            push_len: 0,
            placed: 0,
        })
    }

    /// Connects two ends to each other. Their transport may still be negotiated afterwards.
    pub(super) fn connect(pair: [&mut Self; 2]) -> anyhow::Result<()> {
        let [left, right] = pair;
        let mtu = left.adapter.mtu().min(right.adapter.mtu());
        let connection = Connection { ecn: true, timeout: ACK_TIMEOUT, ..Connection::new(mtu) };
        left.queue_pair.connect(&right.queue_pair.endpoint(), &connection).context("cannot connect")?;
        right.queue_pair.connect(&left.queue_pair.endpoint(), &connection).context("cannot connect")?;
        left.peer = Some(right.region.remote());
        right.peer = Some(left.region.remote());
        Ok(())
    }

    /// Returns the queue pair.
    pub(super) fn queue_pair(&self) -> &QueuePair {
        &self.queue_pair
    }

    fn peer(&self) -> anyhow::Result<RemoteRegion> {
        self.peer.context("the end is not connected")
    }

    fn post(&mut self, operation: Operation, payload: Payload<'_>) -> anyhow::Result<()> {
        if self.outstanding == DEPTH {
            self.await_completions(DEPTH / 2)?;
        }
        let request = SendRequest {
            wr_id: 0,
            operation,
            payload,
            flags: SendFlags::SIGNALED,
            recipient: None,
            srq: None,
        };
        self.queue_pair.post_send(&request)?;
        self.outstanding += 1;
        Ok(())
    }

    /// Takes the available completions.
    fn reap(&mut self) -> anyhow::Result<()> {
        self.done.clear();
        self.completions.drain(&mut self.done);
        for completion in &self.done {
            if completion.status != Status::Success {
                bail!("{:?} completed in error: {:?}", completion.operation, completion.status);
            }
        }
        self.outstanding -= self.done.len();
        self.placed += (self.done.len() * self.push_len) as u64;
        Ok(())
    }

    /// Polls until at most `left` requests are outstanding.
    fn await_completions(&mut self, left: usize) -> anyhow::Result<()> {
        poll_until(SPIN, || {
            self.reap()?;
            Ok((self.outstanding <= left).then_some(()))
        })
    }

    /// Returns the next mark.
    fn next(mark: u8) -> u8 {
        mark % 255 + 1
    }
}

impl End for VerbsEnd {
    fn send(&mut self, len: usize) -> anyhow::Result<()> {
        let Self { max_len, .. } = *self;
        let mark = Self::next(self.marks[0]);
        self.marks[0] = mark;
        let write = Operation::Write(self.peer()?.at(0));
        let mut inline = [0; INLINE];
        if let Some(inline) = inline.get_mut(..len) {
            inline[len - 1] = mark;
            return self.post(write, Payload::Inline(inline));
        }
        // The peer has answered the last message, so its buffer is free.
        let unmarked = self.marked.replace(max_len + len - 1);
        self.region.with(|bytes| {
            unmarked.into_iter().for_each(|at| bytes[at] = 0);
            bytes[max_len + len - 1] = mark;
        });
        let buffers = [self.region.slice(max_len, len)];
        self.post(write, Payload::Buffers(&buffers))
    }

    fn receive(&mut self, len: usize) -> anyhow::Result<()> {
        let mark = Self::next(self.marks[1]);
        self.marks[1] = mark;
        let region = &self.region;
        poll_until(SPIN, || Ok(region.poll(|bytes| bytes[len - 1] == mark).then_some(())))?;
        // Clears the mark: a message of another length has its mark elsewhere.
        region.with(|bytes| bytes[len - 1] = 0);
        Ok(())
    }

    fn fetch(&mut self, len: usize) -> anyhow::Result<()> {
        let at = 2 * self.max_len;
        let buffers = [self.region.slice(at, len)];
        let read = Operation::Read(self.peer()?.at(at));
        self.post(read, Payload::Buffers(&buffers))?;
        self.await_completions(0)
    }

    fn put(&mut self, len: usize) -> anyhow::Result<()> {
        let at = 2 * self.max_len;
        let buffers = [self.region.slice(at, len)];
        let write = Operation::Write(self.peer()?.at(at));
        self.post(write, Payload::Buffers(&buffers))?;
        self.send(CONTROL)
    }

    fn await_put(&mut self, _len: usize) -> anyhow::Result<()> {
        self.receive(CONTROL)
    }

    fn push(&mut self, len: usize) -> anyhow::Result<bool> {
        self.push_len = len;
        self.reap()?;
        let has_room = self.outstanding < DEPTH;
        if has_room {
            let at = 2 * self.max_len;
            let buffers = [self.region.slice(at, len)];
            let write = Operation::Write(self.peer()?.at(at));
            self.post(write, Payload::Buffers(&buffers))?;
        }
        Ok(has_room)
    }

    fn absorb(&mut self, _stop: &AtomicBool, _taken: &AtomicU64) -> anyhow::Result<()> {
        Ok(())
    }

    fn placed(&self) -> u64 {
        self.placed
    }

    fn is_one_sided(&self) -> bool {
        true
    }
}
