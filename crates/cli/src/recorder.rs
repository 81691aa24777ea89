//! A capture of live traffic, written by a separate thread so that a slow disk delays no packet.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{self, Duration};

use nichrome_port::capture::{self, LinkType, MAX_SNAP_LEN, PacketOptions, WriteError};
use nichrome_port::clock;
use nichrome_wire::Instant;

use crate::{failure, threads};

/// Maximum queued packets.
const PACKETS_WAITING: usize = 1 << 16;

/// Maximum queued bytes.
const BYTES_WAITING: usize = 128 << 20;

/// Time without progress after which [`Recording::finish`] gives up waiting for the reader of a pipe.
const STALL_TIMEOUT: Duration = Duration::from_secs(3);

/// A capture being written.
pub(crate) struct Recording {
    recorder: Recorder,
    writer: JoinHandle<Result<(), WriteError>>,
    /// Limit of the wait without progress at the end; `None` for a file, whose disk may be slow.
    stall_timeout: Option<Duration>,
}

/// Adds packets to a capture from any thread.
#[derive(Clone)]
pub(crate) struct Recorder {
    packets: SyncSender<Recorded>,
    bytes_waiting: Arc<AtomicUsize>,
}

struct Recorded {
    interface: u32,
    time: Instant,
    packet: Vec<u8>,
}

/// The reason why a packet is missing in the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missed {
    /// The writer is too slow.
    TooSlow,
    /// Writing failed.
    Failed,
}

impl Recording {
    /// Creates the file with interfaces of these names. Calls `failed` when writing fails. Waits for the
    /// reader of a named pipe.
    pub(crate) fn create(
        path: &Path,
        interfaces: &[&str],
        failed: impl FnOnce(&WriteError) + Send + 'static,
    ) -> anyhow::Result<Self> {
        if path.metadata().is_ok_and(|found| found.file_type().is_fifo()) {
            failure::notice(format_args!("nichrome: waiting for a program that reads {}", path.display()));
        }
        let mut writer = capture::create(path, concat!("nichrome ", env!("CARGO_PKG_VERSION")))?;
        for name in interfaces {
            writer.add_interface(LinkType::Ethernet, name, MAX_SNAP_LEN)?;
        }
        writer.flush()?;
        let is_file = path.metadata().is_ok_and(|found| found.is_file());
        let stall_timeout = (!is_file).then_some(STALL_TIMEOUT);
        // Converts timestamps since boot to times since 1970.
        let since_1970 = clock::wall_clock() - clock::now();
        let (packets, waiting): (_, Receiver<Recorded>) = sync_channel(PACKETS_WAITING);
        let bytes_waiting = Arc::new(AtomicUsize::new(0));
        let bytes_written = Arc::clone(&bytes_waiting);
        let writer = threads::start("capture", move || {
            let write = || {
                for Recorded { interface, time, packet } in waiting {
                    bytes_written.fetch_sub(packet.len(), Ordering::Relaxed);
                    writer.write(interface, time + since_1970, None, [packet], PacketOptions::default())?;
                }
                writer.finish()
            };
            write().inspect_err(failed)
        })?;
        Ok(Self { recorder: Recorder { packets, bytes_waiting }, writer, stall_timeout })
    }

    /// Returns a recorder.
    pub(crate) fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// Writes the remaining packets after all recorders are gone. Gives up, with a warning, if the reader of
    /// a pipe reads nothing.
    pub(crate) fn finish(self) -> Result<(), WriteError> {
        drop(self.recorder.packets);
        let (mut progress, mut left) = (time::Instant::now(), usize::MAX);
        while !self.writer.is_finished() {
            let waiting = self.recorder.bytes_waiting.load(Ordering::Relaxed);
            if waiting != left {
                (progress, left) = (time::Instant::now(), waiting);
            } else if self.stall_timeout.is_some_and(|stall_timeout| progress.elapsed() > stall_timeout) {
                failure::warn(format_args!(
                    "the end of a capture is missing: its reader has stopped reading"
                ));
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
        }
        // The thread does not panic.
        self.writer.join().unwrap_or(Ok(()))
    }
}

impl Recorder {
    /// Adds a packet that passed the interface with this index at `time`.
    pub(crate) fn record(&self, interface: u32, time: Instant, packet: Vec<u8>) -> Result<(), Missed> {
        let len = packet.len();
        if self.bytes_waiting.fetch_add(len, Ordering::Relaxed) > BYTES_WAITING {
            self.bytes_waiting.fetch_sub(len, Ordering::Relaxed);
            return Err(Missed::TooSlow);
        }
        self.packets.try_send(Recorded { interface, time, packet }).map_err(|error| {
            self.bytes_waiting.fetch_sub(len, Ordering::Relaxed);
            match error {
                TrySendError::Full(_) => Missed::TooSlow,
                TrySendError::Disconnected(_) => Missed::Failed,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends a recording whose writer makes no progress for 200 ms; returns true if `finish` waited until the
    /// writer had written everything.
    fn is_waited_for(stall_timeout: Option<Duration>) -> bool {
        let (packets, _waiting) = sync_channel(1);
        let recorder = Recorder { packets, bytes_waiting: Arc::default() };
        let (written, is_written) = sync_channel(1);
        let writer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(200));
            // Fails if `finish` has not waited.
            let _ = written.send(());
            Ok(())
        });
        Recording { recorder, writer, stall_timeout }.finish().unwrap();
        is_written.try_recv().is_ok()
    }

    #[test]
    fn a_slow_disk_is_waited_for_but_no_program_that_does_not_read() {
        assert!(is_waited_for(None));
        assert!(!is_waited_for(Some(Duration::from_millis(20))));
    }
}
