//! `nichrome wan set` and `nichrome wan show`: change and query a running path from another terminal.

use std::io::{self, Write};

use anyhow::{Context, bail};
use clap::Args;

use super::control::{Answer, Request, ask};
use crate::failure;
use crate::impairment_options::ImpairmentOptions;
use crate::number;

/// Change the impairments of a running path. Others are unchanged; 'none' removes an impairment: --loss none.
/// Packets that the bottleneck has sent keep their delays; those in its queue are sent at the new rate, with
/// the new delay.
#[derive(Args)]
pub(super) struct Set {
    #[command(flatten)]
    impairments: ImpairmentOptions,
    /// The process ID of the 'nichrome wan', if several run.
    #[arg(long, value_name = "PID", value_parser = number::whole(1..=u32::MAX))]
    run: Option<u32>,
}

/// Show the impairments of a running path, and its results so far.
#[derive(Args)]
pub(super) struct Show {
    /// The process ID of the 'nichrome wan', if several run.
    #[arg(long, value_name = "PID", value_parser = number::whole(1..=u32::MAX))]
    run: Option<u32>,
    /// Print the results as one JSON object.
    #[arg(long)]
    json: bool,
}

impl Set {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let settings = self.impairments.settings()?;
        if settings.is_empty() {
            return Err(failure::usage("nothing to set: name an impairment, such as --loss 1%"));
        }
        settings.check()?;
        if let Some(what) = settings.likely_percent() {
            failure::warn(format_args!("{what}"));
        }
        match ask(self.run, &Request::Set(settings))? {
            Answer::Done(without_effect) => {
                if let Some(why) = without_effect {
                    failure::warn(format_args!("{why}"));
                }
                Ok(())
            }
            Answer::Error(error) => bail!("{error}"),
            Answer::Summary(_) | Answer::Host(_) => bail!("unexpected answer"),
        }
    }
}

impl Show {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        match ask(self.run, &Request::Show)? {
            Answer::Summary(summary) => {
                let text =
                    if self.json { serde_json::to_string_pretty(&summary)? } else { summary.to_string() };
                writeln!(io::stdout(), "{text}").context("cannot print the summary")
            }
            Answer::Error(error) => bail!("{error}"),
            Answer::Done(_) | Answer::Host(_) => bail!("unexpected answer"),
        }
    }
}
