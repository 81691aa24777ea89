//! Parses the paper's statements, and alternative readings of its settings.

use super::definition::{Definition, XAxis};
use super::dimension::{Dimension, WHOLE};
use super::document::{FileError, Item, Table};
use super::fields::{named, quantity, settings, source};
use super::runner::Runner;
use super::statement::{Claim, Expected, StatementKind, Subject, Tolerance};
use super::variant::Variant;

const KEYS: &[&str] = &[
    "series",
    "x",
    "of",
    "over",
    "value",
    "least",
    "most",
    "unit",
    "tolerance",
    "kind",
    "source",
    "sentence",
];

/// Parses all `[[expected]]`.
pub(super) fn expected(root: &Table<'_, '_>, definition: &Definition) -> Result<Vec<Expected>, FileError> {
    root.tables("expected")?.iter().map(|table| one_expected(table, definition)).collect()
}

fn one_expected(table: &Table<'_, '_>, definition: &Definition) -> Result<Expected, FileError> {
    table.only(KEYS)?;
    let item = table.need("series", "the name of a series or of something derived")?;
    let name = item.text()?;
    let Some(unit_of_line) = definition.unit_of_line(name) else {
        return Err(item.unknown("series", name, definition.lines()));
    };
    let subject = subject(table, definition)?;
    let unit = match subject {
        Subject::At(_) | Subject::Maximum => unit_of_line,
        Subject::MaximumOver(_) => "times",
        Subject::Fall => "%",
        Subject::MaximumBegins => &definition.x.unit,
    };
    let given = table.need("unit", "the unit of the value")?;
    if given.text()? != unit {
        return Err(given.unknown("unit of this series", given.text()?, [unit]));
    }
    let kind = table
        .need("kind", "how much agreement is worth: predicted, fitted, repeated, derived, by construction")?;
    let sentence = table.need("sentence", "the paper's words")?;
    Ok(Expected {
        series: name.into(),
        subject,
        claim: claim(table)?,
        unit: unit.into(),
        kind: named(&kind, "kind", &StatementKind::NAMES)?,
        source: source(table)?,
        sentence: sentence.text()?.into(),
    })
}

/// Constructs a subject that concerns the whole series.
type WholeLine = fn() -> Subject;

/// Parses the subject of a statement: x values, or a property of the whole series.
fn subject(table: &Table<'_, '_>, definition: &Definition) -> Result<Subject, FileError> {
    let over = table.get("over");
    let Some(of) = table.get("of") else {
        if let Some(over) = over {
            return Err(over.wrong_type("beside of = \"maximum\""));
        }
        return Ok(Subject::At(places(table, &definition.x)?));
    };
    if let Some(x) = table.get("x") {
        return Err(x.wrong_type("left out where `of` is given"));
    }
    const SUBJECTS: [(&str, WholeLine); 3] = [
        ("maximum", || Subject::Maximum),
        ("maximum begins", || Subject::MaximumBegins),
        ("fall", || Subject::Fall),
    ];
    match (named(&of, "subject", &SUBJECTS)?(), over) {
        (subject, None) => Ok(subject),
        (Subject::Maximum, Some(over)) => {
            let name = over.text()?;
            match definition.unit_of_line(name) {
                Some(_) => Ok(Subject::MaximumOver(name.into())),
                None => Err(over.unknown("series", name, definition.lines())),
            }
        }
        (_, Some(over)) => Err(over.wrong_type("beside of = \"maximum\"")),
    }
}

/// Parses the x values of a statement; all if none are given.
fn places(table: &Table<'_, '_>, axis: &XAxis) -> Result<Vec<u64>, FileError> {
    let Some(item) = table.get("x") else { return Ok(axis.values.clone()) };
    let place = |item: &Item<'_, '_>| {
        let x = quantity(item, axis.parameter, &axis.unit)?;
        if axis.values.contains(&x) {
            return Ok(x);
        }
        let known = axis.values.iter().map(|x| axis.number(*x).to_string());
        Err(item.unknown("place on the x axis", &item.scalar()?, known))
    };
    item.one_or_more()?.iter().map(place).collect()
}

/// Parses one of `value`, `least` and `most`.
fn claim(table: &Table<'_, '_>) -> Result<Claim, FileError> {
    const ABOUT: &str = "what the paper says, or least or most where it says how much at least or at most";
    let tolerance = table.get("tolerance").map(|item| tolerance(&item)).transpose()?;
    let claims = ["value", "least", "most"].map(|key| table.get(key));
    let (item, claim): (_, fn(f64) -> Claim) = match claims {
        [None, Some(least), None] => (least, Claim::AtLeast),
        [None, None, Some(most)] => (most, Claim::AtMost),
        [Some(value), None, None] => return Ok(Claim::Value(value.number()?, tolerance)),
        [None, None, None] => {
            return Err(table
                .need("value", ABOUT)
                .map_or_else(|error| error, |item| item.wrong_type("a number")));
        }
        [Some(item), ..] | [None, Some(item), _] => {
            return Err(item.wrong_type("the only one of value, least and most"));
        }
    };
    match table.get("tolerance") {
        Some(tolerance) => Err(tolerance.wrong_type("beside a value")),
        None => Ok(claim(item.number()?)),
    }
}

/// Parses a tolerance: `"5%"` of the value, or a number in its unit.
fn tolerance(item: &Item<'_, '_>) -> Result<Tolerance, FileError> {
    let wrong = || item.wrong_type("a number from 0 on, or a part of the value such as \"5%\"");
    let text = item.scalar()?;
    let tolerance = if text.ends_with('%') {
        let billionths = Dimension::Fraction.parse(&text).map_err(|_| wrong())?;
        Tolerance::Relative(billionths as f64 / WHOLE as f64)
    } else {
        Tolerance::Absolute(item.number().ok().filter(|number| *number >= 0.0).ok_or_else(wrong)?)
    };
    Ok(tolerance)
}

/// Parses all `[[reading]]`.
pub(super) fn readings(root: &Table<'_, '_>, runner: &dyn Runner) -> Result<Vec<Variant>, FileError> {
    let one = |table: &Table<'_, '_>| {
        table.only(&["name", "set", "source"])?;
        let name = table.need("name", "the name of the reading")?.text()?.into();
        let set = settings(&table.need("set", "what is set for it")?.table()?, runner)?;
        Ok(Variant { name, source: source(table)?, set })
    };
    root.tables("reading")?.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{EXPERIMENT, LIBRARY};
    use super::*;

    fn parse(text: &str) -> Result<Definition, FileError> {
        Definition::parse("share.toml", text, &LIBRARY)
    }

    #[test]
    fn a_statement_has_a_subject_a_claim_and_a_kind() {
        let of_line = |more: &str| {
            let text = EXPERIMENT.replace("x = [2, 4]\nvalue = 2.5\nunit = \"times\"\ntolerance = 0.5", more);
            parse(&text).unwrap().expected.remove(1)
        };
        let first = parse(EXPERIMENT).unwrap().expected.remove(0);
        assert_eq!(first.subject, Subject::At(vec![1, 2, 4]));
        assert_eq!((first.kind, first.sentence.as_str()), (StatementKind::Predicted, "1 Gb/s"));
        let gain = of_line("x = [2, 4]\nvalue = 2.5\nunit = \"times\"\ntolerance = 0.5");
        assert_eq!(gain.claim, Claim::Value(2.5, Some(Tolerance::Absolute(0.5))));
        assert_eq!(of_line("x = 2\nleast = 2\nunit = \"times\"").claim, Claim::AtLeast(2.0));
        let begins = of_line("of = \"maximum begins\"\nvalue = 2\nunit = \"flows\"");
        assert_eq!(begins.subject, Subject::MaximumBegins);
        let fall = of_line("of = \"fall\"\nleast = 2\nunit = \"%\"");
        assert_eq!((fall.subject, fall.claim), (Subject::Fall, Claim::AtLeast(2.0)));
        let over = of_line("of = \"maximum\"\nover = \"without\"\nmost = 2\nunit = \"times\"");
        assert_eq!((over.subject, over.claim), (Subject::MaximumOver("without".into()), Claim::AtMost(2.0)));
    }

    #[test]
    fn errors_of_statements_name_the_cause() {
        for (from, to, message) in [
            (
                "kind = \"derived\"",
                "kind = \"guessed\"",
                "there is no kind 'guessed': there are predicted, fitted, repeated, derived, by construction",
            ),
            ("kind = \"derived\"\n", "", "there must be expected.kind: how much agreement is worth"),
            (
                "value = 2.5",
                "value = 2.5\nmost = 3",
                "expected.value must be the only one of value, least and most",
            ),
            ("value = 2.5", "most = 3", "expected.tolerance must be beside a value"),
            (
                "x = [2, 4]",
                "of = \"middle\"",
                "expected.of: there is no subject 'middle': there are maximum, maximum begins, fall",
            ),
            ("x = [2, 4]", "x = 2\nof = \"maximum\"", "expected.x must be left out where `of` is given"),
            ("x = [2, 4]", "x = []", "expected.x must be an array of at least one value"),
            ("x = [2, 4]", "over = \"without\"", "expected.over must be beside of = \"maximum\""),
        ] {
            assert!(EXPERIMENT.contains(from), "{from}");
            let error = parse(&EXPERIMENT.replacen(from, to, 1)).err().map(|error| error.to_string());
            assert!(error.as_ref().is_some_and(|error| error.contains(message)), "{to}: {error:?}");
        }
    }
}
