//! Parses experiment files.

use std::path::{Path, PathBuf};

use super::definition::{Definition, Derived, Extent, Parameter, Range, Rule, Scale, Series, XAxis, YAxis};
use super::dimension::{Dimension, QuantityError};
use super::document::{Document, FileError, Item, Problem, Table};
use super::fields::{find_spec, keys, known_parameter, named, quantity, settings, source};
use super::library::Library;
use super::parameter::{Kind, ParameterSpec, Value, ValueError};
use super::runner::{MetricSpec, Runner};
use super::statement_reader::{expected, readings};
use super::text_file::read_text;

const EXPERIMENT: &[&str] = &[
    "name",
    "title",
    "paper",
    "model",
    "seed",
    "include",
    "x",
    "y",
    "series",
    "derived",
    "expected",
    "reading",
    "parameters",
];

impl Definition {
    /// Parses an experiment; `file` is its name in errors, and relative includes are resolved beside it.
    pub fn parse(file: &str, text: &str, library: &Library) -> Result<Self, FileError> {
        let document = Document { file, text };
        let tree = document.parse()?;
        let root = document.root(&tree);
        if let Some(item) = root.get("experiment") {
            return Err(
                item.error(Problem::OtherKind("a sweep of an experiment: nichrome sim sweep runs it"))
            );
        }
        root.only(EXPERIMENT)?;
        let runner = runner(&root, library)?;
        let x = x_axis(&root.need("x", "what varies along a series")?.table()?, runner)?;
        let series = series(&root, &x, runner)?;
        let y = root.tables("y")?.iter().map(|table| y_axis(table, &series)).collect::<Result<_, _>>()?;
        let derived = derived(&root, &series)?;
        let (parameters, included) = parameters(&root, runner, library)?;
        let mut definition = Self {
            name: name(&root)?,
            title: root.need("title", "what is measured over what")?.text()?.into(),
            paper: root.need("paper", "the paper and the figure or section")?.text()?.into(),
            runner,
            seed: root.get("seed").map_or(Ok(1), |seed| seed.whole_number())?,
            x,
            y,
            series,
            derived,
            expected: Vec::new(),
            readings: readings(&root, runner)?,
            included,
            parameters,
        };
        definition.expected = expected(&root, &definition)?;
        definition.check_complete(&root)?;
        Ok(definition)
    }

    /// Checks that every parameter has a value in every series.
    fn check_complete(&self, root: &Table<'_, '_>) -> Result<(), FileError> {
        let has_value = |spec: &ParameterSpec, series: &Series| {
            self.x.parameter.key == spec.key
                || self.parameters.iter().any(|parameter| parameter.spec.key == spec.key)
                || series.set.iter().any(|(set, _)| set.key == spec.key)
        };
        let lacks = |spec: &&ParameterSpec| !self.series.iter().all(|series| has_value(spec, series));
        match self.runner.parameters().iter().find(lacks) {
            Some(spec) => {
                let (key, about) = (format!("parameters.{}", spec.key), spec.about.into());
                Err(root.error(Problem::Missing { key, about }))
            }
            None => Ok(()),
        }
    }
}

/// Parses the name, which is by convention the file name without `.toml`.
fn name(root: &Table<'_, '_>) -> Result<String, FileError> {
    let item = root.need("name", "the experiment's name")?;
    let name = item.text()?;
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_allowed) {
        return Err(item.wrong_type("letters, digits, '-', '_' and '.', of which '.' is not the first"));
    }
    Ok(name.into())
}

fn runner(root: &Table<'_, '_>, library: &Library) -> Result<&'static dyn Runner, FileError> {
    let model = root.need("model", "which model runs it")?;
    let name = model.text()?;
    let known = || library.runners.iter().map(|runner| runner.name());
    library.runner(name).ok_or_else(|| model.unknown("model", name, known()))
}

fn x_axis(table: &Table<'_, '_>, runner: &dyn Runner) -> Result<XAxis, FileError> {
    table.only(&["parameter", "unit", "label", "scale", "values"])?;
    let name = table.need("parameter", "the parameter that varies")?;
    let key = name.text()?;
    let parameter = find_spec(runner, key).ok_or_else(|| name.unknown("parameter", key, keys(runner)))?;
    let Kind::Quantity(dimension, _) = &parameter.kind else {
        return Err(name.wrong_type("a parameter that is a number"));
    };
    let unit = match table.get("unit") {
        Some(unit) => unit.text()?.to_owned(),
        None => match dimension {
            Dimension::Fraction => String::new(),
            dimension => dimension.base().into(),
        },
    };
    let scale = scale(table)?;
    let mut values = Vec::new();
    for item in table.need("values", "the places on the axis, in its unit")?.some_items()? {
        let x = quantity(&item, parameter, &unit)?;
        if values.contains(&x) {
            return Err(item.error(Problem::Twice { key: item.path.clone(), name: item.scalar()? }));
        }
        if x == 0 && scale != Scale::Linear {
            return Err(item.wrong_type("more than 0 on a logarithmic scale"));
        }
        values.push(x);
    }
    Ok(XAxis {
        parameter,
        dimension: *dimension,
        label: table.get("label").map_or(Ok(parameter.about), |label| label.text())?.into(),
        scale,
        unit,
        values,
    })
}

fn scale(table: &Table<'_, '_>) -> Result<Scale, FileError> {
    const SCALES: [(&str, Scale); 3] =
        [("linear", Scale::Linear), ("log2", Scale::Log2), ("log10", Scale::Log10)];
    let Some(item) = table.get("scale") else { return Ok(Scale::Linear) };
    named(&item, "scale", &SCALES)
}

fn y_axis(table: &Table<'_, '_>, series: &[Series]) -> Result<YAxis, FileError> {
    table.only(&["unit", "label", "scale"])?;
    let item = table.need("unit", "the unit of the metrics that it is for")?;
    let unit = item.text()?;
    if !series.iter().any(|series| series.metric.unit == unit) {
        return Err(item.unknown("unit of a series", unit, series.iter().map(|series| series.metric.unit)));
    }
    let label = table.need("label", "what stands beside the axis")?.text()?.into();
    Ok(YAxis { unit: unit.into(), label, scale: scale(table)? })
}

fn series(root: &Table<'_, '_>, x: &XAxis, runner: &dyn Runner) -> Result<Vec<Series>, FileError> {
    root.need("series", "what is measured: one [[series]] or more")?.some_items()?;
    let mut all: Vec<Series> = Vec::new();
    for table in root.tables("series")? {
        table.only(&["name", "metric", "set", "source"])?;
        let item = table.need("name", "the name of the series")?;
        let name = item.text()?.to_owned();
        if all.iter().any(|series| series.name == name) {
            return Err(item.error(Problem::Twice { key: item.path.clone(), name }));
        }
        let metric = metric(&table.need("metric", "which of the model's metrics is shown")?, runner)?;
        let set = match table.get("set") {
            Some(set) => {
                let set = set.table()?;
                if let Some(item) = set.get(x.parameter.key) {
                    let error = "the parameter of the x axis has the values of [x]".into();
                    return Err(item.error(Problem::Setting { key: item.path.clone(), error }));
                }
                settings(&set, runner)?
            }
            None => Vec::new(),
        };
        let sets_a_number = set.iter().any(|(spec, _)| matches!(spec.kind, Kind::Quantity(..)));
        let source = match table.get("source") {
            None if !sets_a_number => None,
            _ => Some(source(&table)?),
        };
        all.push(Series { name, metric, set, source });
    }
    Ok(all)
}

fn metric(item: &Item<'_, '_>, runner: &dyn Runner) -> Result<&'static MetricSpec, FileError> {
    let (name, metrics) = (item.text()?, runner.metrics());
    let known = || metrics.iter().map(|metric| metric.name);
    metrics.iter().find(|metric| metric.name == name).ok_or_else(|| item.unknown("metric", name, known()))
}

fn derived(root: &Table<'_, '_>, series: &[Series]) -> Result<Vec<Derived>, FileError> {
    const RULES: [(&str, Rule); 3] =
        [("ratio", Rule::Ratio), ("difference", Rule::Difference), ("reduction", Rule::Reduction)];
    let mut all: Vec<Derived> = Vec::new();
    for table in root.tables("derived")? {
        table.only(&["name", "rule", "of"])?;
        let item = table.need("name", "the name of what is derived")?;
        let name = item.text()?.to_owned();
        let known = series.iter().map(|series| &series.name).chain(all.iter().map(|derived| &derived.name));
        if known.into_iter().any(|known| *known == name) {
            return Err(item.error(Problem::Twice { key: item.path.clone(), name }));
        }
        let rule = named(&table.need("rule", "ratio, difference or reduction")?, "rule", &RULES)?;
        let item = table.need("of", "the names of two series")?;
        let places: Vec<usize> =
            item.items()?.iter().map(|item| place(item, series)).collect::<Result<_, _>>()?;
        let of = places.try_into().map_err(|_| item.wrong_type("an array of two names of series"))?;
        all.push(Derived { name, rule, of });
    }
    Ok(all)
}

fn place(item: &Item<'_, '_>, series: &[Series]) -> Result<usize, FileError> {
    let name = item.text()?;
    let names = || series.iter().map(|series| &series.name);
    names().position(|known| known == name).ok_or_else(|| item.unknown("series", name, names()))
}

/// Returns the file's parameters and the included ones that it does not override, and the included files that
/// are not built in.
fn parameters(
    root: &Table<'_, '_>,
    runner: &'static dyn Runner,
    library: &Library,
) -> Result<(Vec<Parameter>, Vec<PathBuf>), FileError> {
    let (mut all, mut files) = (Vec::new(), Vec::new());
    if let Some(table) = root.get("parameters") {
        for item in table.table()?.entries() {
            all.push(parameter(&item, known_parameter(&item, runner)?)?);
        }
    }
    if let Some(include) = root.get("include") {
        for item in include.one_or_more()? {
            files.extend(add_included(&mut all, &item, runner, library)?);
        }
    }
    all.sort_by_key(|parameter| parameter.spec.key);
    Ok((all, files))
}

/// Adds the parameters of an included file: a built-in one, or `*.toml` beside this file, of which it returns
/// the path.
fn add_included(
    all: &mut Vec<Parameter>,
    item: &Item<'_, '_>,
    runner: &'static dyn Runner,
    library: &Library,
) -> Result<Option<PathBuf>, FileError> {
    let name = item.text()?;
    if let Some(embedded) = library.parameters(name) {
        let file = format!("experiments/parameters/{name}.toml");
        included(all, Document { file: &file, text: embedded.text }, runner, library)?;
        return Ok(None);
    }
    if !name.ends_with(".toml") {
        let known = library.parameters.iter().map(|embedded| embedded.name);
        return Err(item.unknown(
            "built-in file of parameters",
            name,
            known.chain(["names that end in .toml"]),
        ));
    }
    let path = Path::new(item.file()).parent().unwrap_or(Path::new("")).join(name).display().to_string();
    let text = read_text(&path).map_err(|error| {
        let error = error.to_string();
        item.error(Problem::Include { key: item.path.clone(), path: path.clone(), error })
    })?;
    included(all, Document { file: &path, text: &text }, runner, library)?;
    Ok(Some(path.into()))
}

/// Adds the parameters of an included document that `all` lacks. Ignores those of other models.
fn included(
    all: &mut Vec<Parameter>,
    document: Document<'_>,
    runner: &'static dyn Runner,
    library: &Library,
) -> Result<(), FileError> {
    let tree = document.parse()?;
    let root = document.root(&tree);
    root.only(&["parameters"])?;
    for item in root.need("parameters", "the table of parameters")?.table()?.entries() {
        let others = || library.runners.iter().find_map(|other| find_spec(*other, item.key()));
        let own = find_spec(runner, item.key());
        let Some(spec) = own.or_else(others) else {
            return known_parameter(&item, runner).map(drop);
        };
        let parameter = parameter(&item, spec)?;
        if own.is_some() && !all.iter().any(|known| known.spec.key == spec.key) {
            all.push(parameter);
        }
    }
    Ok(())
}

/// Parses `{ value = 10.7, unit = "us", source = "…" }`; choices and booleans have no unit.
fn parameter(item: &Item<'_, '_>, spec: &'static ParameterSpec) -> Result<Parameter, FileError> {
    let table = item.table()?;
    table.only(&["value", "unit", "source", "range", "reason"])?;
    let value = table.need("value", spec.about)?;
    let given = match &spec.kind {
        Kind::Quantity(..) => Some(table.need("unit", "the unit of the value")?),
        _ => table.get("unit"),
    };
    let unit = given.as_ref().map_or(Ok(""), Item::text)?;
    let parsed = spec.parse_with_unit(&value.scalar()?, unit).map_err(|error| match (&error, &given) {
        (ValueError::Quantity(QuantityError::Unit { .. }), Some(unit)) => unit.wrong_value(error),
        _ => value.wrong_value(error),
    })?;
    Ok(Parameter { spec, value: parsed, source: source(&table)?, range: range(&table, spec, parsed, unit)? })
}

/// Parses a range, two numbers in the parameter's unit or choices around the value, and its reason.
fn range(
    table: &Table<'_, '_>,
    spec: &ParameterSpec,
    value: Value,
    unit: &str,
) -> Result<Option<Range>, FileError> {
    let Some(item) = table.get("range") else {
        return table.get("reason").map_or(Ok(None), |reason| Err(reason.wrong_type("beside a range")));
    };
    let parse = |item: &Item<'_, '_>| {
        let parsed = spec.parse_with_unit(&item.scalar()?, unit);
        parsed.map_err(|error| item.wrong_value(error))
    };
    let ends: Vec<Value> = item.some_items()?.iter().map(parse).collect::<Result<_, _>>()?;
    let around = "the least and the largest number that it could be, with its value between them";
    let extent = match (&ends[..], value) {
        ([Value::Quantity(least), Value::Quantity(most)], Value::Quantity(value)) => {
            let is_around = least < most && (*least..=*most).contains(&value);
            is_around.then_some(Extent::Between(*least, *most)).ok_or_else(|| item.wrong_type(around))?
        }
        (_, Value::Quantity(_)) => return Err(item.wrong_type(around)),
        (choices, value) if choices.contains(&value) => Extent::OneOf(ends),
        _ => return Err(item.wrong_type("choices, of which its value is one")),
    };
    let reason = table.need("reason", "why it could be that far away, and not further")?;
    Ok(Some(Range { extent, reason: reason.text()?.into() }))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{EXPERIMENT, LIBRARY};
    use super::*;

    fn parse(text: &str) -> Result<Definition, FileError> {
        Definition::parse("share.toml", text, &LIBRARY)
    }

    #[test]
    fn a_file_defines_runs_and_expected_results() {
        let definition = parse(EXPERIMENT).unwrap();
        assert_eq!((definition.name.as_str(), definition.seed), ("share", 1));
        let points = definition.points();
        assert_eq!(points.len(), 6);
        assert_eq!((points[4].series, points[4].x), (1, 2));
        let parameters = &points[4].parameters;
        assert_eq!((parameters.nanos("setup"), parameters.flag("offload")), (Ok(12_000), Ok(false)));
        assert_eq!((parameters.count("flows"), parameters.rate("rate")), (Ok(2), Ok(crate::Rate::GIGABIT)));
        assert_eq!(definition.parameters.len(), 3);
        assert_eq!(definition.parameters[0].source, "V.B");
    }

    #[test]
    fn an_own_parameter_comes_before_an_included_one() {
        let text = format!("{EXPERIMENT}rate = {{ value = 2, unit = \"Gb/s\", source = \"ours\" }}\n");
        let definition = parse(&text).unwrap();
        let rate = definition.parameters.iter().find(|parameter| parameter.spec.key == "rate").unwrap();
        assert_eq!((rate.value, rate.source.as_str()), (Value::Quantity(2_000_000_000), "ours"));
    }

    #[test]
    fn errors_name_the_line_and_the_allowed_values() {
        for (from, to, message) in [
            (
                "model = \"share\"",
                "model = \"shore\"",
                "5: model: there is no model 'shore': there are share",
            ),
            (
                "title =",
                "titel =",
                "3: there is no 'titel': there are name, title, paper, model, seed, include, x, y, series, derived, expected, reading, parameters",
            ),
            (
                "name = \"share\"",
                "name = \"../share\"",
                "2: name must be letters, digits, '-', '_' and '.', of which '.' is not the first",
            ),
            (
                "title =",
                "experiment = \"share\"\ntitle =",
                "3: this is a sweep of an experiment: nichrome sim sweep runs it",
            ),
            (
                "tolerance = 0.5",
                "tolerance = -0.5",
                "42: expected.tolerance must be a number from 0 on, or a part of the value such as \"5%\"",
            ),
            ("title =", "title", "3: key with no value, expected `=`"),
            (
                "title = \"Throughput over the number of flows\"\n",
                "",
                "1: there must be title: what is measured over what",
            ),
            (
                "scale = \"log2\"",
                "scale = \"log\"",
                "11: x.scale: there is no scale 'log': there are linear, log2, log10",
            ),
            (
                "values = [1, 2, 4]",
                "values = [1, 2000, 4]",
                "10: x.values: 2000 is out of range: expected 1 to 1000",
            ),
            ("values = [1, 2, 4]", "values = []", "10: x.values must be an array of at least one value"),
            ("values = [1, 2, 4]", "values = [1, 1]", "10: x.values: there is a second '1'"),
            ("values = [1, 2, 4]", "values = 4", "10: x.values must be an array"),
            (
                "parameter = \"flows\"",
                "parameter = \"offload\"",
                "9: x.parameter must be a parameter that is a number",
            ),
            (
                "set = { offload = true }",
                "set = { offlaod = true }",
                "16: there is no 'series.set.offlaod': there are flows, offload, rate, setup, arbiter",
            ),
            (
                "set = { offload = true }",
                "set = { setup = 5 }",
                "16: series.set.setup: the unit is missing: a time is in ns, us, ms, s, min",
            ),
            (
                "set = { offload = true }",
                "",
                "1: there must be parameters.offload: whether the card coalesces",
            ),
            (
                "set = { offload = true }",
                "set = { offload = true, setup = \"5us\" }",
                "13: there must be series.source: where it is from: a paper's sentence, a data sheet, or what it is fitted to",
            ),
            (
                "metric = \"throughput\"",
                "metric = \"speed\"",
                "15: series.metric: there is no metric 'speed': there are throughput, latency",
            ),
            (
                "name = \"without\"",
                "name = \"with offload\"",
                "19: series.name: there is a second 'with offload'",
            ),
            (
                "of = [\"with offload\", \"without\"]",
                "of = [\"with offload\"]",
                "26: derived.of must be an array of two names of series",
            ),
            (
                "rule = \"ratio\"",
                "rule = \"sum\"",
                "25: derived.rule: there is no rule 'sum': there are ratio, difference, reduction",
            ),
            (
                "unit = \"Mb/s\"",
                "unit = \"Gb/s\"",
                "31: expected.unit: there is no unit of this series 'Gb/s': there are Mb/s",
            ),
            (
                "x = [2, 4]",
                "x = [2, 3]",
                "39: expected.x: there is no place on the x axis '3': there are 1, 2, 4",
            ),
            (
                "unit = \"us\"",
                "unit = \"seconds\"",
                "48: parameters.setup.unit: unknown unit 'seconds': a time is in ns, us, ms, s, min",
            ),
            (
                "set = { offload = false }",
                "set = { offload = false, flows = 2 }",
                "21: series.set.flows: the parameter of the x axis has the values of [x]",
            ),
            (
                ", source = \"fitted to the gain\"",
                "",
                "48: there must be parameters.setup.source: where it is from: a paper's sentence, a data sheet, or what it is fitted to",
            ),
            (
                "fitted to the gain",
                " ",
                "48: parameters.setup.source must be a text that says where it is from",
            ),
            (
                "setup = { value = 12, unit = \"us\"",
                "setup = { value = 12",
                "48: there must be parameters.setup.unit: the unit of the value",
            ),
            (
                "setup = { value = 12,",
                "setup = { value = 0x12,",
                "48: parameters.setup.value must be a text, a decimal number, true or false",
            ),
            (
                "include = \"wire\"",
                "include = \"wires\"",
                "6: include: there is no built-in file of parameters 'wires': there are wire, names that end in .toml",
            ),
            (
                "include = \"wire\"",
                "include = \"none.toml\"",
                "6: include: cannot read none.toml: No such file or directory (os error 2)",
            ),
        ] {
            assert!(EXPERIMENT.contains(from), "{from}");
            let error = parse(&EXPERIMENT.replacen(from, to, 1)).err().map(|error| error.to_string());
            assert_eq!(error.as_deref(), Some(format!("share.toml, line {message}").as_str()), "{to}");
        }
    }
}
