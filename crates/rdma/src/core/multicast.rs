//! Multicast groups and the queue pairs attached to them.

use std::net::IpAddr;

use super::error::{MulticastError, ObjectError, ObjectKind};
use super::kind;
use super::slab::Handle;

/// A change to the device's groups, which the driver's sockets follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupChange {
    /// The group is as before.
    None,
    /// The group has its first member: the driver joins it.
    Joined,
    /// The group has no member any more: the driver leaves it.
    Left,
}

/// The groups that have members, in the order of their first attachment.
pub(crate) struct Groups {
    groups: Vec<Group>,
    /// Maximum number of groups.
    limit: usize,
    /// Maximum number of members of a group.
    members: usize,
}

struct Group {
    address: IpAddr,
    members: Vec<Handle<kind::Qp>>,
}

impl Groups {
    pub(crate) fn new(limit: usize, members: usize) -> Self {
        Self { groups: Vec::new(), limit, members }
    }

    fn position(&self, address: IpAddr) -> Option<usize> {
        self.groups.iter().position(|group| group.address == address)
    }

    /// Attaches a queue pair to a group. No effect if it is attached already.
    pub(crate) fn attach(
        &mut self,
        address: IpAddr,
        qp: Handle<kind::Qp>,
    ) -> Result<GroupChange, ObjectError> {
        let Some(index) = self.position(address) else {
            if self.groups.len() >= self.limit {
                return Err(ObjectError::Exhausted(ObjectKind::Group));
            }
            self.groups.push(Group { address, members: vec![qp] });
            return Ok(GroupChange::Joined);
        };
        let members = &mut self.groups[index].members;
        if !members.contains(&qp) {
            if members.len() >= self.members {
                return Err(ObjectError::Exhausted(ObjectKind::Group));
            }
            members.push(qp);
        }
        Ok(GroupChange::None)
    }

    /// Detaches a queue pair from a group.
    pub(crate) fn detach(
        &mut self,
        address: IpAddr,
        qp: Handle<kind::Qp>,
    ) -> Result<GroupChange, MulticastError> {
        let index = self.position(address).ok_or(MulticastError::NotAttached)?;
        let members = &mut self.groups[index].members;
        let member = members.iter().position(|member| *member == qp).ok_or(MulticastError::NotAttached)?;
        members.remove(member);
        if !members.is_empty() {
            return Ok(GroupChange::None);
        }
        self.groups.remove(index);
        Ok(GroupChange::Left)
    }

    /// Returns the groups that a queue pair is attached to.
    pub(crate) fn of(&self, qp: Handle<kind::Qp>) -> Vec<IpAddr> {
        let attached = self.groups.iter().filter(|group| group.members.contains(&qp));
        attached.map(|group| group.address).collect()
    }

    /// Returns the index of the `nth` member of a group.
    #[cold]
    pub(crate) fn member(&self, address: IpAddr, nth: usize) -> Option<u32> {
        let group = &self.groups[self.position(address)?];
        group.members.get(nth).map(|member| member.index())
    }
}
