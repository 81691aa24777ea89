//! Runs two processes of this program, each on its own processor.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Output, Stdio};
use std::{env, io};

use anyhow::{Context, bail};
use nichrome_port::die_with_parent;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;

use super::super::iperf3::{self, End};

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

    /// Returns true if both ends share the only processor.
    pub(crate) fn is_crowded(&self) -> bool {
        self.server == self.client
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
            die_with_parent(&mut command);
            self.spawn(end, &mut command)
        };
        let server = start(End::Server, server).context("cannot start another process of this program")?;
        let client = start(End::Client, client).context("cannot start another process of this program")?;
        let (client, server) = (client.wait_with_output()?, server.wait_with_output()?);
        for output in [&client, &server] {
            if !output.status.success() {
                let error = String::from_utf8_lossy(&output.stderr);
                bail!("{}", error.trim().trim_start_matches("nichrome: "));
            }
        }
        let value =
            |output: Output| serde_json::from_slice(&output.stdout).context("the result is not valid JSON");
        Ok([value(server), value(client)])
    }

    /// Measures one stream of iperf3 between the same processors, in Gbit/s.
    pub(super) fn iperf3(&self, seconds: &str) -> anyhow::Result<f64> {
        let stream = iperf3::Stream { server: "127.0.0.1", port: free_port()?, seconds };
        stream.measure(|end, command| self.spawn(end, command).context("cannot run iperf3"))
    }
}

/// Returns a TCP port that was free at the time of the call.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
