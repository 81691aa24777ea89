//! `nichrome rdma`: RDMA between two processes, without RDMA hardware, kernel module or root.

mod bandwidth;
mod latency;
mod options;
mod pingpong;
mod rendezvous;
mod report;
mod session;

use clap::Subcommand;

use self::bandwidth::Bandwidth;
use self::latency::Latency;
use self::pingpong::PingPong;

/// RDMA between two processes, without RDMA hardware, kernel module or root.
#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Rdma {
    Pingpong(Box<PingPong>),
    Bw(Box<Bandwidth>),
    Lat(Box<Latency>),
}

const EXAMPLES: &str = "\
Examples:
  nichrome rdma bw & nichrome rdma bw 127.0.0.1             two processes on this machine
  nichrome rdma lat --op read --size 4096 192.0.2.7         with 'nichrome rdma lat --ip 192.0.2.7' there
  nichrome rdma pingpong --loss 1% 192.0.2.7                a server of libibverbs' ibv_rc_pingpong will do

Without a server's address a command is the server. Server and client meet over TCP; the client decides what is done.";

impl Rdma {
    /// Runs the command.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Pingpong(pingpong) => pingpong.run(),
            Self::Bw(bandwidth) => bandwidth.run(),
            Self::Lat(latency) => latency.run(),
        }
    }
}
