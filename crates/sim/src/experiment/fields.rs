//! Parsers of fields that several tables of an experiment file share.

use super::document::{FileError, Item, Problem, Table, joined};
use super::parameter::{ParameterSpec, Value};
use super::runner::Runner;

pub(super) fn keys(runner: &dyn Runner) -> impl Iterator<Item = &'static str> {
    runner.parameters().iter().map(|spec| spec.key)
}

pub(super) fn find_spec(runner: &dyn Runner, key: &str) -> Option<&'static ParameterSpec> {
    runner.parameters().iter().find(|spec| spec.key == key)
}

/// Parses a number in the axis' unit into base units.
pub(super) fn quantity(item: &Item<'_, '_>, spec: &ParameterSpec, unit: &str) -> Result<u64, FileError> {
    match spec.parse_with_unit(&item.scalar()?, unit) {
        Ok(Value::Quantity(number)) => Ok(number),
        Ok(_) => Err(item.wrong_type("a number")),
        Err(error) => Err(item.wrong_value(error)),
    }
}

/// Looks up the named choice.
pub(super) fn named<T: Copy>(
    item: &Item<'_, '_>,
    what: &'static str,
    known: &[(&str, T)],
) -> Result<T, FileError> {
    let name = item.text()?;
    let found = known.iter().find(|(known, _)| *known == name).map(|(_, thing)| *thing);
    found.ok_or_else(|| item.unknown(what, name, known.iter().map(|(known, _)| *known)))
}

/// Parses a table of parameter keys and values with units.
pub(super) fn settings(
    table: &Table<'_, '_>,
    runner: &dyn Runner,
) -> Result<Vec<(&'static ParameterSpec, Value)>, FileError> {
    let setting = |item: Item<'_, '_>| {
        let spec = known_parameter(&item, runner)?;
        let value = spec.parse(&item.scalar()?).map_err(|error| item.wrong_value(error))?;
        Ok((spec, value))
    };
    table.entries().map(setting).collect()
}

pub(super) fn known_parameter(
    item: &Item<'_, '_>,
    runner: &dyn Runner,
) -> Result<&'static ParameterSpec, FileError> {
    let unknown = || Problem::UnknownKey { key: item.path.clone(), allowed: joined(keys(runner)) };
    find_spec(runner, item.key()).ok_or_else(|| item.error(unknown()))
}

pub(super) fn source(table: &Table<'_, '_>) -> Result<String, FileError> {
    const ABOUT: &str = "where it is from: a paper's sentence, a data sheet, or what it is fitted to";
    let item = table.need("source", ABOUT)?;
    let text = item.text()?.trim();
    if text.is_empty() { Err(item.wrong_type("a text that says where it is from")) } else { Ok(text.into()) }
}
