//! `nichrome wan exec`: runs another program on a host of a running path.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::bail;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use nichrome_lab::variables;
use nichrome_port::NetworkNamespace;

use super::control::{Answer, Request, ask};
use super::programs::expand;
use crate::failure;
use crate::number;
use crate::side::Side;

/// Run a program on a host of a running path. If the path ends first, the program continues without a
/// connection.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Exec {
    /// The process ID of the 'nichrome wan', if several run.
    #[arg(long, value_name = "PID", value_parser = number::whole(1..=u32::MAX))]
    run: Option<u32>,
    /// The host: left or right.
    #[arg(value_parser = PossibleValuesParser::new(Side::BOTH.map(Side::name)).try_map(|name| name.parse::<Side>()))]
    host: Side,
    /// The program and its arguments; $PEER and the other variables are replaced.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  nichrome wan exec right -- ping -c 3 '$PEER'
  nichrome wan exec --run 4711 left -- sh

The exit status is the program's.";

impl Exec {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let host = match ask(self.run, &Request::Host(self.host))? {
            Answer::Host(host) => host,
            Answer::Error(error) => bail!("{error}"),
            Answer::Done(_) | Answer::Summary(_) => bail!("unexpected answer"),
        };
        let variables = variables(self.host, host.has_ipv6);
        let mut words = self.command.iter().map(|word| expand(word, &variables));
        let program = words.next().unwrap_or_default();
        let mut command = Command::new(&program);
        command.args(words).envs(variables);
        // Joining a namespace requires a single-threaded process.
        NetworkNamespace::join(host.pid, host.namespace)?;
        // exec returns only if it fails.
        let error = command.exec();
        Err(failure::not_executed(error, format!("cannot run '{}'", program.display())))
    }
}
