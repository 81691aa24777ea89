//! The machine that this process runs on.

use std::env;
use std::fs;
use std::process::{Command, Stdio};

use clap::ValueEnum;
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

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

    /// The limit does not apply to a process with CAP_IPC_LOCK in the initial user namespace.
    fn locked_memory(&self) -> Option<u64> {
        let is_able = capabilities(None).is_ok_and(|of| of.effective.contains(CapabilitySet::IPC_LOCK));
        let is_unlimited = is_able && self.read("/proc/self/uid_map").is_some_and(|map| is_identity(&map));
        getrlimit(Resource::Memlock).current.filter(|_| !is_unlimited)
    }

    fn libraries(&self) -> Result<String, Refusal> {
        let found = Libraries::find(None).map(|libraries| libraries.folder().display().to_string());
        found.map_err(|error| Refusal { error: format!("{error:#}"), remedy: None })
    }
}

/// Returns true if a UID map is that of the initial user namespace (user_namespaces(7)).
fn is_identity(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Performs a trial in a child process, which runs this command again. The child prints the refusal.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_map_of_all_users_is_that_of_the_first_namespace() {
        assert!(is_identity("         0          0 4294967295"));
        for map in ["         0       1000          1", "0 0 65536\n65536 0 4294901759", ""] {
            assert!(!is_identity(map), "{map}");
        }
    }
}
