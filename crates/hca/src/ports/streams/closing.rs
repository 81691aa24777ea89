//! Streams that their queue pair has left. Each waits up to [`DRAIN`] until its socket has accepted the last
//! byte, sends a FIN, and then discards received bytes for up to [`LINGER`].

use std::collections::VecDeque;
use std::time::Duration;

use nichrome_rdma::{QpHandle, StreamEnd};
use nichrome_wire::Instant;

use super::StreamPorts;
use super::stream::State;

/// How long a stream that its queue pair has left waits for the peer to close it, after the FIN.
pub(super) const LINGER: Duration = Duration::from_secs(1);

/// How long a stream that its queue pair has left waits until the socket accepts its last byte: the requests
/// in these bytes have completed, and the peer may be slow to read.
pub(super) const DRAIN: Duration = Duration::from_secs(60);

impl StreamPorts {
    /// Detaches a queue pair from its stream, which sends a FIN after its last byte.
    pub(crate) fn close(&mut self, qp: QpHandle, now: Instant) {
        let Some(token) = self.by_qp.remove(&qp) else { return };
        if let Some([out, _]) = &mut self.paths {
            out.end(token, StreamEnd::Closed, now);
        }
        let Some(stream) = self.streams.get_mut(&token) else { return };
        if !stream.by_number {
            self.detached_qps.push(qp);
        }
        self.pool.discard(std::mem::take(&mut stream.held));
        if stream.state == State::Ended && stream.is_finished() {
            // Both ends have sent their FIN.
            return self.remove(token);
        }
        stream.state = State::Closing(now + DRAIN);
        if self.paths.is_none() {
            stream.finish();
        }
        self.draining.push_back(token);
        self.linger_if_finished(token, now);
        self.watch(token);
    }

    /// Returns when the next closing stream is to be dropped.
    pub(super) fn closing_until(&self) -> Option<Instant> {
        let first = |tokens: &VecDeque<u64>| {
            tokens.iter().find_map(|token| match self.streams.get(token)?.state {
                State::Closing(until) => Some(until),
                State::Open | State::Paused | State::Ended => None,
            })
        };
        [&self.draining, &self.lingering].into_iter().filter_map(first).min()
    }

    /// Waits for the peer to close a stream that its queue pair has left, if the FIN has been sent.
    pub(super) fn linger_if_finished(&mut self, token: u64, now: Instant) {
        let Some(stream) = self.streams.get_mut(&token) else { return };
        if matches!(stream.state, State::Closing(_)) && stream.is_finished() {
            stream.state = State::Closing(now + LINGER);
            self.lingering.push_back(token);
        }
    }

    /// Drops the streams that have been closing for [`DRAIN`] or [`LINGER`].
    pub(super) fn expire(&mut self, now: Instant) {
        let Self { streams, draining, lingering, .. } = self;
        let mut over = Vec::new();
        for tokens in [draining, lingering] {
            let is_over = |token: &mut u64| match streams.get(token).map(|stream| stream.state) {
                Some(State::Closing(until)) => until <= now,
                Some(State::Open | State::Paused | State::Ended) | None => true,
            };
            over.extend(std::iter::from_fn(|| tokens.pop_front_if(is_over)));
        }
        over.into_iter().for_each(|token| self.remove(token));
    }
}
