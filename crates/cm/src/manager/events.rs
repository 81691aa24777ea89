//! Queueing and fetching events.

use super::Manager;
use crate::channel::QueuedEvent;
use crate::error::{CommandError, Errno};
use crate::event::{ConnectionParameters, DatagramParameters, Event, EventKind, Parameters};
use crate::exchange::Output;
use crate::identifier::Identifier;
use crate::name::{ChannelName, IdName, MembershipName};
use nichrome_wire::rdma::{QKey, QpNumber};

/// Private data in an event, in bytes: its length has 8 bits.
pub(super) const MAX_PRIVATE_DATA: usize = 255;

impl<H> Manager<H> {
    /// Fetches the next event of a channel; `None` if there is none.
    ///
    /// # Errors
    /// No such channel.
    pub fn get_event(&mut self, channel: ChannelName) -> Result<Option<Event>, CommandError> {
        let queue = self.channels.get_mut(&channel).ok_or(CommandError::NotFound)?;
        let Some(queued) = queue.pop() else { return Ok(None) };
        if let Some(context) = self.identifiers.get_mut(&queued.context) {
            context.events_queued -= 1;
            context.events_reported += 1;
            if let Some(request) = queued.request {
                context.backlog.remove(request.source);
            }
        }
        if let Some(membership) = queued.membership.and_then(|name| self.memberships.get_mut(&name)) {
            membership.events_reported += 1;
        }
        Ok(Some(queued.event))
    }

    /// Returns true if a channel has an event to fetch.
    pub fn has_event(&self, channel: ChannelName) -> bool {
        self.channels.get(&channel).is_some_and(|queue| !queue.is_empty())
    }

    /// Queues an event that the program writes, of its own or of librdmacm's.
    ///
    /// # Errors
    /// The event is of another kind, or too many events of the identifier are not fetched.
    pub fn write_event(
        &mut self,
        id: IdName,
        kind: EventKind,
        status: i32,
        argument: u64,
    ) -> Result<(), CommandError> {
        if !matches!(kind, EventKind::User | EventKind::Internal) {
            return Err(CommandError::Argument);
        }
        self.check_queue(id)?;
        self.raise_with(id, kind, status, Parameters::Argument(argument));
        Ok(())
    }

    /// Queues an event of an identifier, unless its program has no name for it yet.
    pub(super) fn raise(&mut self, id: IdName, kind: EventKind, status: i32) {
        let Some(identifier) = self.identifiers.get(&id) else { return };
        let parameters = identifier.no_parameters();
        self.raise_with(id, kind, status, parameters);
    }

    /// As [`raise`](Self::raise), with an error number as the status.
    pub(super) fn raise_error(&mut self, id: IdName, kind: EventKind, error: Errno) {
        self.raise(id, kind, error.status());
    }

    /// As [`raise`](Self::raise), with parameters.
    pub(super) fn raise_with(&mut self, id: IdName, kind: EventKind, status: i32, parameters: Parameters) {
        let Some(identifier) = self.identifiers.get(&id).filter(|identifier| identifier.uid != 0) else {
            return;
        };
        let event = Event { uid: identifier.uid, id: id.0, kind, status, parameters, ece: identifier.ece };
        self.queue(QueuedEvent { context: id, request: None, membership: None, event });
    }

    /// Queues an event of a membership.
    pub(super) fn raise_membership(&mut self, id: IdName, membership: MembershipName, event: Event) {
        self.queue(QueuedEvent { context: id, request: None, membership: Some(membership), event });
    }

    pub(super) fn queue(&mut self, mut queued: QueuedEvent) {
        let Some(context) = self.identifiers.get_mut(&queued.context) else { return };
        let Some(channel) = self.channels.get_mut(&context.channel) else { return };
        context.events_queued += 1;
        match &mut queued.event.parameters {
            Parameters::Connection(parameters) => parameters.private_data.truncate(MAX_PRIVATE_DATA),
            Parameters::Datagram(parameters) => parameters.private_data.truncate(MAX_PRIVATE_DATA),
            Parameters::Argument(_) => {}
        }
        if channel.is_empty() {
            self.outputs.push_back(Output::Readable(context.channel));
        }
        channel.push(queued);
    }

    /// Fails if [`Config::max_queued_events`](crate::Config::max_queued_events) events of the identifier are
    /// not fetched: the command would cause another.
    pub(super) fn check_queue(&self, id: IdName) -> Result<(), CommandError> {
        match self.identifier(id)?.events_queued < self.config.max_queued_events {
            true => Ok(()),
            false => Err(CommandError::Exhausted),
        }
    }
}

impl Identifier {
    /// Default parameters, for an event without parameters.
    pub(super) fn no_parameters(&self) -> Parameters {
        if self.is_datagram() {
            let (qp, qkey) = (QpNumber::default(), QKey::default());
            Parameters::Datagram(DatagramParameters { private_data: Vec::new(), qp, qkey, path: None })
        } else {
            Parameters::Connection(ConnectionParameters::default())
        }
    }
}
