//! Memberships in multicast groups.

use std::net::IpAddr;

use nichrome_rdma::AddressVector;
use nichrome_wire::TrafficClass;
use nichrome_wire::rdma::{QKey, QpNumber};

use super::{DEFAULT_QKEY, Manager};
use crate::error::{CommandError, Errno};
use crate::event::{DatagramParameters, Event, EventKind, Parameters};
use crate::exchange::{Output, Reception};
use crate::identifier::{IdState, Membership};
use crate::name::{IdName, MembershipName};

impl<H> Manager<H> {
    /// Joins a group, for an identifier for datagrams that is bound or resolved. `MulticastJoin` or
    /// `MulticastError` follows, with the name of the membership and `uid`.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn join_multicast(
        &mut self,
        id: IdName,
        uid: u64,
        group: IpAddr,
        reception: Reception,
    ) -> Result<MembershipName, CommandError> {
        self.check_queue(id)?;
        if self.is_stream() {
            return Err(CommandError::NotSupported);
        }
        let identifier = self.identifier(id)?;
        let is_bound = matches!(identifier.state, IdState::AddressBound | IdState::AddressResolved);
        if !is_bound || identifier.source_index.is_none() || !identifier.is_datagram() {
            return Err(CommandError::State);
        }
        if !group.is_multicast() || group.is_ipv4() != identifier.source.is_ipv4() {
            return Err(CommandError::Argument);
        }
        if self.memberships.len() >= self.config.max_memberships {
            return Err(CommandError::Exhausted);
        }
        let source = identifier.source.ip();
        let name = MembershipName(self.next_name());
        self.memberships.insert(name, Membership { id, uid, group, is_answered: false, events_reported: 0 });
        let identifier = self.identifier_mut(id)?;
        identifier.memberships.push(name);
        identifier.qkey.get_or_insert(QKey(DEFAULT_QKEY));
        self.outputs.push_back(Output::JoinGroup { membership: name, source, group, reception });
        Ok(name)
    }

    pub(super) fn group_joined(&mut self, name: MembershipName, result: Result<(), Errno>) {
        let Some(membership) = self.memberships.get_mut(&name).filter(|membership| !membership.is_answered)
        else {
            return;
        };
        membership.is_answered = true;
        let (id, uid, group) = (membership.id, membership.uid, membership.group);
        let Some(identifier) = self.identifiers.get(&id) else { return };
        let (traffic_class, flow_label) = (TrafficClass(identifier.options.traffic_class), 0);
        let path = identifier.source_index.map(|source_index| AddressVector {
            source_index,
            destination: group,
            traffic_class,
            flow_label,
            hop_limit: 64,
        });
        let qkey = identifier.qkey.unwrap_or_default();
        let (kind, status) = match result {
            Ok(()) => (EventKind::MulticastJoin, 0),
            Err(error) => (EventKind::MulticastError, error.status()),
        };
        let parameters = DatagramParameters { private_data: Vec::new(), qp: QpNumber::MULTICAST, qkey, path };
        let parameters = Parameters::Datagram(parameters);
        let event = Event { uid, id: name.0, kind, status, parameters, ece: Default::default() };
        self.raise_membership(id, name, event);
    }

    /// Leaves a group. Returns how many of the membership's events were fetched.
    ///
    /// # Errors
    /// No such membership.
    pub fn leave_multicast(&mut self, name: MembershipName) -> Result<u32, CommandError> {
        let id = self.memberships.get(&name).ok_or(CommandError::NotFound)?.id;
        if let Some(identifier) = self.identifiers.get_mut(&id) {
            identifier.memberships.retain(|other| *other != name);
            let channel = self.channels.get_mut(&identifier.channel);
            let dropped =
                channel.map_or(0, |channel| channel.take(id, |queued| queued.membership == Some(name)).len());
            identifier.events_queued -= dropped as u32;
        }
        self.forget_membership(name).ok_or(CommandError::NotFound)
    }

    /// Leaves the group of a membership whose identifier ends.
    pub(super) fn forget_membership(&mut self, name: MembershipName) -> Option<u32> {
        let membership = self.memberships.remove(&name)?;
        self.outputs.push_back(Output::LeaveGroup(name));
        Some(membership.events_reported)
    }

    /// Returns the identifier of a membership.
    ///
    /// # Errors
    /// No such membership.
    pub fn id_of_membership(&self, name: MembershipName) -> Result<IdName, CommandError> {
        Ok(self.memberships.get(&name).ok_or(CommandError::NotFound)?.id)
    }
}
