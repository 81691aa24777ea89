//! The programs on the two hosts: started, listened to, and stopped with everything that they have started.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context;
use nichrome_port::die_with_parent;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait};

use super::host::{Host, Variables};
use super::side::Side;

/// How long programs have to end by themselves once they have been asked to.
const GRACE: Duration = Duration::from_secs(2);

/// How long the other program waits for the first to listen.
const UNTIL_IT_LISTENS: Duration = Duration::from_secs(1);

/// How long programs that were interrupted from the terminal, as we were, have before they are asked to end, too: one
/// that is already ending is best left alone.
const AFTER_AN_INTERRUPT: Duration = Duration::from_millis(300);

/// How long one that was killed may take, which a kernel that waits for a device holds up.
const UNTIL_KILLED: Duration = Duration::from_secs(5);

/// How often is looked whether something has happened.
const LOOK: Duration = Duration::from_millis(10);

/// Bytes of a line that are printed in one piece.
const LINE: u64 = 64 * 1024;

/// What is run on a host.
#[derive(Clone, Debug)]
pub(super) enum Program {
    /// A line for the shell.
    Line(String),
    /// A program and its arguments.
    Exec(Vec<OsString>),
    /// A shell for whoever sits at the terminal.
    Shell,
}

/// Where what a program prints goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// Line by line behind the name of its host.
    Labelled,
    /// Where ours goes; it reads from our standard input.
    Ours,
}

/// Whether the standard output is left to the summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StandardOutput {
    /// Programs print to it.
    Programs,
    /// They print to the standard error instead.
    Summary,
}

/// A program that was started.
pub(super) struct Running {
    child: Child,
    printers: Vec<JoinHandle<()>>,
}

impl Program {
    /// Starts the program on `host`. `ended` is called, on another thread, when it has ended and all it printed is out.
    pub(super) fn start(
        &self,
        host: &Host,
        side: Side,
        output: Output,
        standard_output: StandardOutput,
    ) -> anyhow::Result<Running> {
        let variables = host.variables();
        let mut command = self.command(&variables);
        command.envs(variables);
        die_with_parent(&mut command);
        let to_stderr = standard_output == StandardOutput::Summary;
        match output {
            Output::Labelled => {
                command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            }
            Output::Ours if to_stderr => {
                command.stdout(Stdio::from(io::stderr().as_fd().try_clone_to_owned()?));
            }
            Output::Ours => {}
        }
        let mut child = host
            .run(|| command.spawn())?
            .with_context(|| format!("cannot start {} on the {}", self.name(), side.name()))?;
        let mut printers = Vec::new();
        if let Some(lines) = child.stdout.take() {
            let print = if to_stderr { Print::Error } else { Print::Output };
            printers.push(thread::spawn(move || label(lines, side, print)));
        }
        if let Some(lines) = child.stderr.take() {
            printers.push(thread::spawn(move || label(lines, side, Print::Error)));
        }
        Ok(Running { child, printers })
    }

    fn command(&self, variables: &Variables) -> Command {
        match self {
            Self::Line(line) => {
                let mut command = Command::new("/bin/sh");
                command.arg("-c").arg(line);
                command
            }
            Self::Exec(words) => {
                let mut words = words.iter().map(|word| put_in(word, variables));
                let mut command = Command::new(words.next().unwrap_or_default());
                command.args(words);
                command
            }
            Self::Shell => Command::new(std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())),
        }
    }

    /// What messages call it.
    fn name(&self) -> String {
        match self {
            Self::Line(line) => format!("'{line}'"),
            Self::Exec(words) => {
                let name = words.first().map(|word| word.to_string_lossy());
                format!("'{}'", name.unwrap_or_default())
            }
            Self::Shell => "a shell".into(),
        }
    }
}

impl Running {
    /// Its exit status, once it has ended.
    pub(super) fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.child.try_wait().context("cannot wait for a program")
    }

    /// Waits until all that it has printed is out. What it has started holds that up while it runs.
    pub(super) fn print_the_rest(self) {
        for printer in self.printers {
            // It cannot have panicked.
            let _ = printer.join();
        }
    }
}

/// The word with the variables' values in place of `$NAME` and `${NAME}`, as a shell would put them in.
fn put_in(word: &OsStr, variables: &Variables) -> OsString {
    let Some(word) = word.to_str() else { return word.to_owned() };
    let with_braces = variables.iter().map(|(name, value)| (format!("${{{name}}}"), value));
    // Those that others begin with come last.
    let plain = variables.iter().rev().map(|(name, value)| (format!("${name}"), value));
    with_braces.chain(plain).fold(word.to_owned(), |word, (name, value)| word.replace(&name, value)).into()
}

#[derive(Clone, Copy)]
enum Print {
    Output,
    Error,
}

/// Prints what comes from a program line by line.
fn label(source: impl Read, side: Side, print: Print) {
    let mut source = BufReader::new(source);
    let mut line = Vec::new();
    loop {
        line.clear();
        line.extend_from_slice(format!("{:<5} | ", side.name()).as_bytes());
        match source.by_ref().take(LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        // Where nobody reads, the program still must not wait.
        let _ = match print {
            Print::Output => io::stdout().lock().write_all(&line),
            Print::Error => io::stderr().lock().write_all(&line),
        };
    }
}

/// Makes whatever programs leave behind a child of this process, so that it can be found.
pub(super) fn adopt_orphans() {
    // A kernel that refuses this leaves them to init, as it would without.
    let _ = set_child_subreaper(Some(rustix::process::getpid()));
}

/// Gives programs that were interrupted with us some time to end by themselves.
pub(super) fn wait_for_the_interrupted() {
    let begun = Instant::now();
    while begun.elapsed() < AFTER_AN_INTERRUPT && !descendants().is_empty() {
        reap();
        thread::sleep(LOOK);
    }
}

/// Stops everything that descends from this process: asks first, and kills after some time. Says what is left.
pub(super) fn stop_all() -> Vec<Pid> {
    let begun = Instant::now();
    let mut signal = Signal::TERM;
    let mut asked = Vec::new();
    loop {
        let descendants = descendants();
        if descendants.is_empty() || begun.elapsed() > GRACE + UNTIL_KILLED {
            return descendants;
        }
        if begun.elapsed() > GRACE && signal == Signal::TERM {
            signal = Signal::KILL;
            asked.clear();
        }
        for pid in descendants {
            if !asked.contains(&pid) {
                // One that has ended in the meantime needs none.
                let _ = kill_process(pid, signal);
                asked.push(pid);
            }
        }
        reap();
        thread::sleep(LOOK);
    }
}

/// Takes note of children that have ended.
fn reap() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

/// All that this process has started, directly or not, and that has not ended.
fn descendants() -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some((state, parent)) = state_and_parent(&stat)
            && state != "Z"
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut next = vec![process::id() as i32];
    while let Some(pid) = next.pop() {
        let of = children.remove(&pid).unwrap_or_default();
        found.extend(of.iter().copied().filter_map(Pid::from_raw));
        next.extend(of);
    }
    found
}

/// The state and the parent in `/proc/PID/stat`, behind the name, which may hold anything (proc_pid_stat(5)).
fn state_and_parent(stat: &str) -> Option<(&str, i32)> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?, fields.next()?.parse().ok()?))
}

/// Waits until a program on `host` listens or has a datagram socket, but not long.
pub(super) fn wait_until_listening(host: &Host) -> anyhow::Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < UNTIL_IT_LISTENS && !host.run(anyone_listens)? {
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Whether the network namespace of this thread has a TCP socket that listens or a UDP socket.
fn anyone_listens() -> bool {
    let read = |file: &str| fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
    let sockets = |file: &str| read(file).lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    // TCP_LISTEN is state 0A in the fourth column.
    let listening = |line: &String| line.split_whitespace().nth(3) == Some("0A");
    ["tcp", "tcp6"].iter().any(|file| sockets(file).iter().any(listening))
        || ["udp", "udp6"].iter().any(|file| !sockets(file).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_put_in_by_their_whole_names() {
        let variables = [("PEER", "10.0.0.2".to_owned()), ("PEER6", "fd00::2".to_owned())].into();
        let cases = [
            ("$PEER", "10.0.0.2"),
            ("http://[$PEER6]:80/", "http://[fd00::2]:80/"),
            ("${PEER}6", "10.0.0.26"),
            ("PEER", "PEER"),
        ];
        for (word, result) in cases {
            assert_eq!(put_in(OsStr::new(word), &variables), result);
        }
    }

    #[test]
    fn a_name_with_parentheses_does_not_hide_the_parent() {
        assert_eq!(state_and_parent("7 (a) b) S 3 7 7 0"), Some(("S", 3)));
        assert_eq!(state_and_parent("7 (a"), None);
    }
}
