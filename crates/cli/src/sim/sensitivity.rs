//! `nichrome sim sensitivity`: varies assumed parameters and evaluates the paper's statements.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use comfy_table::{CellAlignment, Table, TableComponent, presets};
use nichrome_sim::experiment::{Definition, Factor, Statement, StatementKind, Values, Variant};
use serde::Serialize;

use super::experiment::Experiment;
use super::judged::{self, Others, Range};
use super::output::{print, print_json};
use super::runs::Jobs;
use super::{files, plot, scoreboard, variants};
use crate::number;

/// Minimum relative change that is shown.
const MIN_SHOWN_CHANGE: f64 = 0.01;

/// Vary an experiment's assumed parameters, one at a time and all together, and print the effect on its
/// predictions
#[derive(Args)]
pub(crate) struct Sensitivity {
    #[command(flatten)]
    experiment: Experiment,
    /// Number of samples of all assumed parameters together (Latin hypercube)
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = number::whole(1..=100_000_u32))]
    samples: u32,
    /// The seed of the runs and of the samples [default: the experiment's]
    #[arg(long, value_name = "N", value_parser = number::seed)]
    seed: Option<u64>,
    /// Write the figure with the intervals (NAME-sensitivity.svg) and the results (NAME-sensitivity.json) to
    /// a folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    jobs: Jobs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// All statements; names are stable.
#[derive(Serialize)]
struct Summary<'a> {
    experiment: &'a str,
    samples: u32,
    /// The varied parameters with their ranges.
    factors: Vec<FactorSummary>,
    statements: Vec<StatementSummary<'a>>,
    /// The factors with the largest effect on predictions, the largest first.
    most_important: Vec<String>,
}

#[derive(Serialize)]
struct FactorSummary {
    name: String,
    ends: Vec<String>,
}

#[derive(Serialize)]
struct StatementSummary<'a> {
    line: &'a str,
    kind: &'static str,
    source: &'a str,
    sentence: &'a str,
    paper: String,
    unit: &'a str,
    /// Range with the default parameters.
    found: Option<Range>,
    /// Range over all samples.
    interval: Option<Range>,
    /// Number of samples in which the statement holds; none without a tolerance.
    holds_in: Option<usize>,
    /// The effect of each factor, the largest first.
    by_factor: Vec<Effect>,
}

/// The effect of a factor on a statement.
#[derive(Clone, Serialize)]
struct Effect {
    factor: String,
    /// The statement's value at each end of the factor's range.
    at_ends: Vec<(String, Option<Range>)>,
    /// Relative change at each end.
    changes: Vec<f64>,
    /// Largest relative change.
    swing: f64,
}

impl Sensitivity {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let definition = self.experiment.load()?;
        if let Some(folder) = &self.out {
            files::make_folder(folder)?;
        }
        let seed = self.seed.unwrap_or(definition.seed);
        let factors = definition.factors();
        let base = Variant { name: "as it is".into(), source: String::new(), set: Vec::new() };
        let mut all = vec![base];
        all.extend(factors.iter().flat_map(|factor| factor.ends.iter().cloned()));
        let ends = all.len();
        all.extend(definition.samples(self.samples as usize, seed));
        let mut values = variants::run(&definition, &all, seed, &self.jobs)?;
        let samples = values.split_off(ends.min(values.len()));
        // Without statements there are no runs.
        let none = Values::default();
        let (base, ends) = values.split_first().unwrap_or((&none, &[]));
        let summary = self.summary(&definition, &factors, base, ends, &samples);
        // Writes the files even if printing fails: the runs take minutes.
        let printed = if self.json { print_json(&summary) } else { print(text(&definition, &summary)) };
        if let Some(folder) = &self.out {
            let name = format!("{}-sensitivity", definition.name);
            files::write(folder, &format!("{name}.json"), &serde_json::to_vec_pretty(&summary)?)?;
            let others = Others { readings: Vec::new(), samples };
            let svg = plot::draw(&definition, &judged::places(&definition, base, &others))?;
            files::write(folder, &format!("{name}.svg"), svg.as_bytes())?;
        }
        printed
    }

    fn summary<'a>(
        &self,
        definition: &'a Definition,
        factors: &[Factor],
        base: &Values,
        ends: &[Values],
        samples: &[Values],
    ) -> Summary<'a> {
        let sampled: Vec<Vec<Statement<'_>>> =
            samples.iter().map(|values| definition.judge(values)).collect();
        let at_ends: Vec<Vec<Statement<'_>>> = ends.iter().map(|values| definition.judge(values)).collect();
        let statement = |(nth, statement): (usize, Statement<'a>)| {
            let spans = sampled.iter().filter_map(|statements| statements[nth].span());
            let interval = spans.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
            let expected = statement.expected;
            let verdicts = sampled.iter().map(|statements| statements[nth].holds());
            let holds_in =
                expected.claim.is_decidable().then(|| verdicts.filter(|holds| *holds == Some(true)).count());
            StatementSummary {
                line: &expected.series,
                kind: expected.kind.name(),
                source: &expected.source,
                sentence: &expected.sentence,
                paper: scoreboard::claim(expected.claim),
                unit: &expected.unit,
                found: statement.span(),
                interval,
                holds_in,
                by_factor: effects(factors, &statement, &at_ends, nth),
            }
        };
        let statements: Vec<_> = definition.judge(base).into_iter().enumerate().map(statement).collect();
        let names = |factor: &Factor| FactorSummary {
            name: factor.name.clone(),
            ends: factor.ends.iter().map(|end| end.name.clone()).collect(),
        };
        Summary {
            experiment: &definition.name,
            samples: self.samples,
            factors: factors.iter().map(names).collect(),
            most_important: most_important(&statements),
            statements,
        }
    }
}

/// Computes the effect of each factor alone on a statement, the largest first.
fn effects(
    factors: &[Factor],
    base: &Statement<'_>,
    at_ends: &[Vec<Statement<'_>>],
    nth: usize,
) -> Vec<Effect> {
    let mut at_ends = at_ends.iter();
    let mut effects: Vec<Effect> = factors
        .iter()
        .map(|factor| {
            let (mut changes, mut spans) = (Vec::new(), Vec::new());
            for (end, statements) in factor.ends.iter().zip(at_ends.by_ref()) {
                let statement = &statements[nth];
                changes.push(change(base, statement));
                spans.push((end.name.clone(), statement.span()));
            }
            let swing = changes.iter().copied().fold(0.0, f64::max);
            Effect { factor: factor.name.clone(), at_ends: spans, changes, swing }
        })
        .collect();
    effects.sort_by(|a, b| b.swing.total_cmp(&a.swing));
    effects
}

/// Returns the largest relative change of a statement's numbers: 1 from 0, and where a number appears or is
/// missing.
fn change(base: &Statement<'_>, other: &Statement<'_>) -> f64 {
    let change = |(a, b): (&Option<f64>, &Option<f64>)| match (a, b) {
        _ if a == b => 0.0,
        (Some(a), Some(b)) if *a != 0.0 => (b / a - 1.0).abs(),
        _ => 1.0,
    };
    base.found.iter().zip(&other.found).map(change).fold(0.0, f64::max)
}

/// Returns the factors with a relevant effect on a prediction, the largest first.
fn most_important(statements: &[StatementSummary<'_>]) -> Vec<String> {
    let predictions = statements.iter().filter(|statement| statement.kind == StatementKind::Predicted.name());
    let mut largest: Vec<(f64, &str)> = Vec::new();
    for effect in predictions
        .flat_map(|statement| &statement.by_factor)
        .filter(|effect| effect.swing >= MIN_SHOWN_CHANGE)
    {
        match largest.iter_mut().find(|(_, name)| *name == effect.factor) {
            Some((swing, _)) => *swing = swing.max(effect.swing),
            None => largest.push((effect.swing, &effect.factor)),
        }
    }
    largest.sort_by(|a, b| b.0.total_cmp(&a.0));
    largest.into_iter().map(|(_, name)| name.to_owned()).collect()
}

fn text(definition: &Definition, summary: &Summary<'_>) -> String {
    if summary.statements.is_empty() {
        return format!("{}: its paper states nothing that could be checked", definition.name);
    }
    let mut text = format!("{} ({})\n", definition.title, definition.paper);
    for statement in &summary.statements {
        let unit = statement.unit;
        let _ = write!(
            text,
            "\n{}: {}, {}\n  paper {} {unit}, ours {} {unit}, {} {unit} over {} samples",
            statement.kind,
            statement.line,
            statement.source,
            statement.paper,
            shown(statement.found),
            shown(statement.interval),
            summary.samples,
        );
        let agree = statement.holds_in.map(|count| format!(", of which {count} agree"));
        let _ = writeln!(text, "{}", agree.unwrap_or_default());
        let (matter, rest): (Vec<&Effect>, Vec<&Effect>) =
            statement.by_factor.iter().partition(|effect| effect.swing >= MIN_SHOWN_CHANGE);
        if !matter.is_empty() {
            let _ = writeln!(text, "{}", table(&matter).trim_fmt());
        }
        if !rest.is_empty() {
            let names: Vec<&str> = rest.iter().map(|effect| effect.factor.as_str()).collect();
            let _ = writeln!(text, "  below 1 %: {}", names.join(", "));
        }
    }
    let most = &summary.most_important;
    let most: Vec<&str> = most.iter().take(3).map(String::as_str).collect();
    let is_prediction = |statement: &StatementSummary<'_>| statement.kind == StatementKind::Predicted.name();
    let _ = match most.is_empty() {
        _ if !summary.statements.iter().any(is_prediction) => write!(text, "\nno statement is a prediction"),
        true => write!(text, "\nno assumed parameter changes a prediction by 1 % or more"),
        false => write!(text, "\npredictions depend most on {}", most.join(", ")),
    };
    text
}

fn table(effects: &[&Effect]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_style(TableComponent::HeaderLines, '─');
    table.set_header(["one at a time", "ours", "change"]);
    for effect in effects {
        for ((end, span), change) in effect.at_ends.iter().zip(&effect.changes) {
            table.add_row([end.clone(), shown(*span), format!("{:.1} %", change * 100.0)]);
        }
    }
    if let Some(column) = table.column_mut(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn shown(range: Option<Range>) -> String {
    range.map_or_else(|| "none".into(), scoreboard::span)
}
