//! `nichrome sim run`: runs an experiment and compares it with its paper.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use nichrome_sim::experiment::{Claim, Definition, Plan, StatementKind, Variant};
use serde::Serialize;

use super::experiment::Experiment;
use super::judged::{self, Judged, Others, Place, Range};
use super::record::{self, Record};
use super::runs::{self, Jobs};
use super::table::Text;
use super::trace::Trace;
use super::{files, page, parquet, plot, scoreboard, variants};
use crate::capture_files::print_summary;
use crate::distinct::Distinct;
use crate::failure;
use crate::number;
use crate::page::PageOption;

/// Run an experiment, and print the results beside the paper's
#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    experiment: Experiment,
    /// The seed [default: the experiment's]
    #[arg(long, value_name = "N", value_parser = number::seed)]
    seed: Option<u64>,
    /// Write the figure (NAME.svg), the points (NAME.json) and the records of all runs (NAME.jsonl,
    /// NAME.parquet) to a folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    page: PageOption,
    /// Run this many samples of all assumed parameters together, and print the ranges of the paper's numbers
    #[arg(long, value_name = "N", value_parser = number::whole(1..=100_000_u32), conflicts_with = "point")]
    samples: Option<u32>,
    #[command(flatten)]
    trace: Trace,
    #[command(flatten)]
    jobs: Jobs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// All points and statements; names are stable.
#[derive(Serialize)]
struct Summary<'a> {
    experiment: &'a str,
    points: Vec<PointSummary<'a>>,
    statements: Vec<StatementSummary<'a>>,
    tally: String,
}

#[derive(Serialize)]
struct PointSummary<'a> {
    series: &'a str,
    x: f64,
    value: Option<f64>,
    unit: &'a str,
    paper: Option<f64>,
    /// Relative deviation from the paper's value; none from a bound.
    deviation: Option<f64>,
    /// `least` or `most` if the paper's number is a lower or an upper bound.
    bound: Option<&'static str>,
    kind: Option<&'static str>,
    /// Minimum and maximum over all readings.
    readings: Option<Range>,
    /// Minimum and maximum over all samples of assumed parameters.
    samples: Option<Range>,
}

#[derive(Serialize)]
struct StatementSummary<'a> {
    series: &'a str,
    kind: &'static str,
    source: &'a str,
    sentence: &'a str,
    paper: String,
    unit: &'a str,
    found: &'a [Option<f64>],
    readings: Option<Range>,
    samples: Option<Range>,
    holds: Option<bool>,
}

impl Run {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let mut definition = self.experiment.load()?;
        let mut files = Distinct::default();
        self.experiment.file().map_or(Ok(()), |path| files.read("FILE", path))?;
        definition.included.iter().try_for_each(|path| files.read("include", path))?;
        files.write(self.trace.outputs())?;
        let results = self.out.iter().flat_map(|folder| results(folder, &definition));
        files.write(results.collect::<Vec<_>>().iter().map(|path| ("--out", Some(&**path))))?;
        files.write([self.page.output()])?;
        if self.trace.is_of_one_point() {
            self.experiment.refuse_setting(definition.x.parameter.key, "--point chooses its value")?;
        }
        self.trace.select(&mut definition)?;
        if let Some(folder) = &self.out {
            files::make_folder(folder)?;
        }
        let page = self.page.create()?;
        let seed = self.seed.unwrap_or(definition.seed);
        let plan = definition.plan();
        let numbered: Vec<usize> = (0..plan.runs.len()).collect();
        let records = runs::each(&numbered, &self.jobs, |number, progress| {
            let run = self.trace.run(progress, definition.runner, &plan.runs[*number], seed);
            run.with_context(|| place(&definition, &plan, *number))
        })?;
        let values = definition.values(&plan, |run, metric| records[run].metrics.get(metric).copied());
        let others = self.others(&definition, seed)?;
        let places = judged::places(&definition, &values, &others);
        let judged = judged::judge(&definition, &values, &others);
        let summary = summary(&definition, &places, &judged);
        let text = if self.json {
            serde_json::to_string_pretty(&summary)?
        } else {
            Text { definition: &definition, places: &places, judged: &judged }.to_string()
        };
        // Writes all outputs even if one fails: the runs take minutes.
        let printed = print_summary(&text, self.trace.capture());
        let write = |folder: &PathBuf| write_all(folder, &definition, &places, &summary, &records);
        let written = self.out.as_ref().map_or(Ok(()), write);
        let paged = page.finish(|| page::of_run(&definition, &places, seed, &summary));
        failure::first_of([written, paged].into_iter().filter_map(Result::err))?;
        printed
    }

    /// Computes the statements' values with other readings, and with samples of assumed parameters.
    fn others(&self, definition: &Definition, seed: u64) -> anyhow::Result<Others> {
        if self.trace.is_of_one_point() {
            return Ok(Others::default());
        }
        let of = |settings: &[Variant]| variants::run(definition, settings, seed, &self.jobs);
        let samples = self.samples.map(|count| definition.samples(count as usize, seed)).unwrap_or_default();
        Ok(Others { readings: of(&definition.readings)?, samples: of(&samples)? })
    }
}

/// Names a run for error messages.
fn place(definition: &Definition, plan: &Plan, run: usize) -> String {
    let point = plan.run_of.iter().position(|of_point| *of_point == run).map(|point| &plan.points[point]);
    point.map_or_else(String::new, |point| {
        let (series, axis) = (&definition.series[point.series].name, &definition.x);
        format!(
            "{}, {series}, {} = {} {}",
            definition.name,
            axis.parameter.key,
            axis.number(point.x),
            axis.unit
        )
    })
}

fn summary<'a>(definition: &'a Definition, places: &'a [Place], judged: &'a [Judged<'a>]) -> Summary<'a> {
    let point = |place: &'a Place| PointSummary {
        series: &place.compared.series,
        x: place.compared.x,
        value: place.compared.value,
        unit: &place.compared.unit,
        paper: place.compared.paper(),
        deviation: place.compared.deviation(),
        bound: match place.compared.claim {
            Some(Claim::AtLeast(_)) => Some("least"),
            Some(Claim::AtMost(_)) => Some("most"),
            Some(Claim::Value(..)) | None => None,
        },
        kind: place.compared.kind.map(StatementKind::name),
        readings: place.readings,
        samples: place.samples,
    };
    let statement = |judged: &'a Judged<'a>| {
        let expected = judged.statement.expected;
        StatementSummary {
            series: &expected.series,
            kind: expected.kind.name(),
            source: &expected.source,
            sentence: &expected.sentence,
            paper: scoreboard::claim(expected.claim),
            unit: &expected.unit,
            found: &judged.statement.found,
            readings: judged.readings,
            samples: judged.samples,
            holds: judged.statement.holds(),
        }
    };
    Summary {
        experiment: &definition.name,
        points: places.iter().map(point).collect(),
        statements: judged.iter().map(statement).collect(),
        tally: scoreboard::tally(judged),
    }
}

/// Returns the name of a file of `--out`.
fn result(definition: &Definition, extension: &str) -> String {
    format!("{}.{extension}", definition.name)
}

/// Returns the files of `--out`, which [`write_all`] writes.
fn results(folder: &Path, definition: &Definition) -> [PathBuf; 4] {
    ["svg", "json", "jsonl", "parquet"].map(|extension| folder.join(result(definition, extension)))
}

fn write_all(
    folder: &Path,
    definition: &Definition,
    places: &[Place],
    summary: &Summary<'_>,
    records: &[Record],
) -> anyhow::Result<()> {
    let write = |extension: &str, bytes: &[u8]| files::write(folder, &result(definition, extension), bytes);
    write("svg", plot::draw(definition, places)?.as_bytes())?;
    write("json", &serde_json::to_vec_pretty(summary)?)?;
    write("jsonl", record::lines(records)?.as_bytes())?;
    write("parquet", &parquet::table(records)?)
}
