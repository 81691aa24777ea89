//! A TCP stream of iperf3, as a baseline.

use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use nichrome_port::kill_with_parent;
use serde_json::Value;

/// The end of the stream that a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Server,
    Client,
}

fn command() -> Command {
    Command::new("iperf3")
}

/// Returns the version of iperf3.
pub(super) fn version() -> io::Result<String> {
    let output = command().arg("--version").output()?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    Ok(stdout.lines().next().unwrap_or("iperf3").to_owned())
}

/// The server's address, and the duration.
#[derive(Clone, Copy)]
pub(super) struct Stream<'a> {
    pub(super) server: &'a str,
    pub(super) port: u16,
    pub(super) seconds: &'a str,
}

impl Stream<'_> {
    /// Runs one stream from client to server; returns the received Gbit/s. `spawn` starts each end in its
    /// namespace.
    pub(super) fn measure(
        &self,
        spawn: impl Fn(End, &mut Command) -> anyhow::Result<Child>,
    ) -> anyhow::Result<f64> {
        let port = self.port.to_string();
        let start = |end, arguments: &[&str]| {
            let mut command = command();
            command.args(arguments).args(["--port", &port]).stdin(Stdio::null()).stdout(Stdio::piped());
            kill_with_parent(&mut command);
            spawn(end, &mut command)
        };
        // --forceflush: without it the message that it listens appears only at exit.
        let listening = ["--server", "--one-off", "--bind", self.server, "--forceflush"];
        let mut server = start(End::Server, &listening)?;
        let mut lines = BufReader::new(server.stdout.take().context("iperf3 has no output")?).lines();
        while !lines.next().context("iperf3's server does not listen")??.contains("listening") {}
        let client = start(End::Client, &["--client", self.server, "--time", self.seconds, "--json"])?;
        let printed = client.wait_with_output()?.stdout;
        let report: Value = serde_json::from_slice(&printed).context("unexpected report of iperf3")?;
        // A server whose client has failed waits for another client.
        let _ = server.kill();
        server.wait()?;
        match report.pointer("/end/sum_received/bits_per_second").and_then(Value::as_f64) {
            Some(bits_per_second) => Ok(bits_per_second / 1e9),
            None => bail!("iperf3: {}", report["error"].as_str().unwrap_or("its report has no throughput")),
        }
    }
}
