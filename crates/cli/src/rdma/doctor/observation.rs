//! What the processes of a program loaded and asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// What one process loaded and asked for.
#[derive(Debug, Default)]
pub(super) struct Process {
    /// The last program that it was.
    pub(super) program: String,
    /// The libraries that were initialised, by path.
    pub(super) libraries: BTreeSet<PathBuf>,
    /// The verbs that it called, without repetitions.
    pub(super) verbs: BTreeSet<String>,
    /// The paths of RDMA devices that it asked for, each with the functions it asked by.
    pub(super) paths: BTreeMap<String, BTreeSet<String>>,
}

/// What all processes loaded and asked for, by process ID.
#[derive(Debug, Default)]
pub(super) struct Observation {
    pub(super) processes: BTreeMap<u32, Process>,
}

impl Observation {
    /// Reads the record of the two libraries: `PID verb NAME` and `PID path FUNCTION PATH`. Other lines are left out.
    pub(super) fn read_asked(&mut self, text: &str) {
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

    /// Reads what the loader printed for a process (`LD_DEBUG=libs`).
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
            .read_asked("7 verb ibv_open_device\n7 path open /dev/infiniband/uverbs0\nrubbish\n8 verb\n");
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
