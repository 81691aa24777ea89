//! The table of targets in `fuzz/README.md`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The folder of the fuzz targets.
const FUZZ: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz");

/// Returns the names in the first column of the table of targets.
fn named(text: &str) -> BTreeSet<&str> {
    let rows = text.lines().skip_while(|line| !line.starts_with("| target |")).skip(2);
    let columns = rows.map_while(|row| row.strip_prefix('|')?.split('|').next());
    columns.flat_map(|column| column.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn the_readme_of_the_fuzz_targets_has_a_row_for_each() {
    let readme = fs::read_to_string(Path::new(FUZZ).join("README.md")).unwrap();
    let manifest = fs::read_to_string(Path::new(FUZZ).join("Cargo.toml")).unwrap();
    let targets = manifest.split("[[bin]]").skip(1).filter_map(|target| target.split('"').nth(1));
    assert_eq!(named(&readme), targets.collect());
}
