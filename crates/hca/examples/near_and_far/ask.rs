//! A client: puts keys on the servers that own them, and gets them.

use std::net::IpAddr;
use std::process::ExitCode;

use nichrome_hca::reach::Policy;
use nichrome_wan::DelayHistogram;

use crate::Result;
use crate::book::Entry;
use crate::peer::{Adapters, Peer};
use crate::report::Report;
use crate::server_results::ServerResults;
use crate::slots::{hash, value_of};

pub(crate) struct Ask {
    pub(crate) from: IpAddr,
    pub(crate) keys: u64,
    pub(crate) gets: u64,
    pub(crate) policy: Policy,
}

impl Ask {
    /// Puts and gets keys on the servers of a book.
    pub(crate) fn run(&self, book: &[Entry], json: bool) -> Result<ExitCode> {
        let mut adapters = Adapters::new(self.from);
        let new = |entry| ServerResults::new(entry, DelayHistogram::new(), DelayHistogram::new());
        let mut peers: Vec<ServerResults<'_>> = book.iter().map(new).collect();
        for peer in &mut peers {
            if let Err(error) = peer.reach(&mut adapters, self.from, &self.policy) {
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

/// Returns the server that owns a key. It uses other bits of the hash than the choice of the slot.
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
