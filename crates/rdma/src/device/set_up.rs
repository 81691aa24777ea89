//! Connection set-up: a queue pair is held while drivers negotiate its transport, and then connected on it.

use super::Device;
use super::transports::{Member, Transport, Transports, for_each_transport, for_endpoint};
use crate::core::attributes::{QpState, QpType};
use crate::core::error::{ObjectError, ObjectKind};
use crate::core::kind;
use crate::core::memory::Memory;
use crate::core::queue_pair::QueuePair;
use crate::core::slab::Handle;
use crate::transport::set_up::{Agreed, Answerable, ConnectError, Question, Scope, View};
use crate::transport::{Endpoint, Shared};

impl<M: Memory> Device<M> {
    /// Holds an RC queue pair until its transport is negotiated: requests can be posted, and no packets are
    /// sent or received before [`Device::connect`], [`Device::release_qp`] or a reset.
    ///
    /// # Errors
    /// The queue pair does not exist, is not RC, is already set up, or is not in INIT or RTR.
    pub fn hold_qp(&mut self, handle: Handle<kind::Qp>) -> Result<(), ConnectError> {
        let qp = self.reliable(handle)?;
        if qp.is_set_up || !matches!(qp.state, QpState::Init | QpState::Rtr) {
            return Err(ConnectError::State(qp.state));
        }
        if let Some(transport) = self.qps.get_mut(handle) {
            transport.qp_mut().on_hold = true;
        }
        Ok(())
    }

    /// Ends the hold of a queue pair, which keeps its current transport.
    ///
    /// # Errors
    /// The queue pair does not exist.
    pub fn release_qp(&mut self, handle: Handle<kind::Qp>) -> Result<(), ConnectError> {
        let transport = self.qps.get_mut(handle).ok_or(ObjectError::Unknown(ObjectKind::Qp))?;
        transport.qp_mut().on_hold = false;
        self.settle(handle.index());
        Ok(())
    }

    /// Answers a transport's question about an RC queue pair, for the negotiation.
    ///
    /// # Errors
    /// The queue pair does not exist or is not RC, or the transport cannot answer.
    #[allow(private_bounds, reason = "transports are of this crate")]
    pub fn ask<Q: Answerable<M>>(
        &self,
        handle: Handle<kind::Qp>,
        question: Q,
    ) -> Result<<Q as Question>::Answer, ConnectError>
    where
        Transports: AsRef<<Q::Endpoint as Endpoint>::Shared>,
    {
        let shared = self.transports.as_ref();
        let scope = Scope { shared, verbs: &self.verbs, qps: self.qps.len() };
        question.answer(self.reliable(handle)?, scope)
    }

    /// Moves an RC queue pair to its negotiated transport, until it is reset. Requests posted during the hold
    /// are executed there.
    ///
    /// # Errors
    /// The queue pair does not exist, is not RC, is already set up, is not in INIT, RTR or RTS, or has sends
    /// that were posted without a hold. Also fails if this device would keep a copy of the peer's queues and
    /// they exceed its limits.
    #[allow(private_bounds, reason = "transports are of this crate")]
    pub fn connect<A: Agreed<M>>(&mut self, handle: Handle<kind::Qp>, agreed: &A) -> Result<(), ConnectError>
    where
        A::Endpoint: Member,
    {
        let qp = self.reliable(handle)?;
        let connectable = matches!(qp.state, QpState::Init | QpState::Rtr | QpState::Rts);
        if qp.is_set_up || !connectable || qp.sends.len() > 0 && !qp.on_hold {
            return Err(ConnectError::State(qp.state));
        }
        agreed.check(&self.config.limits)?;
        let Self { qps, transports, verbs, .. } = self;
        qps.replace(handle, |transport| {
            let mut qp =
                for_endpoint!(transport, transports, |endpoint, shared| endpoint.dissolve(shared, verbs));
            (qp.on_hold, qp.is_set_up) = (false, true);
            let shared = <A::Endpoint as Member>::shared_mut(transports);
            agreed.connect(qp, shared, verbs).into_transport()
        });
        self.settle(handle.index());
        Ok(())
    }

    fn reliable(&self, handle: Handle<kind::Qp>) -> Result<&QueuePair, ConnectError> {
        let qp = self.qps.get(handle).ok_or(ObjectError::Unknown(ObjectKind::Qp))?.qp();
        if qp.kind == QpType::Rc { Ok(qp) } else { Err(ConnectError::Service(qp.kind)) }
    }

    /// Returns a report on a transport's shared state.
    #[allow(private_bounds, reason = "transports are of this crate")]
    pub fn view<V: View>(&self) -> V
    where
        Transports: AsRef<V::Shared>,
    {
        V::of(self.transports.as_ref())
    }

    /// Returns the number of connections whose state the peer keeps.
    pub fn stateless_connections(&self) -> usize {
        let mut count = 0;
        for_each_transport!(&self.transports, |shared, _Endpoint| count += shared.stateless());
        count
    }

    /// Returns the bytes that a hardware card would hold for the connections of this device. Excludes what
    /// any card keeps in host memory: the programs' queues, and the driver's state of a stateless side.
    pub fn card_state_bytes(&self) -> usize {
        let mut bytes = 0;
        for_each_transport!(&self.transports, |shared, _Endpoint| bytes += shared.state_bytes());
        for index in 0..self.qps.entry_count() {
            let Some(transport) = self.qps.at(index) else { continue };
            bytes += for_endpoint!(transport, |endpoint| endpoint.state_bytes());
        }
        bytes
    }
}
