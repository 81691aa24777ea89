//! Posted sends.

use std::collections::VecDeque;

use super::completion::{CompletedOperation, Status};
use super::work::{Operation, Recipient, SendFlags, Sge};

/// Where the local bytes of a request are. Requests leave in the order they came, and so do their buffers: a position
/// counts from the first that was ever posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Buffers { start: u32, count: u8 },
    Inline { start: u32 },
}

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Posted,
    /// Its packets have numbers, and some may have been sent.
    Begun,
    /// A request for the device itself, done; it completes in its turn.
    Done,
    /// It cannot be done, for a reason of our own; it completes so in its turn.
    Failed(Status),
}

/// A posted send.
#[derive(Clone, Debug)]
pub(crate) struct SendWork {
    pub(crate) wr_id: u64,
    pub(crate) operation: Operation,
    pub(crate) recipient: Option<Recipient>,
    pub(crate) source: Source,
    pub(crate) len: u32,
    pub(crate) flags: SendFlags,
    pub(crate) progress: Progress,
}

impl SendWork {
    /// Whether it needs a response that carries data.
    #[inline]
    pub(crate) fn wants_data(&self) -> bool {
        matches!(
            self.operation,
            Operation::Read(_) | Operation::CompareSwap { .. } | Operation::FetchAdd { .. }
        )
    }

    /// Whether nothing of it goes to the wire.
    #[inline]
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.operation, Operation::LocalInvalidate(_) | Operation::BindWindow(_))
    }

    /// What its completion says that it was.
    pub(crate) fn completed_operation(&self) -> CompletedOperation {
        match self.operation {
            Operation::Send | Operation::SendWithImmediate(_) | Operation::SendWithInvalidate(_) => {
                CompletedOperation::Send
            }
            Operation::Write(_) | Operation::WriteWithImmediate(..) => CompletedOperation::Write,
            Operation::Read(_) => CompletedOperation::Read,
            Operation::CompareSwap { .. } => CompletedOperation::CompareSwap,
            Operation::FetchAdd { .. } => CompletedOperation::FetchAdd,
            Operation::LocalInvalidate(_) => CompletedOperation::LocalInvalidate,
            Operation::BindWindow(_) => CompletedOperation::BindWindow,
        }
    }
}

/// Sends in the order they were posted. Memory grows to what was in use at the same time and is used again.
#[derive(Default)]
pub(crate) struct SendQueue {
    works: VecDeque<SendWork>,
    sges: VecDeque<Sge>,
    /// Buffers that have left.
    sges_gone: u32,
    inline: VecDeque<u8>,
    /// Inline bytes that have left.
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

    /// Takes in the buffers of a request that is pushed next.
    pub(crate) fn add_buffers(&mut self, buffers: &[Sge]) -> Source {
        let start = self.sges_gone.wrapping_add(self.sges.len() as u32);
        self.sges.extend(buffers);
        Source::Buffers { start, count: buffers.len() as u8 }
    }

    /// Where the inline bytes of a request that is pushed next begin.
    pub(crate) fn inline_start(&self) -> Source {
        Source::Inline { start: self.inline_gone.wrapping_add(self.inline.len() as u32) }
    }

    /// Takes in some of the inline bytes of a request that is pushed next.
    pub(crate) fn add_inline(&mut self, bytes: &[u8]) {
        self.inline.extend(bytes);
    }

    /// Gives up the inline bytes that were taken in last.
    pub(crate) fn drop_inline(&mut self, len: usize) {
        self.inline.truncate(self.inline.len() - len);
    }

    pub(crate) fn push(&mut self, work: SendWork) {
        self.works.push_back(work);
    }

    /// Takes the oldest out, its buffers with it.
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

    /// The pieces of `source` that hold the bytes from `offset` on, `len` of them.
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

/// The local bytes of a packet.
pub(crate) enum Pieces<'a> {
    Buffers(Scatter<std::collections::vec_deque::Iter<'a, Sge>>),
    Inline(&'a [u8], &'a [u8]),
}

/// The parts of a list of buffers that make up a range of its bytes.
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
        SendWork { wr_id: 0, operation: Operation::Send, recipient: None, source, len, flags, progress }
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
}
