//! `nichrome completions`: completion scripts for shells.

use std::io::{self, Write};

use anyhow::Context;
use clap::Args;
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
    pub(crate) fn run(&self, mut command: clap::Command) -> anyhow::Result<()> {
        let name = command.get_name().to_owned();
        let mut script = Vec::new();
        generate(self.shell, &mut command, name, &mut script);
        io::stdout().write_all(&script).context("cannot print the script")
    }
}
