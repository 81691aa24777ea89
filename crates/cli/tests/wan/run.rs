//! Runs `nichrome wan`, and programs on its hosts.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) use crate::common::{failure, text};

/// Time limit for each step on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the command line for `program` of transfer.py.
pub(crate) fn python(program: &str) -> String {
    let found = Command::new("python3").arg("--version").stdout(Stdio::null()).status();
    assert!(found.is_ok(), "these tests need python3: install Debian's package python3");
    format!("python3 '{}/tests/wan/transfer.py' {program}", env!("CARGO_MANIFEST_DIR"))
}

/// Returns the output of transfer.py without a path.
pub(crate) fn printed_here(program: &str) -> String {
    let output = Command::new("sh").args(["-c", &python(program)]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A runtime directory for one test: it contains no paths of other tests.
pub(crate) struct Room(TempDir);

impl Room {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.path().join(name).to_str().unwrap().to_owned()
    }

    /// Returns the command `nichrome wan` with these arguments.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nichrome"));
        command.arg("wan").args(arguments).stdin(Stdio::null());
        self.prepare(&mut command);
        command
    }

    /// Sets the runtime directory and the group of a command, so that it sees no other test's paths.
    pub(crate) fn prepare(&self, command: &mut Command) {
        static COMMANDS: AtomicUsize = AtomicUsize::new(0);
        let number = COMMANDS.fetch_add(1, Ordering::Relaxed);
        command.env("XDG_RUNTIME_DIR", self.path()).env("READY", self.path().join(format!("ready-{number}")));
    }

    /// Runs the command to its end, with a time limit.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("timeout");
        command
            .arg("120")
            .arg(env!("CARGO_BIN_EXE_nichrome"))
            .arg("wan")
            .args(arguments)
            .stdin(Stdio::null());
        self.prepare(&mut command);
        command.output().unwrap()
    }

    /// Returns the summary of a path whose programs must succeed, and the programs' output.
    pub(crate) fn summary(&self, arguments: &[&str]) -> (Value, String) {
        let output = self.run(&[&["--json"], arguments].concat());
        let printed = text(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {printed}");
        (serde_json::from_slice(&output.stdout).unwrap(), printed)
    }

    /// Starts the command.
    pub(crate) fn start(&self, arguments: &[&str]) -> Started {
        Started::new(&mut self.command(arguments))
    }

    /// Returns true if no socket is left.
    pub(crate) fn is_tidy(&self) -> bool {
        !self.path().join("nichrome").exists()
    }
}

pub(crate) fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} in {value}"))
}

pub(crate) fn float(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("{name} in {value}"))
}

/// Returns the number of packets that a direction dropped for this reason.
pub(crate) fn drops(direction: &Value, reason: &str) -> u64 {
    direction["drops"][reason].as_u64().unwrap_or(0)
}

/// A running path; ended on drop.
pub(crate) struct Started {
    child: Child,
    lines: Receiver<String>,
}

impl Started {
    pub(crate) fn new(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (to, lines) = mpsc::channel();
        let streams: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
        for stream in streams {
            let to = to.clone();
            thread::spawn(move || {
                BufReader::new(stream).lines().map_while(Result::ok).for_each(|line| drop(to.send(line)));
            });
        }
        Self { child, lines }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the next line with `mark` in it, and returns the text after the mark.
    pub(crate) fn wait_for(&self, mark: &str) -> String {
        let until = Instant::now() + TIMEOUT;
        let mut before = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            if let Some((_, rest)) = line.split_once(mark) {
                return rest.to_owned();
            }
            before.push(line);
        }
        panic!("'{mark}' did not come: {before:#?}")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end and returns the exit status.
    pub(crate) fn end(mut self) -> i32 {
        self.wait().expect("it does not end").code().expect("a signal has killed it")
    }

    fn wait(&mut self) -> Option<ExitStatus> {
        let until = Instant::now() + TIMEOUT;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status);
            }
            thread::sleep(Duration::from_millis(5));
        }
        None
    }
}

impl Drop for Started {
    /// Sends SIGTERM instead of SIGKILL, so that the command stops its programs.
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.signal(Signal::TERM);
            self.wait();
        }
    }
}

/// Returns the processes for which `is_one` is true; it gets their folder in /proc.
pub(crate) fn processes(is_one: impl Fn(&Path) -> bool) -> Vec<String> {
    let is_process =
        |path: &Path| path.file_name().is_some_and(|name| name.to_str().unwrap().parse::<u32>().is_ok());
    let folders = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    folders.filter(|path| is_process(path) && is_one(path)).map(|path| path.display().to_string()).collect()
}
