//! The capture of a live path: one file with an interface per end.

use std::path::Path;

use nichrome_port::capture::WriteError;
use nichrome_wire::Instant;

use crate::recorder::{self, Missed};
use crate::side::Side;

/// A capture being written.
pub(crate) struct Recording(recorder::Recording);

impl Recording {
    /// Creates the file. Write errors are reported at the end.
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        recorder::Recording::create(path, &Side::BOTH.map(Side::name), |_| {}).map(Self)
    }

    /// Returns the recorder of one direction.
    pub(super) fn recorder(&self, to: Side) -> Recorder {
        Recorder { to, recorder: self.0.recorder() }
    }

    /// Writes the remaining packets after all recorders are gone.
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
    /// Records a packet read at the start of the direction; returns false if the capture is too slow.
    pub(super) fn received(&self, time: Instant, packet: &[u8]) -> bool {
        self.record(self.to.other(), time, packet)
    }

    /// Records a packet written at the end of the direction; returns false if the capture is too slow.
    pub(super) fn sent(&self, time: Instant, packet: &[u8]) -> bool {
        self.record(self.to, time, packet)
    }

    fn record(&self, at: Side, time: Instant, packet: &[u8]) -> bool {
        let interface = u32::from(at.number()) - 1;
        self.recorder.record(interface, time, packet.to_vec()) != Err(Missed::TooSlow)
    }
}
