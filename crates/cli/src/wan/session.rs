//! The time in which a path is in use: it ends with a program, with a signal, or because the path fails.

use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::sync::mpsc::{self, Receiver, Sender};

use anyhow::bail;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use super::host::Host;
use super::programs::{self, Output, Program, Running, StandardOutput};
use super::side::Side;
use crate::{failure, signals};

/// What the shell's exit status is when it cannot run a command (POSIX, Shell Command Language 2.8.2).
const NOT_STARTED: [i32; 2] = [126, 127];

/// Something that may end the session.
enum Event {
    Signal(i32),
    PathEnded,
}

/// A session. Programs that were started in it are stopped when it ends, with all that they have started.
pub(super) struct Session {
    events: Receiver<Event>,
    /// Keeps the channel open.
    sender: Sender<Event>,
}

impl Session {
    /// From now on, signals end the session instead of the process.
    pub(super) fn begin() -> anyhow::Result<Self> {
        programs::adopt_orphans();
        let (sender, events) = mpsc::channel();
        let to = sender.clone();
        signals::forward(&[SIGINT, SIGTERM, SIGHUP, SIGCHLD], move |signal| {
            to.send(Event::Signal(signal)).map_or(ControlFlow::Break(()), ControlFlow::Continue)
        })?;
        Ok(Self { events, sender })
    }

    /// What is to be called when the path ends by itself.
    pub(super) fn path_ended(&self) -> impl Fn() + Clone + Send + use<> {
        let sender = self.sender.clone();
        move || drop(sender.send(Event::PathEnded))
    }

    /// Waits until a signal or the path ends the session.
    pub(super) fn wait_for_the_end(&mut self) -> anyhow::Result<ExitCode> {
        loop {
            match self.events.recv() {
                Ok(Event::Signal(SIGCHLD)) => {}
                Ok(Event::Signal(SIGINT)) => return Ok(ExitCode::SUCCESS),
                Ok(Event::Signal(signal)) => return Ok(signals::exit_code(signal)),
                Ok(Event::PathEnded) | Err(_) => return Ok(ExitCode::FAILURE),
            }
        }
    }

    /// Runs programs on the left host and the right one. The right one's exit status is the result.
    pub(super) fn run(
        &mut self,
        hosts: &[Host; 2],
        programs: &[Option<(Program, Output)>; 2],
        standard_output: StandardOutput,
    ) -> anyhow::Result<ExitCode> {
        let mut running = [None, None];
        let result = self.start_and_wait(hosts, programs, standard_output, &mut running);
        let left = programs::stop_all();
        if left.is_empty() {
            running.into_iter().flatten().for_each(Running::print_the_rest);
        } else {
            let pids = left.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            failure::warn(format_args!("these processes cannot be stopped: {pids}"));
        }
        result
    }

    fn start_and_wait(
        &mut self,
        hosts: &[Host; 2],
        programs: &[Option<(Program, Output)>; 2],
        standard_output: StandardOutput,
        running: &mut [Option<Running>; 2],
    ) -> anyhow::Result<ExitCode> {
        let [left, right] = Side::BOTH;
        if let Some((program, output)) = &programs[0] {
            running[0] = Some(program.start(&hosts[0], left, *output, standard_output)?);
            if matches!(program, Program::Line(_)) {
                programs::wait_until_listening(&hosts[0])?;
            }
        }
        if let Some((program, output)) = &programs[1] {
            running[1] = Some(program.start(&hosts[1], right, *output, standard_output)?);
        }
        let shell_decides = matches!(&programs[0], Some((Program::Shell, _)));
        let mut statuses = [None, None];
        loop {
            for ((running, status), side) in running.iter_mut().zip(&mut statuses).zip(Side::BOTH) {
                if status.is_none()
                    && let Some(running) = running
                {
                    *status = running.ended()?;
                    if let Some(status) = *status {
                        judge(side, status, shell_decides)?;
                    }
                }
            }
            match (shell_decides, statuses) {
                (true, [Some(_), right]) => return Ok(right.map_or(ExitCode::SUCCESS, exit_code)),
                (false, [_, Some(right)]) => return Ok(exit_code(right)),
                _ => {}
            }
            match self.events.recv() {
                Ok(Event::Signal(SIGCHLD)) => {}
                // The shell's own business: it is at the same terminal.
                Ok(Event::Signal(SIGINT)) if shell_decides => {}
                Ok(Event::Signal(SIGINT)) => {
                    programs::wait_for_the_interrupted();
                    return Ok(signals::exit_code(SIGINT));
                }
                Ok(Event::Signal(signal)) => return Ok(signals::exit_code(signal)),
                Ok(Event::PathEnded) | Err(_) => return Ok(ExitCode::FAILURE),
            }
        }
    }
}

/// What the end of a program on one side means for the whole.
fn judge(side: Side, status: ExitStatus, shell_decides: bool) -> anyhow::Result<()> {
    if side == Side::Right || shell_decides || status.success() {
        return Ok(());
    }
    if status.code().is_some_and(|code| NOT_STARTED.contains(&code)) {
        bail!("the command on the left could not be started ({status})");
    }
    failure::warn(format_args!("the command on the left ended with {status}"));
    Ok(())
}

/// A program's exit status as our own: 128 and the signal that killed it, as shells do.
fn exit_code(status: ExitStatus) -> ExitCode {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitCode::from(code as u8),
        (None, Some(signal)) => signals::exit_code(signal),
        (None, None) => ExitCode::FAILURE,
    }
}
