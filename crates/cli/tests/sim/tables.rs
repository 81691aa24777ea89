//! All experiments as `docs/experiments.md` has them. After a change that is meant to change them:
//! `NICHROME_UPDATE=1 cargo test --package nichrome-cli --test sim document`, and read the difference.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::tempdir;

use crate::command::{json, names, printed, text};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The names of all experiments.
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
    listed.sort();
    assert_eq!(listed, files.collect::<Vec<_>>());
}

#[test]
fn the_document_has_the_tables_and_figures_of_all_experiments() {
    let path = root().join("docs/experiments.md");
    let before = fs::read_to_string(&path).unwrap();
    let mut document = before.clone();
    let folder = tempdir().unwrap();
    let is_update = std::env::var_os("NICHROME_UPDATE").is_some();
    for name in listed() {
        let table = printed(&["run", &name, "--out", text(folder.path())]);
        document = with_table(&document, &name, &table);
        let figure = format!("figures/{name}.svg");
        assert!(document.contains(&format!("({figure})")), "the document does not show {figure}");
        let drawn = folder.path().join(format!("{name}.svg"));
        if is_update {
            fs::copy(drawn, root().join("docs").join(figure)).unwrap();
        } else {
            assert!(root().join("docs").join(&figure).exists(), "{figure}");
        }
    }
    if is_update {
        fs::write(&path, document).unwrap();
    } else {
        for (before, now) in before.lines().zip(document.lines()) {
            assert_eq!(now, before, "what comes out is not what docs/experiments.md has");
        }
        assert_eq!(before.lines().count(), document.lines().count());
    }
}

/// The document with this table in the block that begins with the command for it.
fn with_table(document: &str, name: &str, table: &str) -> String {
    let command = format!("\n$ nichrome sim run {name}");
    let is_whole = |(at, _): &(usize, &str)| document[at + command.len()..].starts_with('\n');
    let found = document.match_indices(&command).find(is_whole);
    let (at, _) = found.unwrap_or_else(|| panic!("docs/experiments.md has no block for {name}"));
    let (before, after) = document.split_at(at + command.len());
    let (_, after) = after.split_once("\n```").unwrap();
    format!("{before}\n{}\n```{after}", table.trim_end())
}
