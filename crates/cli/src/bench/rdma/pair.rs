//! Runs two processes of this program, each on its own processor.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::ops::Range;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{env, io, thread};

use anyhow::{Context, bail};
use nichrome_port::kill_with_parent;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;

use super::super::iperf3::{self, End};
use crate::failure;

/// The processors of server and client: the last and the first that this process may use.
pub(crate) struct Pair {
    all: CpuSet,
    server: usize,
    client: usize,
}

impl Pair {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let all = sched_getaffinity(None).context("cannot read the CPU affinity")?;
        let mut usable = (0..CpuSet::MAX_CPU).filter(|processor| all.is_set(*processor));
        let client = usable.next().context("the CPU affinity is empty")?;
        let server = usable.next_back().unwrap_or(client);
        Ok(Self { all, server, client })
    }

    /// Prints a warning if both ends share the only usable processor.
    pub(crate) fn warn_if_crowded(&self) {
        if self.server == self.client {
            failure::warn(format_args!("both ends share the only usable processor"));
        }
    }

    /// Starts a process on the processor of its end.
    fn spawn(&self, end: End, command: &mut Command) -> io::Result<Child> {
        let mut processor = CpuSet::new();
        processor.set(if end == End::Server { self.server } else { self.client });
        // The child inherits the affinity.
        sched_setaffinity(None, &processor)?;
        let child = command.spawn();
        sched_setaffinity(None, &self.all)?;
        child
    }

    /// Runs both ends of a command of this program and returns the client's JSON.
    pub(crate) fn run(&self, server: &str, client: &str) -> anyhow::Result<Value> {
        let [_, client] = self.run_both(server, client)?;
        client
    }

    /// Runs both ends of a command of this program and returns the JSON of server and client.
    pub(crate) fn run_both(&self, server: &str, client: &str) -> anyhow::Result<[anyhow::Result<Value>; 2]> {
        let port = free_port()?.to_string();
        let start = |end, arguments: &str| {
            let mut command = Command::new(env::current_exe()?);
            command.args(arguments.split_whitespace()).args(["--port", &port]);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            kill_with_parent(&mut command);
            self.spawn(end, &mut command)
        };
        let server = start(End::Server, server).context("cannot start another process of this program")?;
        let client = start(End::Client, client).context("cannot start another process of this program")?;
        let value =
            |output: Output| serde_json::from_slice(&output.stdout).context("the result is not valid JSON");
        Ok(outputs(server, client)?.map(value))
    }

    /// Measures one stream of iperf3 between the same processors, in Gbit/s.
    pub(super) fn iperf3(&self, seconds: &str) -> anyhow::Result<f64> {
        let stream = iperf3::Stream { server: "127.0.0.1", port: free_port()?, seconds };
        stream.measure(|end, command| self.spawn(end, command).context("cannot run iperf3"))
    }
}

/// Time for the server to end by itself after its client has failed. A server to which no client has
/// connected does not end by itself.
const GRACE_PERIOD: Duration = Duration::from_secs(1);

/// Waits for both ends; returns the output of server and client. If the client has failed, kills a server
/// that does not end within [`GRACE_PERIOD`].
fn outputs(mut server: Child, client: Child) -> anyhow::Result<[Output; 2]> {
    let client = client.wait_with_output()?;
    let has_ended = client.status.success() || ends_within(&mut server, GRACE_PERIOD)?;
    if !has_ended {
        server.kill()?;
    }
    let server = server.wait_with_output()?;
    let failures: Vec<String> = [("client", &client, true), ("server", &server, has_ended)]
        .into_iter()
        .filter(|(_, output, by_itself)| *by_itself && !output.status.success())
        .map(|(end, output, _)| why(end, output))
        .collect();
    if !failures.is_empty() {
        bail!("{}", failures.join("; "));
    }
    Ok([server, client])
}

/// Returns true if the process ends within `timeout`.
fn ends_within(process: &mut Child, timeout: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + timeout;
    while process.try_wait()?.is_none() {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(true)
}

/// Returns the error message of an end that failed; its status if it printed none.
fn why(end: &str, output: &Output) -> String {
    let printed = String::from_utf8_lossy(&output.stderr);
    match printed.trim().trim_start_matches("nichrome: ") {
        "" => format!("the {end} has ended: {}", output.status),
        message => message.to_owned(),
    }
}

/// TCP ports below those that Linux assigns to outgoing connections. Thousands of those may be in TIME_WAIT,
/// which blocks a listener at the wildcard address.
const PORTS: Range<u16> = 20_000..32_768;

/// Returns a TCP port at which a server could listen at the time of the call.
fn free_port() -> anyhow::Result<u16> {
    // Concurrent benchmarks start their search at different ports.
    let first = std::process::id() as usize % PORTS.len();
    // The IPv6 wildcard covers IPv4, if the machine has IPv6.
    let everywhere = [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
    let is_free = |port: &u16| everywhere.iter().any(|address| TcpListener::bind((*address, *port)).is_ok());
    PORTS.cycle().skip(first).take(PORTS.len()).find(is_free).context("no TCP port is free")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn a_client_that_fails_before_it_connects_ends_the_server() {
        let begun = Instant::now();
        let error =
            outputs(shell("exec sleep 20"), shell("echo nichrome: no socket >&2; exit 1")).unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert_eq!(error.to_string(), "no socket");
    }

    #[test]
    fn a_client_that_is_killed_is_named_by_its_signal() {
        let error = outputs(shell("exec sleep 20"), shell("kill -KILL $$")).unwrap_err();
        assert_eq!(error.to_string(), "the client has ended: signal: 9 (SIGKILL)");
    }

    #[test]
    fn a_server_that_fails_after_its_client_is_reported_too() {
        let error =
            outputs(shell("sleep 0.1; echo lost >&2; exit 1"), shell("echo reset >&2; exit 1")).unwrap_err();
        assert_eq!(error.to_string(), "reset; lost");
    }

    #[test]
    fn both_ends_are_returned() {
        let outputs = outputs(shell("sleep 0.1; echo 1"), shell("echo 2")).unwrap();
        assert_eq!(outputs.map(|output| String::from_utf8(output.stdout).unwrap()), ["1\n", "2\n"]);
    }
}
