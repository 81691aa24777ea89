//! A client's results for one server of the book.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use nichrome_hca::reach::Policy;
use nichrome_wan::DelayHistogram;

use crate::Result;
use crate::book::Entry;
use crate::peer::{Adapters, Peer, Route};

/// A server with its connection, if it was reached, and the measured times.
pub(crate) struct ServerResults<'a> {
    pub(crate) entry: &'a Entry,
    pub(crate) route: Option<Route>,
    peer: Option<Peer>,
    pub(crate) puts: DelayHistogram,
    pub(crate) gets: DelayHistogram,
    /// The error after which the client stopped using the server.
    pub(crate) error: Option<String>,
}

impl<'a> ServerResults<'a> {
    pub(crate) const fn new(entry: &'a Entry, puts: DelayHistogram, gets: DelayHistogram) -> Self {
        Self { entry, route: None, peer: None, puts, gets, error: None }
    }

    pub(crate) fn reach(&mut self, adapters: &mut Adapters, from: IpAddr, policy: &Policy) -> Result<()> {
        let Route { transport, .. } = *self.route.insert(Route::find(from, self.entry.address, policy)?);
        self.peer = Some(Peer::connect(adapters, transport, self.entry.address)?);
        Ok(())
    }

    /// Executes a request on a server that has not failed; returns its duration.
    pub(crate) fn time(&mut self, what: &str, request: impl FnOnce(&Peer) -> Result<()>) -> Option<Duration> {
        let begun = Instant::now();
        let result = request(self.peer.as_ref()?);
        let took = begun.elapsed();
        result.map_err(|error| self.fail(format!("{what}: {error}"))).ok().map(|()| took)
    }

    /// Prints the error once, and stops using the server.
    pub(crate) fn fail(&mut self, error: String) {
        eprintln!("near_and_far: {}: {error}", self.entry.name);
        self.peer = None;
        self.error = Some(error);
    }
}
