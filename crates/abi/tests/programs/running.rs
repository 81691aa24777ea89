//! Runs programs with the libraries preloaded.

use std::fs;
use std::io::Read;
use std::net::{Ipv6Addr, TcpListener};
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::common;

/// Time limit for one program: more than any needs on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Fails unless a program of a Debian package is installed. `./check` installs all of them.
pub(crate) fn needs(program: &str, package: &str) {
    let is_installed = Path::new("/usr/bin").join(program).exists();
    assert!(is_installed, "the tests need Debian's package {package}");
}

/// Returns the command to run a program with the libraries; the line is split at spaces.
pub(crate) fn command(line: &str, more: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args(more).envs(common::environment()).envs(environment.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Compiles a C program of this folder to `program`.
pub(crate) fn compile(source: &str, program: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-o"]).arg(program).arg(&source).arg("-libverbs");
    assert!(cc.status().unwrap().success(), "the tests need Debian's package libibverbs-dev");
}

/// Compiles a C program of this folder and runs it with one argument; panics with its standard error if it
/// fails.
pub(crate) fn c_program(source: &str, argument: &str) {
    c_program_with(source, argument, &[]);
}

/// As [`c_program`], with an environment.
pub(crate) fn c_program_with(source: &str, argument: &str, environment: &[(&str, &str)]) {
    run_c_program("", source, &[argument], environment);
}

/// As [`c_program_with`], with several arguments.
pub(crate) fn c_program_arguments(source: &str, arguments: &[&str], environment: &[(&str, &str)]) {
    run_c_program("", source, arguments, environment);
}

/// As [`c_program`], with several arguments, run by another program: its command line, `runner`, comes first.
pub(crate) fn c_program_by(runner: &str, source: &str, arguments: &[&str]) {
    run_c_program(runner, source, arguments, &[]);
}

fn run_c_program(runner: &str, source: &str, arguments: &[&str], environment: &[(&str, &str)]) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    compile(source, &program);
    let child = command(&format!("{runner}{}", program.display()), arguments, environment).spawn().unwrap();
    let output = ended(child, source);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Lets one pair of programs run at a time: on two processors, two pairs would make each other time out.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// TCP ports below those that Linux gives to outgoing connections, which would take one before a program
/// listens.
const PORTS: Range<u16> = 20_000..32_768;

/// Returns a TCP port that no socket uses and no other call returns soon.
pub(crate) fn free_port() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let first = std::process::id() as usize;
    let is_free = |port: &u16| TcpListener::bind((Ipv6Addr::UNSPECIFIED, *port)).is_ok();
    let mut candidates = std::iter::repeat_with(|| NEXT.fetch_add(1, Ordering::Relaxed))
        .map(|nth| PORTS.start + ((first + nth) % PORTS.len()) as u16);
    candidates.find(is_free).unwrap().to_string()
}

/// Returns true if a socket listens on the TCP port.
pub(crate) fn is_listening(port: &str) -> bool {
    let sockets =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let place = format!(":{:04X} ", port.parse::<u16>().unwrap());
    let is_listener = |line: &str| line.contains(&place) && line.contains(" 0A ");
    sockets.iter().any(|sockets| sockets.lines().any(is_listener))
}

/// Waits for a program and returns its output. Kills it and panics after [`PATIENCE`].
pub(crate) fn ended(mut child: Child, what: &str) -> Output {
    let mut pipes = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let reader = thread::spawn(move || {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        pipes.0.read_to_end(&mut stdout).unwrap();
        pipes.1.read_to_end(&mut stderr).unwrap();
        (stdout, stderr)
    });
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("{what} does not end");
        }
        thread::sleep(Duration::from_millis(5));
    };
    let (stdout, stderr) = reader.join().unwrap();
    Output { status, stdout, stderr }
}

/// Configures a device whose packets reach other processes of this machine through memory.
pub(crate) const THROUGH_MEMORY: (&str, &str) = ("NICHROME_LOCAL", "memory");

/// Runs a program as server and as client; both must succeed.
pub(crate) fn both_ends(line: &str, more: &[&str], environment: &[(&str, &str)]) {
    each_end(line, more, [environment, environment]);
}

/// As [`both_ends`], with separate environments for server and client.
pub(crate) fn each_end(line: &str, more: &[&str], environments: [&[(&str, &str)]; 2]) {
    let ends = outputs(line, more, environments);
    let texts = ends.iter().map(|Output { stdout, stderr, .. }| {
        String::from_utf8_lossy(stdout).into_owned() + &String::from_utf8_lossy(stderr)
    });
    let text = texts.collect::<Vec<_>>().join("\n--- the server:\n");
    assert!(ends.iter().all(|end| end.status.success()), "{line}:\n{text}");
}

/// Runs a program as server and as client; returns the outputs of client and server.
pub(crate) fn outputs(
    line: &str,
    more: &[&str],
    [of_server, of_client]: [&[(&str, &str)]; 2],
) -> [Output; 2] {
    let _turn = turn();
    let port = free_port();
    let more = [more, &["-p", &port]].concat();
    let mut server = command(line, &more, of_server).spawn().unwrap();
    while !is_listening(&port) && server.try_wait().unwrap().is_none() {
        thread::sleep(Duration::from_millis(5));
    }
    let client = command(line, &[&more[..], &["127.0.0.1"]].concat(), of_client).spawn().unwrap();
    [ended(client, line), ended(server, line)]
}
