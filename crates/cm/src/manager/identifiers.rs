//! Channels and identifiers: creating, destroying, migrating, options.

use nichrome_rdma::QpType;
use nichrome_wire::Instant;
use nichrome_wire::cm::PortSpace;
use nichrome_wire::rdma::Psn;

use super::Manager;
use crate::channel::Channel;
use crate::error::CommandError;
use crate::exchange::{Output, StreamName};
use crate::host::Host;
use crate::identifier::{IdState, Identifier, Link, Options};
use crate::name::{ChannelName, IdName};

impl<H: Host> Manager<H> {
    /// Opens a channel.
    ///
    /// # Errors
    /// The limit of channels is reached.
    pub fn create_channel(&mut self) -> Result<ChannelName, CommandError> {
        if self.channels.len() >= self.config.max_channels {
            return Err(CommandError::Exhausted);
        }
        let name = ChannelName(self.next_name());
        self.channels.insert(name, Channel::default());
        Ok(name)
    }

    /// Closes a channel and destroys its identifiers.
    ///
    /// # Errors
    /// No such channel.
    pub fn destroy_channel(&mut self, channel: ChannelName, now: Instant) -> Result<(), CommandError> {
        // With their channel, the events are dropped all at once. The requests in them are identifiers of the
        // channel, too.
        let Channel { identifiers, .. } = self.channels.remove(&channel).ok_or(CommandError::NotFound)?;
        for id in identifiers {
            self.remove_identifier(id, now);
        }
        Ok(())
    }

    /// Creates an identifier.
    ///
    /// # Errors
    /// No such channel; the limit of identifiers is reached.
    pub fn create_id(
        &mut self,
        channel: ChannelName,
        uid: u64,
        space: PortSpace,
        kind: QpType,
    ) -> Result<IdName, CommandError> {
        let psn = Psn::new(self.random.next_u32());
        self.insert_identifier(Identifier::new(channel, uid, space, kind, psn))
    }

    pub(super) fn insert_identifier(&mut self, identifier: Identifier) -> Result<IdName, CommandError> {
        if self.identifiers.len() >= self.config.max_identifiers {
            return Err(CommandError::Exhausted);
        }
        if !self.channels.contains_key(&identifier.channel) {
            return Err(CommandError::NotFound);
        }
        let name = IdName(self.next_name());
        self.enter_channel(name, identifier.channel);
        self.identifiers.insert(name, identifier);
        Ok(name)
    }

    fn enter_channel(&mut self, id: IdName, channel: ChannelName) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.identifiers.insert(id);
        }
    }

    fn leave_channel(&mut self, id: IdName, channel: ChannelName) {
        if let Some(channel) = self.channels.get_mut(&channel) {
            channel.identifiers.remove(&id);
        }
    }

    /// Checks that an identifier belongs to a channel.
    ///
    /// # Errors
    /// No such identifier; it belongs to another channel.
    pub fn check_channel(&self, channel: ChannelName, id: IdName) -> Result<(), CommandError> {
        match self.identifier(id)?.channel == channel {
            true => Ok(()),
            false => Err(CommandError::WrongChannel),
        }
    }

    /// Destroys an identifier: rejects, disconnects or stops listening, depending on its state. Returns how
    /// many of its events were fetched.
    ///
    /// # Errors
    /// No such identifier.
    pub fn destroy_id(&mut self, id: IdName, now: Instant) -> Result<u32, CommandError> {
        self.remove_identifier(id, now).ok_or(CommandError::NotFound)
    }

    fn remove_identifier(&mut self, id: IdName, now: Instant) -> Option<u32> {
        self.set_deadline(id, None);
        let identifier = self.identifiers.get(&id)?;
        let (state, channel) = (identifier.state, identifier.channel);
        let service = (identifier.space, identifier.source.port());
        for membership in identifier.memberships.clone() {
            self.forget_membership(membership);
        }
        if state == IdState::Listen && self.is_stream() {
            self.outputs.push_back(Output::StopListening(id));
        }
        self.release_link(id, now);
        let identifier = self.identifiers.remove(&id)?;
        self.leave_channel(id, channel);
        if identifier.owns_port {
            self.ports.release(&mut self.host, identifier.space, identifier.source.port(), id);
        }
        if state == IdState::Listen && !self.is_stream() {
            self.listener_closed(service, now);
        }
        if identifier.events_queued > 0 {
            self.drop_events(id, channel, now);
        }
        Some(identifier.events_reported)
    }

    /// Drops the events that the program has not fetched. Requests that it has not seen end with their
    /// listener.
    fn drop_events(&mut self, id: IdName, channel: ChannelName, now: Instant) {
        let Some(queue) = self.channels.get_mut(&channel) else { return };
        for queued in queue.take(id, |_| true) {
            if let Some(request) = queued.request {
                self.remove_identifier(request.id, now);
            }
        }
    }

    fn release_link(&mut self, id: IdName, now: Instant) {
        if let Some(connection) = self.connection_of(id) {
            self.ib.release(connection, now);
        }
        self.release_stream(id);
    }

    fn release_stream(&mut self, id: IdName) {
        let Some(Link::Stream(stream)) = self.identifiers.get(&id).map(|identifier| identifier.link) else {
            return;
        };
        if let StreamName::Incoming(number) = stream {
            self.incoming.remove(&number);
        }
        self.outputs.push_back(Output::Release(stream));
    }

    /// Removes the identifier of a request that the program has not fetched. The peer may retransmit the
    /// request.
    pub(super) fn forget_request(&mut self, id: IdName) {
        if let Some(connection) = self.connection_of(id) {
            self.ib.remove(connection);
        }
        self.release_stream(id);
        if let Some(identifier) = self.identifiers.remove(&id) {
            self.leave_channel(id, identifier.channel);
        }
    }

    /// Moves an identifier, with its events and the requests in them, from its channel to another. Returns
    /// how many of its events were fetched.
    ///
    /// # Errors
    /// No such identifier or channel.
    pub fn migrate_id(&mut self, id: IdName, to: ChannelName) -> Result<u32, CommandError> {
        let from = self.identifier(id)?.channel;
        if !self.channels.contains_key(&to) {
            return Err(CommandError::NotFound);
        }
        let source = self.channels.get_mut(&from).ok_or(CommandError::NotFound)?;
        let events = source.take(id, |_| true);
        let target = self.channels.get_mut(&to).ok_or(CommandError::NotFound)?;
        if target.is_empty() && !events.is_empty() {
            self.outputs.push_back(Output::Readable(to));
        }
        let requests: Vec<IdName> = events.iter().filter_map(|queued| Some(queued.request?.id)).collect();
        events.into_iter().for_each(|queued| target.push(queued));
        for moved in requests.into_iter().chain([id]) {
            // Fails only if the program has destroyed the request.
            if let Ok(identifier) = self.identifier_mut(moved) {
                let before = std::mem::replace(&mut identifier.channel, to);
                self.leave_channel(moved, before);
                self.enter_channel(moved, to);
            }
        }
        Ok(self.identifier(id)?.events_reported)
    }

    /// Sets the traffic class (type of service) of the connection's packets.
    ///
    /// # Errors
    /// No such identifier.
    pub fn set_traffic_class(&mut self, id: IdName, traffic_class: u8) -> Result<(), CommandError> {
        self.options(id)?.traffic_class = traffic_class;
        Ok(())
    }

    /// Allows sharing the port with identifiers that also allow it and do not listen.
    ///
    /// # Errors
    /// No such identifier; it listens; it is bound, and would no longer share.
    pub fn set_reuse_address(&mut self, id: IdName, reuse: bool) -> Result<(), CommandError> {
        let identifier = self.identifier_mut(id)?;
        let may_begin = reuse && identifier.state != IdState::Listen;
        if !may_begin && identifier.state != IdState::Idle {
            return Err(CommandError::State);
        }
        identifier.options.reuse_address = reuse;
        self.change_binding(id)
    }

    /// Returns true if [`set_family_only`](Self::set_family_only) has set an identifier's address family.
    pub fn is_family_only(&self, id: IdName) -> bool {
        self.identifier(id).is_ok_and(|identifier| identifier.options.family_only == Some(true))
    }

    /// Leaves the port of the other address family to others.
    ///
    /// # Errors
    /// No such identifier; it is bound and resolves, listens or connects.
    pub fn set_family_only(&mut self, id: IdName, only: bool) -> Result<(), CommandError> {
        let identifier = self.identifier_mut(id)?;
        if !matches!(identifier.state, IdState::Idle | IdState::AddressBound) {
            return Err(CommandError::State);
        }
        identifier.options.family_only = Some(only);
        self.change_binding(id)
    }

    /// Applies the changed options to the binding of an identifier that owns a port.
    fn change_binding(&mut self, id: IdName) -> Result<(), CommandError> {
        let identifier = self.identifier(id)?;
        let (space, binding) = (identifier.space, identifier.binding(identifier.source));
        if identifier.owns_port {
            self.ports.change(space, id, binding);
        }
        Ok(())
    }

    /// Sets the ACK timeout of the connection's queue pairs: 4.096 µs · 2ⁿ, n at most 31; 0 is the
    /// configuration's.
    ///
    /// # Errors
    /// No such identifier, or one for datagrams.
    pub fn set_ack_timeout(&mut self, id: IdName, exponent: u8) -> Result<(), CommandError> {
        if exponent > 31 || !matches!(self.identifier(id)?.kind, QpType::Rc | QpType::XrcSend) {
            return Err(CommandError::Argument);
        }
        self.options(id)?.ack_timeout = Some(exponent).filter(|exponent| *exponent != 0);
        Ok(())
    }

    fn options(&mut self, id: IdName) -> Result<&mut Options, CommandError> {
        Ok(&mut self.identifier_mut(id)?.options)
    }
}
