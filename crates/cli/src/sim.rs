//! `nichrome sim`: experiments in the simulator.

mod collect;
mod experiment;
mod files;
mod list;
mod number;
mod parquet;
mod plot;
mod point;
mod record;
mod run;
mod runs;
mod store;
mod sweep;
mod table;
mod tasks;
mod trace;

use std::fmt::Display;
use std::io::{self, Write};

use anyhow::Context;
use clap::Subcommand;
use serde::Serialize;

/// Run experiments in the simulator, and compare them with what papers say.
#[derive(Subcommand)]
pub(crate) enum Sim {
    List(list::List),
    Run(run::Run),
    Sweep(sweep::Sweep),
    Tasks(tasks::Tasks),
    Point(point::Point),
    Collect(collect::Collect),
}

impl Sim {
    /// Runs the command.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::List(list) => list.run(),
            Self::Run(run) => run.run(),
            Self::Sweep(sweep) => sweep.run(),
            Self::Tasks(tasks) => tasks.run(),
            Self::Point(point) => point.run(),
            Self::Collect(collect) => collect.run(),
        }
    }
}

/// Prints a table or a text.
fn print(text: impl Display) -> anyhow::Result<()> {
    writeln!(io::stdout(), "{text}").context("cannot print the results")
}

fn print_json(results: &impl Serialize) -> anyhow::Result<()> {
    print(serde_json::to_string_pretty(results)?)
}
