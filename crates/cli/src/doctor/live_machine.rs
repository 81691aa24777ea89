//! The machine that this process runs on.

use std::env;
use std::fs;
use std::process::{Command, Stdio};

use clap::ValueEnum;
use rustix::process::{Resource, getrlimit};

use super::machine::{Machine, Refusal, Trial};
use crate::rdma::Libraries;

/// The machine that this process runs on.
pub(super) struct LiveMachine;

impl Machine for LiveMachine {
    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(path).ok().map(|text| text.trim_end().to_owned())
    }

    fn entries(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn attempt(&self, trial: Trial) -> Result<(), Refusal> {
        attempt(trial).unwrap_or_else(|error| Err(Refusal { error: format!("{error:#}"), remedy: None }))
    }

    fn open_files(&self) -> Option<u64> {
        getrlimit(Resource::Nofile).current
    }

    fn locked_memory(&self) -> Option<u64> {
        getrlimit(Resource::Memlock).current
    }

    fn libraries(&self) -> Result<String, Refusal> {
        let found = Libraries::find(None).map(|libraries| libraries.folder().display().to_string());
        found.map_err(|error| Refusal { error: format!("{error:#}"), remedy: None })
    }
}

/// Starts this command once more to try something. The child prints the refusal.
fn attempt(trial: Trial) -> anyhow::Result<Result<(), Refusal>> {
    let name = trial.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let mut child = Command::new(env::current_exe()?);
    let ended = child.args(["doctor", "--attempt", &name]).stdin(Stdio::null()).output()?;
    if ended.status.success() && ended.stdout.is_empty() {
        return Ok(Ok(()));
    }
    Ok(Err(serde_json::from_slice(&ended.stdout).unwrap_or_else(|_| Refusal {
        error: String::from_utf8_lossy(&ended.stderr).trim().to_owned(),
        remedy: None,
    })))
}
