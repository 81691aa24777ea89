//! Executes the commands that programs write as bytes, and reports the multicast groups that they join.

use std::net::IpAddr;
use std::sync::Arc;

use nichrome_cm::ucma::{Answer, Caller, execute};
use nichrome_cm::{ChannelName, CommIdPrefix, CommandError, ConfigError, Errno, Input, MembershipName};
use nichrome_port::Waker;
use nichrome_rdma::{Config, Device, Memory};
use nichrome_wire::{Engine, Instant};

use super::joining::Joining;
use super::machine::Machine;
use super::manager::ConnectionManager;
use super::programs::{DetachedManager, GroupRequest, update_waker};

/// A caller that records which other channel a command names.
struct Recording<'a> {
    caller: &'a mut dyn Caller,
    other: Option<ChannelName>,
}

impl Caller for Recording<'_> {
    fn read(&mut self, address: u64, len: usize) -> Option<Vec<u8>> {
        self.caller.read(address, len)
    }

    fn channel_of(&mut self, fd: u32) -> Option<ChannelName> {
        self.other = self.caller.channel_of(fd);
        self.other
    }
}

impl ConnectionManager {
    /// Creates the connection manager of a device from the one at `place`; `None` if there is none.
    ///
    /// # Errors
    /// An option is out of range: `place` keeps its manager.
    pub(crate) fn of_detached(
        place: &mut Option<DetachedManager>,
        machine: (IpAddr, Machine),
        joining: Option<Joining>,
        device: &Config,
        comm_ids: CommIdPrefix,
    ) -> Result<Option<Self>, ConfigError> {
        if let Some(detached) = place {
            detached.engine.set_adapter(comm_ids, device.mtu)?;
        }
        Ok(place.take().map(|DetachedManager { engine, channels }| {
            let mut manager = Self::of_engine(engine, machine, joining);
            manager.programs.channels = channels;
            manager
        }))
    }

    /// Opens a channel of a program.
    ///
    /// # Errors
    /// The limit of channels is reached.
    pub(crate) fn open_channel(&mut self, ready: &Arc<Waker>) -> Result<ChannelName, CommandError> {
        let name = self.engine.create_channel()?;
        self.programs.channels.insert(name, Arc::clone(ready));
        Ok(name)
    }

    /// Destroys a channel of a program, and its identifiers.
    pub(crate) fn close_channel<M: Memory>(
        &mut self,
        channel: ChannelName,
        device: &mut Device<M>,
        now: Instant,
    ) {
        self.programs.channels.remove(&channel);
        // Fails only for an unknown channel.
        let _ = self.engine.destroy_channel(channel, now);
        self.drain(device, now);
    }

    /// Gives up the network and the wakers of the programs' channels in a forked child, without effect on its
    /// parent. From now on, commands have no effect outside of this process.
    pub(crate) fn close_in_child(&mut self) {
        self.programs.channels.clear();
        self.joining = None;
        self.engine.host_mut().close_in_child();
    }

    /// Destroys all channels of programs, since the process exits. Threads that still wait for events get
    /// none.
    pub(crate) fn close_channels<M: Memory>(&mut self, device: &mut Device<M>, now: Instant) {
        self.programs.have_ended = true;
        let channels: Vec<ChannelName> = self.programs.channels.keys().copied().collect();
        channels.into_iter().for_each(|channel| self.close_channel(channel, device, now));
    }

    /// Executes a command of a program.
    ///
    /// # Errors
    /// The error number of the program's write. EAGAIN: there is no event, or the process exits.
    pub(crate) fn execute<M: Memory>(
        &mut self,
        channel: ChannelName,
        caller: &mut dyn Caller,
        written: &[u8],
        device: &mut Device<M>,
        now: Instant,
    ) -> Result<Option<Answer>, Errno> {
        if self.programs.have_ended {
            return Err(Errno::EAGAIN);
        }
        let mut caller = Recording { caller, other: None };
        let result = execute(&mut self.engine, channel, &mut caller, written, now);
        self.drain(device, now);
        for channel in [Some(channel), caller.other].into_iter().flatten() {
            update_waker(&self.engine, channel, &self.programs.channels);
        }
        result
    }

    /// Takes the requests about multicast groups. Each join must be answered by
    /// [`group_joined`](Self::group_joined).
    pub(crate) fn take_group_requests(&mut self) -> Vec<GroupRequest> {
        std::mem::take(&mut self.programs.requests)
    }

    /// Reports that the group of a membership is joined, or that joining failed.
    pub(crate) fn group_joined<M: Memory>(
        &mut self,
        membership: MembershipName,
        result: Result<IpAddr, Errno>,
        device: &mut Device<M>,
        now: Instant,
    ) {
        if let Ok(group) = result {
            self.programs.memberships.insert(membership, group);
        }
        self.engine.receive(Input::GroupJoined(membership, result.map(drop)), now);
        self.drain(device, now);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::Ipv4Addr;

    use nichrome_cm::Bearer;
    use nichrome_wire::cm::Guid;

    use super::super::manager::{Seeds, new_engine};
    use super::super::options::CmOptions;
    use super::*;

    #[test]
    fn a_manager_that_an_adapter_cannot_take_over_stays_detached() {
        let seeds = Seeds { repeatable: 1, identity: 2 };
        let engine = new_engine(Bearer::Roce, Guid(1), seeds, &CmOptions::default()).unwrap();
        let mut place = Some(DetachedManager { engine, channels: BTreeMap::new() });
        let mut take_over = |comm_ids| {
            let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
            let machine = (address, Machine::new(address, None));
            let taken = ConnectionManager::of_detached(
                &mut place,
                machine,
                None,
                &Config::new(vec![address]),
                comm_ids,
            );
            (taken.map(|manager| manager.is_some()), place.is_some())
        };
        let too_large = CommIdPrefix { bits: 4, value: 16 };
        assert_eq!(take_over(too_large), (Err(ConfigError::Prefix { bits: 4, value: 16 }), true));
        assert_eq!(take_over(CommIdPrefix::default()), (Ok(true), false));
        assert_eq!(take_over(CommIdPrefix::default()), (Ok(false), false));
    }
}
