//! Byte streams: a queue pair whose transport has a stream connection of its own, which the driver owns.
//!
//! A queue pair may consume whole frames only, so the driver keeps the first part of a frame: up to
//! [`Terms::LONGEST_FPDU`](crate::iwarp::Terms::LONGEST_FPDU) bytes. A queue pair that stops reading needs a
//! receive; it accepts bytes again when one is posted, to its own or to its shared queue.

use nichrome_wire::Instant;

use super::Device;
use super::transports::{Transport, for_endpoint};
use crate::core::error::{ObjectError, ObjectKind};
use crate::core::kind;
use crate::core::memory::Memory;
use crate::core::slab::Handle;
use crate::transport::{Endpoint, StreamEnd};

impl<M: Memory> Device<M> {
    /// Processes bytes of a queue pair's stream that arrived at `now`; returns how many were consumed. If
    /// fewer than all, the driver keeps the rest and stops reading until [`Device::wants_stream`] returns
    /// true.
    ///
    /// # Errors
    /// The queue pair does not exist.
    pub fn receive_stream(
        &mut self,
        qp: Handle<kind::Qp>,
        bytes: &[u8],
        now: Instant,
    ) -> Result<usize, ObjectError> {
        self.verbs.now = now;
        let Self { qps, transports, verbs, .. } = self;
        let transport = qps.get_mut(qp).ok_or(ObjectError::Unknown(ObjectKind::Qp))?;
        let consumed = for_endpoint!(transport, transports, |endpoint, shared| {
            endpoint.receive_stream(bytes, shared, verbs)
        });
        self.settle(qp.index());
        Ok(consumed)
    }

    /// Returns true if the queue pair accepts bytes of its stream.
    pub fn wants_stream(&self, qp: Handle<kind::Qp>) -> bool {
        let Some(transport) = self.qps.get(qp) else { return false };
        for_endpoint!(transport, |endpoint| endpoint.wants_stream(&self.verbs))
    }

    /// Keeps a queue pair from sending until [`Device::release_sends`]: after a partial write of a stream's
    /// data from [`Device::poll_transmit`], or while its peer does not receive yet. A datagram from the peer
    /// also ends the hold.
    pub fn hold_sends(&mut self, qp: Handle<kind::Qp>) {
        if let Some(transport) = self.qps.get_mut(qp) {
            transport.qp_mut().is_blocked = true;
        }
    }

    /// Lets a queue pair send: its stream is writable, or its peer receives.
    pub fn release_sends(&mut self, qp: Handle<kind::Qp>) {
        if let Some(transport) = self.qps.get_mut(qp) {
            transport.qp_mut().is_blocked = false;
            self.settle(qp.index());
        }
    }

    /// Reports the end of a queue pair's stream. The driver calls it once the device has consumed all bytes
    /// before the end, or if the rest is the first part of a frame. The queue pair moves to ERROR. The driver
    /// closes its direction behind the bytes that it has kept.
    pub fn stream_closed(&mut self, qp: Handle<kind::Qp>, end: StreamEnd, now: Instant) {
        self.verbs.now = now;
        let Self { qps, transports, verbs, .. } = self;
        if let Some(transport) = qps.get_mut(qp) {
            for_endpoint!(transport, transports, |endpoint, shared| endpoint
                .stream_closed(end, shared, verbs));
            self.settle(qp.index());
        }
    }
}
