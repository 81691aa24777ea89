//! The capture of a live path: one file with an interface for each end, written by a thread of its own, so that a slow
//! disk delays no packet.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

use nichrome_port::capture::{self, LinkType, MAX_SNAP_LEN, WriteError};
use nichrome_port::clock;
use nichrome_wire::Instant;

use super::side::Side;

/// Packets that may wait to be written.
const WAITING: usize = 1 << 16;

/// A capture that is being written.
pub(crate) struct Recording {
    packets: SyncSender<Captured>,
    writer: JoinHandle<Result<(), WriteError>>,
}

/// A packet seen at one end of the path.
struct Captured {
    at: Side,
    time: Instant,
    packet: Vec<u8>,
}

impl Recording {
    /// Creates the file.
    pub(super) fn create(path: &Path) -> Result<Self, WriteError> {
        let mut writer = capture::create(path, concat!("nichrome ", env!("CARGO_PKG_VERSION")))?;
        for side in Side::BOTH {
            writer.add_interface(LinkType::Ethernet, side.name(), MAX_SNAP_LEN)?;
        }
        writer.flush()?;
        // The clock that packets are stamped with counts from the machine's start, captures from 1970.
        let since_1970 = clock::wall_clock() - clock::now();
        let (packets, waiting): (_, Receiver<Captured>) = sync_channel(WAITING);
        let writer = thread::spawn(move || {
            for Captured { at, time, packet } in waiting {
                writer.write(u32::from(at.number()) - 1, time + since_1970, None, [packet], None)?;
            }
            writer.finish()
        });
        Ok(Self { packets, writer })
    }

    /// What one direction records with.
    pub(super) fn recorder(&self, to: Side) -> Recorder {
        Recorder { to, packets: self.packets.clone() }
    }

    /// Writes what is left, once all recorders are gone.
    pub(super) fn finish(self) -> Result<(), WriteError> {
        drop(self.packets);
        // The thread cannot have panicked.
        self.writer.join().unwrap_or(Ok(()))
    }
}

/// Records the packets of one direction.
pub(super) struct Recorder {
    to: Side,
    packets: SyncSender<Captured>,
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
        let captured = Captured { at, time, packet: packet.to_vec() };
        // A file that cannot be written is reported at the end.
        !matches!(self.packets.try_send(captured), Err(TrySendError::Full(_)))
    }
}
