//! A listener's backlog: the number of its requests that the program has not fetched, shared fairly between
//! their sources.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The requests of a listener that the program has not fetched, by source.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    limit: usize,
    len: usize,
    shares: BTreeMap<IpAddr, usize>,
    /// The sources by the number of their requests.
    order: BTreeSet<(usize, IpAddr)>,
}

/// Whether a request may be queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Free,
    /// The newest request of this source has to give way.
    HeldBy(IpAddr),
    /// No source has more requests than the new one's would have.
    None,
}

impl Backlog {
    pub(crate) fn new(limit: u32) -> Self {
        Self { limit: limit as usize, ..Self::default() }
    }

    /// Returns whether a request of `source` may be queued.
    pub(crate) fn room_for(&self, source: IpAddr) -> Room {
        if self.len < self.limit {
            return Room::Free;
        }
        match self.order.last() {
            Some(&(most, holder)) if most > self.share(source) + 1 => Room::HeldBy(holder),
            _ => Room::None,
        }
    }

    /// Counts a request.
    pub(crate) fn add(&mut self, source: IpAddr) {
        self.change(source, self.share(source) + 1);
    }

    /// Stops counting a request.
    pub(crate) fn remove(&mut self, source: IpAddr) {
        self.change(source, self.share(source).saturating_sub(1));
    }

    fn share(&self, source: IpAddr) -> usize {
        self.shares.get(&source).copied().unwrap_or_default()
    }

    fn change(&mut self, source: IpAddr, share: usize) {
        let before = self.share(source);
        self.len = self.len - before + share;
        self.order.remove(&(before, source));
        if share == 0 {
            self.shares.remove(&source);
        } else {
            self.shares.insert(source, share);
            self.order.insert((share, source));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(host: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, host])
    }

    #[test]
    fn the_source_that_has_most_gives_way() {
        let mut backlog = Backlog::new(4);
        for host in [1, 2, 2, 2] {
            assert_eq!(backlog.room_for(source(host)), Room::Free);
            backlog.add(source(host));
        }
        assert_eq!(backlog.room_for(source(2)), Room::None);
        assert_eq!(backlog.room_for(source(1)), Room::HeldBy(source(2)));
        backlog.remove(source(2));
        assert_eq!(backlog.room_for(source(2)), Room::Free);
        backlog.add(source(1));
        assert_eq!(backlog.room_for(source(1)), Room::None, "the other would have fewer");
        assert!(matches!(backlog.room_for(source(3)), Room::HeldBy(_)));
        for host in [1, 1, 2, 2] {
            backlog.remove(source(host));
        }
        assert_eq!((backlog.len, backlog.shares.len(), backlog.order.len()), (0, 0, 0));
    }
}
