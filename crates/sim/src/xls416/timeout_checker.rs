//! The timeout checking thread (lro-npu IV.E), which also runs the DMA load balancer (V.B).

use nichrome_wire::Instant;

use super::balancer::Balancer;
use crate::Server;

/// The thread that visits all connections in an endless loop and moves DMA requests in between.
#[derive(Clone, Debug)]
pub(super) struct TimeoutChecker<T> {
    /// Duration of a visit to all connections, in nanoseconds.
    pass: u64,
    queue_operation: u64,
    thread: Server,
    balancer: Balancer<T>,
    /// True from passing a request to the DMA engine until its completion message arrives.
    engine_is_busy: bool,
}

impl<T> TimeoutChecker<T> {
    /// Creates a thread with `queues` request queues. A visit to all connections takes `pass` nanoseconds, a
    /// queue operation `queue_operation` nanoseconds.
    pub(super) fn new(queues: usize, pass: u64, queue_operation: u64) -> Self {
        Self {
            pass,
            queue_operation,
            thread: Server::new(usize::MAX),
            balancer: Balancer::new(queues),
            engine_is_busy: false,
        }
    }

    /// Returns when the thread notices a timeout at `deadline`: up to a whole pass later.
    pub(super) fn notices(&self, deadline: Instant) -> Instant {
        let pass = self.pass.max(1);
        Instant::from_nanos(deadline.as_nanos().div_ceil(pass).saturating_mul(pass))
    }

    /// Accepts a request; returns when it is in its queue.
    pub(super) fn take(&mut self, now: Instant) -> Instant {
        self.operate(now)
    }

    /// Enqueues a request; see [`TimeoutChecker::choose`].
    pub(super) fn put(&mut self, queue: usize, request: T) {
        self.balancer.push(queue, request);
    }

    /// Selects the DMA engine's next request if the engine is idle; returns when the message with it leaves.
    pub(super) fn choose(&mut self, now: Instant) -> Option<(Instant, T)> {
        if self.engine_is_busy {
            return None;
        }
        let request = self.balancer.choose()?;
        self.engine_is_busy = true;
        Some((self.operate(now), request))
    }

    /// Processes the DMA engine's completion message.
    pub(super) fn engine_is_done(&mut self) {
        self.engine_is_busy = false;
    }

    /// Returns the number of queued requests.
    pub(super) fn waiting(&self) -> usize {
        self.balancer.len()
    }

    fn operate(&mut self, now: Instant) -> Instant {
        self.thread.serve(self.queue_operation, now).unwrap_or(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn a_timeout_is_noticed_when_the_walk_comes_by() {
        let checker = TimeoutChecker::<()>::new(1, 100, 0);
        assert_eq!([1, 100, 101].map(|nanos| checker.notices(at(nanos))), [at(100), at(100), at(200)]);
        assert_eq!(TimeoutChecker::<()>::new(1, 0, 0).notices(at(7)), at(7));
    }

    #[test]
    fn the_engine_gets_one_request_at_a_time() {
        let mut checker = TimeoutChecker::new(2, 0, 50);
        assert_eq!(checker.take(at(0)), at(50));
        checker.put(0, 'a');
        checker.put(1, 'b');
        assert_eq!(checker.choose(at(50)), Some((at(100), 'a')));
        assert_eq!(checker.choose(at(500)), None);
        checker.engine_is_done();
        assert_eq!(checker.choose(at(500)), Some((at(550), 'b')));
    }
}
