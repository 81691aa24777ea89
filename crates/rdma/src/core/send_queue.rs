//! The send queue.

use std::collections::VecDeque;

use nichrome_wire::rdma::SrqNumber;

use super::completion::{CompletedOperation, Status};
use super::work::{Operation, Recipient, SendFlags, Sge};

/// The position of a request's local data in the queue's rings. Positions count buffers or inline bytes since
/// the queue was created, modulo 2³².
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Buffers { start: u32, count: u8 },
    Inline { start: u32 },
}

/// The execution state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Posted,
    /// Its packets have PSNs, and some may have been sent.
    Begun,
    /// A local request that was executed; it completes after all earlier requests.
    Done,
    /// Failed locally; it completes with this status after all earlier requests.
    Failed(Status),
}

/// A posted send.
#[derive(Clone, Debug)]
pub(crate) struct SendWork {
    pub(crate) wr_id: u64,
    pub(crate) operation: Operation,
    pub(crate) recipient: Option<Recipient>,
    pub(crate) srq: Option<SrqNumber>,
    pub(crate) source: Source,
    pub(crate) len: u32,
    pub(crate) flags: SendFlags,
    pub(crate) progress: Progress,
}

impl SendWork {
    /// Returns true if the response carries data.
    #[inline]
    pub(crate) fn wants_data(&self) -> bool {
        matches!(
            self.operation,
            Operation::Read(_) | Operation::CompareSwap { .. } | Operation::FetchAdd { .. }
        )
    }

    /// Returns true if a response of its own acknowledges the request, not a later ACK. Such requests count
    /// against `max_rd_atomic`.
    #[inline]
    pub(crate) fn wants_response(&self) -> bool {
        self.wants_data() || matches!(self.operation, Operation::Flush { .. } | Operation::AtomicWrite(_))
    }

    /// Returns true if the request sends no packets.
    #[inline]
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.operation, Operation::LocalInvalidate(_) | Operation::BindWindow(_))
    }

    /// Returns the kind of request that its completion reports.
    pub(crate) fn completed_operation(&self) -> CompletedOperation {
        match self.operation {
            Operation::Send | Operation::SendWithImmediate(_) | Operation::SendWithInvalidate(_) => {
                CompletedOperation::Send
            }
            Operation::Write(_) | Operation::WriteWithImmediate(..) => CompletedOperation::Write,
            Operation::Read(_) => CompletedOperation::Read,
            Operation::CompareSwap { .. } => CompletedOperation::CompareSwap,
            Operation::FetchAdd { .. } => CompletedOperation::FetchAdd,
            Operation::Flush { .. } => CompletedOperation::Flush,
            Operation::AtomicWrite(_) => CompletedOperation::AtomicWrite,
            Operation::LocalInvalidate(_) => CompletedOperation::LocalInvalidate,
            Operation::BindWindow(_) => CompletedOperation::BindWindow,
        }
    }
}

/// A FIFO of sends, with rings of their buffers and inline bytes. The rings grow to their highest use.
#[derive(Default)]
pub(crate) struct SendQueue {
    works: VecDeque<SendWork>,
    sges: VecDeque<Sge>,
    /// Number of buffers removed so far.
    sges_gone: u32,
    inline: VecDeque<u8>,
    /// Number of inline bytes removed so far.
    inline_gone: u32,
}

impl SendQueue {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.works.len()
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&SendWork> {
        self.works.get(index)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut SendWork> {
        self.works.get_mut(index)
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&SendWork> {
        self.works.front()
    }

    /// Adds the buffers of the next request to be pushed.
    pub(crate) fn add_buffers(&mut self, buffers: &[Sge]) -> Source {
        let start = self.sges_gone.wrapping_add(self.sges.len() as u32);
        self.sges.extend(buffers);
        Source::Buffers { start, count: buffers.len() as u8 }
    }

    /// Returns the position of the inline bytes of the next request to be pushed.
    pub(crate) fn inline_start(&self) -> Source {
        Source::Inline { start: self.inline_gone.wrapping_add(self.inline.len() as u32) }
    }

    /// Adds inline bytes of the next request to be pushed.
    pub(crate) fn add_inline(&mut self, bytes: &[u8]) {
        self.inline.extend(bytes);
    }

    /// Removes the last `len` inline bytes.
    pub(crate) fn drop_inline(&mut self, len: usize) {
        self.inline.truncate(self.inline.len() - len);
    }

    pub(crate) fn push(&mut self, work: SendWork) {
        self.works.push_back(work);
    }

    /// Removes the oldest request and its local data.
    pub(crate) fn pop(&mut self) -> Option<SendWork> {
        let work = self.works.pop_front()?;
        match work.source {
            Source::Buffers { count, .. } => {
                self.sges.drain(..usize::from(count));
                self.sges_gone = self.sges_gone.wrapping_add(u32::from(count));
            }
            Source::Inline { .. } => {
                self.inline.drain(..work.len as usize);
                self.inline_gone = self.inline_gone.wrapping_add(work.len);
            }
        }
        Some(work)
    }

    /// Returns the buffers or inline bytes that hold `len` bytes of `source` from `offset` on.
    #[inline]
    pub(crate) fn pieces(&self, source: Source, offset: u32, len: u32) -> Pieces<'_> {
        match source {
            Source::Buffers { start, count } => {
                let first = start.wrapping_sub(self.sges_gone) as usize;
                Pieces::Buffers(Scatter::new(self.sges.range(first..first + usize::from(count)), offset, len))
            }
            Source::Inline { start } => {
                let first = start.wrapping_sub(self.inline_gone) as usize + offset as usize;
                let (front, back) = self.inline.as_slices();
                let (end, split) = (first + len as usize, front.len());
                let in_front = front.get(first.min(split)..end.min(split)).unwrap_or_default();
                let in_back = back.get(first.saturating_sub(split)..end.saturating_sub(split));
                Pieces::Inline(in_front, in_back.unwrap_or_default())
            }
        }
    }
}

/// The local data of a packet.
pub(crate) enum Pieces<'a> {
    Buffers(Scatter<std::collections::vec_deque::Iter<'a, Sge>>),
    Inline(&'a [u8], &'a [u8]),
}

/// Iterates over the parts of a list of buffers that hold a range of its bytes.
pub(crate) struct Scatter<I> {
    buffers: I,
    skip: u32,
    left: u32,
}

impl<I> Scatter<I> {
    pub(crate) fn new(buffers: I, offset: u32, len: u32) -> Self {
        Self { buffers, skip: offset, left: len }
    }
}

impl<'a, I: Iterator<Item = &'a Sge>> Iterator for Scatter<I> {
    type Item = Sge;

    #[inline]
    fn next(&mut self) -> Option<Sge> {
        if self.left == 0 {
            return None;
        }
        loop {
            let sge = self.buffers.next()?;
            if self.skip >= sge.len {
                self.skip -= sge.len;
                continue;
            }
            let len = (sge.len - self.skip).min(self.left);
            let piece = Sge { address: sge.address.wrapping_add(u64::from(self.skip)), len, lkey: sge.lkey };
            self.skip = 0;
            self.left -= len;
            return Some(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LKey;

    fn work(source: Source, len: u32) -> SendWork {
        let (flags, progress) = (SendFlags::NONE, Progress::Posted);
        let (recipient, srq, operation) = (None, None, Operation::Send);
        SendWork { wr_id: 0, operation, recipient, srq, source, len, flags, progress }
    }

    #[test]
    fn buffers_are_cut_where_packets_are() {
        let sge = |address, len| Sge { address, len, lkey: LKey(0) };
        let buffers = [sge(100, 10), sge(200, 0), sge(300, 5)];
        let cut = |offset, len| -> Vec<Sge> { Scatter::new(buffers.iter(), offset, len).collect() };
        assert_eq!(cut(0, 15), [sge(100, 10), sge(300, 5)]);
        assert_eq!(cut(8, 4), [sge(108, 2), sge(300, 2)]);
        assert_eq!(cut(10, 2), [sge(300, 2)]);
        assert_eq!(cut(15, 0), []);
    }

    #[test]
    fn inline_bytes_stay_whole_when_the_queue_wraps() {
        let mut queue = SendQueue::default();
        let mut expected: VecDeque<Vec<u8>> = VecDeque::new();
        for round in 0..100u8 {
            let bytes = vec![round; usize::from(round % 7)];
            let source = queue.inline_start();
            queue.add_inline(&bytes);
            queue.push(work(source, bytes.len() as u32));
            expected.push_back(bytes);
            for (index, bytes) in expected.iter().enumerate() {
                let work = queue.get(index).unwrap();
                let Pieces::Inline(front, back) = queue.pieces(work.source, 0, work.len) else { panic!() };
                assert_eq!(&[front, back].concat(), bytes);
            }
            if round % 3 > 0 {
                queue.pop();
                expected.pop_front();
            }
        }
    }

    #[test]
    fn inline_bytes_of_a_refused_request_are_removed() {
        let mut queue = SendQueue::default();
        let first = queue.inline_start();
        queue.add_inline(b"first");
        queue.push(work(first, 5));
        queue.inline_start();
        queue.add_inline(b"refused");
        queue.drop_inline(7);
        let second = queue.inline_start();
        queue.add_inline(b"second");
        queue.push(work(second, 6));
        assert_eq!(queue.inline.len(), 11);
        for (source, offset, expected) in [(first, 1, &b"irst"[..]), (second, 2, b"cond")] {
            let Pieces::Inline(front, back) = queue.pieces(source, offset, 4) else { panic!() };
            assert_eq!([front, back].concat(), expected);
        }
    }
}
