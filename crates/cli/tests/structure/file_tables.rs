//! The tables of files at the head of modules (`| file | concept |`): each names the files of its module's
//! folder.

use std::collections::BTreeSet;

use crate::modules::{Sources, children_directory};

/// Files that need no entry: their names say what they are.
const CLEAR: [&str; 5] = ["error", "lib", "main", "mod", "tests"];

/// Describes the entries of tables that name no file, and the files that are missing in them.
pub(crate) fn wrong_entries(crate_name: &str, sources: &Sources) -> Vec<String> {
    let mut wrong = Vec::new();
    for (file, text) in sources {
        let named = named_files(text);
        if named.is_empty() {
            continue;
        }
        let folder = children_directory(file);
        let inside = || sources.keys().filter_map(|path| path.strip_prefix(&folder));
        let files: BTreeSet<&str> = inside().filter_map(|path| path.strip_suffix(".rs")).collect();
        let folders: BTreeSet<&str> = inside().filter_map(|path| Some(path.split_once('/')?.0)).collect();
        let unknown = named.iter().filter(|name| !files.contains(**name) && !folders.contains(**name));
        wrong.extend(unknown.map(|name| format!("crates/{crate_name}, {file}: there is no `{name}`")));
        let missing = files.iter().filter(|name| {
            !name.contains('/')
                && !folders.contains(**name)
                && !named.contains(**name)
                && !CLEAR.contains(name)
        });
        wrong.extend(missing.map(|name| format!("crates/{crate_name}, {file}: `{name}.rs` is missing")));
    }
    wrong
}

/// Returns the names in the first column of a module's table of files, without endings.
fn named_files(text: &str) -> BTreeSet<&str> {
    let is_heading = |line: &&str| line.starts_with("//! | file | ") && line.contains("concept");
    let table = text.lines().skip_while(|line| !is_heading(line)).skip(2);
    let rows = table.take_while(|line| line.starts_with("//! |"));
    let quoted = rows.flat_map(|row| row.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2));
    quoted.map(|name| name.trim_end_matches('/').trim_end_matches(".rs")).collect()
}

#[test]
fn unknown_and_missing_files_are_found() {
    let table =
        "//! | file | concept |\n//! |---|---|\n//! | `a.rs`, `gone.rs` | one |\n//! | [`folder`] | two |\n";
    let files = ["part/mod.rs", "part/a.rs", "part/b.rs", "part/error.rs", "part/folder/c.rs", "d.rs"];
    let text = |file: &str| if file == "part/mod.rs" { table } else { "" };
    let sources = files.iter().map(|file| ((*file).to_owned(), text(file).to_owned())).collect();
    assert_eq!(
        wrong_entries("x", &sources),
        ["crates/x, part/mod.rs: there is no `gone`", "crates/x, part/mod.rs: `b.rs` is missing"]
    );
}
