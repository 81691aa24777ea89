//! The transmit queue of a packet socket.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use nichrome_wire::VirtioNetHeader;
use rustix::io::{self, Errno};
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};

use crate::wire_queue::{TransmitError, frame_len};

/// Frames sent by one system call.
const BATCH: usize = 64;

/// A bounded queue of frames, each preceded by an empty virtio_net_hdr.
#[derive(Debug)]
pub(super) struct TransmitQueue {
    waiting: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    max_len: usize,
    /// Frames refused by the kernel.
    pub refused: u64,
}

impl TransmitQueue {
    /// Creates a queue for `frames` frames of up to `max_len` bytes.
    pub(super) fn new(frames: usize, max_len: usize) -> Self {
        let spare = (0..frames).map(|_| Vec::with_capacity(VirtioNetHeader::LEN + max_len)).collect();
        Self { waiting: VecDeque::with_capacity(frames), spare, max_len, refused: 0 }
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
        while !self.waiting.is_empty() {
            match self.send_batch(socket) {
                Ok(sent) => self.forget(sent),
                Err(Errno::INTR) => {}
                // The send buffer or the interface's queue is full.
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => break,
                // The first frame is malformed or exceeds the MTU, which may have changed.
                Err(Errno::MSGSIZE | Errno::INVAL) => {
                    self.refused += 1;
                    self.forget(1);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn send_batch(&self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let frames: Vec<[IoSlice<'_>; 1]> =
            self.waiting.iter().take(BATCH).map(|frame| [IoSlice::new(frame)]).collect();
        let mut controls: Vec<_> = frames.iter().map(|_| SendAncillaryBuffer::default()).collect();
        let mut messages: Vec<_> =
            frames.iter().zip(&mut controls).map(|(frame, control)| MMsgHdr::new(frame, control)).collect();
        sendmmsg(socket, &mut messages, SendFlags::DONTWAIT)
    }

    fn forget(&mut self, frames: usize) {
        for mut frame in self.waiting.drain(..frames) {
            frame.clear();
            self.spare.push(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_refuses_and_keeps_what_it_has() {
        let mut queue = TransmitQueue::new(2, 20);
        let frame = [IoSlice::new(&[1; 10]), IoSlice::new(&[2; 10])];
        assert_eq!((queue.push(&frame), queue.push(&frame)), (Ok(()), Ok(())));
        assert_eq!(queue.push(&frame), Err(TransmitError::Full));
        queue.forget(1);
        assert_eq!((queue.push(&frame), queue.len()), (Ok(()), 2));
        let expected = [&[0; VirtioNetHeader::LEN][..], &[1; 10], &[2; 10]].concat();
        assert!(queue.waiting.iter().all(|frame| *frame == expected));
    }
}
