//! `nichrome man`: manual pages generated from the text of `--help`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Command};

use crate::failure;

/// Print the manual page, or write the pages of all commands to a folder.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Man {
    /// The folder, created if it does not exist. Each page is a file such as nichrome-wan-set.1.
    #[arg(value_name = "FOLDER")]
    directory: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  nichrome man | man -l -
  nichrome man ~/.local/share/man/man1 && man nichrome-wan";

impl Man {
    /// Prints or writes the pages of `command`, the whole command line.
    pub(crate) fn run(&self, command: Command) -> anyhow::Result<()> {
        let mut command = command.disable_help_subcommand(true);
        // Makes subcommands' synopses begin with the whole command line.
        command.build();
        let Some(directory) = &self.directory else {
            return io::stdout().write_all(&page(command)?).context("cannot print the page");
        };
        if let Some(name) = directory.to_str().filter(|name| command.find_subcommand(name).is_some()) {
            let meant =
                format!("'{name}' is a command, whose page is its --help; a folder of this name is ./{name}");
            return Err(failure::usage(meant));
        }
        fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
        write(directory, command)
    }
}

/// Writes the page of `command` and those of the commands below it.
fn write(directory: &Path, command: Command) -> anyhow::Result<()> {
    let below: Vec<Command> =
        command.get_subcommands().filter(|below| !below.is_hide_set()).cloned().collect();
    below.into_iter().try_for_each(|below| write(directory, below))?;
    let file = directory.join(format!("{}.1", page_name(&command)));
    fs::write(&file, page(command)?).with_context(|| format!("cannot write {}", file.display()))
}

/// Returns the name of a command's page: `nichrome-wan-set`.
fn page_name(command: &Command) -> String {
    command.get_display_name().unwrap_or(command.get_name()).to_owned()
}

fn page(command: Command) -> anyhow::Result<Vec<u8>> {
    let mut page = Vec::new();
    let title = page_name(&command);
    // The build date would make builds of the same source differ.
    let source = format!("Nichrome {}", env!("CARGO_PKG_VERSION"));
    let man = clap_mangen::Man::new(command).title(title.to_uppercase()).source(source).manual("Nichrome");
    man.render(&mut page).context("cannot generate the page")?;
    Ok(page)
}
