//! An experiment's results as a table beside the paper's.

use std::fmt;

use comfy_table::{CellAlignment, Table, TableComponent, presets};
use nichrome_sim::experiment::{Claim, Compared, Definition, Tolerance};

use super::judged::{Judged, Place, Range};
use super::number::significant;
use super::scoreboard::Scoreboard;

/// Selects a range of a value.
type RangeOf = fn(&Place) -> Option<Range>;

/// A formatted table of results.
pub(super) struct Text<'a> {
    pub(super) definition: &'a Definition,
    pub(super) places: &'a [Place],
    pub(super) judged: &'a [Judged<'a>],
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { definition, judged, .. } = self;
        writeln!(f, "{} ({})\n", definition.title, definition.paper)?;
        writeln!(f, "{}", self.table().trim_fmt())?;
        if !judged.is_empty() {
            write!(f, "\n{}", Scoreboard { definition, judged })?;
        }
        Ok(())
    }
}

impl Text<'_> {
    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_style(TableComponent::HeaderLines, '─');
        let has = |range: RangeOf| self.places.iter().any(|place| range(place).is_some());
        let ranges: Vec<(&str, RangeOf)> =
            [("over readings", readings as RangeOf), ("over samples", samples)]
                .into_iter()
                .filter(|(_, range)| has(*range))
                .collect();
        let judged = self.places.iter().any(|place| place.compared.claim.is_some());
        let mut header = vec!["series".to_owned(), self.definition.x.caption(), "ours".into()];
        header.extend(ranges.iter().map(|(name, _)| (*name).to_owned()));
        header.push("unit".into());
        if judged {
            header.extend(["paper", "deviation", "", "kind"].map(String::from));
        }
        let columns = header.len();
        table.set_header(header);
        let mut last = None;
        for place in self.places {
            let compared = &place.compared;
            let series = if last == Some(&compared.series) { "" } else { &compared.series };
            last = Some(&compared.series);
            let value = compared.value.map_or_else(|| "none".into(), significant);
            let mut row = vec![series.into(), significant(compared.x), value];
            row.extend(ranges.iter().map(|(_, range)| range(place).map_or_else(String::new, shown)));
            row.push(compared.unit.clone());
            if judged {
                row.extend([paper(compared), deviation(compared), verdict(compared), kind(compared)]);
            }
            table.add_row(row);
        }
        let right = [1, 2].into_iter().chain(3..3 + ranges.len()).chain([5 + ranges.len()]);
        for column in right.filter(|column| *column < columns) {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }
}

fn readings(place: &Place) -> Option<Range> {
    place.readings
}

fn samples(place: &Place) -> Option<Range> {
    place.samples
}

fn shown((least, most): Range) -> String {
    format!("{} to {}", significant(least), significant(most))
}

/// Formats the paper's number with its tolerance, or the bound.
fn paper(place: &Compared) -> String {
    match place.claim {
        Some(Claim::Value(value, Some(Tolerance::Relative(part)))) => {
            format!("{} ± {} %", significant(value), significant(part * 100.0))
        }
        Some(Claim::Value(value, Some(Tolerance::Absolute(most)))) => {
            format!("{} ± {}", significant(value), significant(most))
        }
        Some(Claim::Value(value, None)) => significant(value),
        Some(Claim::AtLeast(least)) => format!("≥ {}", significant(least)),
        Some(Claim::AtMost(most)) => format!("≤ {}", significant(most)),
        None => String::new(),
    }
}

/// Formats the relative deviation from the paper's number; absolute if that is 0.
fn deviation(place: &Compared) -> String {
    match (place.claim, place.value) {
        (Some(Claim::Value(0.0, _)), Some(value)) => format!("{:+}", significant_number(value)),
        (Some(Claim::Value(..)), _) => {
            place.deviation().map_or_else(String::new, |deviation| format!("{:+.1} %", deviation * 100.0))
        }
        _ => String::new(),
    }
}

fn significant_number(value: f64) -> f64 {
    significant(value).parse().unwrap_or(value)
}

fn verdict(place: &Compared) -> String {
    match place.is_near() {
        Some(true) => "within".into(),
        Some(false) => "BEYOND".into(),
        None => String::new(),
    }
}

fn kind(place: &Compared) -> String {
    place.kind.map_or_else(String::new, |kind| kind.name().into())
}
