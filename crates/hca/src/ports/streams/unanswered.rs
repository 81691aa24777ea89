//! Ends streams whose peer's machine does not answer the bytes that are sent: TCP would retransmit for about
//! 15 minutes. A live peer whose window is closed answers probes and retransmissions, however far apart they
//! come. While no bytes are queued, [keepalive](super::keepalive) detects such a peer.

use nichrome_rdma::StreamEnd;
use nichrome_wire::Instant;

use super::StreamPorts;
use super::device::StreamDevice;
use super::stream::State;

/// Checks within the time that a machine may be silent.
const CHECKS: u32 = 8;

impl StreamPorts {
    /// Schedules a check of all streams, if none is: bytes were sent.
    #[inline]
    pub(super) fn expect_answers(&mut self, now: Instant) {
        if self.check_at.is_none() {
            self.check_at = Some(now + self.silence / CHECKS);
        }
    }

    /// Ends the streams whose peers have answered nothing for as long as a machine may be silent.
    pub(super) fn end_unanswered(&mut self, device: &mut impl StreamDevice, now: Instant) {
        if self.check_at.is_none_or(|at| now < at) {
            return;
        }
        let mut any_waits = false;
        let mut lost = Vec::new();
        for (token, stream) in &mut self.streams {
            if matches!(stream.state, State::Closing(_)) {
                continue;
            }
            any_waits |= stream.check_answers(now);
            if stream.is_unanswered_for(self.silence, now) {
                lost.push(*token);
            }
        }
        self.check_at = any_waits.then(|| now + self.silence / CHECKS);
        for token in lost {
            self.end(token, StreamEnd::Lost, device, now);
        }
    }
}
