//! An experiment's results as text: ours beside the paper's.

use std::fmt;

use comfy_table::{CellAlignment, Table, TableComponent, presets};
use nichrome_sim::experiment::{Compared, Definition, Tolerance};

use super::number::significant;

/// Results, to be written for people.
pub(super) struct Text<'a> {
    pub(super) definition: &'a Definition,
    pub(super) compared: &'a [Compared],
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { definition, compared } = self;
        writeln!(f, "{} ({})\n", definition.title, definition.paper)?;
        writeln!(f, "{}", self.table().trim_fmt())?;
        let judged: Vec<bool> = compared.iter().filter_map(Compared::is_near).collect();
        if !judged.is_empty() {
            let near = judged.iter().filter(|is_near| **is_near).count();
            let of = judged.len();
            write!(f, "\n{near} of {of} values that the paper gives are within the tolerance")?;
        }
        Ok(())
    }
}

impl Text<'_> {
    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_style(TableComponent::HeaderLines, '─');
        table.set_header([
            "series",
            &self.definition.x.caption(),
            "ours",
            "paper",
            "unit",
            "deviation",
            "tolerance",
        ]);
        let mut last = None;
        for place in self.compared {
            let series = if last == Some(&place.series) { "" } else { &place.series };
            last = Some(&place.series);
            let number = |number: Option<f64>| number.map_or_else(String::new, significant);
            table.add_row([
                series.into(),
                significant(place.x),
                place.value.map_or_else(|| "none".into(), significant),
                number(place.paper),
                place.unit.clone(),
                deviation(place),
                tolerance(place),
            ]);
        }
        for column in [1, 2, 3, 5, 6] {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }
}

/// How far ours is from the paper's, in what the tolerance is in.
fn deviation(place: &Compared) -> String {
    match (place.tolerance, place.value, place.paper) {
        (Some(Tolerance::Absolute(_)), Some(value), Some(paper)) => {
            let difference = significant(value - paper);
            let sign = if value >= paper { "+" } else { "" };
            format!("{sign}{difference} {}", step(&place.unit))
        }
        _ => place.deviation().map_or_else(String::new, |deviation| format!("{:+.1} %", deviation * 100.0)),
    }
}

fn tolerance(place: &Compared) -> String {
    let allowed = match place.tolerance {
        Some(Tolerance::Absolute(most)) => format!("{} {}", significant(most), step(&place.unit)),
        Some(Tolerance::Relative(part)) => format!("{} %", significant(part * 100.0)),
        None => return String::new(),
    };
    let verdict = if place.is_near() == Some(true) { "within" } else { "beyond" };
    format!("{verdict} {allowed}")
}

/// What differences of a unit are in.
fn step(unit: &str) -> &str {
    if unit == "%" { "points" } else { unit }
}
