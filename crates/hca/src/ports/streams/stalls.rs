//! Streams that are not read because the inbound impaired path is full: they leave the epoll, so that they
//! wake no thread, and TCP's window stops the peer.

use super::StreamPorts;
use super::stream::State;

impl StreamPorts {
    /// Returns true if the inbound impaired path has no room.
    pub(super) fn is_path_full(&self) -> bool {
        self.paths.as_ref().is_some_and(|[_, back]| back.is_full())
    }

    /// Stops reading an open stream until the inbound path has room. Returns false if the stream is not open,
    /// or is stalled already.
    pub(super) fn stall(&mut self, token: u64) -> bool {
        let stream = self.streams.get_mut(&token);
        let Some(stream) = stream.filter(|stream| stream.state == State::Open && !stream.is_stalled) else {
            return false;
        };
        stream.is_stalled = true;
        self.stalled.push(token);
        self.watch(token);
        true
    }

    /// Resumes reading if the inbound path has room.
    pub(super) fn end_stalls(&mut self) {
        if self.stalled.is_empty() || self.is_path_full() {
            return;
        }
        for token in std::mem::take(&mut self.stalled) {
            if let Some(stream) = self.streams.get_mut(&token) {
                stream.is_stalled = false;
                self.watch(token);
            }
        }
    }
}
