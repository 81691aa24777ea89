//! The capture of a live path: one file with an interface for each end.

use std::path::Path;

use nichrome_port::capture::WriteError;
use nichrome_wire::Instant;

use crate::recorder::{self, Missed};
use crate::side::Side;

/// A capture that is being written.
pub(crate) struct Recording(recorder::Recording);

impl Recording {
    /// Creates the file. That it cannot be written is reported at the end.
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        recorder::Recording::create(path, &Side::BOTH.map(Side::name), |_| {}).map(Self)
    }

    /// What one direction records with.
    pub(super) fn recorder(&self, to: Side) -> Recorder {
        Recorder { to, recorder: self.0.recorder() }
    }

    /// Writes what is left, once all recorders are gone.
    pub(super) fn finish(self) -> Result<(), WriteError> {
        self.0.finish()
    }
}

/// Records the packets of one direction.
pub(super) struct Recorder {
    to: Side,
    recorder: recorder::Recorder,
}

impl Recorder {
    /// A packet was read where the direction begins. Says whether it is recorded: the capture may be too slow.
    pub(super) fn received(&self, time: Instant, packet: &[u8]) -> bool {
        self.record(self.to.other(), time, packet)
    }

    /// A packet was written where the direction ends.
    pub(super) fn sent(&self, time: Instant, packet: &[u8]) -> bool {
        self.record(self.to, time, packet)
    }

    fn record(&self, at: Side, time: Instant, packet: &[u8]) -> bool {
        let interface = u32::from(at.number()) - 1;
        self.recorder.record(interface, time, packet.to_vec()) != Err(Missed::TooSlow)
    }
}
