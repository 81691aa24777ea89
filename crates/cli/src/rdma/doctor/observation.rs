//! The observation: libraries loaded, verbs called and paths looked up by each process of a program.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The observed actions of one process.
#[derive(Debug, Default)]
pub(super) struct Process {
    /// The last program that the process executed.
    pub(super) program: String,
    /// Paths of the libraries that the loader initialised.
    pub(super) libraries: BTreeSet<PathBuf>,
    /// The verbs that it called.
    pub(super) verbs: BTreeSet<String>,
    /// The paths of RDMA devices that it looked up, each with the C library's functions that it called.
    pub(super) paths: BTreeMap<String, BTreeSet<String>>,
}

/// The observed actions of all processes, by process ID.
#[derive(Debug, Default)]
pub(super) struct Observation {
    pub(super) processes: BTreeMap<u32, Process>,
}

impl Observation {
    /// Reads the record that the two libraries write: `PID verb NAME` and `PID path FUNCTION PATH`. Ignores
    /// other lines.
    pub(super) fn read_calls(&mut self, text: &str) {
        for line in text.lines() {
            let mut words = line.splitn(4, ' ');
            let pid = words.next().and_then(|pid| pid.parse().ok());
            let Some(process) = pid.map(|pid| self.processes.entry(pid).or_default()) else { continue };
            match (words.next(), words.next(), words.next()) {
                (Some("verb"), Some(verb), None) => {
                    process.verbs.insert(verb.to_owned());
                }
                (Some("path"), Some(function), Some(path)) => {
                    process.paths.entry(path.to_owned()).or_default().insert(function.to_owned());
                }
                _ => {}
            }
        }
    }

    /// Reads the loader's log of a process (`LD_DEBUG=libs`).
    pub(super) fn read_loaded(&mut self, pid: u32, text: &str) {
        let process = self.processes.entry(pid).or_default();
        for line in text.lines() {
            if let Some((_, library)) = line.split_once("calling init: ") {
                process.libraries.insert(PathBuf::from(library.trim()));
            } else if let Some((_, program)) = line.split_once("initialize program: ") {
                program.trim().clone_into(&mut process.program);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_kept_for_each_process() {
        let mut observation = Observation::default();
        observation
            .read_calls("7 verb ibv_open_device\n7 path open /dev/infiniband/uverbs0\nrubbish\n8 verb\n");
        observation.read_loaded(
            7,
            "         7:\tcalling init: /a/libibverbs.so.1\n         7:\tinitialize program: ./a\n",
        );
        let process = &observation.processes[&7];
        assert_eq!(process.program, "./a");
        assert!(process.libraries.contains(&PathBuf::from("/a/libibverbs.so.1")));
        assert!(process.verbs.contains("ibv_open_device"));
        assert!(process.paths["/dev/infiniband/uverbs0"].contains("open"));
    }
}
