//! `nichrome sim list`: lists the built-in experiments.

use clap::Args;
use comfy_table::{CellAlignment, Table, TableComponent, presets};
use nichrome_sim::experiment::{BUILT_IN, Source};
use serde::Serialize;

use super::output::{print, print_json};

/// List the experiments, with the number of runs of each
#[derive(Args)]
pub(crate) struct List {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Entry {
    name: String,
    title: String,
    paper: String,
    /// Number of simulations that a figure needs. Series that differ only in the metric share simulations.
    runs: usize,
    /// Number of points of all measured series.
    points: usize,
}

impl List {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let entries = BUILT_IN.experiments.iter().map(|experiment| {
            let definition = Source::BuiltIn(*experiment).load(&BUILT_IN)?;
            let plan = definition.plan();
            let (runs, points) = (plan.runs.len(), plan.points.len());
            let (name, title, paper) = (definition.name, definition.title, definition.paper);
            Ok(Entry { name, title, paper, runs, points })
        });
        let entries: Vec<Entry> = entries.collect::<anyhow::Result<_>>()?;
        if self.json {
            return print_json(&entries);
        }
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_style(TableComponent::HeaderLines, '─');
        table.set_header(["name", "runs", "title", "paper"]);
        for Entry { name, title, paper, runs, .. } in entries {
            table.add_row([name, runs.to_string(), title, paper]);
        }
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        print(table.trim_fmt())
    }
}
