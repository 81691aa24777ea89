//! What goes wrong, in one line on the standard error, and the exit status: 1, or 2 for a wrong command line.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::error::ErrorKind as ClapError;
use nichrome_port::capture::WriteError;

/// Options that do not go together.
#[derive(Debug)]
struct UsageError(String);

/// The error for options that do not go together.
pub(crate) fn usage(what: impl Into<String>) -> anyhow::Error {
    UsageError(what.into()).into()
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// Says that something is not as it should be, and goes on.
pub(crate) fn warn(what: fmt::Arguments<'_>) {
    say(format_args!("nichrome: warning: {what}"));
}

/// Reports why a command failed. A reader that has closed its end of a pipe wants no more, which is no failure.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if error.chain().any(is_broken_pipe) {
        return ExitCode::SUCCESS;
    }
    say(format_args!("nichrome: {error:#}"));
    if error.is::<UsageError>() { ExitCode::from(2) } else { ExitCode::FAILURE }
}

/// Reports what is wrong with the command line, or prints the help or the version that it asks for.
pub(crate) fn report_usage(error: &clap::Error) -> ExitCode {
    let help_wanted = matches!(error.kind(), ClapError::DisplayHelpOnMissingArgumentOrSubcommand);
    if !error.use_stderr() || help_wanted {
        let _ = error.print();
        return ExitCode::from(error.exit_code().unsigned_abs() as u8);
    }
    match error.kind() {
        ClapError::InvalidUtf8 => say(format_args!("nichrome: {}", not_text(env::args_os()))),
        _ => say(format_args!("nichrome: {}", one_line(error))),
    }
    ExitCode::from(2)
}

/// Names the arguments that are no UTF-8.
fn not_text(arguments: impl Iterator<Item = OsString>) -> String {
    let wrong = arguments.filter_map(|argument| argument.into_string().err());
    let wrong: Vec<_> = wrong.map(|argument| format!("'{}'", argument.display())).collect();
    format!("{}: not valid UTF-8", wrong.join(", "))
}

/// What is wrong with a command line, in one line.
pub(crate) fn one_line(error: &clap::Error) -> String {
    paragraphs_in_one_line(&error.render().to_string())
}

/// The paragraphs of clap's message that say what is wrong.
fn paragraphs_in_one_line(message: &str) -> String {
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let paragraphs = message.split("\n\n").take_while(|text| !text.starts_with("Usage:"));
    let told = paragraphs.filter(|text| !text.starts_with("For more information"));
    told.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join("; ")
}

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    let io_error = match error.downcast_ref::<WriteError>() {
        Some(WriteError::Io { error, .. }) => Some(error),
        _ => error.downcast_ref::<io::Error>(),
    };
    io_error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// Tells the person at the terminal something. Where that fails, there is nobody left to tell.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
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
        let told = "unexpected argument '--holt' found; tip: a similar argument exists: '--hold'";
        assert_eq!(paragraphs_in_one_line(unknown), told);
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let closed = || io::Error::from(ErrorKind::BrokenPipe);
        let writing = WriteError::Io { destination: "the standard output".into(), error: closed() };
        assert!(
            [closed().into(), anyhow::Error::from(writing).context("while writing")]
                .iter()
                .all(|error: &anyhow::Error| error.chain().any(is_broken_pipe))
        );
        assert!(!usage("no").chain().any(is_broken_pipe));
    }
}
