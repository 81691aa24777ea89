//! A capture of live traffic, written by a thread of its own, so that a slow disk delays no packet.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use nichrome_port::capture::{self, LinkType, MAX_SNAP_LEN, WriteError};
use nichrome_port::clock;
use nichrome_wire::Instant;

use crate::threads;

/// Packets that may wait to be written.
const PACKETS_WAITING: usize = 1 << 16;

/// Bytes of them.
const BYTES_WAITING: usize = 128 << 20;

/// A capture that is being written.
pub(crate) struct Recording {
    recorder: Recorder,
    writer: JoinHandle<Result<(), WriteError>>,
}

/// Adds packets to a capture, from any thread.
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

/// Why a packet is not in the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missed {
    /// The capture is too slow.
    TooSlow,
    /// It could not be written any more.
    Failed,
}

impl Recording {
    /// Creates the file, with interfaces of these names. `failed` is called once it cannot be written any more.
    pub(crate) fn create(
        path: &Path,
        interfaces: &[&str],
        failed: impl FnOnce(&WriteError) + Send + 'static,
    ) -> anyhow::Result<Self> {
        let mut writer = capture::create(path, concat!("nichrome ", env!("CARGO_PKG_VERSION")))?;
        for name in interfaces {
            writer.add_interface(LinkType::Ethernet, name, MAX_SNAP_LEN)?;
        }
        writer.flush()?;
        // The clock that packets are stamped with counts from the machine's start, captures from 1970.
        let since_1970 = clock::wall_clock() - clock::now();
        let (packets, waiting): (_, Receiver<Recorded>) = sync_channel(PACKETS_WAITING);
        let bytes_waiting = Arc::new(AtomicUsize::new(0));
        let bytes_written = Arc::clone(&bytes_waiting);
        let writer = threads::start("capture", move || {
            let write = || {
                for Recorded { interface, time, packet } in waiting {
                    bytes_written.fetch_sub(packet.len(), Ordering::Relaxed);
                    writer.write(interface, time + since_1970, None, [packet], None)?;
                }
                writer.finish()
            };
            write().inspect_err(failed)
        })?;
        Ok(Self { recorder: Recorder { packets, bytes_waiting }, writer })
    }

    /// What adds packets to it.
    pub(crate) fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// Writes what is left, once all recorders are gone.
    pub(crate) fn finish(self) -> Result<(), WriteError> {
        drop(self.recorder);
        // The thread cannot have panicked.
        self.writer.join().unwrap_or(Ok(()))
    }
}

impl Recorder {
    /// Adds a packet that the interface of this number has seen at `time`.
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
