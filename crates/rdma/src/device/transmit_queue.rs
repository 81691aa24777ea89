//! Transmitting and timers: queue pairs with packets to send are served round-robin.

use nichrome_wire::Instant;

use super::Device;
use super::transports::{Transport, for_each_transport, for_endpoint};
use crate::core::kind;
use crate::core::memory::Memory;
use crate::core::slab::Handle;
use crate::net::{Room, Transmit};
use crate::transport::{Endpoint, Shared};

impl<M: Memory> Device<M> {
    /// Builds outgoing data at the front of `buffer`: up to `max_segments` datagrams, or bytes of a stream,
    /// or a stream's end; `None` if there is nothing to send now. The buffer must be 4 KiB larger than the
    /// largest datagram.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        max_segments: usize,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        self.verbs.now = now;
        let mut room = Room::new(max_segments, buffer);
        for_each_transport!(&mut self.transports, |shared, _Endpoint| {
            if shared.write(&mut room, &mut self.verbs) {
                return room.into_transmit();
            }
        });
        self.hand_out_receives();
        while let Some(index) = self.transmit_queue.pop_front() {
            let more = self.fill(index, &mut room);
            self.set_timer(index);
            self.hand_out_receives();
            if more {
                self.enqueue_transmit(index);
                break;
            }
        }
        room.into_transmit()
    }

    /// Hands receives of shared queues to the queue pairs that wait for them: in turn, one at a time.
    #[inline]
    pub(super) fn hand_out_receives(&mut self) {
        while let Some(waiter) = self.verbs.next_waiter() {
            let Self { qps, transports, verbs, .. } = self;
            if let Some(transport) = qps.get_mut(waiter) {
                for_endpoint!(transport, transports, |endpoint, shared| {
                    endpoint.take_shared_receive(shared, verbs);
                });
                self.settle(waiter.index());
            }
        }
    }

    /// Builds a queue pair's outgoing data. Returns true if it has more than fits.
    #[inline]
    fn fill(&mut self, index: u32, room: &mut Room<'_>) -> bool {
        let Self { qps, transports, verbs, .. } = self;
        let Some(transport) = qps.at_mut(index) else { return false };
        transport.qp_mut().in_transmit_queue = false;
        if is_stopped(transport) {
            return false;
        }
        for_endpoint!(transport, transports, |endpoint, shared| endpoint.write(room, shared, verbs))
    }

    /// Returns the deadline of the next timer, at which the driver calls [`Device::handle_timeout`]; `None`
    /// if no timer runs. May be early.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Instant> {
        match (self.wheel.next_timeout(), self.verbs.cq_timers.next_timeout()) {
            (Some(qp), Some(cq)) => Some(qp.min(cq)),
            (qp, cq) => qp.or(cq),
        }
    }

    /// Runs the timers that are due at `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.verbs.now = now;
        self.verbs.release_events(now);
        while let Some(index) = self.wheel.expire(now) {
            let Self { qps, transports, verbs, .. } = self;
            if let Some(transport) = qps.at_mut(index) {
                for_endpoint!(transport, transports, |endpoint, shared| {
                    endpoint.handle_timeout(shared, verbs);
                });
            }
            self.settle(index);
        }
    }

    /// Flushes a queue pair's delayed ACK, before the queue pair is destroyed.
    pub fn acknowledge(&mut self, qp: Handle<kind::Qp>) {
        if self.qps.get(qp).is_some() {
            self.acknowledge_at(qp.index());
        }
    }

    /// Flushes all delayed ACKs, before the device is dropped.
    pub fn acknowledge_all(&mut self) {
        (0..self.qps.entry_count()).for_each(|index| self.acknowledge_at(index));
    }

    fn acknowledge_at(&mut self, index: u32) {
        let Some(transport) = self.qps.at_mut(index) else { return };
        for_endpoint!(transport, |endpoint| endpoint.flush_acknowledgement());
        self.enqueue_transmit(index);
    }

    /// Updates a queue pair's timer and its place in the transmit queue, after any change to the queue pair.
    #[inline]
    pub(super) fn settle(&mut self, index: u32) {
        self.set_timer(index);
        self.enqueue_transmit(index);
    }

    #[inline]
    fn set_timer(&mut self, index: u32) {
        let Self { qps, transports, verbs, wheel, .. } = self;
        let Some(transport) = qps.at_mut(index) else { return };
        let deadline = for_endpoint!(transport, transports, |endpoint, shared| {
            if endpoint.qp().cq_overrun {
                endpoint.cq_overrun(shared, verbs);
            }
            endpoint.next_timeout(shared, verbs.now)
        });
        if let Some(deadline) = deadline {
            wheel.set(index, deadline, verbs.now);
        }
    }

    /// Adds a queue pair to the transmit queue if it may have packets to send, is not on hold and its stream
    /// is not blocked.
    #[inline]
    fn enqueue_transmit(&mut self, index: u32) {
        let Some(transport) = self.qps.at_mut(index) else { return };
        let qp = transport.qp();
        let may_send = !qp.in_transmit_queue && !qp.on_hold && !is_stopped(transport);
        if may_send && for_endpoint!(transport, |endpoint| endpoint.has_work(self.verbs.now)) {
            transport.qp_mut().in_transmit_queue = true;
            self.transmit_queue.push_back(index);
        }
    }
}

/// Returns true if the queue pair's sends are blocked. The end of a stream is never blocked: the peer may
/// never read.
#[inline]
fn is_stopped(transport: &Transport) -> bool {
    transport.qp().is_blocked && !for_endpoint!(transport, |endpoint| endpoint.ends_stream())
}
