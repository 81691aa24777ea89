//! `nichrome sim run`: an experiment, beside what its paper says.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use nichrome_sim::experiment::{Compared, Definition, Plan};
use serde::Serialize;

use super::experiment::Experiment;
use super::output::{print, print_json};
use super::record::{self, Record};
use super::runs::{self, Jobs};
use super::table::Text;
use super::trace::Trace;
use super::{files, parquet, plot};
use crate::number;

/// Run an experiment, and print what comes out beside what the paper says
#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    experiment: Experiment,
    /// The seed: the experiment's, if not given
    #[arg(long, value_name = "N", value_parser = number::seed, allow_negative_numbers = true)]
    seed: Option<u64>,
    /// Write the figure (NAME.svg), the points (NAME.json) and the records of all runs (NAME.jsonl, NAME.parquet) to a folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    trace: Trace,
    #[command(flatten)]
    jobs: Jobs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// All points; names are stable.
#[derive(Serialize)]
struct Summary<'a> {
    experiment: &'a str,
    points: Vec<PointSummary<'a>>,
}

#[derive(Serialize)]
struct PointSummary<'a> {
    series: &'a str,
    x: f64,
    value: Option<f64>,
    unit: &'a str,
    paper: Option<f64>,
    /// As a part of the paper's value.
    deviation: Option<f64>,
}

impl Run {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let mut definition = self.experiment.load()?;
        self.trace.select(&mut definition)?;
        if let Some(folder) = &self.out {
            files::make_folder(folder)?;
        }
        let seed = self.seed.unwrap_or(definition.seed);
        let plan = definition.plan();
        let numbered: Vec<usize> = (0..plan.runs.len()).collect();
        let records = runs::each(&numbered, &self.jobs, |number, progress| {
            let run = self.trace.run(progress, definition.runner, &plan.runs[*number], seed);
            run.with_context(|| place(&definition, &plan, *number))
        })?;
        let compared = definition.compare(&plan, |run, metric| records[run].metrics.get(metric).copied());
        let summary = summary(&definition, &compared);
        if let Some(folder) = &self.out {
            write_all(folder, &definition, &compared, &summary, &records)?;
        }
        if self.json {
            print_json(&summary)
        } else {
            print(Text { definition: &definition, compared: &compared })
        }
    }
}

/// Where a run belongs, for errors.
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

fn summary<'a>(definition: &'a Definition, compared: &'a [Compared]) -> Summary<'a> {
    let point = |place: &'a Compared| PointSummary {
        series: &place.series,
        x: place.x,
        value: place.value,
        unit: &place.unit,
        paper: place.paper,
        deviation: place.deviation(),
    };
    Summary { experiment: &definition.name, points: compared.iter().map(point).collect() }
}

fn write_all(
    folder: &Path,
    definition: &Definition,
    compared: &[Compared],
    summary: &Summary<'_>,
    records: &[Record],
) -> anyhow::Result<()> {
    let write = |extension: &str, bytes: &[u8]| {
        files::write(folder, &format!("{}.{extension}", definition.name), bytes)
    };
    write("svg", plot::draw(definition, compared)?.as_bytes())?;
    write("json", &serde_json::to_vec_pretty(summary)?)?;
    write("jsonl", record::lines(records)?.as_bytes())?;
    write("parquet", &parquet::table(records)?)
}
