//! `nichrome rdma`: RDMA without RDMA hardware, kernel module or root.

mod bandwidth;
mod connect;
mod devices;
mod doctor;
mod environment;
mod growth;
mod latency;
mod links;
mod mounts;
mod options;
mod pingpong;
mod program;
mod rendezvous;
mod report;
mod run;
mod session;

use std::process::ExitCode;

use clap::Subcommand;

use self::bandwidth::Bandwidth;
use self::connect::Connect;
use self::devices::Devices;
use self::doctor::Doctor;
pub(crate) use self::environment::Libraries;
use self::latency::Latency;
use self::pingpong::PingPong;
use self::run::Run;

/// RDMA without RDMA hardware, kernel module or root.
#[derive(Subcommand)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Rdma {
    Run(Box<Run>),
    Devices(Devices),
    Doctor(Box<Doctor>),
    Pingpong(Box<PingPong>),
    Bw(Box<Bandwidth>),
    Lat(Box<Latency>),
    Connect(Box<Connect>),
}

const EXAMPLES: &str = "\
Examples:
  nichrome rdma run -- ibv_rc_pingpong -g 0                 an unmodified program
  nichrome rdma doctor -- ucx_perftest                      why a program finds no device
  nichrome rdma bw & nichrome rdma bw 127.0.0.1             two processes on this machine
  nichrome rdma lat --op read --size 4096 192.0.2.7         with 'nichrome rdma lat --ip 192.0.2.7' there
  nichrome rdma pingpong --loss 1% 192.0.2.7                the server may be libibverbs' ibv_rc_pingpong

Without a server's address, pingpong, bw, lat and connect run as the server. The two ends first connect over TCP. The client's \
options select the operation.";

impl Rdma {
    /// Runs the command.
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Run(run) => return run.run(),
            Self::Doctor(doctor) => return doctor.run(),
            Self::Devices(devices) => devices.run()?,
            Self::Pingpong(pingpong) => pingpong.run()?,
            Self::Bw(bandwidth) => bandwidth.run()?,
            Self::Lat(latency) => latency.run()?,
            Self::Connect(connect) => connect.run()?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
