//! Files that import each other, directly or through others.

use std::collections::{BTreeMap, BTreeSet};

use super::arrows::Arrows;

/// Reports each circle of files, with the names that they import from each other.
pub(crate) fn circles(crate_name: &str, arrows: &Arrows) -> Vec<String> {
    let importing = arrows.0.keys().map(|(from, _)| from.as_str());
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        importing.map(|file| (file, reached_from(file, arrows))).collect();
    let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|files| files.contains(to));
    let circle_of = |file: &str, files: &BTreeSet<&'_ str>| -> BTreeSet<String> {
        files.iter().filter(|other| reaches(other, file)).map(|other| (*other).to_owned()).collect()
    };
    let circles: BTreeSet<BTreeSet<String>> =
        reached.iter().map(|(file, files)| circle_of(file, files)).collect();
    let circles = circles.iter().filter(|circle| !circle.is_empty());
    circles.map(|circle| describe(crate_name, circle, arrows)).collect()
}

/// Returns the files that `file` imports, directly or through others.
fn reached_from<'a>(file: &'a str, arrows: &'a Arrows) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next = vec![file];
    while let Some(file) = next.pop() {
        next.extend(arrows.imported_by(file).filter(|to| reached.insert(*to)));
    }
    reached
}

fn describe(crate_name: &str, circle: &BTreeSet<String>, arrows: &Arrows) -> String {
    let mut lines =
        vec![format!("crates/{crate_name}: {} files import each other in a circle", circle.len())];
    for from in circle {
        let within = arrows.imported_by(from).filter(|to| circle.contains(*to));
        lines.extend(within.map(|to| format!("    {}", arrows.describe(from, to))));
    }
    lines.join("\n")
}
