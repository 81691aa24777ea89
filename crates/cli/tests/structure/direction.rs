//! Imports that violate the table of layers.

use super::arrows::Arrows;
use super::layers::{Layers, Siblings};
use super::modules::{Sources, is_root};

/// Reports a crate's violations of its layers: imports of a higher layer or a sibling, files without a layer,
/// and entries without a file.
pub(crate) fn direction(
    crate_name: &str,
    layers: Layers,
    siblings: Siblings,
    sources: &Sources,
    arrows: &Arrows,
) -> Vec<String> {
    let mut findings = misplaced(crate_name, layers, siblings, sources);
    for (from, to) in arrows.0.keys() {
        let what = arrows.describe(from, to);
        if layer_of(layers, from) < layer_of(layers, to) {
            findings.push(format!("crates/{crate_name}: this import goes up a layer: {what}"));
        }
        if are_siblings(siblings, from, to) {
            findings.push(format!("crates/{crate_name}: siblings must not import each other: {what}"));
        }
    }
    findings
}

/// Reports files without a layer, and entries of the tables without a file.
fn misplaced(crate_name: &str, layers: Layers, siblings: Siblings, sources: &Sources) -> Vec<String> {
    let without_layer = sources.keys().filter(|file| !is_root(file) && layer_of(layers, file).is_none());
    let without_layer =
        without_layer.map(|file| format!("crates/{crate_name}: {file} is in no layer of the table"));
    let entries = layers.iter().chain(siblings).flat_map(|entries| entries.iter());
    let without_file = entries.filter(|entry| !sources.keys().any(|file| holds(entry, file)));
    let without_file =
        without_file.map(|entry| format!("crates/{crate_name}: the table has {entry}, which holds no file"));
    without_layer.chain(without_file).collect()
}

/// Returns the layer of a file, from 0. The crate's root is above all layers; any other file without an entry
/// has none.
fn layer_of(layers: Layers, file: &str) -> Option<usize> {
    if is_root(file) {
        return Some(layers.len());
    }
    let entries =
        layers.iter().enumerate().flat_map(|(layer, entries)| entries.iter().map(move |e| (e, layer)));
    let held = entries.filter(|(entry, _)| holds(entry, file));
    held.max_by_key(|(entry, _)| entry.len()).map(|(_, layer)| layer)
}

/// Returns true if an entry is this file or a folder that contains it. The module of a folder may be beside
/// it: `x.rs` belongs to `x/`.
fn holds(entry: &str, file: &str) -> bool {
    match entry.strip_suffix('/') {
        Some(folder) => file.starts_with(entry) || file.strip_suffix(".rs") == Some(folder),
        None => entry == file,
    }
}

/// Returns true if two files belong to different entries of one group of siblings.
fn are_siblings(siblings: Siblings, from: &str, to: &str) -> bool {
    let entry_of = |group: &[&str], file: &str| group.iter().position(|entry| holds(entry, file));
    siblings.iter().any(|group| match (entry_of(group, from), entry_of(group, to)) {
        (Some(from), Some(to)) => from != to,
        _ => false,
    })
}
