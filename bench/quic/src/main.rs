//! A bulk transfer over QUIC (quinn) between two hosts with a card each, without and with packet loss, with
//! UDP coalescing off and on: throughput, the receiver's processor time, and datagrams in a packet to its
//! kernel.

mod measure;
mod transfer;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand, value_parser};

use crate::measure::{PathLoss, Row};

/// Measure QUIC through UDP coalescing, between two hosts on this machine. No root is needed
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    /// Packet loss in each direction, as for 'nichrome wan'; none is none. May be repeated
    #[arg(long, value_name = "LOSS", default_values = ["none", "0.1%", "1%"])]
    loss: Vec<PathLoss>,
    /// Measure everything N times, and report medians
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Seconds of a measurement
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = value_parser!(u64).range(1..=99))]
    seconds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What the processes of a transfer do.
#[derive(Subcommand)]
enum Role {
    #[command(hide = true)]
    Receive { address: SocketAddr, seconds: u64 },
    #[command(hide = true)]
    Send { address: SocketAddr },
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quic: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let Arguments { role, loss, rounds, seconds, json } = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match role {
        Some(Role::Receive { address, seconds }) => {
            return runtime.block_on(transfer::receive(address, Duration::from_secs(seconds)));
        }
        Some(Role::Send { address }) => return runtime.block_on(transfer::send(address)),
        None => {}
    }
    nichrome_port::gain_network_admin()?;
    let rows = measure::rows(&loss, rounds as usize, seconds)?;
    if json {
        println!("{}", serde_json::to_string(&rows)?);
    } else {
        println!("medians of {rounds} rounds\n\n{}", Row::HEADINGS);
        rows.iter().for_each(|row| println!("{row}"));
    }
    Ok(())
}
