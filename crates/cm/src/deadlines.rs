//! A set of deadlines, at most one per object.

use std::collections::BTreeSet;

use nichrome_wire::Instant;

/// Deadlines in the order of time. The owner of a deadline keeps it too, and passes it to
/// [`Deadlines::change`].
#[derive(Debug)]
pub(crate) struct Deadlines<N>(BTreeSet<(Instant, N)>);

impl<N: Copy + Ord> Deadlines<N> {
    pub(crate) const fn new() -> Self {
        Self(BTreeSet::new())
    }

    /// Replaces the deadline of `name`, which was `before`.
    pub(crate) fn change(&mut self, name: N, before: Option<Instant>, after: Option<Instant>) {
        if let Some(before) = before {
            self.0.remove(&(before, name));
        }
        if let Some(after) = after {
            self.0.insert((after, name));
        }
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.0.first().map(|(due, _)| *due)
    }

    /// The object whose deadline is the earliest, if it is due at `now`.
    pub(crate) fn due(&self, now: Instant) -> Option<N> {
        self.0.first().filter(|(due, _)| *due <= now).map(|(_, name)| *name)
    }
}
