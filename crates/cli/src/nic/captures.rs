//! Captures of a live card, before and after its engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use clap::Args;
use nichrome_nic::Observer;
use nichrome_port::clock;

use crate::failure;
use crate::recorder::{Recorder, Recording};

/// The capture options. `both` excludes the others.
#[derive(Args)]
pub(super) struct CaptureOptions {
    /// Record frames before and after the engine in one file, as separate interfaces.
    #[arg(long = "capture", value_name = "FILE.pcapng", conflicts_with_all = ["wire_file", "host_file"])]
    both: Option<PathBuf>,
    /// Record frames on the wire in both directions, before the engine.
    #[arg(long = "capture-wire", id = "wire_file", value_name = "FILE.pcapng")]
    wire: Option<PathBuf>,
    /// Record packets delivered to the host, after the engine.
    #[arg(long = "capture-host", id = "host_file", value_name = "FILE.pcapng")]
    host: Option<PathBuf>,
}

/// The captures of a card.
#[derive(Default)]
pub(super) struct Captures {
    recordings: Vec<Recording>,
    wire: Option<Tap>,
    host: Option<Tap>,
    missed: Arc<AtomicU64>,
}

/// An interface of a capture file.
#[derive(Clone)]
struct Tap {
    recorder: Recorder,
    interface: u32,
}

impl CaptureOptions {
    /// Returns the names of the options and the files to write.
    pub(super) fn outputs(&self) -> [(&'static str, Option<&Path>); 3] {
        [
            ("--capture", self.both.as_deref()),
            ("--capture-wire", self.wire.as_deref()),
            ("--capture-host", self.host.as_deref()),
        ]
    }
}

impl Captures {
    /// Creates the capture files for the card between these interfaces.
    pub(super) fn create(options: &CaptureOptions, wire: &str, host: &str) -> anyhow::Result<Self> {
        let mut captures = Self::default();
        if let Some(path) = &options.both {
            captures.wire = Some(captures.add(path, &[wire, host]).context("--capture")?);
            captures.host = captures.wire.clone().map(|wire| Tap { interface: 1, ..wire });
        }
        if let Some(path) = &options.wire {
            captures.wire = Some(captures.add(path, &[wire]).context("--capture-wire")?);
        }
        if let Some(path) = &options.host {
            captures.host = Some(captures.add(path, &[host]).context("--capture-host")?);
        }
        Ok(captures)
    }

    /// Creates a file; returns its first interface.
    fn add(&mut self, path: &Path, interfaces: &[&str]) -> anyhow::Result<Tap> {
        let recording = Recording::create(path, interfaces, |error| {
            failure::warn(format_args!("{error}: the card continues without this capture"));
        })?;
        let recorder = recording.recorder();
        self.recordings.push(recording);
        Ok(Tap { recorder, interface: 0 })
    }

    /// Returns the observer for one queue, if anything is recorded.
    pub(super) fn observer(&self) -> Option<Box<dyn Observer>> {
        if self.recordings.is_empty() {
            return None;
        }
        let Self { wire, host, missed, .. } = self;
        Some(Box::new(Capturing { wire: wire.clone(), host: host.clone(), missed: Arc::clone(missed) }))
    }

    /// Returns the counter of packets missing in the captures.
    pub(super) fn missed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.missed)
    }

    /// Closes the captures after all observers are gone. Errors have been reported.
    pub(super) fn finish(self) {
        let Self { recordings, wire, host, .. } = self;
        drop((wire, host));
        for recording in recordings {
            let _ = recording.finish();
        }
    }
}

/// The observer of one queue.
struct Capturing {
    wire: Option<Tap>,
    host: Option<Tap>,
    missed: Arc<AtomicU64>,
}

impl Capturing {
    fn record(&self, tap: Option<&Tap>, packet: impl FnOnce() -> Vec<u8>) {
        if let Some(tap) = tap
            && tap.recorder.record(tap.interface, clock::now(), packet()).is_err()
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

    fn acknowledged(&mut self, ack: &[u8]) {
        self.transmitted(ack);
    }
}
