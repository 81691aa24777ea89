//! Figures as text.

use std::fmt;

use super::series::{Estimate, Figure, Series};

/// Width of a column.
const WIDTH: usize = 29;

/// Columns of a line.
const COLUMNS: usize = 5;

/// Formats a number with three or more significant digits.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude >= 100.0 => format!("{value:.0}"),
        magnitude if magnitude >= 10.0 => format!("{value:.1}"),
        magnitude if magnitude >= 1.0 => format!("{value:.2}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.3}"),
    }
}

/// Formats the median of rounds and half the distance between the least and the greatest.
pub(super) fn estimate(of: &Estimate) -> String {
    format!("{} ±{}", number(of.median), number((of.high - of.low) / 2.0))
}

/// Returns the name of a series.
pub(super) fn label(series: &Series) -> String {
    let Series { transport, variant, .. } = series;
    if variant.is_empty() { transport.name().to_owned() } else { format!("{} {variant}", transport.name()) }
}

/// Returns the quantities of a figure, in order, without repetition.
pub(super) fn quantities(figure: &Figure) -> Vec<&'static str> {
    let mut quantities = Vec::new();
    for series in &figure.series {
        if !quantities.contains(&series.quantity) {
            quantities.push(series.quantity);
        }
    }
    quantities
}

/// Returns the places along the axis, in order.
pub(super) fn places(series: &[&Series]) -> Vec<f64> {
    let mut places: Vec<f64> = series.iter().flat_map(|of| of.points.iter().map(|point| point.x)).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    places
}

/// Returns the value of a series at a place.
pub(super) fn at(series: &Series, place: f64) -> Option<&Estimate> {
    series.points.iter().find(|point| point.x == place).map(|point| &point.y)
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, paper, title, x, .. } = self;
        write!(f, "{name}: {title} (figure {paper}), {}", self.rounds_in_words("rounds"))?;
        for quantity in quantities(self) {
            let series: Vec<&Series> = self.series.iter().filter(|of| of.quantity == quantity).collect();
            for columns in series.chunks(COLUMNS) {
                write!(f, "\n\n{:>14}  {quantity}\n{:>14}", "", x.quantity)?;
                for of in columns {
                    write!(f, "{:>WIDTH$}", label(of))?;
                }
                for place in places(columns) {
                    write!(f, "\n{:>14}", number(place))?;
                    for of in columns {
                        let value = at(of, place).map_or_else(|| "–".to_owned(), estimate);
                        write!(f, "{value:>WIDTH$}")?;
                    }
                }
            }
        }
        self.notes.iter().try_for_each(|note| write!(f, "\n  {note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.012, "0.012"),
            (1.234, "1.23"),
            (12.34, "12.3"),
            (123.4, "123"),
            (65_536.0, "65536"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(estimate(&Estimate { median: 10.0, low: 9.0, high: 12.0 }), "10.0 ±1.50");
    }
}
