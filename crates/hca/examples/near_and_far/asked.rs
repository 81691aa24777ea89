//! A server of the book, as a client has found it.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use nichrome_hca::reach::Policy;
use nichrome_wan::DelayHistogram;

use crate::Result;
use crate::book::Entry;
use crate::peer::{Adapters, Peer, Route};

/// A server, as far as it was reached, and how long it took.
pub(crate) struct Asked<'a> {
    pub(crate) entry: &'a Entry,
    pub(crate) route: Option<Route>,
    peer: Option<Peer>,
    pub(crate) puts: DelayHistogram,
    pub(crate) gets: DelayHistogram,
    /// Why it is not asked any more.
    pub(crate) error: Option<String>,
}

impl<'a> Asked<'a> {
    pub(crate) const fn new(entry: &'a Entry, puts: DelayHistogram, gets: DelayHistogram) -> Self {
        Self { entry, route: None, peer: None, puts, gets, error: None }
    }

    pub(crate) fn reach(&mut self, adapters: &mut Adapters, from: IpAddr, policy: &Policy) -> Result<()> {
        let Route { transport, .. } = *self.route.insert(Route::find(from, self.entry.address, policy)?);
        self.peer = Some(Peer::connect(adapters, transport, self.entry.address)?);
        Ok(())
    }

    /// Asks a peer that has not failed for something; returns how long it took.
    pub(crate) fn time(&mut self, what: &str, request: impl FnOnce(&Peer) -> Result<()>) -> Option<Duration> {
        let begun = Instant::now();
        let result = request(self.peer.as_ref()?);
        let took = begun.elapsed();
        result.map_err(|error| self.fail(format!("{what}: {error}"))).ok().map(|()| took)
    }

    /// Says so once, and leaves the peer.
    pub(crate) fn fail(&mut self, error: String) {
        eprintln!("near_and_far: {}: {error}", self.entry.name);
        self.peer = None;
        self.error = Some(error);
    }
}
