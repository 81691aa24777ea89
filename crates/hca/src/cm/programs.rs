//! Channels of programs that write commands: their wakers and multicast groups.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use nichrome_cm::{ChannelName, Manager, MembershipName};
use nichrome_port::Waker;

use super::machine::Machine;

/// Channels of programs, and the groups that they are members of.
#[derive(Default)]
pub(super) struct Programs {
    pub(super) channels: BTreeMap<ChannelName, Arc<Waker>>,
    /// All channels were destroyed, since the process exits.
    pub(super) have_ended: bool,
    pub(super) memberships: BTreeMap<MembershipName, IpAddr>,
    /// Requests that the driver has not taken, in order.
    pub(super) requests: Vec<GroupRequest>,
}

/// An engine without an adapter, and its channels.
pub(crate) struct DetachedManager {
    pub(crate) engine: Manager<Machine>,
    pub(crate) channels: BTreeMap<ChannelName, Arc<Waker>>,
}

/// A request to the driver to join or leave a multicast group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupRequest {
    Join(MembershipName, IpAddr),
    Leave(IpAddr),
}

impl Programs {
    /// Signals the waker of a channel that has events.
    pub(super) fn wake(&self, channel: ChannelName) {
        if let Some(ready) = self.channels.get(&channel) {
            ready.wake();
        }
    }

    /// Queues the request to leave the group of a membership that has joined one.
    pub(super) fn leave(&mut self, membership: MembershipName) {
        let has_not_joined =
            |request: &GroupRequest| !matches!(request, GroupRequest::Join(name, _) if *name == membership);
        self.requests.retain(has_not_joined);
        if let Some(group) = self.memberships.remove(&membership) {
            self.requests.push(GroupRequest::Leave(group));
        }
    }
}

/// Signals the waker of a channel that has an event, else clears it: a command may have added, fetched,
/// dropped or moved the last event, and a wait may have cleared the waker.
pub(super) fn update_waker(
    engine: &Manager<Machine>,
    channel: ChannelName,
    wakers: &BTreeMap<ChannelName, Arc<Waker>>,
) {
    match wakers.get(&channel) {
        Some(ready) if engine.has_event(channel) => ready.wake(),
        Some(ready) => ready.clear(),
        None => {}
    }
}
