//! The places of streams, shared fairly between their sources.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

/// Streams by source. Tokens ascend with the time at which streams were opened.
#[derive(Debug, Default)]
pub(crate) struct SourceShares {
    sources: HashMap<IpAddr, BTreeSet<u64>>,
    /// The sources by the number of their streams, then by their oldest stream: the last one loses a stream.
    order: BTreeSet<(usize, Reverse<u64>, IpAddr)>,
    len: usize,
}

/// The stream that is displaced when places are short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Victim {
    pub(crate) token: u64,
    /// Streams of its source.
    pub(crate) share: usize,
}

impl SourceShares {
    /// Streams in all.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Streams of a source.
    pub(crate) fn share(&self, source: IpAddr) -> usize {
        self.sources.get(&source).map_or(0, BTreeSet::len)
    }

    /// The oldest stream of a source.
    pub(crate) fn oldest(&self, source: IpAddr) -> Option<u64> {
        self.sources.get(&source)?.first().copied()
    }

    /// The oldest stream of the source that has most; of several such sources, the oldest of all.
    pub(crate) fn victim(&self) -> Option<Victim> {
        self.order.last().map(|&(share, Reverse(token), _)| Victim { token, share })
    }

    pub(crate) fn insert(&mut self, source: IpAddr, token: u64) {
        self.change(source, |tokens| tokens.insert(token));
    }

    pub(crate) fn remove(&mut self, source: IpAddr, token: u64) {
        self.change(source, |tokens| tokens.remove(&token));
    }

    fn change(&mut self, source: IpAddr, change: impl FnOnce(&mut BTreeSet<u64>) -> bool) {
        let rank =
            |tokens: &BTreeSet<u64>| tokens.first().map(|oldest| (tokens.len(), Reverse(*oldest), source));
        let tokens = self.sources.entry(source).or_default();
        let (before, len) = (rank(tokens), tokens.len());
        change(tokens);
        let after = rank(tokens);
        self.len = self.len - len + tokens.len();
        if let Some(before) = before {
            self.order.remove(&before);
        }
        match after {
            Some(after) => _ = self.order.insert(after),
            None => _ = self.sources.remove(&source),
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
    fn the_oldest_of_the_source_that_has_most_gives_way() {
        let mut shares = SourceShares::default();
        assert_eq!(shares.victim(), None);
        for (token, host) in [(1, 1), (2, 2), (3, 2), (4, 3)] {
            shares.insert(source(host), token);
        }
        let victim = |shares: &SourceShares| shares.victim().map(|Victim { token, share }| (token, share));
        assert_eq!((victim(&shares), shares.len(), shares.share(source(2))), (Some((2, 2)), 4, 2));
        shares.remove(source(2), 2);
        assert_eq!(victim(&shares), Some((1, 1)), "of equal sources, the oldest");
        shares.remove(source(1), 1);
        assert_eq!((victim(&shares), shares.oldest(source(3))), (Some((3, 1)), Some(4)));
        shares.remove(source(3), 4);
        shares.remove(source(2), 3);
        assert_eq!((shares.victim(), shares.len(), shares.sources.len()), (None, 0, 0));
    }
}
