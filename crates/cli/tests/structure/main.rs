//! The imports between the files of each crate form no circle, and follow the tables in `layers.rs`. Tables
//! of files are complete, and tests that run in a process of their own are found there. Files outside the
//! workspace have its version, the fuzz targets have a table, and the script that runs the tests counts them.
//! Comments are as wide as code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod arrows;
mod circles;
mod comments;
mod direction;
mod file_tables;
mod fuzz_targets;
mod layers;
mod modules;
mod own_process;
mod run_tests;
mod samples;
mod versions;

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use self::arrows::Arrows;
use self::circles::circles;
use self::comments::too_wide;
use self::direction::direction;
use self::file_tables::wrong_entries;
use self::layers::{KNOTS, LAYERS, NOT_CHECKED, SIBLINGS};
use self::modules::{ModuleTree, Sources};
use self::own_process::wrong_names;

/// The folder of the crates.
const CRATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// A crate under test.
struct Checked {
    name: String,
    sources: Sources,
    tree: ModuleTree,
    arrows: Arrows,
}

static CHECKED: LazyLock<Vec<Checked>> = LazyLock::new(|| {
    let is_checked = |name: &String| !NOT_CHECKED.iter().any(|(crates, _)| crates.contains(&name.as_str()));
    let mut names: Vec<String> = entries(Path::new(CRATES)).filter(is_checked).collect();
    names.sort();
    names.into_iter().map(read_crate).collect()
});

fn read_crate(name: String) -> Checked {
    let mut sources = Sources::new();
    read_folder(&Path::new(CRATES).join(&name).join("src"), "", &mut sources);
    let tree = ModuleTree::read(&sources);
    let arrows = Arrows::of(&tree);
    Checked { name, sources, tree, arrows }
}

/// Returns the names in a folder.
fn entries(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap())
}

/// Reads the source files of a crate.
fn read_folder(folder: &Path, prefix: &str, sources: &mut Sources) {
    for name in entries(folder) {
        let path = folder.join(&name);
        if path.is_dir() {
            read_folder(&path, &format!("{prefix}{name}/"), sources);
        } else if name.ends_with(".rs") {
            sources.insert(format!("{prefix}{name}"), fs::read_to_string(&path).unwrap());
        }
    }
}

/// Reads the source files and the tests of a crate.
fn with_tests(name: &str) -> Sources {
    let mut sources = Sources::new();
    for folder in ["src", "tests"] {
        let path = Path::new(CRATES).join(name).join(folder);
        if path.is_dir() {
            read_folder(&path, &format!("{folder}/"), &mut sources);
        }
    }
    sources
}

/// Returns a crate's entry in a table.
fn entry_of<T: Copy>(table: &[(&str, T)], crate_name: &str) -> Option<T> {
    table.iter().find(|(name, _)| *name == crate_name).map(|(_, entry)| *entry)
}

/// Returns the imports of a crate, except those within the folders that may have circles.
fn untied(checked: &Checked) -> Arrows {
    let knots = KNOTS.iter().filter(|(of, ..)| *of == checked.name);
    let folders: Vec<&str> = knots.map(|(_, folder, _)| *folder).collect();
    let is_tied = |from: &str, to: &str| {
        folders.iter().any(|folder| from.starts_with(folder) && to.starts_with(folder))
    };
    let arrows = checked.arrows.0.iter().filter(|((from, to), _)| !is_tied(from, to));
    Arrows(arrows.map(|(arrow, names)| (arrow.clone(), names.clone())).collect())
}

#[test]
fn each_source_file_is_read() {
    for Checked { name, sources, tree, .. } in CHECKED.iter() {
        assert_eq!(tree.undeclared(sources), [""; 0], "crates/{name}");
    }
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let found: Vec<String> =
        CHECKED.iter().flat_map(|checked| circles(&checked.name, &untied(checked))).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn imports_go_down_the_layers() {
    let mut found = Vec::new();
    for Checked { name, sources, arrows, .. } in CHECKED.iter() {
        match entry_of(LAYERS, name) {
            Some(layers) => {
                let siblings = entry_of(SIBLINGS, name).unwrap_or_default();
                found.extend(direction(name, layers, siblings, sources, arrows));
            }
            None => found.push(format!("crates/{name}: the table has no layers for it")),
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn tables_of_files_name_each_file() {
    let found: Vec<String> =
        CHECKED.iter().flat_map(|Checked { name, sources, .. }| wrong_entries(name, sources)).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn tests_that_run_in_a_process_of_their_own_have_their_name() {
    let mut found = Vec::new();
    for name in entries(Path::new(CRATES)) {
        for (path, source) in with_tests(&name) {
            let wrong = wrong_names(&path, &source);
            found.extend(wrong.iter().map(|wrong| format!("crates/{name}/{path}: {wrong}")));
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn comments_are_as_wide_as_code() {
    let mut found = Vec::new();
    for name in entries(Path::new(CRATES)) {
        for (path, source) in with_tests(&name) {
            let wide = too_wide(&source);
            found.extend(wide.iter().map(|(nth, line)| format!("crates/{name}/{path}:{nth}: {line}")));
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}
