//! The lifetime of a running path: ends with a program, a signal, or a failure of the path.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use nichrome_lab::Host;
use nichrome_port::Netlink;
use signal_hook::consts::{SIGCHLD, SIGINT};

use super::processes::{Activity, POLL_INTERVAL, Processes};
use super::programs::{self, Output, Program, Running, StandardOutput};
use crate::links::{self, Link};
use crate::side::Side;
use crate::{failure, signals};

/// Time after which a message reports that the right program waits for the left one to listen.
const LONG_WAIT: Duration = Duration::from_secs(10);

/// Time without activity after which a program counts as not about to listen.
const AT_REST: Duration = Duration::from_millis(500);

/// An event that may end the session.
enum Event {
    Signal(i32),
    LinksChanged,
    PathEnded,
}

/// A session. At its end, programs started in it are stopped with all their descendants.
pub(super) struct Session {
    events: Receiver<Event>,
    /// Keeps the channel open.
    sender: Sender<Event>,
}

impl Session {
    /// Starts a session: from now on signals end it instead of the process.
    pub(super) fn begin() -> anyhow::Result<Self> {
        let (sender, events) = mpsc::channel();
        let to = sender.clone();
        let signals = [signals::ending(), vec![SIGCHLD]].concat();
        signals::forward(&signals, move |signal| to.send(Event::Signal(signal)))?;
        Ok(Self { events, sender })
    }

    /// Returns a callback for the path's end.
    pub(super) fn path_ended(&self) -> impl Fn() + Clone + Send + use<> {
        let sender = self.sender.clone();
        move || drop(sender.send(Event::PathEnded))
    }

    /// Waits until a signal or the path ends the session. If one of the two interfaces goes down, waits until
    /// it is up again.
    ///
    /// # Errors
    /// One of the interfaces is gone.
    pub(super) fn wait_for_the_end(&mut self, mut links: [Link; 2]) -> anyhow::Result<ExitCode> {
        let to = self.sender.clone();
        links::watch(move || to.send(Event::LinksChanged))?;
        let netlink = Netlink::open()?;
        loop {
            // Interfaces may have changed before they were watched.
            for link in &mut links {
                link.update(&netlink)?;
            }
            match self.events.recv() {
                Ok(Event::Signal(SIGCHLD) | Event::LinksChanged) => {}
                Ok(Event::Signal(SIGINT)) => return Ok(ExitCode::SUCCESS),
                Ok(Event::Signal(signal)) => return Ok(signals::exit_code(signal)),
                Ok(Event::PathEnded) | Err(_) => {
                    links.iter_mut().try_for_each(|link| link.update(&netlink).map(drop))?;
                    return Ok(ExitCode::FAILURE);
                }
            }
        }
    }

    /// Runs programs on the left and right host. Returns the right program's exit status, or the shell's if
    /// there is no right program.
    pub(super) fn run(
        &mut self,
        hosts: &[Host; 2],
        programs: &[Option<(Program, Output)>; 2],
        standard_output: StandardOutput,
    ) -> anyhow::Result<ExitCode> {
        let processes = Processes::new();
        let mut running = [None, None];
        let result = self.start_and_wait(hosts, programs, standard_output, &processes, &mut running);
        let left = processes.stop();
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
        processes: &Processes,
        running: &mut [Option<Running>; 2],
    ) -> anyhow::Result<ExitCode> {
        let shell_decides = matches!(&programs[0], Some((Program::Shell, _)));
        let mut statuses = [None, None];
        if let Some((program, output)) = &programs[0] {
            running[0] = Some(program.start(&hosts[0], processes, *output, standard_output)?);
            if !shell_decides && let Some(status) = self.wait_until_ready(&hosts[0], processes)? {
                return Ok(status);
            }
            note_ends(running, &mut statuses, shell_decides)?;
        }
        if let Some((program, output)) = &programs[1] {
            running[1] = Some(program.start(&hosts[1], processes, *output, standard_output)?);
        }
        loop {
            note_ends(running, &mut statuses, shell_decides)?;
            match (shell_decides, statuses) {
                (true, [Some(shell), _]) if programs[1].is_none() => return Ok(exit_code(shell)),
                (true, [Some(_), right]) => return Ok(right.map_or(ExitCode::SUCCESS, exit_code)),
                (false, [_, Some(right)]) => return Ok(exit_code(right)),
                _ => {}
            }
            let event = self.events.recv().unwrap_or(Event::PathEnded);
            if let Some(status) = ended_by(&event, shell_decides, processes) {
                return Ok(status);
            }
        }
    }

    /// Waits until a program on `host` [listens](programs::anyone_listens), while it is active and likely to
    /// do so. Returns an exit status if an event ends the session meanwhile.
    fn wait_until_ready(&self, host: &Host, processes: &Processes) -> anyhow::Result<Option<ExitCode>> {
        let mut busy = Instant::now();
        let mut report_at = Some(busy + LONG_WAIT);
        while busy.elapsed() < AT_REST && !host.run(programs::anyone_listens)? {
            if report_at.take_if(|at| *at <= Instant::now()).is_some() {
                failure::notice(format_args!(
                    "nichrome: the left program is busy and does not listen yet; the right one waits for it"
                ));
            }
            match processes.activity() {
                Some(Activity::Busy) => busy = Instant::now(),
                Some(Activity::AtRest) => {}
                None => break,
            }
            if let Ok(event) = self.events.recv_timeout(POLL_INTERVAL)
                && let Some(status) = ended_by(&event, false, processes)
            {
                return Ok(Some(status));
            }
        }
        Ok(None)
    }
}

/// Returns the exit status if `event` ends the session.
fn ended_by(event: &Event, shell_decides: bool, processes: &Processes) -> Option<ExitCode> {
    match *event {
        Event::Signal(SIGCHLD) | Event::LinksChanged => None,
        // The shell is at the same terminal and handles Ctrl-C itself.
        Event::Signal(SIGINT) if shell_decides => None,
        Event::Signal(SIGINT) => {
            processes.wait_for_the_interrupted();
            Some(signals::exit_code(SIGINT))
        }
        Event::Signal(signal) => Some(signals::exit_code(signal)),
        Event::PathEnded => Some(ExitCode::FAILURE),
    }
}

/// Stores the exit statuses of programs that have ended.
fn note_ends(
    running: &mut [Option<Running>; 2],
    statuses: &mut [Option<ExitStatus>; 2],
    shell_decides: bool,
) -> anyhow::Result<()> {
    for ((running, status), side) in running.iter_mut().zip(statuses).zip(Side::BOTH) {
        if status.is_none()
            && let Some(running) = running
        {
            *status = running.ended()?;
            if let Some(status) = *status {
                judge(side, status, shell_decides)?;
            }
        }
    }
    Ok(())
}

/// Returns an error or warning for the end of the program on one side.
fn judge(side: Side, status: ExitStatus, shell_decides: bool) -> anyhow::Result<()> {
    if side == Side::Right || shell_decides || status.success() {
        return Ok(());
    }
    // A shell's exit statuses for a program that it could not start.
    let is_not_started = |code: &u8| [failure::NOT_FOUND, failure::NOT_EXECUTABLE].contains(code);
    if let Some(code) = status.code().and_then(|code| u8::try_from(code).ok()).filter(is_not_started) {
        let what = format!("the command on the left could not be started ({status})");
        return Err(failure::not_started(code, what));
    }
    failure::warn(format_args!("the command on the left ended with {status}"));
    Ok(())
}

/// Returns a program's exit status; 128 plus the signal that killed it, as shells do.
fn exit_code(status: ExitStatus) -> ExitCode {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitCode::from(code as u8),
        (None, Some(signal)) => signals::exit_code(signal),
        (None, None) => ExitCode::FAILURE,
    }
}
