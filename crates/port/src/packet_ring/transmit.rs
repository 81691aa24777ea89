//! The transmit queue of a packet socket.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use nichrome_wire::{Instant, VirtioNetHeader};
use rustix::io::{self, Errno};
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};

use crate::clock;
use crate::wire_queue::{TransmitError, frame_len};

/// Frames sent by one system call.
const BATCH: usize = 64;

/// How long the queue sends its first frame again while the kernel drops it. The queue of an interface of any
/// usual rate has room again by then; a filter that drops this frame would do so for ever. Afterwards, one
/// call of `send` discards all frames that the kernel drops.
const DROP_AFTER: Duration = Duration::from_millis(5);

/// A bounded queue of frames, each preceded by an empty virtio_net_hdr.
#[derive(Debug)]
pub(super) struct TransmitQueue {
    waiting: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    max_len: usize,
    /// Time since which the kernel has dropped the first frame; `None` if it has not.
    dropping_since: Option<Instant>,
    /// Frames refused by the kernel.
    pub refused: u64,
    /// Frames discarded because the kernel dropped them, after [`DROP_AFTER`].
    pub dropped: u64,
}

impl TransmitQueue {
    /// Creates a queue for `frames` frames of up to `max_len` bytes.
    pub(super) fn new(frames: usize, max_len: usize) -> Self {
        let spare = (0..frames).map(|_| Vec::with_capacity(VirtioNetHeader::LEN + max_len)).collect();
        let waiting = VecDeque::with_capacity(frames);
        Self { waiting, spare, max_len, dropping_since: None, refused: 0, dropped: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn push(&mut self, parts: &[IoSlice<'_>]) -> Result<(), TransmitError> {
        frame_len(parts, self.max_len)?;
        let mut frame = self.spare.pop().ok_or(TransmitError::Full)?;
        frame.extend([0; VirtioNetHeader::LEN]);
        for part in parts {
            frame.extend_from_slice(part);
        }
        self.waiting.push_back(frame);
        Ok(())
    }

    /// Sends queued frames until the queue is empty or the kernel accepts no more.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.send_by(|frames| send_batch(socket, frames), clock::now)
    }

    /// As [`Self::send`], by calls of `send`, which sends the first of the given frames and returns their
    /// number.
    fn send_by(
        &mut self,
        mut send: impl FnMut(&VecDeque<Vec<u8>>) -> io::Result<usize>,
        now: impl Fn() -> Instant,
    ) -> io::Result<()> {
        let mut is_retrying = true;
        while !self.waiting.is_empty() {
            match send(&self.waiting) {
                Ok(sent) => self.release(sent),
                Err(Errno::INTR) => {}
                // The send buffer is full.
                Err(Errno::AGAIN | Errno::NOMEM) => return Ok(()),
                // The interface's transmit path has dropped the frame: its queue is full, or a filter refuses
                // the frame.
                Err(Errno::NOBUFS) => {
                    let since = *self.dropping_since.get_or_insert_with(&now);
                    is_retrying = is_retrying && now() < since + DROP_AFTER;
                    if is_retrying {
                        return Ok(());
                    }
                    self.dropped += 1;
                    self.release(1);
                }
                // The first frame is malformed or exceeds the MTU, which may have changed.
                Err(Errno::MSGSIZE | Errno::INVAL) => {
                    self.refused += 1;
                    self.release(1);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn release(&mut self, frames: usize) {
        self.dropping_since = None;
        for mut frame in self.waiting.drain(..frames) {
            frame.clear();
            self.spare.push(frame);
        }
    }
}

/// Sends the first frames by one system call.
fn send_batch(socket: BorrowedFd<'_>, frames: &VecDeque<Vec<u8>>) -> io::Result<usize> {
    let frames: Vec<[IoSlice<'_>; 1]> =
        frames.iter().take(BATCH).map(|frame| [IoSlice::new(frame)]).collect();
    let mut controls: Vec<_> = frames.iter().map(|_| SendAncillaryBuffer::default()).collect();
    let mut messages: Vec<_> =
        frames.iter().zip(&mut controls).map(|(frame, control)| MMsgHdr::new(frame, control)).collect();
    sendmmsg(socket, &mut messages, SendFlags::DONTWAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queues frames of one byte each, and offers them once every 50 µs to a kernel that drops some of them.
    /// Returns what the kernel has accepted, and after how many µs the queue was empty.
    fn offer(frames: &[u8], drops: impl Fn(u8, u64) -> bool) -> (Vec<u8>, u64, TransmitQueue) {
        let mut queue = TransmitQueue::new(frames.len(), 20);
        for frame in frames {
            queue.push(&[IoSlice::new(&[*frame; 14])]).unwrap();
        }
        let (mut accepted, mut micros) = (vec![], 0);
        while queue.len() > 0 && micros < 1_000_000 {
            let send = |waiting: &VecDeque<Vec<u8>>| {
                let passes = |frame: &&Vec<u8>| !drops(frame[VirtioNetHeader::LEN], micros);
                let sent: Vec<u8> =
                    waiting.iter().take_while(passes).map(|frame| frame[VirtioNetHeader::LEN]).collect();
                accepted.extend(&sent);
                if sent.is_empty() { Err(Errno::NOBUFS) } else { Ok(sent.len()) }
            };
            queue.send_by(send, || Instant::from_nanos(micros * 1000)).unwrap();
            micros += 50;
        }
        (accepted, micros, queue)
    }

    #[test]
    fn a_frame_that_a_filter_drops_does_not_keep_the_others() {
        let (accepted, micros, queue) = offer(&[1, 9, 2, 9, 9, 3], |frame, _| frame == 9);
        assert_eq!((accepted, queue.dropped), (vec![1, 2, 3], 3));
        assert!((5000..5200).contains(&micros), "{micros}");
        let (accepted, _, queue) = offer(&[9; 1024], |frame, _| frame == 9);
        assert_eq!((accepted, queue.dropped, queue.spare.len()), (vec![], 1024, 1024));
    }

    #[test]
    fn no_frame_is_lost_while_the_queue_of_the_interface_is_full_for_a_moment() {
        let (accepted, _, queue) = offer(&[1, 2, 3], |_, micros| micros < 4900);
        assert_eq!((accepted, queue.dropped), (vec![1, 2, 3], 0));
        // Room for one frame every 4 ms.
        let frames: Vec<u8> = (0..100).collect();
        let (accepted, _, queue) = offer(&frames, |frame, micros| micros < 4000 * u64::from(frame));
        assert_eq!((accepted, queue.dropped), (frames, 0));
    }

    #[test]
    fn a_full_queue_refuses_and_keeps_what_it_has() {
        let mut queue = TransmitQueue::new(2, 20);
        let frame = [IoSlice::new(&[1; 10]), IoSlice::new(&[2; 10])];
        assert_eq!((queue.push(&frame), queue.push(&frame)), (Ok(()), Ok(())));
        assert_eq!(queue.push(&frame), Err(TransmitError::Full));
        queue.release(1);
        assert_eq!((queue.push(&frame), queue.len()), (Ok(()), 2));
        let expected = [&[0; VirtioNetHeader::LEN][..], &[1; 10], &[2; 10]].concat();
        assert!(queue.waiting.iter().all(|frame| *frame == expected));
    }
}
