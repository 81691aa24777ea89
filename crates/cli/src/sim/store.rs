//! The store: a folder with a file per run, `HASH-SEED.json`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use nichrome_sim::experiment::{Parameters, Runner};

use super::files;
use super::record::{self, Record};

/// A store of records.
pub(super) struct Store {
    folder: PathBuf,
}

impl Store {
    /// Opens a store for adding runs; creates the folder if it is missing.
    pub(super) fn open(folder: &Path) -> anyhow::Result<Self> {
        files::make_folder(folder)?;
        files::remove_leftovers(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        Ok(Self { folder: folder.into() })
    }

    /// Returns true if the store has the run. Fails if the run's file has other content.
    pub(super) fn has(
        &self,
        runner: &dyn Runner,
        parameters: &Parameters,
        seed: u64,
    ) -> anyhow::Result<bool> {
        self.get(runner, parameters, seed).map(|record| record.is_some())
    }

    /// Returns the record of a run; `None` if the store has none. A file of this name with other content is
    /// an error.
    pub(super) fn get(
        &self,
        runner: &dyn Runner,
        parameters: &Parameters,
        seed: u64,
    ) -> anyhow::Result<Option<Record>> {
        let hash = record::hash(runner, parameters);
        let path = self.folder.join(file_name(&hash, seed));
        let Some(record) = read(&path)? else { return Ok(None) };
        let is_requested = record.model == runner.name() && record.hash == hash && record.seed == seed;
        ensure!(
            is_requested,
            "{} is the record of another run than its name says: remove it",
            path.display()
        );
        let (version, ours) = (&record.version, record::VERSION);
        ensure!(
            version == ours,
            "{} is of version {version}, and this is version {ours}: use another store",
            path.display()
        );
        Ok(Some(record))
    }

    /// Adds a run.
    pub(super) fn add(&self, record: &Record) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(record)? + "\n";
        files::write(&self.folder, &file_name(&record.hash, record.seed), text.as_bytes())
    }
}

/// Returns all records of a folder, sorted by file name.
pub(super) fn gather(folder: &Path) -> anyhow::Result<Vec<Record>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {}", folder.display()))?.path();
        let is_unfinished = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !is_unfinished && path.extension().is_some_and(|extension| extension == "json") {
            paths.push(path);
        }
    }
    paths.sort();
    let mut records = Vec::new();
    for path in paths {
        records.extend(read(&path)?);
    }
    if records.is_empty() {
        bail!("{}: there are no records in this folder: 'nichrome sim sweep' writes them", folder.display());
    }
    Ok(records)
}

/// Returns the name of a run's file.
pub(super) fn file_name(hash: &str, seed: u64) -> String {
    format!("{hash}-{seed}.json")
}

/// Returns the record in a file; `None` if the file does not exist.
fn read(path: &Path) -> anyhow::Result<Option<Record>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let record = serde_json::from_slice(&text);
    record.map(Some).with_context(|| format!("{} is not a record of a run: remove it", path.display()))
}
