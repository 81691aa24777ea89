//! A device as its streams see it.

use nichrome_rdma::{Device, Memory, QpHandle, StreamEnd, StreamEnding, StreamShutdown, Transmit};
use nichrome_wire::Instant;

/// Output of a device for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outgoing {
    /// This many bytes at the front of the buffer.
    Bytes(QpHandle, usize),
    /// A FIN after all bytes.
    Finish(QpHandle),
    /// A reset.
    Reset(QpHandle),
}

/// A device as its streams see it.
pub(crate) trait StreamDevice {
    /// Processes bytes of a queue pair's stream; returns how many were consumed.
    fn receive(&mut self, qp: QpHandle, bytes: &[u8], now: Instant) -> usize;
    /// Returns true if the queue pair accepts bytes of its stream.
    fn wants(&self, qp: QpHandle) -> bool;
    /// Builds outgoing bytes of a queue pair's stream in `buffer`.
    fn transmit(&mut self, buffer: &mut [u8], now: Instant) -> Option<Outgoing>;
    /// Stops a queue pair from sending: its socket accepts no more bytes.
    fn block(&mut self, qp: QpHandle);
    /// Lets a queue pair send again: its socket accepts bytes.
    fn unblock(&mut self, qp: QpHandle);
    /// Handles the end of a queue pair's stream.
    fn closed(&mut self, qp: QpHandle, end: StreamEnd, now: Instant);
}

impl<M: Memory> StreamDevice for Device<M> {
    #[inline]
    fn receive(&mut self, qp: QpHandle, bytes: &[u8], now: Instant) -> usize {
        // Bytes for a queue pair that does not exist are discarded.
        self.receive_stream(qp, bytes, now).unwrap_or(bytes.len())
    }

    #[inline]
    fn wants(&self, qp: QpHandle) -> bool {
        self.wants_stream(qp)
    }

    /// A device with streams has no datagrams: all its queue pairs are on streams.
    #[inline]
    fn transmit(&mut self, buffer: &mut [u8], now: Instant) -> Option<Outgoing> {
        loop {
            match self.poll_transmit(now, 1, buffer)? {
                Transmit::Stream(bytes) => return Some(Outgoing::Bytes(bytes.qp, bytes.len)),
                Transmit::End(StreamEnding { qp, how: StreamShutdown::Orderly }) => {
                    return Some(Outgoing::Finish(qp));
                }
                Transmit::End(StreamEnding { qp, how: StreamShutdown::Abort }) => {
                    return Some(Outgoing::Reset(qp));
                }
                Transmit::Datagrams(_) => {}
            }
        }
    }

    fn block(&mut self, qp: QpHandle) {
        self.hold_sends(qp);
    }

    fn unblock(&mut self, qp: QpHandle) {
        self.release_sends(qp);
    }

    fn closed(&mut self, qp: QpHandle, end: StreamEnd, now: Instant) {
        self.stream_closed(qp, end, now);
    }
}
