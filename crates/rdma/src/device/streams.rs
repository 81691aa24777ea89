//! Streams: bytes that arrive for a queue pair over a connection of its own, and what the driver says of it.

use nichrome_wire::Instant;

use super::Device;
use super::transports::{Transport, for_endpoint};
use crate::core::error::{ObjectError, ObjectKind};
use crate::core::memory::Memory;
use crate::core::slab::Handle;
use crate::kind;
use crate::transport::{Endpoint, StreamEnd};

impl<M: Memory> Device<M> {
    /// Takes in bytes of a queue pair's stream that arrived at `now`; returns how many were consumed. Where it is fewer
    /// than all, the driver keeps the rest and stops reading until [`Device::wants_stream`].
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

    /// Whether the driver is to read a queue pair's stream: false while the queue pair can take nothing in.
    pub fn wants_stream(&self, qp: Handle<kind::Qp>) -> bool {
        let Some(transport) = self.qps.get(qp) else { return false };
        for_endpoint!(transport, |endpoint| endpoint.wants_stream())
    }

    /// The stream took only a part of what [`Device::poll_transmit`] gave for it: until [`Device::stream_writable`], the
    /// queue pair sends nothing.
    pub fn block_stream(&mut self, qp: Handle<kind::Qp>) {
        if let Some(transport) = self.qps.get_mut(qp) {
            transport.qp_mut().is_blocked = true;
        }
    }

    /// A blocked stream takes bytes again.
    pub fn stream_writable(&mut self, qp: Handle<kind::Qp>) {
        if let Some(transport) = self.qps.get_mut(qp) {
            transport.qp_mut().is_blocked = false;
            self.settle(qp.index());
        }
    }

    /// A queue pair's stream has ended.
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
