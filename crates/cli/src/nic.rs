//! `nichrome nic`: the live card, between an interface and the kernel.

mod captures;
mod claim;
mod config_file;
mod control;
mod forwarding;
mod host_interface;
mod mark;
mod metrics;
mod place;
mod remote;
mod report;
mod session;
mod text;
mod top;
mod up;
mod wire;

use std::process::ExitCode;

use clap::Subcommand;

use self::remote::{Down, Stats};
pub(crate) use self::top::Top;
use self::up::Up;

const EXAMPLES: &str = "\
Examples:
  nichrome nic up --wire eth1 --host nic0            the kernel uses eth1 through nic0
  nichrome nic up --wire eth1 --host nic0 --profile npu --active-ack safe --queues 4
  nichrome nic up --config /etc/nichrome/eth1.toml   as the service nichrome-nic@eth1 does (dist/)
  nichrome nic stats --json
  nichrome nic down nic0";

/// A card between an interface and the kernel: coalesces received packets and segments sent ones.
#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Nic {
    /// Put a card between an interface and the kernel, until Ctrl-C or 'nichrome nic down'.
    Up(Box<Up>),
    Stats(Stats),
    Down(Down),
}

impl Nic {
    /// Runs the command.
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Up(up) => up.run(),
            Self::Stats(stats) => stats.run().map(|()| ExitCode::SUCCESS),
            Self::Down(down) => down.run().map(|()| ExitCode::SUCCESS),
        }
    }
}
