//! The book's reference, generated from the command's help and the models' parameters; NICHROME_UPDATE=1
//! rewrites it.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory};
use nichrome_sim::experiment::{BUILT_IN, Kind, ParameterSpec, Value};

use super::Arguments;

/// Width of the help, in columns.
const WIDTH: usize = 110;

/// Adds a section for a command, and one for each of its subcommands.
fn section(command: &Command, name: &str, page: &mut String) {
    let mut shown = command.clone().term_width(WIDTH).bin_name(name);
    let help = shown.render_long_help().to_string();
    let lines: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    write!(page, "\n## {name}\n\n```text\n{}\n```\n", lines.join("\n")).unwrap();
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
    {
        section(inner, &format!("{name} {}", inner.get_name()), page);
    }
}

fn commands() -> String {
    let mut page = "# Commands\n\nWhat `--help` prints.\n".to_owned();
    section(&Arguments::command(), "nichrome", &mut page);
    page
}

/// Returns the documentation at the top of a source file.
fn documentation(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sim/src/experiment").join(file);
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    let lines: Vec<&str> = lines.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    // Links to types work in the crate's documentation only.
    lines.join("\n").replace("[`", "`").replace("`]", "`")
}

/// Returns the values that a parameter accepts.
fn values(parameter: &ParameterSpec) -> String {
    match &parameter.kind {
        Kind::Quantity(_, range) => {
            let [least, most] =
                [range.start(), range.end()].map(|number| parameter.show(Value::Quantity(*number)));
            format!("{least} to {most}")
        }
        Kind::Choice(choices) => {
            choices.iter().map(|choice| format!("`{choice}`")).collect::<Vec<_>>().join(", ")
        }
        Kind::Flag => "`true`, `false`".into(),
    }
}

fn experiments() -> String {
    let mut page = "# Experiment files\n".to_owned();
    for (title, file) in [("Experiments", "mod.rs"), ("Sweeps", "sweep.rs")] {
        write!(page, "\n## {title}\n\n{}\n", documentation(file)).unwrap();
    }
    for runner in BUILT_IN.runners {
        let escaped = |text: &str| text.replace('|', "\\|");
        write!(page, "\n## Model {}\n\n| parameter | values | what it is |\n|---|---|---|\n", runner.name())
            .unwrap();
        for parameter in runner.parameters() {
            writeln!(page, "| `{}` | {} | {} |", parameter.key, values(parameter), escaped(parameter.about))
                .unwrap();
        }
        page += "\n| metric | unit | what it is |\n|---|---|---|\n";
        for metric in runner.metrics() {
            writeln!(page, "| `{}` | {} | {} |", metric.name, metric.unit, escaped(metric.about)).unwrap();
        }
    }
    page
}

fn compare(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../book/src/reference").join(name);
    if env::var_os("NICHROME_UPDATE").is_some() {
        fs::write(&path, page).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == page,
        "book/src/reference/{name} differs from the help or the models: NICHROME_UPDATE=1 rewrites it"
    );
}

#[test]
fn the_book_has_all_commands() {
    compare("commands.md", &commands());
}

#[test]
fn the_book_has_all_parameters_of_experiments() {
    compare("experiments.md", &experiments());
}
