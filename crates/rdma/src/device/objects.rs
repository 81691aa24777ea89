//! The verbs of protection domains, completion queues, shared receive queues and address handles.

use std::collections::VecDeque;

use super::{Device, Domain, in_range};
use crate::core::attributes::AddressVector;
use crate::core::cq::{CompletionQueue, Moderation, Notify};
use crate::core::error::{ObjectError, ObjectKind};
use crate::core::kind;
use crate::core::memory::Memory;
use crate::core::receive_queue::{ReceiveQueue, SharedReceiveQueue};
use crate::core::slab::Handle;
use crate::core::verbs::Address;

/// Capacity and limit of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqAttributes {
    /// Maximum number of receives.
    pub wrs: usize,
    /// Maximum number of buffers in a receive.
    pub sges: usize,
    /// An event is raised once when fewer receives than this are posted; 0 disables it.
    pub limit: usize,
}

impl<M: Memory> Device<M> {
    /// Creates a protection domain.
    ///
    /// # Errors
    /// The limit of domains is reached.
    pub fn create_domain(&mut self) -> Result<Handle<kind::Domain>, ObjectError> {
        let made = self.domains.insert(|_| Domain { users: 0 });
        made.ok_or(ObjectError::Exhausted(ObjectKind::Domain))
    }

    /// Destroys a protection domain.
    ///
    /// # Errors
    /// The domain does not exist, or contains objects.
    pub fn destroy_domain(&mut self, domain: Handle<kind::Domain>) -> Result<(), ObjectError> {
        if self.domain_mut(domain)?.users > 0 {
            return Err(ObjectError::InUse(ObjectKind::Domain));
        }
        self.domains.remove(domain);
        Ok(())
    }

    /// Creates a completion queue for up to `capacity` completions.
    ///
    /// # Errors
    /// The capacity is out of range, or the limit of completion queues is reached.
    pub fn create_cq(&mut self, capacity: usize) -> Result<Handle<kind::Cq>, ObjectError> {
        in_range("the size of the completion queue", capacity, 1, self.config.limits.cqes)?;
        let made = self.verbs.cqs.insert(|_| CompletionQueue::new(capacity));
        let made = made.ok_or(ObjectError::Exhausted(ObjectKind::Cq))?;
        self.verbs.cq_timers.grow(made.index() as usize + 1);
        Ok(made)
    }

    /// Changes the capacity of a completion queue.
    ///
    /// # Errors
    /// The queue does not exist or holds more completions, or the capacity is out of range.
    pub fn resize_cq(&mut self, cq: Handle<kind::Cq>, capacity: usize) -> Result<(), ObjectError> {
        let most = self.config.limits.cqes;
        let queue = self.cq_mut(cq)?;
        in_range("the size of the completion queue", capacity, queue.len().max(1), most)?;
        queue.capacity = capacity;
        Ok(())
    }

    /// Sets the event moderation of a completion queue.
    ///
    /// # Errors
    /// The queue does not exist.
    pub fn moderate_cq(&mut self, cq: Handle<kind::Cq>, moderation: Moderation) -> Result<(), ObjectError> {
        self.cq_mut(cq)?.moderation = moderation;
        Ok(())
    }

    /// Requests one event for future completions.
    ///
    /// # Errors
    /// The queue does not exist.
    pub fn req_notify_cq(&mut self, cq: Handle<kind::Cq>, notify: Notify) -> Result<(), ObjectError> {
        self.cq_mut(cq)?.arm(notify);
        Ok(())
    }

    /// Destroys a completion queue and its completions.
    ///
    /// # Errors
    /// The queue does not exist, or queue pairs use it.
    pub fn destroy_cq(&mut self, cq: Handle<kind::Cq>) -> Result<(), ObjectError> {
        if self.cq_mut(cq)?.users > 0 {
            return Err(ObjectError::InUse(ObjectKind::Cq));
        }
        self.verbs.cqs.remove(cq);
        self.verbs.cq_timers.cancel(cq.index());
        Ok(())
    }

    pub(super) fn cq_mut(&mut self, cq: Handle<kind::Cq>) -> Result<&mut CompletionQueue, ObjectError> {
        self.verbs.cqs.get_mut(cq).ok_or(ObjectError::Unknown(ObjectKind::Cq))
    }

    /// Creates a shared receive queue.
    ///
    /// # Errors
    /// The domain does not exist, a size is out of range, or the limit of shared receive queues is reached.
    pub fn create_srq(
        &mut self,
        domain: Handle<kind::Domain>,
        attributes: SrqAttributes,
    ) -> Result<Handle<kind::Srq>, ObjectError> {
        self.domain_mut(domain)?;
        let SrqAttributes { wrs, sges, limit } = attributes;
        in_range("the size of the shared receive queue", wrs, 1, self.config.limits.wrs)?;
        in_range("the number of buffers", sges, 0, self.config.limits.sges)?;
        in_range("the limit of the shared receive queue", limit, 0, wrs)?;
        let queue = ReceiveQueue::new(wrs, sges);
        let made = self.verbs.srqs.insert(|_| SharedReceiveQueue {
            domain,
            queue,
            limit,
            waiters: VecDeque::new(),
            users: 0,
            xrc: None,
        });
        let made = made.ok_or(ObjectError::Exhausted(ObjectKind::Srq))?;
        self.join(domain);
        Ok(made)
    }

    /// Changes the capacity of a shared receive queue and arms its limit; `None` leaves a value unchanged.
    ///
    /// # Errors
    /// The queue does not exist or holds more receives, or a value is out of range.
    pub fn modify_srq(
        &mut self,
        srq: Handle<kind::Srq>,
        wrs: Option<usize>,
        limit: Option<usize>,
    ) -> Result<(), ObjectError> {
        let most = self.config.limits.wrs;
        let shared = self.srq_mut(srq)?;
        let wrs = wrs.unwrap_or(shared.queue.max_wr);
        in_range("the size of the shared receive queue", wrs, shared.queue.in_use().max(1), most)?;
        let limit = limit.unwrap_or(shared.limit);
        in_range("the limit of the shared receive queue", limit, 0, wrs)?;
        (shared.queue.max_wr, shared.limit) = (wrs, limit);
        if limit > 0 && shared.passed_limit() {
            self.verbs.events.push_back(crate::Event::SrqLimit(srq));
        }
        Ok(())
    }

    /// Returns capacity and limit of a shared receive queue.
    ///
    /// # Errors
    /// The queue does not exist.
    pub fn query_srq(&self, srq: Handle<kind::Srq>) -> Result<SrqAttributes, ObjectError> {
        let shared = self.verbs.srqs.get(srq).ok_or(ObjectError::Unknown(ObjectKind::Srq))?;
        Ok(SrqAttributes { wrs: shared.queue.max_wr, sges: shared.queue.max_sge, limit: shared.limit })
    }

    /// Destroys a shared receive queue and its receives.
    ///
    /// # Errors
    /// The queue does not exist, or queue pairs use it.
    pub fn destroy_srq(&mut self, srq: Handle<kind::Srq>) -> Result<(), ObjectError> {
        let shared = self.srq_mut(srq)?;
        if shared.users > 0 {
            return Err(ObjectError::InUse(ObjectKind::Srq));
        }
        let (domain, xrc) = (shared.domain, shared.xrc);
        self.verbs.srqs.remove(srq);
        self.leave(domain);
        if let Some(xrc) = xrc {
            self.leave_xrc(xrc.domain);
            self.cq_mut(xrc.cq)?.users -= 1;
        }
        Ok(())
    }

    pub(super) fn srq_mut(&mut self, srq: Handle<kind::Srq>) -> Result<&mut SharedReceiveQueue, ObjectError> {
        self.verbs.srqs.get_mut(srq).ok_or(ObjectError::Unknown(ObjectKind::Srq))
    }

    /// Creates an address handle: a path for datagrams.
    ///
    /// # Errors
    /// The domain or the source address does not exist, or the limit of address handles is reached.
    pub fn create_address(
        &mut self,
        domain: Handle<kind::Domain>,
        vector: AddressVector,
    ) -> Result<Handle<kind::Address>, ObjectError> {
        self.domain_mut(domain)?;
        self.environment.addresses.route(&vector, 0, 0).ok_or(ObjectError::Address(vector.source_index))?;
        let made = self.verbs.addresses.insert(|_| Address { domain, vector });
        let made = made.ok_or(ObjectError::Exhausted(ObjectKind::Address))?;
        self.join(domain);
        Ok(made)
    }

    /// Returns the path of an address handle.
    ///
    /// # Errors
    /// The address handle does not exist.
    pub fn query_address(&self, address: Handle<kind::Address>) -> Result<AddressVector, ObjectError> {
        let found = self.verbs.addresses.get(address).map(|address| address.vector);
        found.ok_or(ObjectError::Unknown(ObjectKind::Address))
    }

    /// Destroys an address handle. Posted datagrams that use it fail.
    ///
    /// # Errors
    /// The address handle does not exist.
    pub fn destroy_address(&mut self, address: Handle<kind::Address>) -> Result<(), ObjectError> {
        let gone = self.verbs.addresses.remove(address);
        let domain = gone.ok_or(ObjectError::Unknown(ObjectKind::Address))?.domain;
        self.leave(domain);
        Ok(())
    }
}
