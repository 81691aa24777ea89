//! Parallel execution of runs, in stable order, with a progress bar.

use std::io::{self, IsTerminal};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nichrome_sim::experiment::{Parameters, Runner, run};
use nichrome_sim::observe::Observer;
use rayon::ThreadPoolBuilder;
use rayon::prelude::*;

use super::files;
use super::record::Record;
use crate::number::{self, Grouped, plural};

/// Delay before the progress bar appears.
const BAR_DELAY: Duration = Duration::from_secs(2);

/// The number of parallel runs, and of threads in each.
#[derive(Args)]
pub(super) struct Jobs {
    /// Number of parallel runs [default: the number of CPUs, divided by --threads]
    #[arg(long, value_name = "N", value_parser = number::whole(NonZeroUsize::MIN..=NonZeroUsize::MAX))]
    jobs: Option<NonZeroUsize>,
    /// Number of threads of a run whose model has several parts; the results are the same
    #[arg(long, value_name = "N", value_parser = number::whole(NonZeroUsize::MIN..=NonZeroUsize::MAX), default_value = "1")]
    threads: NonZeroUsize,
}

impl Jobs {
    /// Returns the options for sequential execution.
    pub(super) const fn one() -> Self {
        Self { jobs: Some(NonZeroUsize::MIN), threads: NonZeroUsize::MIN }
    }

    /// Returns the number of parallel runs for `tasks` tasks, at most one per task; 0 selects one per CPU.
    fn parallel(&self, tasks: usize) -> usize {
        let by_threads = || {
            let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
            (cpus / self.threads.get()).max(1)
        };
        match self.jobs {
            Some(jobs) => jobs.get().min(tasks.max(1)),
            None if self.threads == NonZeroUsize::MIN => 0,
            None => by_threads().min(tasks.max(1)),
        }
    }
}

/// The progress of all runs.
#[derive(Clone)]
pub(super) struct Progress {
    threads: NonZeroUsize,
    begun: Instant,
    events: Arc<AtomicU64>,
    bar: ProgressBar,
}

impl Progress {
    fn new(runs: usize, threads: NonZeroUsize) -> Self {
        let style = ProgressStyle::with_template("{wide_bar} {pos} of {len} runs, {msg}");
        let bar = ProgressBar::with_draw_target(Some(runs as u64), ProgressDrawTarget::hidden());
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { threads, begun: Instant::now(), events: Arc::default(), bar }
    }

    /// Returns an observer for one run.
    pub(super) fn observer(&self) -> Observer {
        let (progress, mut seen) = (self.clone(), 0);
        let mut observer = Observer::default();
        observer.use_threads(self.threads);
        observer.on_progress(move |now| {
            // Models with several simulations restart at 0.
            let new = now.events.checked_sub(seen).unwrap_or(now.events);
            seen = now.events;
            let events = progress.events.fetch_add(new, Ordering::Relaxed) + new;
            progress.show(events);
            ControlFlow::Continue(())
        });
        observer
    }

    fn show(&self, events: u64) {
        if self.bar.is_hidden() && io::stderr().is_terminal() && self.begun.elapsed() > BAR_DELAY {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_message(format!("{} events", Grouped(events)));
    }

    /// Runs a model once.
    pub(super) fn run(
        &self,
        runner: &dyn Runner,
        parameters: &Parameters,
        seed: u64,
    ) -> anyhow::Result<Record> {
        self.run_observed(runner, parameters, seed, &mut self.observer())
    }

    /// Runs a model once with additional observation.
    pub(super) fn run_observed(
        &self,
        runner: &dyn Runner,
        parameters: &Parameters,
        seed: u64,
        observer: &mut Observer,
    ) -> anyhow::Result<Record> {
        let outcome = run(runner, parameters, seed, observer)?;
        Ok(Record::new(runner, parameters, seed, &outcome, &observer.counters))
    }
}

/// The progress bar of the newest call of [`each`].
static NEWEST_BAR: Mutex<Option<ProgressBar>> = Mutex::new(None);

fn newest_bar() -> MutexGuard<'static, Option<ProgressBar>> {
    NEWEST_BAR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Clears the progress bar, and returns the number of completed runs as text.
fn last_words() -> String {
    let Some(bar) = newest_bar().clone() else { return "interrupted".into() };
    let (done, all) = (bar.position(), bar.length().unwrap_or_default());
    bar.finish_and_clear();
    format!("interrupted after {} of {}", Grouped(done), plural(all, "run", "runs"))
}

/// Processes all tasks in parallel; results are in the order of the tasks. A signal ends the process, but not
/// while a file is written.
pub(super) fn each<T: Sync, R: Send>(
    tasks: &[T],
    jobs: &Jobs,
    work: impl Fn(&T, &Progress) -> anyhow::Result<R> + Sync,
) -> anyhow::Result<Vec<R>> {
    let progress = Progress::new(tasks.len(), jobs.threads);
    let before = newest_bar().replace(progress.bar.clone());
    if before.is_none() {
        files::end_on_signals(last_words)?;
    }
    let parallel = jobs.parallel(tasks.len());
    let pool = ThreadPoolBuilder::new().num_threads(parallel).build().context("cannot start threads")?;
    let one = |task: &T| {
        let result = work(task, &progress)?;
        progress.bar.inc(1);
        Ok(result)
    };
    let results = pool.install(|| tasks.par_iter().with_max_len(1).map(one).collect());
    progress.bar.finish_and_clear();
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_thread_is_without_a_run() {
        let parallel = |jobs, threads, tasks| {
            let threads = NonZeroUsize::new(threads).unwrap();
            Jobs { jobs: NonZeroUsize::new(jobs), threads }.parallel(tasks)
        };
        assert_eq!(
            [parallel(0, 1, 9), parallel(2, 1, 9), parallel(100_000, 1, 9), parallel(2, 1, 0)],
            [0, 2, 9, 1]
        );
        assert_eq!([parallel(0, 100_000, 9), parallel(3, 2, 9)], [1, 3]);
    }
}
