//! The verbs of extended reliable connections (IBA annex A14): XRC domains, their shared receive queues, and
//! targets.
//!
//! Each request on such a connection names a shared receive queue of the target's XRC domain. The request
//! uses that queue's receives, protection domain and completion queue. A target has none of its own: between
//! requests, it refers to its XRC domain's empty protection domain and completion queue.

use nichrome_wire::rdma::SrqNumber;

use super::{Device, QpConfig, SrqAttributes, XrcDomain};
use crate::core::attributes::QpType;
use crate::core::error::{ObjectError, ObjectKind};
use crate::core::kind;
use crate::core::memory::Memory;
use crate::core::queue_pair::{QpCapacity, QueuePair, Receives, Signaling};
use crate::core::receive_queue::{ReceiveQueue, XrcQueue};
use crate::core::slab::Handle;

impl<M: Memory> Device<M> {
    /// Creates an XRC domain.
    ///
    /// # Errors
    /// The limit of XRC domains, protection domains or completion queues is reached.
    pub fn create_xrc_domain(&mut self) -> Result<Handle<kind::Xrc>, ObjectError> {
        let domain = self.create_domain()?;
        let made = self.create_cq(1).and_then(|cq| {
            let made = self.xrc_domains.insert(|_| XrcDomain { users: 0, domain, cq });
            made.ok_or(ObjectError::Exhausted(ObjectKind::Xrc)).inspect_err(|_| {
                self.verbs.cqs.remove(cq);
            })
        });
        made.inspect_err(|_| {
            self.domains.remove(domain);
        })
    }

    /// Destroys an XRC domain.
    ///
    /// # Errors
    /// The domain does not exist, or contains shared receive queues or targets.
    pub fn destroy_xrc_domain(&mut self, xrc: Handle<kind::Xrc>) -> Result<(), ObjectError> {
        let &XrcDomain { users, domain, cq } = self.xrc(xrc)?;
        if users > 0 {
            return Err(ObjectError::InUse(ObjectKind::Xrc));
        }
        self.xrc_domains.remove(xrc);
        self.destroy_cq(cq)?;
        self.destroy_domain(domain)
    }

    fn xrc(&self, xrc: Handle<kind::Xrc>) -> Result<&XrcDomain, ObjectError> {
        self.xrc_domains.get(xrc).ok_or(ObjectError::Unknown(ObjectKind::Xrc))
    }

    /// Counts a new object of the XRC domain.
    fn join_xrc(&mut self, xrc: Handle<kind::Xrc>) {
        if let Some(xrc) = self.xrc_domains.get_mut(xrc) {
            xrc.users += 1;
        }
    }

    /// Counts a destroyed object of the XRC domain.
    pub(super) fn leave_xrc(&mut self, xrc: Handle<kind::Xrc>) {
        if let Some(xrc) = self.xrc_domains.get_mut(xrc) {
            xrc.users -= 1;
        }
    }

    /// Creates a shared receive queue of an XRC domain. Its receives complete in `cq`, and use the keys of
    /// `domain`.
    ///
    /// # Errors
    /// See [`Device::create_srq`]. Also fails if the XRC domain or the completion queue does not exist.
    pub fn create_xrc_srq(
        &mut self,
        xrc: Handle<kind::Xrc>,
        domain: Handle<kind::Domain>,
        cq: Handle<kind::Cq>,
        attributes: SrqAttributes,
    ) -> Result<Handle<kind::Srq>, ObjectError> {
        self.xrc(xrc)?;
        self.cq_mut(cq)?;
        let made = self.create_srq(domain, attributes)?;
        self.srq_mut(made)?.xrc = Some(XrcQueue { domain: xrc, cq });
        self.cq_mut(cq)?.users += 1;
        self.join_xrc(xrc);
        Ok(made)
    }

    /// Returns the number by which XRC requests name a shared receive queue.
    ///
    /// # Errors
    /// The queue does not exist, or is not of an XRC domain.
    pub fn srq_number(&self, srq: Handle<kind::Srq>) -> Result<SrqNumber, ObjectError> {
        let found = self.verbs.srqs.get(srq).filter(|shared| shared.xrc.is_some());
        found.ok_or(ObjectError::Unknown(ObjectKind::Srq)).map(|_| self.verbs.srq_number(srq))
    }

    /// Creates a target of an XRC domain in state [`QpState::Reset`](crate::QpState::Reset).
    ///
    /// # Errors
    /// The XRC domain does not exist, or the limit of queue pairs is reached.
    pub fn create_xrc_target(&mut self, xrc: Handle<kind::Xrc>) -> Result<Handle<kind::Qp>, ObjectError> {
        let &XrcDomain { domain, cq, .. } = self.xrc(xrc)?;
        let config = QpConfig {
            kind: QpType::XrcReceive,
            domain,
            send_cq: cq,
            receive_cq: cq,
            srq: None,
            capacity: QpCapacity::default(),
            signaling: Signaling::All,
        };
        let made = self.insert_qp(config, Some(xrc))?;
        self.join_xrc(xrc);
        Ok(made)
    }

    /// Returns a queue pair; restores the objects that an XRC target was created with.
    pub(super) fn restore_xrc_objects(&self, mut qp: QueuePair) -> QueuePair {
        if let Some(&XrcDomain { domain, cq, .. }) = qp.xrc.and_then(|xrc| self.xrc_domains.get(xrc)) {
            qp.receives = Receives::Own(ReceiveQueue::new(0, 0));
            (qp.domain, qp.receive_cq) = (domain, cq);
        }
        qp
    }
}
