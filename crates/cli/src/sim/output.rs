//! Output of results.

use std::fmt::Display;
use std::io::{self, Write};

use anyhow::Context;
use serde::Serialize;

/// Prints a table or a text.
pub(super) fn print(text: impl Display) -> anyhow::Result<()> {
    writeln!(io::stdout(), "{text}").context("cannot print the results")
}

/// Prints results as JSON.
pub(super) fn print_json(results: &impl Serialize) -> anyhow::Result<()> {
    print(serde_json::to_string_pretty(results)?)
}
