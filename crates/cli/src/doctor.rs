//! `nichrome doctor`: reports what this machine allows, which commands work, and remedies.

mod apparmor;
mod check;
mod command;
mod live_machine;
mod machine;
mod report;
mod trial;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use self::live_machine::LiveMachine;
use self::machine::Trial;
use self::report::Report;
use crate::failure;

/// Print what this machine allows, which commands work, and how to allow more.
#[derive(Args)]
#[command(after_help = NOTES)]
pub(crate) struct Doctor {
    /// Print one JSON object.
    #[arg(long, conflicts_with = "apparmor_profile")]
    json: bool,
    /// Print an AppArmor profile that allows user namespaces to this command's path.
    #[arg(long)]
    apparmor_profile: bool,
    /// Internal: perform a trial in this process.
    #[arg(long, hide = true)]
    attempt: Option<Trial>,
}

const NOTES: &str = "\
Namespaces, interfaces and sockets are tried in child processes, which leave nothing behind. 'nichrome rdma doctor' tells why
one program finds no RDMA device.

The exit status is 0 if all commands that need no root work, otherwise 1. A missing iperf3, which 'bench wan' needs, leaves
it 0.";

impl Doctor {
    /// Prints the report.
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if let Some(trial) = self.attempt {
            return trial::run(trial).map(|()| ExitCode::SUCCESS);
        }
        if self.apparmor_profile {
            let path = std::env::current_exe().context("cannot find this command's path")?;
            write!(io::stdout(), "{}", apparmor::profile(&path)?).context("cannot print the profile")?;
            return Ok(ExitCode::SUCCESS);
        }
        let report = Report::new(&LiveMachine);
        let text = if self.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.to_string() };
        let printed = write!(io::stdout(), "{text}").context("cannot print the report");
        let verdict = if report.works_without_root() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        failure::status_of(verdict, printed)
    }
}
