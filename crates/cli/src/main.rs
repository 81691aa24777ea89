//! `nichrome`: a network card in software, on the command line.
#![forbid(unsafe_code)]

mod bench;
mod coalesce;
mod duration;
mod engine_options;
mod failure;
mod headers;
mod number;

use std::alloc::System;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use crate::bench::Bench;
use crate::coalesce::Coalesce;

/// Counts allocations, for `nichrome bench lro`.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// A network card in software.
#[derive(Parser)]
#[command(name = "nichrome", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Coalesce(Coalesce),
    #[command(subcommand)]
    Bench(Bench),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return failure::report_usage(&error),
    };
    let done = match arguments.command {
        Command::Coalesce(coalesce) => coalesce.run(),
        Command::Bench(bench) => bench.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
