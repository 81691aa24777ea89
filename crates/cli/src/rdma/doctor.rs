//! `nichrome rdma doctor`: diagnoses why a program does not open the device.

mod diagnosis;
mod observation;

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use anyhow::Context;
use clap::Args;
use nichrome_abi::configuration::DOCTOR;
use rustix::io;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use self::diagnosis::diagnose;
use self::observation::Observation;
use super::run::Run;
use crate::{failure, signals};

/// Run a program as 'nichrome rdma run' does, record the verbs and device paths that it uses, and print why
/// it does not open the device.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Doctor {
    #[command(flatten)]
    run: Run,
}

const EXAMPLES: &str = "\
Examples:
  nichrome rdma doctor -- ucx_info -d
  nichrome rdma doctor -- python3 train.py

The report goes to standard error. The exit status is 0 if the program opened the device, 1 if not.";

impl Doctor {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let mut command = self.run.command()?;
        let linkage = self.run.file()?.check()?;
        self.run.show_device()?;
        let folder = tempfile::tempdir().context("cannot create a folder for the records")?;
        let (log, loader) = (folder.path().join("calls"), folder.path().join("loaded"));
        File::create(&log).context("cannot create the record")?;
        command.env(DOCTOR, &log).env("LD_DEBUG", "libs").env("LD_DEBUG_OUTPUT", &loader);
        let cannot_run = format!("cannot run {}", self.run.name().display());
        let started = Arc::new(OnceLock::new());
        pass_signals(Arc::clone(&started))?;
        let mut program =
            command.spawn().map_err(|error| failure::not_executed(error, cannot_run.clone()))?;
        let watched = pidfd_open(Pid::from_child(&program), PidfdFlags::empty());
        started.get_or_init(|| watched);
        let ended = program.wait().context(cannot_run)?;
        let mut observation = Observation::default();
        observation.read_calls(&fs::read_to_string(&log).context("cannot read the record")?);
        for entry in fs::read_dir(folder.path())? {
            let path = entry?.path();
            let pid = path.extension().and_then(|pid| pid.to_str()).and_then(|pid| pid.parse().ok());
            if let Some(pid) = pid {
                observation.read_loaded(pid, &String::from_utf8_lossy(&fs::read(&path)?));
            }
        }
        let libraries = self.run.libraries()?;
        let diagnosis = diagnose(&observation, linkage, libraries.folder());
        for line in &diagnosis.lines {
            failure::notice(format_args!("{line}"));
        }
        if let Some(signal) = ended.signal() {
            failure::notice(format_args!("Signal {signal} ended the program."));
        }
        Ok(if diagnosis.device_opened { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Passes signals to the program, once it has started. They do not end this command, which still prints the
/// report.
fn pass_signals(program: Arc<OnceLock<io::Result<OwnedFd>>>) -> anyhow::Result<()> {
    signals::forward_without_keys(&signals::ending_or_quitting(), move |signal| {
        let program = program.wait().as_ref().map_err(|error| *error)?;
        Signal::from_named_raw(signal).map_or(Ok(()), |signal| pidfd_send_signal(program, signal))
    })
}
