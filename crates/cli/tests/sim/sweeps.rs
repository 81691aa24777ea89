//! Sweeps execute each run once, on one machine or on several.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::command::{command, failure, names, printed, text};

/// 2 × 3 × 2 series × 2 seeds.
const SWEEP: &str = r#"
experiment = "lro-netfpga-cpu"
seeds = [1, 2]

[sweep]
frame = ["64B", "512B", "1514B"]
warm-up = [0]
duration = ["1ms"]
interrupt-cost = ["1us", "2us"]
"#;

/// 3 × 3 series, of which two measure the same runs. The axis is in %.
const SWEEP_OF_FRACTIONS: &str = r#"
experiment = "lro-netfpga-two-flows"

[sweep]
second-flow = [1, 50, 100]
warm-up = [0]
duration = ["1ms"]
"#;

struct Lab {
    folder: TempDir,
}

impl Lab {
    fn new(sweep: &str) -> Self {
        let folder = tempdir().unwrap();
        fs::write(folder.path().join("sweep.toml"), sweep).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the sweep into a store.
    fn sweep(&self, store: &str) -> String {
        printed(&["sweep", text(&self.path("sweep.toml")), "--store", text(&self.path(store))])
    }

    fn records(&self, store: &str) -> Vec<Value> {
        let lines = printed(&["collect", text(&self.path(store)), "--json"]);
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[test]
fn each_run_is_made_once() {
    let lab = Lab::new(SWEEP);
    let store = lab.path("store");
    let summary =
        |new: usize, there: usize| format!("24 runs in {}: {new} new, {there} were there\n", store.display());
    assert_eq!(lab.sweep("store"), summary(24, 0));
    assert_eq!(lab.sweep("store"), summary(0, 24));
    let all = names(&store);
    assert_eq!(all.len(), 24);
    for name in &all[..5] {
        fs::remove_file(store.join(name)).unwrap();
    }
    assert_eq!(lab.sweep("store"), summary(5, 19));
    assert_eq!(names(&store), all);
}

#[test]
fn records_of_a_killed_sweep_are_used() {
    let lab = Lab::new(&SWEEP.replace("duration = [\"1ms\"]", "duration = [\"100ms\"]"));
    let store = lab.path("store");
    for signal in [Signal::INT, Signal::KILL] {
        let before = if store.exists() { whole(&store) } else { 0 };
        let sweep = lab.path("sweep.toml");
        let arguments = ["sweep", text(&sweep), "--jobs", "1", "--store", text(&store)];
        let child = command(&arguments).spawn().unwrap();
        while !store.exists() || whole(&store) < before + 2 {
            thread::sleep(Duration::from_millis(2));
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        match signal {
            Signal::INT => {
                assert_eq!(output.status.code(), Some(130));
                assert!(
                    error.starts_with("nichrome: interrupted after ") && error.lines().count() == 1,
                    "{error}"
                );
                assert!(names(&store).iter().all(|name| name.ends_with(".json") && !name.starts_with('.')));
            }
            _ => assert_eq!(output.status.code(), None),
        }
    }
    let there = whole(&store);
    assert!((4..24).contains(&there), "{there}");
    let summary = lab.sweep("store");
    assert!(summary.ends_with(&format!("{} new, {there} were there\n", 24 - there)), "{summary}");
    assert_eq!(lab.records("store").len(), 24);
}

/// Returns the number of complete records; each file must be complete.
fn whole(store: &Path) -> usize {
    let finished = names(store).into_iter().filter(|name| !name.starts_with('.'));
    let records =
        finished.map(|name| serde_json::from_slice::<Value>(&fs::read(store.join(name)).unwrap()).unwrap());
    records.count()
}

#[test]
fn gnu_parallel_makes_the_same_store() {
    for (sweep, runs) in [(SWEEP, 24), (SWEEP_OF_FRACTIONS, 6)] {
        let lab = Lab::new(sweep);
        lab.sweep("alone");
        let (sweep, store) = (lab.path("sweep.toml"), lab.path("spread"));
        let tasks = ["tasks", text(&sweep), "--store", text(&store)];
        let lines = printed(&tasks);
        assert_eq!(lines.lines().count(), runs);
        let mut parallel = Command::new("parallel")
            .args(["--jobs", "2", "--halt", "now,fail=1"])
            .current_dir("/")
            .env("HOME", lab.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("needs GNU parallel: Debian's package parallel");
        parallel.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        let output = parallel.wait_with_output().unwrap();
        assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
        assert_eq!(lab.records("spread"), lab.records("alone"));
        assert_eq!(printed(&tasks), "");
    }
}

#[test]
fn the_sweep_of_the_readme_has_as_many_runs_as_it_says_and_its_seeds_matter() {
    let readme = fs::read_to_string("../../README.md").unwrap();
    let (before, rest) = readme.split_once("```toml\nexperiment").unwrap();
    let lab = Lab::new(&format!("experiment{}", rest.split_once("```").unwrap().0));
    let tasks = printed(&["tasks", text(&lab.path("sweep.toml")), "--store", text(&lab.path("store"))]);
    assert!(before.ends_with("This `sweep.toml` has 24 runs (two transports, three seeds):\n\n"), "{before}");
    assert_eq!(tasks.lines().count(), 24);
    let sweep = fs::read_to_string(lab.path("sweep.toml")).unwrap();
    let short = format!("{sweep}duration = [\"1ms\"]\nwarm-up = [\"0\"]\n").replace("[1, 2, 3]", "[1, 2]");
    let lab = Lab::new(&short);
    lab.sweep("store");
    let records = lab.records("store");
    let of_seed = |seed: u64| {
        let of_it = records.iter().filter(move |record| record["seed"] == seed);
        of_it.map(|record| (&record["parameters"], &record["metrics"])).collect::<Vec<_>>()
    };
    for (parameters, metrics) in of_seed(1) {
        assert!(
            of_seed(2).iter().any(|(same, other)| *same == parameters && *other != metrics),
            "{parameters}"
        );
    }
}

#[test]
fn collected_tables_name_the_parameters_that_differ() {
    let lab = Lab::new(SWEEP);
    lab.sweep("store");
    let table = printed(&["collect", text(&lab.path("store")), "--out", text(&lab.path("out"))]);
    let header = table.lines().nth(2).unwrap();
    let columns: Vec<_> = header.split("  ").map(str::trim).filter(|column| !column.is_empty()).collect();
    assert_eq!(columns[..4], ["frame (B)", "interrupt-cost (ns)", "lro", "seed"]);
    assert_eq!(table.lines().count(), 4 + 24);
    assert_eq!(names(&lab.path("out")), ["records.jsonl", "records.parquet"]);
    assert_eq!(fs::read_to_string(lab.path("out/records.jsonl")).unwrap().lines().count(), 24);
}

#[test]
fn a_file_that_is_no_record_is_named() {
    let lab = Lab::new(SWEEP);
    lab.sweep("store");
    let store = lab.path("store");
    let name = names(&store).remove(0);
    let path = store.join(&name);
    let other = fs::read(store.join(&names(&store)[1])).unwrap();
    for (bytes, expected) in [
        (&b"{"[..], "is not a record of a run: remove it: "),
        (&other, "is the record of another run than its name says: remove it"),
    ] {
        fs::write(&path, bytes).unwrap();
        let (line, status) = failure(&["sweep", text(&lab.path("sweep.toml")), "--store", text(&store)]);
        assert!(line.starts_with(&format!("{} {expected}", path.display())) && status == 1, "{line}");
    }
    let empty = lab.path("empty");
    fs::create_dir(&empty).unwrap();
    let expected =
        format!("{}: there are no records in this folder: 'nichrome sim sweep' writes them", empty.display());
    assert_eq!(failure(&["collect", text(&empty)]), (expected, 1));
}
