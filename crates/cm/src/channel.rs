//! A channel: its identifiers, and the queue of events that a program has not fetched.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::event::Event;
use crate::name::{IdName, MembershipName};

/// The identifier that a connection request created, and the source of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Requested {
    pub(crate) id: IdName,
    pub(crate) source: IpAddr,
}

/// An event with the objects that it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct QueuedEvent {
    /// The identifier that counts the event: of a connection request, the listener.
    pub(crate) context: IdName,
    pub(crate) request: Option<Requested>,
    /// The membership that also counts the event.
    pub(crate) membership: Option<MembershipName>,
    pub(crate) event: Event,
}

/// A queue of events, and the identifiers that they belong to. Thousands of connections may share it, so no
/// operation iterates over all of them.
#[derive(Debug, Default)]
pub(crate) struct Channel {
    pub(crate) identifiers: BTreeSet<IdName>,
    /// By place in the queue.
    events: BTreeMap<u64, QueuedEvent>,
    /// The places of each identifier's events.
    places: BTreeSet<(IdName, u64)>,
    next_place: u64,
}

impl Channel {
    /// Returns true if there is no event.
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Appends an event.
    pub(crate) fn push(&mut self, queued: QueuedEvent) {
        self.places.insert((queued.context, self.next_place));
        self.events.insert(self.next_place, queued);
        self.next_place += 1;
    }

    /// Removes the first event.
    pub(crate) fn pop(&mut self) -> Option<QueuedEvent> {
        let (place, queued) = self.events.pop_first()?;
        self.places.remove(&(queued.context, place));
        Some(queued)
    }

    /// Removes the newest request of a source for a listener.
    pub(crate) fn take_newest_request(&mut self, listener: IdName, source: IpAddr) -> Option<Requested> {
        let request =
            |place: &u64| self.events.get(place)?.request.filter(|request| request.source == source);
        let newest_first = self.places.range((listener, 0)..=(listener, u64::MAX)).rev();
        let (place, request) =
            newest_first.map(|(_, place)| *place).find_map(|place| Some((place, request(&place)?)))?;
        self.places.remove(&(listener, place));
        self.events.remove(&place);
        Some(request)
    }

    /// Removes the events of an identifier that `belongs` selects, in their order.
    pub(crate) fn take(
        &mut self,
        context: IdName,
        belongs: impl Fn(&QueuedEvent) -> bool,
    ) -> Vec<QueuedEvent> {
        let of_context = self.places.range((context, 0)..=(context, u64::MAX)).map(|(_, place)| *place);
        let places: Vec<u64> =
            of_context.filter(|place| self.events.get(place).is_some_and(&belongs)).collect();
        let mut remove = |place| {
            self.places.remove(&(context, place));
            self.events.remove(&place)
        };
        places.into_iter().filter_map(&mut remove).collect()
    }
}
