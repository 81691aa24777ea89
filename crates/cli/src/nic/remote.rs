//! Commands for a card from another terminal: `nichrome nic stats` and `nichrome nic down`.

use std::io::{self, Write};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use nichrome_port::InterfaceName;

use super::claim::{self, ClaimState};
use super::control::Found;
use super::text::Text;
use super::{control, place};

/// Time that a card may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Time that a killed card's process may keep its claim after it has closed its socket.
const EXIT_TIME: Duration = Duration::from_secs(2);

/// Show a card's counters, per queue and in total.
#[derive(Args)]
pub(crate) struct Stats {
    /// The host interface of the card; not needed if there is only one card.
    #[arg(value_name = "NAME")]
    host: Option<InterfaceName>,
    /// Print the counters as one JSON object.
    #[arg(long)]
    json: bool,
}

/// Stop a card and restore its wire interface; also after the card was killed.
#[derive(Args)]
pub(crate) struct Down {
    /// The host interface of the card.
    #[arg(value_name = "NAME")]
    host: InterfaceName,
}

impl Stats {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let report = control::find(self.host)?.report()?;
        let text = if self.json { serde_json::to_string_pretty(&report)? } else { Text(&report).to_string() };
        writeln!(io::stdout(), "{}", text.trim_end()).context("cannot print the counters")
    }
}

impl Down {
    /// Returns after the card has restored everything.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let host = self.host.as_str();
        let until = Instant::now() + EXIT_TIME;
        while let Err(error) = control::find(Some(self.host)).and_then(Found::stop) {
            match claim::restore_for(host)? {
                ClaimState::Restored => return Ok(()),
                ClaimState::Locked if Instant::now() < until => thread::sleep(Duration::from_millis(5)),
                ClaimState::Locked | ClaimState::Absent => return Err(error),
            }
        }
        let socket = place::of_socket(host)?;
        let until = Instant::now() + STOP_TIMEOUT;
        while socket.exists() {
            if Instant::now() > until {
                bail!("the card behind {host} is still up after {} s", STOP_TIMEOUT.as_secs());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}
