//! The inbound streams of a reactor, by their phase.

use std::net::IpAddr;

use super::handshake::Phase;
use super::source_shares::SourceShares;

/// Inbound streams by phase. Streams with and without a complete request have separate places.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    /// In [`Phase::Opening`].
    pub(super) opening: SourceShares,
    /// In [`Phase::Parked`].
    pub(super) parked: SourceShares,
    /// In later phases: this side's program has requested them.
    pub(super) matched: usize,
}

impl Inbound {
    /// Streams of a source that no request of this side matches yet.
    pub(super) fn unmatched(&self, source: IpAddr) -> usize {
        self.opening.share(source) + self.parked.share(source)
    }

    pub(super) fn insert(&mut self, source: IpAddr, token: u64, phase: Phase) {
        match phase {
            Phase::Opening => self.opening.insert(source, token),
            Phase::Parked => self.parked.insert(source, token),
            _ => self.matched += 1,
        }
    }

    pub(super) fn remove(&mut self, source: IpAddr, token: u64, phase: Phase) {
        match phase {
            Phase::Opening => self.opening.remove(source, token),
            Phase::Parked => self.parked.remove(source, token),
            _ => self.matched -= 1,
        }
    }
}
