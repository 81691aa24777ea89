//! The paper's statements as text, with kinds and results, and the number that hold by kind.

use std::fmt;

use nichrome_sim::experiment::{Claim, Definition, Expected, Statement, StatementKind, Subject, Tolerance};

use super::judged::Judged;
use super::number::significant;

/// A formatted scoreboard.
pub(super) struct Scoreboard<'a> {
    pub(super) definition: &'a Definition,
    pub(super) judged: &'a [Judged<'a>],
}

impl fmt::Display for Scoreboard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for judged in self.judged {
            let Statement { expected, .. } = &judged.statement;
            writeln!(
                f,
                "{:<15} {:<7} {}",
                expected.kind.name(),
                verdict(judged.statement.holds()),
                self.finding(judged)
            )?;
            writeln!(f, "{:<23} {}: \"{}\"", "", expected.source, expected.sentence)?;
        }
        write!(f, "\n{}", tally(self.judged))
    }
}

impl Scoreboard<'_> {
    /// Formats the subject of a statement, the simulated value, and the paper's.
    fn finding(&self, judged: &Judged<'_>) -> String {
        let expected = judged.statement.expected;
        let found = judged.statement.span().map_or_else(|| "none".into(), span);
        let unit = Some(expected.unit.as_str()).filter(|unit| !unit.is_empty());
        let unit = unit.map_or_else(String::new, |unit| format!(" {unit}"));
        let mut text = format!("{}: {found}{unit}, paper {}", self.subject(expected), claim(expected.claim));
        for (name, range) in [("readings", judged.readings), ("samples", judged.samples)] {
            if let Some(range) = range {
                text += &format!("; over {name} {}", span(range));
            }
        }
        text
    }

    fn subject(&self, expected: &Expected) -> String {
        let (series, axis) = (&expected.series, &self.definition.x);
        match &expected.subject {
            Subject::At(places) if *places == axis.values && places.len() > 1 => {
                format!("{series} everywhere")
            }
            Subject::At(places) => {
                let places: Vec<_> = places.iter().map(|x| significant(axis.number(*x))).collect();
                format!("{series} at {}", places.join(", "))
            }
            Subject::Maximum => format!("maximum of {series}"),
            Subject::MaximumOver(other) => format!("maximum of {series} over that of {other}"),
            Subject::MaximumBegins => format!("maximum of {series} begins at"),
            Subject::Fall => format!("fall of {series} along the axis"),
        }
    }
}

fn verdict(holds: Option<bool>) -> &'static str {
    match holds {
        Some(true) => "within",
        Some(false) => "BEYOND",
        None => "",
    }
}

/// Formats a number or a range.
pub(super) fn span((least, most): (f64, f64)) -> String {
    let (least, most) = (significant(least), significant(most));
    if least == most { least } else { format!("{least} to {most}") }
}

/// Formats the paper's claim, with the tolerance in its unit.
pub(super) fn claim(claim: Claim) -> String {
    match claim {
        Claim::Value(value, None) => significant(value),
        Claim::Value(value, Some(Tolerance::Relative(part))) => {
            format!("{} ± {} %", significant(value), significant(part * 100.0))
        }
        Claim::Value(value, Some(Tolerance::Absolute(most))) => {
            format!("{} ± {}", significant(value), significant(most))
        }
        Claim::AtLeast(least) => format!("{} or more", significant(least)),
        Claim::AtMost(most) => format!("{} or less", significant(most)),
    }
}

/// Formats the number of statements that hold, by kind; predictions first.
pub(super) fn tally(judged: &[Judged<'_>]) -> String {
    let decided = |kind: StatementKind| {
        let of_kind = judged.iter().filter(move |judged| judged.statement.expected.kind == kind);
        of_kind.filter_map(|judged| judged.statement.holds()).collect::<Vec<bool>>()
    };
    let predictions = decided(StatementKind::Predicted);
    let beyond = |verdicts: &[bool]| verdicts.iter().filter(|holds| !**holds).count();
    let mut parts = vec![match (predictions.len(), beyond(&predictions)) {
        (0, _) => "no prediction".to_owned(),
        (1, 0) => "the 1 prediction is within the tolerance".into(),
        (all, 0) => format!("{all} of {all} predictions within the tolerance"),
        (all, beyond) => format!("{} of {all} predictions within the tolerance, {beyond} not", all - beyond),
    }];
    for (name, kind) in &StatementKind::NAMES[1..] {
        let verdicts = decided(*kind);
        match (verdicts.len(), beyond(&verdicts)) {
            (0, _) => {}
            (all, 0) => parts.push(format!("{all} {name}")),
            (all, beyond) => parts.push(format!("{all} {name}, of which {beyond} beyond")),
        }
    }
    parts.join("; ")
}
