//! `nichrome`: a network card in software, on the command line.
#![forbid(unsafe_code)]

mod allocator;
mod bench;
mod bins;
mod capture_files;
mod chart;
mod coalesce;
mod completions;
mod connecting;
mod control;
mod copy_loop;
mod deadline;
mod demo;
mod distinct;
mod doctor;
mod duration;
mod engine_options;
mod failure;
mod headers;
mod http;
mod impairment_options;
mod links;
mod man;
#[cfg(test)]
mod named_commands;
mod named_values;
mod nic;
mod number;
mod page;
mod picture_file;
mod rdma;
mod recorder;
#[cfg(test)]
mod reference;
mod runtime_dir;
mod segment;
mod shared_device;
mod side;
mod signals;
mod sim;
mod threads;
mod toml_file;
mod wan;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::bench::Bench;
use crate::coalesce::Coalesce;
use crate::completions::Completions;
use crate::demo::Demo;
use crate::doctor::Doctor;
use crate::man::Man;
use crate::nic::{Nic, Top};
use crate::rdma::Rdma;
use crate::segment::Segment;
use crate::sim::Sim;
use crate::wan::Wan;

/// Accepts negative numbers as values of all options, so that an error names the invalid value instead of an
/// unknown option.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let allow = |option: clap::Arg| {
        let has_value = !option.is_positional() && option.get_action().takes_values();
        option.allow_negative_numbers(has_value)
    };
    command.mut_args(allow).mut_subcommands(with_negative_numbers)
}

const EXIT_STATUS: &str = "\
Exit status: 0 for success, 2 if the command line is wrong, 1 for any other failure, and 128 plus the signal's number if a signal \
interrupted the command; one that runs until Ctrl-C has 0 then. A command that runs a program has the program's status, 127 if the \
program is not found, and 126 if it cannot be executed.";

/// A network card in software.
#[derive(Parser)]
#[command(name = "nichrome", version, max_term_width = 100, after_help = EXIT_STATUS)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(Box<Demo>),
    #[command(subcommand)]
    Nic(Nic),
    Top(Top),
    Coalesce(Coalesce),
    Segment(Segment),
    Wan(Box<Wan>),
    #[command(subcommand)]
    Rdma(Rdma),
    #[command(subcommand)]
    Sim(Sim),
    #[command(subcommand)]
    Bench(Bench),
    Doctor(Doctor),
    Completions(Completions),
    Man(Man),
}

fn main() -> ExitCode {
    let parsed = with_negative_numbers(Arguments::command())
        .try_get_matches()
        .and_then(|matches| Arguments::from_arg_matches(&matches));
    let arguments = match parsed {
        Ok(arguments) => arguments,
        Err(error) => return failure::report_usage(&error, &Arguments::command()),
    };
    let done = match arguments.command {
        Command::Coalesce(coalesce) => coalesce.run().map(|()| ExitCode::SUCCESS),
        Command::Segment(segment) => segment.run().map(|()| ExitCode::SUCCESS),
        Command::Nic(nic) => nic.run(),
        Command::Top(top) => top.run().map(|()| ExitCode::SUCCESS),
        Command::Demo(demo) => demo.run().map(|()| ExitCode::SUCCESS),
        Command::Wan(wan) => wan.run(),
        Command::Rdma(rdma) => rdma.run(),
        Command::Sim(sim) => sim.run().map(|()| ExitCode::SUCCESS),
        Command::Bench(bench) => bench.run().map(|()| ExitCode::SUCCESS),
        Command::Doctor(doctor) => doctor.run(),
        Command::Completions(completions) => {
            completions.run(&Arguments::command()).map(|()| ExitCode::SUCCESS)
        }
        Command::Man(man) => man.run(Arguments::command()).map(|()| ExitCode::SUCCESS),
    };
    match done {
        Ok(status) => status,
        Err(error) => failure::report(&error),
    }
}
