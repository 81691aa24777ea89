//! `nichrome sim`: experiments in the simulator.

mod collect;
mod experiment;
mod files;
mod judged;
mod list;
mod number;
mod output;
mod page;
mod parquet;
mod plot;
mod point;
mod record;
mod run;
mod runs;
mod scoreboard;
mod sensitivity;
mod store;
mod sweep;
mod table;
mod tasks;
mod trace;
mod variants;

use clap::Subcommand;

/// Run experiments in the simulator and compare them with the papers.
#[derive(Subcommand)]
pub(crate) enum Sim {
    List(list::List),
    Run(run::Run),
    Sensitivity(sensitivity::Sensitivity),
    Sweep(sweep::Sweep),
    Tasks(tasks::Tasks),
    Point(point::Point),
    Collect(collect::Collect),
}

impl Sim {
    /// Runs the command. If it fails, removes the folders that it created and has written nothing to.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let result = match self {
            Self::List(list) => list.run(),
            Self::Run(run) => run.run(),
            Self::Sensitivity(sensitivity) => sensitivity.run(),
            Self::Sweep(sweep) => sweep.run(),
            Self::Tasks(tasks) => tasks.run(),
            Self::Point(point) => point.run(),
            Self::Collect(collect) => collect.run(),
        };
        result.inspect_err(|_| files::remove_empty_folders())
    }
}
