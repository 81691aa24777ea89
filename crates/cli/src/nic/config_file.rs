//! A card's options in a TOML file, with the names and formats of the command line.

use std::any::TypeId;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Command;
use nichrome_sim::experiment::read_text;
use toml::Value;

use crate::{failure, toml_file};

/// Returns the file's options as command line arguments of `command`. Invalid options are usage errors, as on
/// the command line.
pub(super) fn arguments(file: &Path, command: &Command) -> anyhow::Result<Vec<OsString>> {
    let name = file.display();
    let text = read_text(file).with_context(|| format!("cannot read {name}"))?;
    let table = toml_file::parse(&text).map_err(|error| failure::usage(format!("{name}, {error}")))?;
    let argument = |(key, value): (&String, &Value)| argument(key, value, command);
    let given: anyhow::Result<Vec<_>> = table.iter().map(argument).collect();
    let given = given.with_context(|| name.to_string()).map_err(failure::as_usage)?;
    Ok(given.into_iter().flatten().collect())
}

/// Returns one option; `None` for a flag that is false.
fn argument(key: &str, value: &Value, command: &Command) -> anyhow::Result<Option<OsString>> {
    let options = || command.get_arguments().filter(|option| option.get_long() != Some("config"));
    let Some(option) = options().find(|option| option.get_long() == Some(key)) else {
        let names: Vec<_> = options().filter_map(clap::Arg::get_long).collect();
        bail!("there is no option {key}: the options are {}", names.join(", "));
    };
    let value = match (value, option.get_action().takes_values()) {
        (Value::Boolean(is_on), false) => return Ok(is_on.then(|| format!("--{key}").into())),
        (_, false) => bail!("{key} must be true or false"),
        (Value::String(text), true) => text.clone(),
        (_, true) if option.get_value_parser().type_id() == TypeId::of::<PathBuf>() => {
            bail!("{key} must be the name of a file, such as \"{key}.pcapng\"")
        }
        (Value::Integer(number), true) => number.to_string(),
        (_, true) => bail!("{key} must be a text or a number, such as \"eth0\""),
    };
    Ok(Some(format!("--{key}={value}").into()))
}
