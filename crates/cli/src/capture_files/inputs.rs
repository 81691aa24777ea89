//! The captures of an input: a file, standard input, or a folder whose captures form one, such as those of
//! `tcpdump -C`, with its subfolders.

use std::io::Read;
use std::mem;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error};
use nichrome_port::capture::{self, ReadError, Reader, Record, Skipped};

use super::stream::Stream;
use super::{Interruption, Outputs, folder, input_name, is_stream, judge, warn_skipped};
use crate::distinct::Distinct;
use crate::failure;

type CaptureReader = Reader<Box<dyn Read + Send>>;

/// An open capture.
pub(crate) struct Capture {
    reader: CaptureReader,
    /// Ends the reading of a file; `None` for a stream, which ends itself after an interruption.
    interruption: Option<Interruption>,
}

impl Capture {
    fn open(path: &Path, outputs: &Outputs, interruption: &Interruption) -> anyhow::Result<Self> {
        let reader = if is_stream(path) {
            let stream = Stream::open(path, outputs.clone(), interruption.clone()).map_err(ReadError::Io);
            let reader = stream.and_then(Reader::decompressing);
            // An interruption may have ended the stream before its first packet.
            interruption.check(0)?;
            reader.map(|reader| Self { reader, interruption: None })
        } else {
            let interruption = Some(interruption.clone());
            capture::open(path).map(|reader| Self { reader, interruption })
        };
        reader.with_context(|| input_name(path))
    }

    /// Reads the next record as [`Reader::next`] does; `None` also after an interruption.
    ///
    /// # Errors
    /// The capture cannot be read.
    pub(crate) fn next(&mut self, bytes: &mut Vec<u8>) -> Result<Option<Record>, ReadError> {
        if self.interruption.as_ref().is_some_and(Interruption::is_requested) {
            return Ok(None);
        }
        self.reader.next(bytes)
    }
}

impl Deref for Capture {
    type Target = CaptureReader;

    fn deref(&self) -> &CaptureReader {
        &self.reader
    }
}

/// The captures of an input, in the order of their first packets.
pub(crate) struct Inputs(Vec<PathBuf>);

/// The result of reading an input.
pub(crate) struct Ended {
    records: u64,
    /// The captures that ended early, with their errors.
    early: Vec<(PathBuf, ReadError)>,
    /// The captures with packets that were skipped.
    skipped: Vec<(PathBuf, Vec<Skipped>)>,
}

impl Inputs {
    /// Finds the captures. Warns about other files of a folder and skips them.
    ///
    /// # Errors
    /// The folder cannot be read, or has no capture.
    pub(crate) fn find(input: &Path) -> anyhow::Result<Self> {
        if input.is_dir() { folder::captures(input).map(Self) } else { Ok(Self(vec![input.into()])) }
    }

    /// Registers these files as read.
    ///
    /// # Errors
    /// The command also writes one of them.
    pub(crate) fn add_to(&self, files: &mut Distinct) -> anyhow::Result<()> {
        self.0.iter().try_for_each(|path| files.read("IN", path))
    }

    /// Opens the first capture. A stream flushes `outputs` before it waits for its writer.
    ///
    /// # Errors
    /// The capture cannot be opened, or the command was interrupted before it began.
    pub(crate) fn open(&self, outputs: Outputs, interruption: Interruption) -> anyhow::Result<Opened<'_>> {
        let first = self.0.first().map(|path| Capture::open(path, &outputs, &interruption)).transpose()?;
        Ok(Opened { paths: &self.0, first, outputs, interruption })
    }
}

/// Captures, the first of which is open.
pub(crate) struct Opened<'a> {
    paths: &'a [PathBuf],
    first: Option<Capture>,
    outputs: Outputs,
    interruption: Interruption,
}

impl Opened<'_> {
    /// Passes every capture to `read`, which returns the error that ended it early, if any.
    ///
    /// # Errors
    /// A capture cannot be opened, or `read` fails.
    pub(crate) fn each(
        mut self,
        mut read: impl FnMut(&Path, &mut Capture) -> anyhow::Result<Option<ReadError>>,
    ) -> anyhow::Result<Ended> {
        let mut ended = Ended { records: 0, early: Vec::new(), skipped: Vec::new() };
        for path in self.paths {
            let mut reader = match self.first.take() {
                Some(first) => first,
                None => Capture::open(path, &self.outputs, &self.interruption)?,
            };
            if let Some(error) = read(path, &mut reader)? {
                ended.early.push((path.clone(), error));
            }
            let skipped: Vec<_> = reader.skipped().collect();
            if !skipped.is_empty() {
                ended.skipped.push((path.clone(), skipped));
            }
            ended.records += reader.position().records;
        }
        Ok(ended)
    }
}

impl Ended {
    /// Returns true if a capture ended early.
    pub(crate) fn is_early(&self) -> bool {
        !self.early.is_empty()
    }

    /// Returns the number of packets that were skipped because their link type is not supported.
    pub(crate) fn skipped_packets(&self) -> u64 {
        self.skipped.iter().flat_map(|(_, skipped)| skipped).map(|skipped| skipped.packets).sum()
    }

    /// Fails if not a single record was read, and a capture ended early.
    ///
    /// # Errors
    /// The error that ended the first such capture; warns about the others.
    pub(crate) fn or_nothing_read(mut self) -> anyhow::Result<Self> {
        if self.records == 0 {
            let early = mem::take(&mut self.early).into_iter();
            failure::first_of(early.map(|(path, error)| Error::from(error).context(input_name(&path))))?;
        }
        Ok(self)
    }

    /// Reports skipped packets and early ends, after everything else.
    ///
    /// # Errors
    /// A capture is corrupt: the first one; warns about the others.
    pub(crate) fn judge(self) -> anyhow::Result<()> {
        for (path, skipped) in self.skipped {
            warn_skipped(skipped, &path);
        }
        failure::first_of(self.early.into_iter().filter_map(|(path, error)| judge(error, &path).err()))
    }
}
