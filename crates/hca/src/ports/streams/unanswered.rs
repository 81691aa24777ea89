//! Streams whose peer's machine acknowledges nothing of what was sent: TCP would go on for about 15 minutes. Only sent segments count: a
//! live peer whose window is closed has acknowledged all of them. While nothing is sent, [keepalive](super::keepalive) notices.

use nichrome_rdma::StreamEnd;
use nichrome_wire::Instant;

use super::StreamPorts;
use super::device::StreamDevice;
use super::stream::State;

/// Looks at a stream within the time that a machine may be silent.
const LOOKS: u32 = 8;

impl StreamPorts {
    /// Has the streams looked at, since bytes were sent.
    #[inline]
    pub(super) fn expect_answers(&mut self, now: Instant) {
        if self.look_at.is_none() {
            self.look_at = Some(now + self.silence / LOOKS);
        }
    }

    /// Ends the streams whose peers have acknowledged nothing for as long as a machine may be silent.
    pub(super) fn end_unanswered(&mut self, device: &mut impl StreamDevice, now: Instant) {
        if self.look_at.is_none_or(|at| now < at) {
            return;
        }
        let mut is_any = false;
        let mut lost = Vec::new();
        for (token, stream) in &mut self.streams {
            if matches!(stream.state, State::Closing(_)) {
                continue;
            }
            let Some(since) = stream.unanswered_since(now) else { continue };
            is_any = true;
            if since + self.silence <= now {
                lost.push(*token);
            }
        }
        self.look_at = is_any.then(|| now + self.silence / LOOKS);
        for token in lost {
            self.end(token, StreamEnd::Lost, device, now);
        }
    }
}
