//! `nichrome sim point`: executes one run of a sweep.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use super::experiment::Experiment;
use super::runs::{self, Jobs};
use super::store::Store;
use crate::failure::{as_usage, usage};
use crate::number;

/// Run one point of an experiment and add it to a store, unless the store has it; nichrome sim tasks prints
/// such commands
#[derive(Args)]
pub(crate) struct Point {
    #[command(flatten)]
    experiment: Experiment,
    /// The name of the series
    #[arg(long, value_name = "NAME")]
    series: String,
    /// The seed [default: the experiment's]
    #[arg(long, value_name = "N", value_parser = number::seed)]
    seed: Option<u64>,
    /// The store's folder, with a file per run
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
}

impl Point {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let definition = self.experiment.load()?;
        let series = definition.series_of(&self.series).with_context(|| definition.name.clone());
        let series = series.map_err(as_usage)?;
        let points: Vec<_> = definition.points().into_iter().filter(|point| point.series == series).collect();
        let [point] = &points[..] else {
            let key = definition.x.parameter.key;
            return Err(usage(format!("one place on the axis is needed: --set {key}=VALUE")));
        };
        let store = Store::open(&self.store)?;
        let seed = self.seed.unwrap_or(definition.seed);
        if store.has(definition.runner, &point.parameters, seed)? {
            return Ok(());
        }
        runs::each(&[point], &Jobs::one(), |point, progress| {
            store.add(&progress.run(definition.runner, &point.parameters, seed)?)
        })?;
        Ok(())
    }
}
