//! `nichrome sim sweep`: runs an experiment with lists of values and seeds.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use nichrome_sim::experiment::{BUILT_IN, Source, Sweep as Lists, Task, read_text};

use super::output::print;
use super::page;
use super::record;
use super::runs::{self, Jobs};
use super::store::{self, Store};
use crate::distinct::Distinct;
use crate::number::{Grouped, plural};
use crate::page::PageOption;

/// Run an experiment with lists of parameter values and seeds; runs that are in the store are not repeated
#[derive(Args)]
pub(crate) struct Sweep {
    /// A file with the experiment's name, the seeds, and a table "sweep" with a list of values for each key
    file: PathBuf,
    /// The store's folder, with a file per run
    #[arg(long, value_name = "DIR")]
    store: PathBuf,
    #[command(flatten)]
    page: PageOption,
    #[command(flatten)]
    jobs: Jobs,
    /// Print the records of the sweep's runs as JSON, one per line
    #[arg(long)]
    json: bool,
}

impl Sweep {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let lists = read(&self.file)?;
        let tasks = lists.tasks();
        self.check_files(&lists, &tasks)?;
        let store = Store::open(&self.store)?;
        let page = self.page.create()?;
        let runner = lists.definition.runner;
        let missing = missing(&lists, &tasks, &store)?;
        let (all, new) = (distinct(&lists, &tasks).len(), missing.len());
        runs::each(&missing, &self.jobs, |task, progress| {
            let record = progress.run(runner, &task.point.parameters, task.seed);
            store.add(&record.with_context(|| format!("{}, {}", lists.definition.name, task.series))?)
        })?;
        page.finish(|| page::of_sweep(&lists, &tasks, &store))?;
        if self.json {
            let mut records = Vec::new();
            for task in distinct(&lists, &tasks) {
                records.extend(store.get(runner, &task.point.parameters, task.seed)?);
            }
            // Sorts by file name, as 'collect' does.
            records.sort_by_cached_key(|record| store::file_name(&record.hash, record.seed));
            return print(record::lines(&records)?.trim_end());
        }
        let (all, there) = (plural(all as u64, "run", "runs"), Grouped((all - new) as u64));
        print(format_args!(
            "{all} in {}: {} new, {there} were there",
            self.store.display(),
            Grouped(new as u64)
        ))
    }

    /// Checks that the page is not a file that the command reads, nor a record of the store.
    fn check_files(&self, lists: &Lists, tasks: &[Task]) -> anyhow::Result<()> {
        let mut files = Distinct::default();
        files.read("FILE", &self.file)?;
        if let Source::File(path) = &lists.source {
            files.read("experiment", path)?;
        }
        lists.definition.included.iter().try_for_each(|path| files.read("include", path))?;
        if let Some(name) = self.page.path().and_then(Path::file_name) {
            let model = lists.definition.runner;
            let record =
                |task: &Task| store::file_name(&record::hash(model, &task.point.parameters), task.seed);
            if tasks.iter().any(|task| name == &*record(task)) {
                files.read("--store", &self.store.join(name))?;
            }
        }
        files.write([self.page.output()])
    }
}

/// Loads a sweep file.
pub(super) fn read(file: &Path) -> anyhow::Result<Lists> {
    let name = file.display().to_string();
    let text = read_text(file).with_context(|| format!("cannot read {name}"))?;
    Ok(Lists::parse(&name, &text, &BUILT_IN)?)
}

/// Returns one task per run: points with equal parameters share it.
pub(super) fn distinct<'a>(lists: &Lists, tasks: &'a [Task]) -> Vec<&'a Task> {
    let mut seen = std::collections::HashSet::new();
    let model = lists.definition.runner.name();
    tasks.iter().filter(|task| seen.insert((task.point.parameters.hash(model), task.seed))).collect()
}

/// Returns the runs missing in the store.
pub(super) fn missing<'a>(lists: &Lists, tasks: &'a [Task], store: &Store) -> anyhow::Result<Vec<&'a Task>> {
    let runner = lists.definition.runner;
    let mut missing = distinct(lists, tasks);
    let mut failed = Ok(());
    missing.retain(|task| match store.has(runner, &task.point.parameters, task.seed) {
        Ok(has) => !has,
        Err(error) => {
            failed = Err(error);
            false
        }
    });
    failed.map(|()| missing)
}
