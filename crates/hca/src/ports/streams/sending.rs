//! The bytes that queue pairs send on their streams.

use nichrome_rdma::StreamEnd;
use nichrome_wire::Instant;

use super::StreamPorts;
use super::device::{Outgoing, StreamDevice};
use super::faults::Content;
use super::record;
use super::stream::State;
use crate::connected_stream::Sender;
use crate::recorder::Capture;

/// Turns of queue pairs before the driver looks for received bytes again.
const MAX_SENDS: usize = 16;

impl StreamPorts {
    /// Sends bytes of the device's queue pairs; returns true if there may be more.
    pub(crate) fn transmit(
        &mut self,
        device: &mut impl StreamDevice,
        capture: &mut Capture,
        now: Instant,
    ) -> bool {
        let mut buffer = std::mem::take(&mut self.send_buffer);
        let mut more = true;
        for _ in 0..MAX_SENDS {
            if self.paths.as_ref().is_some_and(|[out, _]| out.is_full()) {
                more = false;
                break;
            }
            match device.transmit(&mut buffer, now) {
                None => {
                    more = false;
                    break;
                }
                Some(Outgoing::Finish(qp)) => self.close(qp, now),
                Some(Outgoing::Reset(qp)) => self.reset(qp),
                Some(Outgoing::Bytes(qp, len)) => {
                    // The stream of a queue pair that is not in the table has ended.
                    let Some(token) = self.by_qp.get(&qp).copied() else { continue };
                    match &mut self.paths {
                        Some([out, _]) => out.send(token, &buffer[..len], now),
                        None => self.write(token, &buffer[..len], device, capture, now),
                    }
                }
            }
        }
        self.send_buffer = buffer;
        self.release_sent(device, capture, now);
        more
    }

    /// Sends the chunks that have passed the impaired path.
    pub(crate) fn release_sent(
        &mut self,
        device: &mut impl StreamDevice,
        capture: &mut Capture,
        now: Instant,
    ) {
        while let Some(chunk) = self.paths.as_mut().and_then(|[out, _]| out.poll(now)) {
            match chunk.content {
                Content::Bytes(bytes) => self.write(chunk.stream, &bytes, device, capture, now),
                Content::End(_) => {
                    if let Some(stream) = self.streams.get_mut(&chunk.stream) {
                        stream.finish();
                    }
                    self.linger_if_finished(chunk.stream, now);
                }
            }
        }
    }

    /// Writes bytes to a stream, and blocks its queue pair if the socket does not accept all.
    fn write(
        &mut self,
        token: u64,
        bytes: &[u8],
        device: &mut impl StreamDevice,
        capture: &mut Capture,
        now: Instant,
    ) {
        self.expect_answers(now);
        let Some(stream) = self.streams.get_mut(&token) else { return };
        record(stream, Sender::Local, bytes, capture, now);
        // A stream that its queue pair has left: the queue pair may send on another by now.
        let is_left = matches!(stream.state, State::Closing(_));
        if stream.write(bytes, &mut self.counters.sent).is_err() {
            // Ends the stream only after the peer's earlier bytes, perhaps a TERMINATE, have been read.
            if !is_left {
                device.block(stream.qp);
            }
            if stream.state == State::Ended && self.paths.is_none() {
                self.end(token, StreamEnd::Lost, device, now);
            }
            return;
        }
        if stream.is_blocked() {
            if !is_left {
                device.block(stream.qp);
            }
            self.watch(token);
        }
    }
}
