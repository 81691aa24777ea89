//! Paths of claims and sockets. They are per network namespace, in which interface names are unique.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use anyhow::Context;

use crate::runtime_dir;

/// Returns the path of the claim on an interface.
pub(super) fn of_claim(wire: &str) -> anyhow::Result<PathBuf> {
    Ok(runtime_dir::of_machine().join(format!("nic-{wire}{}", suffix("json")?)))
}

/// Returns the paths of all claims.
pub(super) fn all_claims() -> anyhow::Result<Vec<PathBuf>> {
    Ok(all("json")?.into_iter().map(|(_, path)| path).collect())
}

/// Returns the path of the socket of the card behind an interface.
pub(super) fn of_socket(host: &str) -> anyhow::Result<PathBuf> {
    Ok(runtime_dir::of_machine().join(format!("nic-{host}{}", suffix("sock")?)))
}

/// Returns all sockets with their interface names.
pub(super) fn all_sockets() -> anyhow::Result<Vec<(String, PathBuf)>> {
    all("sock")
}

fn all(kind: &str) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let suffix = suffix(kind)?;
    let entries = fs::read_dir(runtime_dir::of_machine()).into_iter().flatten().flatten();
    let named = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.strip_prefix("nic-")?.strip_suffix(&suffix)?;
        Some((name.to_owned(), path))
    };
    let mut all: Vec<_> = entries.filter_map(|entry| named(entry.path())).collect();
    all.sort();
    Ok(all)
}

/// Returns the file name suffix of this namespace.
fn suffix(kind: &str) -> anyhow::Result<String> {
    let namespace =
        fs::metadata("/proc/thread-self/ns/net").context("cannot identify the network namespace")?;
    Ok(format!("@{}.{kind}", namespace.ino()))
}
