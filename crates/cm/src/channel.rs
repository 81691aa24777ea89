//! A channel: the queue of events that a program has not fetched.

use std::collections::VecDeque;

use crate::event::Event;
use crate::name::{IdName, MembershipName};

/// An event with the objects that it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    /// The identifier that counts the event: of a connection request, the listener.
    pub(crate) context: IdName,
    /// The identifier that a connection request created.
    pub(crate) request: Option<IdName>,
    /// The membership that also counts the event.
    pub(crate) membership: Option<MembershipName>,
    pub(crate) event: Event,
}

/// A queue of events.
#[derive(Debug, Default)]
pub(crate) struct Channel {
    pub(crate) events: VecDeque<Queued>,
}

impl Channel {
    /// Removes the events that `belongs` selects.
    pub(crate) fn take(&mut self, belongs: impl Fn(&Queued) -> bool) -> Vec<Queued> {
        let (taken, kept): (Vec<Queued>, Vec<Queued>) =
            std::mem::take(&mut self.events).into_iter().partition(|queued| belongs(queued));
        self.events = kept.into();
        taken
    }
}
