//! `nichrome sim collect`: tabulates the records of a store.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;
use comfy_table::{CellAlignment, Table, TableComponent, presets};
use serde_json::Value as Json;

use super::number::significant;
use super::output::print;
use super::record::{self, Record};
use super::{files, parquet, store};

/// Tabulate the records of a store: the parameters that differ, and the metrics
#[derive(Args)]
pub(crate) struct Collect {
    /// The store's folder
    #[arg(value_name = "DIR")]
    store: PathBuf,
    /// Write records.jsonl and records.parquet to a folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the records as JSON, one per line
    #[arg(long)]
    json: bool,
}

impl Collect {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let records = store::gather(&self.store)?;
        if let Some(folder) = &self.out {
            files::make_folder(folder)?;
        }
        let lines = record::lines(&records)?;
        if let Some(folder) = &self.out {
            files::write(folder, "records.jsonl", lines.as_bytes())?;
            files::write(folder, "records.parquet", &parquet::table(&records)?)?;
        }
        if self.json {
            return print(lines.trim_end());
        }
        let models: BTreeSet<&str> = records.iter().map(|record| record.model.as_str()).collect();
        for (place, model) in models.into_iter().enumerate() {
            let of_model = records.iter().filter(|record| record.model == model).collect();
            print(format_args!(
                "{}{model}\n\n{}",
                if place > 0 { "\n" } else { "" },
                table(of_model).trim_fmt()
            ))?;
        }
        Ok(())
    }
}

/// Returns a table of differing parameters, seed and metrics, ordered by parameters.
fn table(mut records: Vec<&Record>) -> Table {
    let keys: BTreeSet<&String> = records.iter().flat_map(|record| record.parameters.keys()).collect();
    let differs = |key: &&&String| {
        records.windows(2).any(|pair| pair[0].parameters.get(**key) != pair[1].parameters.get(**key))
    };
    let keys: Vec<&String> = keys.iter().filter(differs).copied().collect();
    let metrics: BTreeSet<&String> = records.iter().flat_map(|record| record.metrics.keys()).collect();
    let order = |record: &&Record| {
        let values: Vec<_> = keys.iter().map(|key| record.parameters.get(*key).map(sortable)).collect();
        (values, record.seed)
    };
    records.sort_by(|a, b| order(a).partial_cmp(&order(b)).unwrap_or(std::cmp::Ordering::Equal));
    let named = |name: &String| match records.iter().find_map(|record| record.units.get(name)) {
        Some(unit) if unit != name => format!("{name} ({unit})"),
        _ => name.clone(),
    };
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_style(TableComponent::HeaderLines, '─');
    let header = keys.iter().map(|key| named(key)).chain(["seed".into()]);
    table.set_header(header.chain(metrics.iter().map(|metric| named(metric))));
    for record in &records {
        let parameters = keys.iter().map(|key| record.parameters.get(*key).map_or_else(String::new, shown));
        let measured = |metric: &&String| {
            record.metrics.get(*metric).map_or_else(String::new, |value| significant(*value))
        };
        table.add_row(parameters.chain([record.seed.to_string()]).chain(metrics.iter().map(measured)));
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn shown(value: &Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns a sort key: by value for numbers, by text otherwise.
fn sortable(value: &Json) -> (f64, String) {
    match value.as_f64() {
        Some(number) => (number, String::new()),
        None => (f64::INFINITY, shown(value)),
    }
}
