//! The document `docs/experiments.md` has the current output of all experiments. After a change that changes
//! results: `NICHROME_UPDATE=1 cargo test --package nichrome-cli --test sim document -- --include-ignored
//! --test-threads 1`, and read the difference.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::tempdir;

use crate::command::{json, names, printed, text};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the names of all experiments.
fn listed() -> Vec<String> {
    let list = json(&["list"]);
    list.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_file_is_an_experiment_that_is_listed() {
    let mut listed = listed();
    let table = printed(&["list"]);
    assert!(listed.iter().all(|name| table.contains(name)), "{table}");
    let files = names(&root().join("experiments"));
    let files = files.into_iter().filter_map(|name| Some(name.strip_suffix(".toml")?.to_owned()));
    let mut files: Vec<String> = files.collect();
    files.sort();
    listed.sort();
    assert_eq!(listed, files);
}

#[test]
fn the_list_has_the_number_of_runs() {
    // Two series, of which each is drawn by three metrics of the same runs, at six places.
    let experiment = "star-loss";
    let list = json(&["list"]);
    let entry = list.as_array().unwrap().iter().find(|entry| entry["name"] == experiment).unwrap();
    assert_eq!((entry["runs"].as_u64(), entry["points"].as_u64()), (Some(12), Some(36)));
    let table = printed(&["list"]);
    let row = |name: &str| {
        let line = table.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    assert_eq!((row("name"), row(experiment)), ("runs".into(), "12".into()));
    let folder = tempdir().unwrap();
    let short = ["--set", "duration=0.1ms", "--set", "warm-up=0", "--out", text(folder.path())];
    printed(&[&["run", experiment], &short[..]].concat());
    let records = fs::read_to_string(folder.path().join("star-loss.jsonl")).unwrap();
    assert_eq!(records.lines().count(), 12);
}

#[test]
fn the_document_has_a_block_and_the_figures_of_every_experiment() {
    let commands = commands(&document());
    for name in listed() {
        let is_its = |command: &&String| command.split(' ').take(2).eq(["run", &name]);
        assert!(
            commands.iter().any(|command| is_its(&command)),
            "docs/experiments.md has no block for {name}"
        );
    }
}

/// Returns how many predictions hold, as `2 of 3`; `None` for a block without predictions.
fn predictions(block: &str) -> Option<String> {
    let all: Vec<&str> = block.lines().filter(|line| line.starts_with("predicted ")).collect();
    let within = all.iter().filter(|line| line.split_whitespace().nth(1) == Some("within")).count();
    (!all.is_empty()).then(|| format!("{within} of {}", all.len()))
}

#[test]
fn the_summary_counts_the_predictions_of_every_block() {
    let document = document();
    let rows = document.lines().filter(|line| line.starts_with("| `"));
    let mut counted = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let names = cells[1].split(", ").map(|name| name.trim_matches('`'));
        counted
            .extend(names.zip(cells[3].split(", ")).map(|(name, holds)| (name.to_owned(), holds.to_owned())));
    }
    let blocks = document.split(PROMPT).skip(1).filter_map(|block| block.split("```").next());
    let mut expected: Vec<_> = blocks
        .filter_map(|block| Some((block.split_whitespace().nth(1)?.to_owned(), predictions(block)?)))
        .collect();
    counted.sort();
    expected.sort();
    assert_eq!(counted, expected);
}

#[test]
fn the_document_has_the_tables_and_figures_of_short_runs() {
    is_as_in_the_document(|command| !takes_long(command));
}

#[test]
#[ignore = "takes minutes: ./check --full runs it"]
fn the_document_has_the_tables_and_figures_of_long_runs() {
    is_as_in_the_document(takes_long);
}

/// Returns true if a command takes long: it runs its experiment many times, with values drawn from the ranges
/// of its parameters, or simulates many packets.
fn takes_long(command: &str) -> bool {
    let is_sampled = command.starts_with("sensitivity") || command.contains("--samples");
    is_sampled || LONG.iter().any(|name| command.split(' ').nth(1) == Some(name))
}

/// Experiments that take more than five seconds of processor time.
const LONG: [&str; 20] = [
    "iwarp-cpu",
    "iwarp-cpu-delay",
    "iwarp-today-loss",
    "lro-npu-10000",
    "lro-npu-100g",
    "lro-npu-active-ack",
    "lro-npu-costs",
    "lro-npu-dma",
    "lro-npu-dma-seeds",
    "star-all-to-all",
    "star-alternatives",
    "star-auto",
    "star-baselines",
    "star-collapse",
    "star-costs",
    "star-ecn",
    "star-icnp",
    "star-latency",
    "star-scale",
    "star-ton",
];

fn document() -> String {
    fs::read_to_string(root().join("docs/experiments.md")).unwrap()
}

/// Runs commands of the document and compares their output, or replaces it for an update.
fn is_as_in_the_document(chosen: impl Fn(&str) -> bool) {
    let before = document();
    let mut now = before.clone();
    let folder = tempdir().unwrap();
    let is_update = std::env::var_os("NICHROME_UPDATE").is_some();
    for command in commands(&before).into_iter().filter(|command| chosen(command)) {
        let arguments: Vec<&str> = command.split(' ').chain(["--out", text(folder.path())]).collect();
        now = with_output(&now, &command, &printed(&arguments));
    }
    for name in names(folder.path()).iter().filter(|name| name.ends_with(".svg")) {
        let figure = format!("figures/{name}");
        assert!(now.contains(&format!("({figure})")), "the document does not show {figure}");
        let [drawn, shown] = [folder.path().join(name), root().join("docs").join(&figure)];
        if is_update {
            fs::copy(drawn, shown).unwrap();
        } else {
            let same = fs::read(drawn).unwrap() == fs::read(shown).unwrap();
            assert!(same, "{figure} is not what comes out");
        }
    }
    if is_update {
        fs::write(root().join("docs/experiments.md"), now).unwrap();
        return;
    }
    for (before, now) in before.lines().zip(now.lines()) {
        assert_eq!(now, before, "what comes out is not what docs/experiments.md has");
    }
    assert_eq!(before.lines().count(), now.lines().count());
}

/// The beginning of a block in the document.
const PROMPT: &str = "\n$ nichrome sim ";

/// Returns the arguments of all blocks.
fn commands(document: &str) -> Vec<String> {
    document.split(PROMPT).skip(1).filter_map(|block| Some(block.lines().next()?.to_owned())).collect()
}

/// Returns the document with this output in the block of `command`.
fn with_output(document: &str, command: &str, output: &str) -> String {
    let whole = format!("{PROMPT}{command}\n");
    let (before, after) = document.split_once(&whole).unwrap();
    let (_, after) = after.split_once("```").unwrap();
    format!("{before}{whole}{}\n```{after}", output.trim_end())
}
