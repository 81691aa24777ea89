//! Detailed output of one run: packets as pcapng, and time series.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::Write;
use std::mem;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use nichrome_port::capture::{LinkType, Output, PacketOptions, WriteError, Writer};
use nichrome_sim::experiment::{Definition, Parameters, Runner, check_capture, with_unit};
use nichrome_sim::observe::{Capture, PacketSink, PointId, Series};
use nichrome_wire::Instant;
use serde::Serialize;

use super::files;
use super::record::Record;
use super::runs::Progress;
use crate::duration;
use crate::failure::{as_usage, usage};

/// The options for detailed output.
#[derive(Args)]
pub(super) struct Trace {
    /// Run one point only: a series of the experiment and an x value, such as 'with LRO/64'
    #[arg(long, value_name = "SERIES/X")]
    point: Option<String>,
    /// Record the packets of this point in a pcapng file, with an interface per capture point; - for standard
    /// output, with the result on standard error. If the point has several repetitions, record the first; the
    /// printed result covers all
    #[arg(long, value_name = "FILE", requires = "point")]
    capture: Option<PathBuf>,
    /// Write the time series of this point: .csv or .json. If the point has several repetitions,
    /// record the first; the printed result covers all
    #[arg(long, value_name = "FILE", requires = "point")]
    series: Option<PathBuf>,
    /// Virtual time between two samples
    #[arg(long, value_name = "DURATION", default_value = "100us", value_parser = duration::positive, requires = "series")]
    sample: Duration,
}

/// The file format of time series.
#[derive(Clone, Copy)]
enum Format {
    Csv,
    Json,
}

impl Trace {
    /// Returns true if a single point is requested.
    pub(super) fn is_of_one_point(&self) -> bool {
        self.point.is_some()
    }

    /// Returns the names of the options and the files to write.
    pub(super) fn outputs(&self) -> [(&'static str, Option<&Path>); 2] {
        [("--capture", self.capture.as_deref()), ("--series", self.series.as_deref())]
    }

    /// Returns the capture to write.
    pub(super) fn capture(&self) -> Option<&PathBuf> {
        self.capture.as_ref()
    }

    /// Reduces the experiment to the requested point.
    pub(super) fn select(&self, definition: &mut Definition) -> anyhow::Result<()> {
        let Some(point) = &self.point else { return Ok(()) };
        if let Some(file) = &self.series {
            format_of(file)?;
            files::check(file)?;
        }
        let name = definition.name.clone();
        let selected = definition.select(point).with_context(|| format!("{name}, --point {point}"));
        selected.map_err(as_usage)
    }

    /// Runs a model once and writes the requested files.
    pub(super) fn run(
        &self,
        progress: &Progress,
        runner: &dyn Runner,
        parameters: &Parameters,
        seed: u64,
    ) -> anyhow::Result<Record> {
        let mut observer = progress.observer();
        // Both checks precede opening a file.
        if self.series.is_some() {
            let name = runner.name();
            ensure!(runner.has_series(), "model '{name}' has no time series: leave out --series");
        }
        if self.capture.is_some() {
            check_capture(runner)?;
        }
        let pcapng = self.capture.as_deref().map(Pcapng::open).transpose()?;
        if let Some(pcapng) = &pcapng {
            observer.capture = Capture::to(pcapng.clone());
        }
        if self.series.is_some() {
            observer.sample_every(u64::try_from(self.sample.as_nanos()).unwrap_or(u64::MAX));
        }
        let record = progress.run_observed(runner, parameters, seed, &mut observer)?;
        if let Some(pcapng) = &pcapng {
            pcapng.finish()?;
        }
        if let Some(file) = &self.series {
            write_series(file, &observer.series)?;
        }
        Ok(record)
    }
}

/// A capture file shared by the model, which writes to it, and the command, which closes it.
#[derive(Clone)]
struct Pcapng(Rc<RefCell<Recording>>);

type PcapngWriter = Writer<Box<dyn Write + Send>>;

enum Recording {
    /// The model has not begun: an existing file still has its content.
    Open(Output),
    Begun(PcapngWriter),
    /// Nothing is recorded after the first error.
    Failed(WriteError),
    Finished,
}

impl Pcapng {
    fn open(path: &Path) -> anyhow::Result<Self> {
        Ok(Self(Rc::new(RefCell::new(Recording::Open(Output::open(path)?)))))
    }

    fn finish(&self) -> anyhow::Result<()> {
        match self.0.replace(Recording::Finished) {
            Recording::Begun(writer) => Ok(writer.finish()?),
            Recording::Failed(error) => Err(error.into()),
            Recording::Open(_) | Recording::Finished => Ok(()),
        }
    }
}

impl Recording {
    fn begin(&mut self) {
        *self = match mem::replace(self, Self::Finished) {
            Self::Open(output) => {
                let writer = output.begin(concat!("nichrome ", env!("CARGO_PKG_VERSION")));
                writer.map_or_else(Self::Failed, Self::Begun)
            }
            begun => begun,
        };
    }

    /// Writes to a capture that has begun.
    fn write<T>(&mut self, write: impl FnOnce(&mut PcapngWriter) -> Result<T, WriteError>) -> Option<T> {
        let Self::Begun(writer) = self else { return None };
        write(writer).map_err(|error| *self = Self::Failed(error)).ok()
    }
}

impl PacketSink for Pcapng {
    fn add_point(&mut self, name: &str) -> PointId {
        let mut recording = self.0.borrow_mut();
        recording.begin();
        let added = recording.write(|writer| writer.add_interface(LinkType::Ethernet, name, 0));
        PointId(added.unwrap_or_default())
    }

    fn record(&mut self, PointId(point): PointId, time: Instant, bytes: &[u8], len: usize) {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let mut recording = self.0.borrow_mut();
        recording.write(|writer| writer.write(point, time, Some(len), [bytes], PacketOptions::default()));
    }
}

fn format_of(file: &Path) -> anyhow::Result<Format> {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("csv") => Ok(Format::Csv),
        Some("json") => Ok(Format::Json),
        _ => Err(usage(format!("--series {}: its name must end in .csv or .json", file.display()))),
    }
}

/// A time series; names are stable.
#[derive(Serialize)]
struct SeriesSummary<'a> {
    name: &'a str,
    unit: &'a str,
    /// Virtual time in nanoseconds, and the value.
    samples: Vec<(u64, f64)>,
}

fn write_series(file: &Path, series: &[Series]) -> anyhow::Result<()> {
    let text = match format_of(file)? {
        Format::Csv => csv(series)?,
        Format::Json => serde_json::to_string(&series.iter().map(summary).collect::<Vec<_>>())? + "\n",
    };
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    files::write(files::folder_of(file), &name, text.as_bytes())
}

fn summary(series: &Series) -> SeriesSummary<'_> {
    let samples = series.samples.iter().map(|sample| (sample.time.as_nanos(), sample.value)).collect();
    SeriesSummary { name: &series.name, unit: series.unit, samples }
}

/// Formats the series as CSV with a row per sample time.
fn csv(series: &[Series]) -> Result<String, std::fmt::Error> {
    let mut text = String::from("time (ns)");
    for series in series {
        write!(text, ",{}", with_unit(&series.name, series.unit))?;
    }
    text.push('\n');
    for (row, first) in series.first().iter().flat_map(|series| series.samples.iter().enumerate()) {
        write!(text, "{}", first.time.as_nanos())?;
        for sample in series.iter().filter_map(|series| series.samples.get(row)) {
            write!(text, ",{}", sample.value)?;
        }
        text.push('\n');
    }
    Ok(text)
}
