//! A client: puts keys to the servers they belong to, and gets them again.

use std::net::IpAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nichrome_hca::reach::Policy;
use nichrome_wan::DelayHistogram;

use crate::Result;
use crate::book::Entry;
use crate::peer::{Adapters, Peer, Route};
use crate::report::Report;
use crate::slots::{hash, value_of};

pub(crate) struct Ask {
    pub(crate) from: IpAddr,
    pub(crate) keys: u64,
    pub(crate) gets: u64,
    pub(crate) policy: Policy,
}

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
    const fn new(entry: &'a Entry, puts: DelayHistogram, gets: DelayHistogram) -> Self {
        Self { entry, route: None, peer: None, puts, gets, error: None }
    }

    fn reach(&mut self, adapters: &mut Adapters, ask: &Ask) -> Result<()> {
        let Route { transport, .. } =
            *self.route.insert(Route::find(ask.from, self.entry.address, &ask.policy)?);
        self.peer = Some(Peer::connect(adapters, transport, self.entry.address)?);
        Ok(())
    }

    /// Asks a peer that has not failed for something; returns how long it took.
    fn time(&mut self, what: &str, request: impl FnOnce(&Peer) -> Result<()>) -> Option<Duration> {
        let begun = Instant::now();
        let result = request(self.peer.as_ref()?);
        let took = begun.elapsed();
        result.map_err(|error| self.fail(format!("{what}: {error}"))).ok().map(|()| took)
    }

    /// Says so once, and leaves the peer.
    fn fail(&mut self, error: String) {
        eprintln!("near_and_far: {}: {error}", self.entry.name);
        self.peer = None;
        self.error = Some(error);
    }
}

impl Ask {
    /// Asks the servers of a book.
    pub(crate) fn run(&self, book: &[Entry], json: bool) -> Result<ExitCode> {
        let mut adapters = Adapters::new(self.from);
        let new = |entry| Asked::new(entry, DelayHistogram::new(), DelayHistogram::new());
        let mut peers: Vec<Asked<'_>> = book.iter().map(new).collect();
        for peer in &mut peers {
            if let Err(error) = peer.reach(&mut adapters, self) {
                peer.fail(error.to_string());
            }
        }
        for key in 0..self.keys {
            let owner = &mut peers[owner(key, book.len())];
            if let Some(took) = owner.time("PUT", |peer| peer.put(key, &value_of(key))) {
                owner.puts.record(took);
            }
        }
        eprintln!("{} keys are put", self.keys);
        for key in (0..self.gets).map(|nth| nth % self.keys) {
            let owner = &mut peers[owner(key, book.len())];
            if let Some(took) = owner.time("GET", |peer| got(peer, key)) {
                owner.gets.record(took);
            }
        }
        let report = Report::of(&self.policy, &peers);
        println!("{}", if json { serde_json::to_string_pretty(&report)? } else { report.to_string() });
        let is_whole = peers.iter().all(|peer| peer.error.is_none());
        Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// The server that a key belongs to. Other bits of the hash choose the slot there.
fn owner(key: u64, servers: usize) -> usize {
    (hash(&key.to_be_bytes()) >> 32) as usize % servers
}

fn got(peer: &Peer, key: u64) -> Result<()> {
    match peer.get(key)? {
        Some(value) if value == value_of(key) => Ok(()),
        Some(_) => Err(format!("key {key} has another value than was put").into()),
        None => Err(format!("key {key} is gone").into()),
    }
}
