//! The HTML page of all figures and claims.

use super::report::Report;
use super::series::{Figure, Series};
use super::table::{at, estimate, label, number, places, quantities};
use crate::page::{self, Axis, Line, Page, Scale, Table};

/// Renders the page.
pub(super) fn page(report: &Report, seed: u64) -> anyhow::Result<Page> {
    let mut page = Page::new("RDMA over IP and sockets").with("seed", seed.to_string());
    page.text(&report.machine.to_string());
    page.table(&claims(report));
    for figure in &report.figures {
        section(&mut page, figure)?;
    }
    Ok(page)
}

/// The table of claims, a row per claim and transport.
fn claims(report: &Report) -> Table {
    const VERDICT: usize = 4;
    let mut table = Table::new("Claims", ["claim", "figure", "statement", "transport", "verdict", "reason"]);
    for claim in &report.claims {
        for judgement in &claim.transports {
            let verdict = judgement.verdict.to_string();
            table.add([
                claim.claim.to_owned(),
                claim.figure.to_owned(),
                claim.statement.to_owned(),
                judgement.transport.name().to_owned(),
                verdict,
                judgement.reason.clone(),
            ]);
            table.mark(VERDICT, judgement.verdict.class());
        }
    }
    table
}

fn section(page: &mut Page, figure: &Figure) -> anyhow::Result<()> {
    let Figure { name, paper, title, .. } = figure;
    page.heading(&format!("{name}: {title}"));
    let rounds = figure.rounds_in_words("rounds with half of their range");
    page.text(&format!("Figure {paper}; {rounds}."));
    for note in &figure.notes {
        page.text(note);
    }
    for quantity in quantities(figure) {
        let series: Vec<&Series> = figure.series.iter().filter(|of| of.quantity == quantity).collect();
        page.figure(&drawn(figure, quantity, &series))?;
        let mut table = Table::new(
            quantity,
            [figure.x.quantity.to_owned()].into_iter().chain(series.iter().map(|of| label(of))),
        );
        for place in places(&series) {
            let values = series.iter().map(|of| at(of, place).map_or_else(|| "–".to_owned(), estimate));
            table.add([number(place)].into_iter().chain(values));
        }
        page.table(&table);
    }
    Ok(())
}

/// Returns the lines of a quantity.
fn drawn(figure: &Figure, quantity: &str, series: &[&Series]) -> page::Figure {
    let is_size = figure.x.quantity == "bytes";
    let scale = if is_size { Scale::Log2 } else { Scale::Linear };
    let is_drawn = quantity == figure.y.quantity;
    let (title, y) = if is_drawn { (figure.title, figure.y.label) } else { (quantity, quantity) };
    let line = |of: &&Series| {
        let place = |x: f64| if is_size { x.max(1.0) } else { x };
        let points =
            of.points.iter().map(|point| (place(point.x), point.y.median, Some((point.y.low, point.y.high))));
        Line::with_ranges(label(of), points)
    };
    page::Figure {
        title: title.into(),
        x: Axis::new(figure.x.label, scale),
        y: Axis::linear(y),
        lines: series.iter().map(line).collect(),
    }
}
