//! Captures before and after the engine.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use nichrome_nic::Observer;
use nichrome_port::clock;

use crate::failure;
use crate::recorder::{Recorder, Recording};

/// The captures of a card.
#[derive(Default)]
pub(super) struct Captures {
    wire: Option<Recording>,
    host: Option<Recording>,
    missed: Arc<AtomicU64>,
}

impl Captures {
    /// Creates the files: what is on the wire, before the engine, and what the host is handed, after it.
    pub(super) fn create(wire: Option<(&Path, &str)>, host: Option<(&Path, &str)>) -> anyhow::Result<Self> {
        let create = |(path, interface): (&Path, &str)| {
            Recording::create(path, &[interface], |error| {
                failure::warn(format_args!("{error}: the card goes on without this capture"));
            })
        };
        Ok(Self {
            wire: wire.map(create).transpose().context("--capture-wire")?,
            host: host.map(create).transpose().context("--capture-host")?,
            missed: Arc::default(),
        })
    }

    /// What records the frames of one queue, if there is something to record.
    pub(super) fn observer(&self) -> Option<Box<dyn Observer>> {
        if self.wire.is_none() && self.host.is_none() {
            return None;
        }
        Some(Box::new(Capturing {
            wire: self.wire.as_ref().map(Recording::recorder),
            host: self.host.as_ref().map(Recording::recorder),
            missed: Arc::clone(&self.missed),
        }))
    }

    /// How many packets are missing, from now on.
    pub(super) fn missed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.missed)
    }

    /// Writes what is left, once all observers are gone. Whatever fails has been said.
    pub(super) fn finish(self) {
        for recording in [self.wire, self.host].into_iter().flatten() {
            let _ = recording.finish();
        }
    }
}

/// Records what one queue sees.
struct Capturing {
    wire: Option<Recorder>,
    host: Option<Recorder>,
    missed: Arc<AtomicU64>,
}

impl Capturing {
    fn record(&self, recorder: Option<&Recorder>, packet: impl FnOnce() -> Vec<u8>) {
        if let Some(recorder) = recorder
            && recorder.record(0, clock::now(), packet()).is_err()
        {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Observer for Capturing {
    fn received(&mut self, frame: &[u8]) {
        self.record(self.wire.as_ref(), || frame.to_vec());
    }

    fn delivered(&mut self, parts: &mut dyn Iterator<Item = &[u8]>) {
        self.record(self.host.as_ref(), || parts.flatten().copied().collect());
    }

    fn transmitted(&mut self, packet: &[u8]) {
        self.record(self.wire.as_ref(), || packet.to_vec());
    }
}
