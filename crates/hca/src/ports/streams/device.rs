//! A device as its streams see it.

use nichrome_rdma::{Device, Memory, QpHandle, StreamEnd, StreamEnding, StreamShutdown, Transmit};
use nichrome_wire::Instant;

/// Output of a device for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outgoing {
    /// This many bytes at the front of the buffer.
    Bytes(QpHandle, usize),
    /// A FIN behind all bytes.
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
    /// The socket accepts no more bytes.
    fn block(&mut self, qp: QpHandle);
    /// The socket accepts bytes again.
    fn unblock(&mut self, qp: QpHandle);
    /// The peer's stream has ended.
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

    /// All queue pairs of such a device are on streams: it has no datagrams.
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
