//! The results of an experiment or a sweep as an HTML page.

use std::collections::BTreeMap;

use nichrome_sim::experiment::{Claim, Definition, Scale, Sweep, Task, with_unit};
use serde::Serialize;

use super::judged::Place;
use super::number::significant;
use super::plot;
use super::store::Store;
use crate::page::{self, Axis, Figure, Line, Page, Style, Table};

/// Selects a kind of claim.
type IsOfKind = fn(Claim) -> bool;

/// Returns the page of an experiment: a figure for each unit, and tables of points and statements.
pub(super) fn of_run(
    definition: &Definition,
    places: &[Place],
    seed: u64,
    summary: &impl Serialize,
) -> anyhow::Result<Page> {
    let mut page =
        Page::new(format!("{} ({})", definition.title, definition.paper)).with("seed", seed.to_string());
    for panel in plot::panels(definition, places) {
        let mut lines = Vec::new();
        for (name, places) in &panel.lines {
            let ours = |place: &&Place| {
                Some((place.compared.x, place.compared.value?, place.readings.or(place.samples)))
            };
            lines.push(Line::with_ranges(*name, places.iter().filter_map(ours)));
            let claims: [(&str, IsOfKind); 3] = [
                ("the paper", |claim| matches!(claim, Claim::Value(..))),
                ("the paper: at least", |claim| matches!(claim, Claim::AtLeast(_))),
                ("the paper: at most", |claim| matches!(claim, Claim::AtMost(_))),
            ];
            for (what, is_of_kind) in claims {
                let of_kind = places.iter().filter(|place| place.compared.claim.is_some_and(is_of_kind));
                let papers: Vec<_> =
                    of_kind.filter_map(|place| Some((place.compared.x, place.compared.paper()?))).collect();
                if !papers.is_empty() {
                    lines.push(Line::new(format!("{name}, {what}"), Style::Marks, papers));
                }
            }
        }
        let y = Axis::new(panel.label.clone(), scale(panel.scale));
        page.figure(&Figure { title: panel.label, x: x_axis(definition), y, lines })?;
    }
    page.report(summary)?;
    Ok(page)
}

/// Returns the page of a sweep: a figure for each metric, with a line for each series and combination of
/// settings, and a table of all runs.
pub(super) fn of_sweep(lists: &Sweep, tasks: &[Task], store: &Store) -> anyhow::Result<Page> {
    let definition = &lists.definition;
    let seeds: Vec<_> = lists.seeds.iter().map(u64::to_string).collect();
    let title = format!("{}: sweep over {}", definition.title, definition.x.label);
    let mut page = Page::new(title).with("seeds", seeds.join(", "));
    let mut metrics: Vec<(&str, Lines)> = Vec::new();
    let mut table = Table::new(
        "runs",
        ["series", "settings", &definition.x.caption(), "seed", "metric", "value", "unit"],
    );
    for task in tasks {
        let metric = definition.series[task.point.series].metric;
        let record = store.get(definition.runner, &task.point.parameters, task.seed)?;
        let Some(value) = record.and_then(|record| record.metrics.get(metric.name).copied()) else {
            continue;
        };
        let settings: Vec<_> = task.settings.iter().map(|(key, value)| format!("{key} {value}")).collect();
        let settings = settings.join(", ");
        let x = definition.x.number(task.point.x);
        table.add([
            task.series.clone(),
            settings.clone(),
            significant(x),
            task.seed.to_string(),
            metric.about.into(),
            significant(value),
            metric.unit.into(),
        ]);
        if !metrics.iter().any(|(name, _)| *name == metric.name) {
            let label = with_unit(metric.about, metric.unit);
            metrics.push((metric.name, Lines { label, lines: Vec::new() }));
        }
        if let Some((_, lines)) = metrics.iter_mut().find(|(name, _)| *name == metric.name) {
            lines.add(&[task.series.clone(), settings].join("; "), task.point.x, value);
        }
    }
    for (_, lines) in &metrics {
        page.figure(&lines.figure(definition))?;
    }
    page.table(&table);
    Ok(page)
}

/// The lines of a metric's figure: for each name, the values of all seeds by position.
struct Lines {
    label: String,
    lines: Vec<(String, BTreeMap<u64, Vec<f64>>)>,
}

impl Lines {
    fn add(&mut self, name: &str, x: u64, value: f64) {
        let name = name.trim_end_matches("; ");
        if !self.lines.iter().any(|(of, _)| of == name) {
            self.lines.push((name.to_owned(), BTreeMap::new()));
        }
        if let Some((_, places)) = self.lines.iter_mut().find(|(of, _)| of == name) {
            places.entry(x).or_default().push(value);
        }
    }

    /// Returns the figure of means over the seeds, with minimum and maximum.
    fn figure(&self, definition: &Definition) -> Figure {
        let point = |(x, values): (&u64, &Vec<f64>)| {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            (definition.x.number(*x), mean, (least < most).then_some((least, most)))
        };
        Figure {
            title: self.label.clone(),
            x: x_axis(definition),
            y: Axis::linear(self.label.clone()),
            lines: self
                .lines
                .iter()
                .map(|(name, places)| Line::with_ranges(name.clone(), places.iter().map(point)))
                .collect(),
        }
    }
}

fn x_axis(definition: &Definition) -> Axis {
    Axis::new(plot::x_caption(definition), scale(definition.x.scale))
}

fn scale(scale: Scale) -> page::Scale {
    match scale {
        Scale::Linear => page::Scale::Linear,
        Scale::Log2 => page::Scale::Log2,
        Scale::Log10 => page::Scale::Log10,
    }
}
