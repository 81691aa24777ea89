//! The verbs of multicast groups; `datagrams.rs` delivers their datagrams.

use std::net::IpAddr;

use super::Device;
use crate::core::attributes::QpType;
use crate::core::error::{MulticastError, ObjectError, ObjectKind};
use crate::core::kind;
use crate::core::memory::Memory;
use crate::core::multicast::GroupChange;
use crate::core::slab::Handle;

impl<M: Memory> Device<M> {
    /// Attaches a UD queue pair to a multicast group: it receives the datagrams to the group. No effect if it
    /// is attached already.
    ///
    /// # Errors
    /// The queue pair does not exist or is of another service, the address is not a multicast address of the
    /// device's family, or the limit of groups or of their members is reached.
    pub fn attach_multicast(
        &mut self,
        handle: Handle<kind::Qp>,
        group: IpAddr,
    ) -> Result<GroupChange, MulticastError> {
        let transport = self.qps.get(handle).ok_or(ObjectError::Unknown(ObjectKind::Qp))?;
        let kind = transport.qp().kind;
        if kind != QpType::Ud {
            return Err(MulticastError::Service(kind));
        }
        if !group.is_multicast() {
            return Err(MulticastError::Unicast(group));
        }
        if !self.config.addresses.iter().any(|local| local.is_ipv4() == group.is_ipv4()) {
            return Err(MulticastError::Family(group));
        }
        Ok(self.groups.attach(group, handle)?)
    }

    /// Detaches a queue pair from a multicast group.
    ///
    /// # Errors
    /// The queue pair is not attached to the group.
    pub fn detach_multicast(
        &mut self,
        handle: Handle<kind::Qp>,
        group: IpAddr,
    ) -> Result<GroupChange, MulticastError> {
        self.groups.detach(group, handle)
    }

    /// Returns the multicast groups that a queue pair is attached to. Drivers detach it from them before
    /// [`Device::destroy_qp`], to learn which groups to leave.
    pub fn multicast_groups(&self, handle: Handle<kind::Qp>) -> Vec<IpAddr> {
        self.groups.of(handle)
    }
}
