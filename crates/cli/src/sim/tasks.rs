//! `nichrome sim tasks`: prints the runs of a sweep as command lines, for distribution over machines.

use std::env;
use std::fmt::Write;
use std::path::{self, PathBuf};

use anyhow::Context;
use clap::Args;
use nichrome_sim::experiment::{Source, Task, Value};

use super::output::print;
use super::store::Store;
use super::sweep;

/// Print a command line for each run of a sweep that the store lacks, for GNU parallel, a Slurm array or
/// HyperQueue
#[derive(Args)]
pub(crate) struct Tasks {
    /// A sweep file, as for nichrome sim sweep
    file: PathBuf,
    /// The store's folder, with a file per run
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
}

impl Tasks {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let lists = sweep::read(&self.file)?;
        let store = Store::open(&self.store)?;
        let program = env::current_exe().context("cannot find the path of this program")?;
        let folder = path::absolute(&self.store).context("cannot find the path of the store")?;
        let experiment = match &lists.source {
            Source::BuiltIn(experiment) => experiment.name.into(),
            Source::File(path) => {
                path::absolute(path).context("cannot find the path of the experiment")?.display().to_string()
            }
        };
        let axis = lists.definition.x.parameter;
        let line = |task: &&Task| {
            let mut line =
                format!("{} sim point {}", quoted(&program.display().to_string()), quoted(&experiment));
            let x = (axis.key, axis.show(Value::Quantity(task.point.x)));
            for (key, value) in task.settings.iter().chain([&x]) {
                let _ = write!(line, " --set {}", quoted(&format!("{key}={value}")));
            }
            let (series, folder) = (quoted(&task.series), quoted(&folder.display().to_string()));
            let _ = write!(line, " --series {series} --seed {} --store {folder}", task.seed);
            line
        };
        let tasks = lists.tasks();
        let lines: Vec<String> = sweep::missing(&lists, &tasks, &store)?.iter().map(line).collect();
        if lines.is_empty() { Ok(()) } else { print(lines.join("\n")) }
    }
}

/// Quotes a word for the shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_shells() {
        for (word, text) in
            [("a=5us", "a=5us"), ("with LRO", "'with LRO'"), ("it's", r"'it'\''s'"), ("", "''")]
        {
            assert_eq!(quoted(word), text);
        }
    }
}
