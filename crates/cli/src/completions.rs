//! `nichrome completions`: completion scripts for shells.

use std::io::{self, Write};

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::{Shell, generate};

/// Print a script that completes commands and options in a shell.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

const EXAMPLES: &str = "\
Examples:
  nichrome completions bash > ~/.local/share/bash-completion/completions/nichrome
  nichrome completions zsh > ~/.zfunc/_nichrome              with fpath+=(~/.zfunc) in ~/.zshrc
  nichrome completions fish > ~/.config/fish/completions/nichrome.fish";

impl Completions {
    /// Prints the script for `command`, the whole command line.
    pub(crate) fn run(&self, command: &Command) -> anyhow::Result<()> {
        let mut command = visible(command);
        let name = command.get_name().to_owned();
        let mut script = Vec::new();
        generate(self.shell, &mut command, name, &mut script);
        io::stdout().write_all(&script).context("cannot print the script")
    }
}

/// Returns a copy of a command for completion scripts, which would offer its hidden options and subcommands:
/// the copy has none.
fn visible(command: &Command) -> Command {
    let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set()).cloned();
    let subcommands = command.get_subcommands().filter(|command| !command.is_hide_set()).map(visible);
    let about = command.get_about().cloned().unwrap_or_default();
    let visible = Command::new(command.get_name().to_owned()).about(about);
    match command.get_version() {
        Some(version) => visible.version(version.to_owned()),
        None => visible,
    }
    .args(arguments)
    .subcommands(subcommands)
}
