//! Error reporting: one line on standard error, and the exit status: 1, 2 for a usage error, 126 or 127 for a
//! program that cannot be started.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind as ClapError};
use nichrome_port::capture::WriteError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::signals;

/// An invalid combination of options.
#[derive(Debug)]
struct UsageError(String);

/// Returns the error for an invalid combination of options.
pub(crate) fn usage(what: impl Into<String>) -> anyhow::Error {
    UsageError(what.into()).into()
}

/// Makes an error a usage error, with its causes in its text.
pub(crate) fn as_usage(error: impl Into<anyhow::Error>) -> anyhow::Error {
    usage(format!("{:#}", error.into()))
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// A signal has ended the command before the end of its input.
#[derive(Debug)]
struct Interrupted {
    signal: i32,
    what: String,
}

/// Returns the error for a command that a signal has ended; `what` describes the work done by then.
pub(crate) fn interrupted(signal: i32, what: String) -> anyhow::Error {
    Interrupted { signal, what }.into()
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interrupted: {}", self.what)
    }
}

impl std::error::Error for Interrupted {}

/// The exit status for a program that is not found, and for one that cannot be executed (POSIX, Shell Command
/// Language 2.8.2).
pub(crate) const NOT_FOUND: u8 = 127;
pub(crate) const NOT_EXECUTABLE: u8 = 126;

/// The command's program has not been started.
#[derive(Debug)]
struct NotStarted {
    status: u8,
    what: String,
}

/// Returns the error for a program that has not been started, with the exit status.
pub(crate) fn not_started(status: u8, what: String) -> anyhow::Error {
    NotStarted { status, what }.into()
}

/// Returns the error for a program that fork(2) or exec(2) could not start. The exit status blames the
/// program unless a resource is exhausted.
pub(crate) fn not_executed(error: io::Error, what: String) -> anyhow::Error {
    let status = match Errno::from_io_error(&error) {
        Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE) => {
            return anyhow::Error::from(error).context(what);
        }
        Some(Errno::NOENT) => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    };
    anyhow::Error::from(error).context(NotStarted { status, what })
}

impl fmt::Display for NotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for NotStarted {}

/// Prints a warning.
pub(crate) fn warn(what: fmt::Arguments<'_>) {
    notice_escaped(format_args!("nichrome: warning: {what}"));
}

/// Returns the first of several errors; warns about the others.
pub(crate) fn first_of(mut errors: impl Iterator<Item = anyhow::Error>) -> anyhow::Result<()> {
    let Some(first) = errors.next() else { return Ok(()) };
    errors.for_each(|error| warn(format_args!("{error:#}")));
    Err(first)
}

/// Reports a command's error and returns its exit status: for a signal 128 plus its number. An output pipe
/// that its reader has closed is no error; a connection that its peer has closed is one.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if is_closed_output(error, io::stdout().as_fd()) {
        return ExitCode::SUCCESS;
    }
    notice_escaped(format_args!("nichrome: {error:#}"));
    if let Some(Interrupted { signal, .. }) = error.downcast_ref() {
        return signals::exit_code(*signal);
    }
    match error.downcast_ref() {
        Some(NotStarted { status, .. }) => ExitCode::from(*status),
        None if error.is::<UsageError>() => ExitCode::from(2),
        None => ExitCode::FAILURE,
    }
}

/// Returns the exit status of a command whose work has ended with `status`. If the work has failed, its
/// status takes precedence: an error in `written` is only reported, and a closed output pipe is no success.
pub(crate) fn status_of(status: ExitCode, written: anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    match written {
        Err(error) if status != ExitCode::SUCCESS => {
            report(&error);
            Ok(status)
        }
        written => written.map(|()| status),
    }
}

/// Reports a usage error, or prints the requested help or version. If an unknown subcommand has no similar
/// name, the message lists the subcommands of `command`.
pub(crate) fn report_usage(error: &clap::Error, command: &clap::Command) -> ExitCode {
    let help_wanted = matches!(error.kind(), ClapError::DisplayHelpOnMissingArgumentOrSubcommand);
    if !error.use_stderr() || help_wanted {
        return match error.print() {
            Err(why) if why.kind() != ErrorKind::BrokenPipe => {
                let what = if error.kind() == ClapError::DisplayVersion { "version" } else { "help" };
                notice(format_args!("nichrome: cannot print the {what}: {why}"));
                ExitCode::FAILURE
            }
            _ => ExitCode::from(error.exit_code().unsigned_abs() as u8),
        };
    }
    match error.kind() {
        ClapError::InvalidUtf8 => notice_escaped(format_args!("nichrome: {}", not_utf8(env::args_os()))),
        ClapError::InvalidSubcommand if error.get(ContextKind::SuggestedSubcommand).is_none() => {
            let names = subcommands(command, env::args_os().skip(1)).join(", ");
            notice_escaped(format_args!("nichrome: {}; there are: {names}", one_line(error)));
        }
        _ => notice_escaped(format_args!("nichrome: {}", one_line(error))),
    }
    ExitCode::from(2)
}

/// Names the subcommands that may follow the arguments, without hidden ones.
fn subcommands(command: &clap::Command, arguments: impl Iterator<Item = OsString>) -> Vec<&str> {
    let named =
        arguments.fold(command, |command, argument| command.find_subcommand(argument).unwrap_or(command));
    let shown = named.get_subcommands().filter(|command| !command.is_hide_set());
    shown.map(clap::Command::get_name).collect()
}

/// Names the arguments that are not valid UTF-8.
fn not_utf8(arguments: impl Iterator<Item = OsString>) -> String {
    let wrong = arguments.filter_map(|argument| argument.into_string().err());
    let wrong: Vec<_> = wrong.map(|argument| format!("'{}'", argument.display())).collect();
    format!("{}: not valid UTF-8", wrong.join(", "))
}

/// Returns a usage error in one line.
pub(crate) fn one_line(error: &clap::Error) -> String {
    paragraphs_in_one_line(&error.render().to_string())
}

/// Joins the paragraphs of clap's message that describe the error. Leaves out the tip to pass a mistyped
/// option as a value.
fn paragraphs_in_one_line(message: &str) -> String {
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let paragraphs = message.split("\n\n").take_while(|text| !text.starts_with("Usage:"));
    // Several tips are lines of one paragraph.
    let parts = paragraphs.flat_map(|paragraph| paragraph.split("\n  tip: ").enumerate());
    let described = parts.filter_map(|(number, text)| {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = if number == 0 { text } else { format!("tip: {text}") };
        let is_no_help = ["For more information", "tip: to pass '"].iter().any(|no| text.starts_with(no));
        (!is_no_help).then_some(text)
    });
    described.collect::<Vec<_>>().join("; ")
}

/// Returns true if the error is that the reader of an output file or of `standard_output` has closed its
/// pipe. EPIPE alone may also be a socket's.
fn is_closed_output(error: &anyhow::Error, standard_output: BorrowedFd<'_>) -> bool {
    let is_broken = |error: &io::Error| error.kind() == ErrorKind::BrokenPipe;
    error.chain().any(|cause| match cause.downcast_ref::<WriteError>() {
        Some(WriteError::Io { error, .. }) => is_broken(error),
        _ => cause.downcast_ref().is_some_and(is_broken) && has_no_reader(standard_output),
    })
}

/// Returns true if the other end of a pipe or socket is closed.
fn has_no_reader(output: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(output, PollFlags::empty())];
    let ready = poll(&mut polled, Some(&Timespec::default()));
    ready.is_ok() && polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
}

/// Prints a line on standard error; ignores write errors.
pub(crate) fn notice(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// As [`notice`], with control characters escaped: those in a file's name could start another line or control
/// the terminal.
fn notice_escaped(line: fmt::Arguments<'_>) {
    notice(format_args!("{}", escaped(&line.to_string())));
}

fn escaped(line: &str) -> String {
    line.chars().fold(String::new(), |mut escaped, character| {
        match character.is_control() {
            true => escaped.extend(character.escape_default()),
            false => escaped.push(character),
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claps_messages_become_one_line() {
        let missing = "error: the following required arguments were not provided:\n  <IN>\n\n\
                       Usage: nichrome coalesce <IN> [OUT]\n\nFor more information, try '--help'.\n";
        assert_eq!(
            paragraphs_in_one_line(missing),
            "the following required arguments were not provided: <IN>"
        );
        let unknown = "error: unexpected argument '--holt' found\n\n  \
                       tip: a similar argument exists: '--hold'\n\nUsage: nichrome";
        let expected = "unexpected argument '--holt' found; tip: a similar argument exists: '--hold'";
        assert_eq!(paragraphs_in_one_line(unknown), expected);
        let dash = "error: unexpected argument '-o' found\n\n  tip: to pass '-o' as a value, use '-- -o'\n\nUsage: nichrome";
        assert_eq!(paragraphs_in_one_line(dash), "unexpected argument '-o' found");
        let both = "error: unexpected argument '--dealy' found\n\n  tip: a similar argument exists: '--delay'\n  \
                    tip: to pass '--dealy' as a value, use '-- --dealy'\n\nUsage: nichrome";
        let expected = "unexpected argument '--dealy' found; tip: a similar argument exists: '--delay'";
        assert_eq!(paragraphs_in_one_line(both), expected);
    }

    #[test]
    fn a_name_with_control_characters_neither_begins_a_line_nor_commands_the_terminal() {
        assert_eq!(escaped("no\nfile\u{1b}[2J: Größe"), "no\\nfile\\u{1b}[2J: Größe");
    }

    #[test]
    fn subcommands_are_those_of_the_command_that_the_arguments_name() {
        let sim =
            clap::Command::new("sim").subcommands([clap::Command::new("run"), clap::Command::new("list")]);
        let sim = sim.subcommand(clap::Command::new("internal").hide(true));
        let all = clap::Command::new("nichrome").subcommands([sim, clap::Command::new("wan")]);
        let after = |arguments: &[&str]| subcommands(&all, arguments.iter().map(OsString::from)).join(" ");
        assert_eq!(after(&["wna"]), "sim wan");
        assert_eq!(after(&["sim", "walk"]), "run list");
    }

    #[test]
    fn a_closed_output_pipe_is_no_failure_and_a_closed_connection_is_one() {
        let closed = || io::Error::from(ErrorKind::BrokenPipe);
        let writing = WriteError::Io { destination: "out.pcapng".into(), error: closed() };
        let (reader, output) = io::pipe().unwrap();
        let sending: anyhow::Error = closed().into();
        let writing = anyhow::Error::from(writing).context("while writing");
        assert!(!is_closed_output(&sending, output.as_fd()), "the output has a reader");
        assert!(is_closed_output(&writing, output.as_fd()));
        drop(reader);
        assert!(is_closed_output(&sending, output.as_fd()));
        assert!(!is_closed_output(&usage("no"), output.as_fd()));
    }
}
