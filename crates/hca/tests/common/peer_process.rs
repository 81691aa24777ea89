//! Another process of a test: the same executable, where an ignored test plays the peer.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

/// The environment variable with the peer's task.
const PEER: &str = "NICHROME_CM_PEER";

/// The process. It prints a line after each step, and is killed when dropped.
pub(crate) struct Peer {
    process: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    /// Runs the test `a_peer_in_another_process` with this [`role`].
    pub(crate) fn start(role: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "--nocapture", "a_peer_in_another_process"])
            .env(PEER, role)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, said }
    }

    /// Waits for a line that begins with `word`; returns the rest.
    pub(crate) fn hear(&mut self, word: &str) -> String {
        self.said.find_map(|line| Some(line.unwrap().strip_prefix(word)?.trim().to_owned())).unwrap()
    }

    /// Kills it (SIGKILL) and waits until it has ended.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Both fail if the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the role of this process: the words of its environment variable.
pub(crate) fn role() -> Vec<String> {
    std::env::var(PEER).unwrap().split(' ').map(str::to_owned).collect()
}
