//! The programs on the two hosts and their output.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

use anyhow::Context;
use nichrome_lab::{Host, Variables};

use super::processes::Processes;
use crate::failure;
use crate::side::Side;
use crate::threads;

/// Maximum length of a line that is printed in one piece, in bytes.
const LINE: u64 = 64 * 1024;

/// A program to run on a host.
#[derive(Clone, Debug)]
pub(super) enum Program {
    /// A command line for the shell.
    Line(String),
    /// A program and its arguments.
    Exec(Vec<OsString>),
    /// An interactive shell.
    Shell,
}

/// The destination of a program's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// Printed line by line with the host's name in front.
    Labelled,
    /// Inherited, as is standard input.
    Ours,
}

/// The use of standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StandardOutput {
    /// For the programs' output.
    Programs,
    /// For the summary; programs use standard error instead.
    Summary,
}

/// A started program.
pub(super) struct Running {
    child: Child,
    printers: Vec<JoinHandle<()>>,
}

impl Program {
    /// Starts the program on `host`. Calls `ended` on another thread when it has ended and its output is
    /// printed.
    pub(super) fn start(
        &self,
        host: &Host,
        processes: &Processes,
        output: Output,
        standard_output: StandardOutput,
    ) -> anyhow::Result<Running> {
        let (side, variables) = (host.side(), host.variables());
        let mut command = self.command(&variables);
        command.envs(variables);
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
        let mut child = host.run(|| processes.spawn(side, &mut command))?.map_err(|error| {
            failure::not_executed(error, format!("cannot start {} on the {}", self.name(), side.name()))
        })?;
        let mut printers = Vec::new();
        if let Some(lines) = child.stdout.take() {
            let print = if to_stderr { Print::Error } else { Print::Output };
            printers.push(threads::start("output", move || label(lines, side, print))?);
        }
        if let Some(lines) = child.stderr.take() {
            printers.push(threads::start("errors", move || label(lines, side, Print::Error))?);
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
                let mut words = words.iter().map(|word| expand(word, variables));
                let mut command = Command::new(words.next().unwrap_or_default());
                command.args(words);
                command
            }
            Self::Shell => Command::new(std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())),
        }
    }

    /// Returns the name for messages.
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
    /// Returns the program's exit status, once it has ended.
    pub(super) fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.child.try_wait().context("cannot wait for a program")
    }

    /// Waits until the program's output is printed: until its children have closed the pipe, too.
    pub(super) fn print_the_rest(self) {
        for printer in self.printers {
            // The thread does not panic.
            let _ = printer.join();
        }
    }
}

/// Replaces `$NAME` and `${NAME}` by the variables' values, as a shell does.
pub(super) fn expand(word: &OsStr, variables: &Variables) -> OsString {
    let Some(word) = word.to_str() else { return word.to_owned() };
    let with_braces = variables.iter().map(|(name, value)| (format!("${{{name}}}"), value));
    // Longer names first, since some begin with others.
    let plain = variables.iter().rev().map(|(name, value)| (format!("${name}"), value));
    with_braces.chain(plain).fold(word.to_owned(), |word, (name, value)| word.replace(&name, value)).into()
}

#[derive(Clone, Copy)]
enum Print {
    Output,
    Error,
}

/// Prints a program's output line by line with a label.
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
        // Errors are ignored: the program must not block if nobody reads.
        let _ = match print {
            Print::Output => io::stdout().lock().write_all(&line),
            Print::Error => io::stderr().lock().write_all(&line),
        };
    }
}

/// Returns true if this thread's network namespace has a listening TCP socket, or a UDP socket that is not
/// connected. The resolver of a program that is about to listen may have a connected one; musl's does not
/// connect it.
pub(super) fn anyone_listens() -> bool {
    let read = |file: &str| fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
    // The fourth column is the state.
    let has = |file, state| read(file).lines().any(|line| line.split_whitespace().nth(3) == Some(state));
    const TCP_LISTEN: &str = "0A";
    const TCP_CLOSE: &str = "07";
    [("tcp", TCP_LISTEN), ("tcp6", TCP_LISTEN), ("udp", TCP_CLOSE), ("udp6", TCP_CLOSE)]
        .iter()
        .any(|(file, state)| has(file, state))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use nichrome_lab::{Lab, in_namespaces};

    use super::*;

    #[test]
    fn servers_listen_and_programs_that_ask_one_do_not() {
        in_namespaces("wan::programs::tests::servers_listen_and_programs_that_ask_one_do_not", || {
            let lab = Lab::new(&Default::default(), 1).unwrap();
            let listens = || lab.host(Side::Left).namespace().run(anyone_listens).unwrap();
            let open = |address: &'static str| {
                lab.host(Side::Left).namespace().run(move || UdpSocket::bind(address).unwrap()).unwrap()
            };
            assert!(!listens());
            let client = open("0.0.0.0:0");
            client.connect("10.0.0.53:53").unwrap();
            assert!(!listens(), "a client has a socket");
            for address in ["0.0.0.0:9", "[::]:9"] {
                let server = open(address);
                assert!(listens(), "UDP {address}");
                drop(server);
                let server = lab
                    .host(Side::Left)
                    .namespace()
                    .run(move || TcpListener::bind(address).unwrap())
                    .unwrap();
                assert!(listens(), "TCP {address}");
                drop(server);
            }
            assert!(!listens());
        });
    }

    #[test]
    fn variables_are_replaced_by_their_full_names() {
        let variables = [("PEER", "10.0.0.2".to_owned()), ("PEER6", "fd00::2".to_owned())].into();
        let cases = [
            ("$PEER", "10.0.0.2"),
            ("http://[$PEER6]:80/", "http://[fd00::2]:80/"),
            ("${PEER}6", "10.0.0.26"),
            ("PEER", "PEER"),
        ];
        for (word, result) in cases {
            assert_eq!(expand(OsStr::new(word), &variables), result);
        }
    }
}
