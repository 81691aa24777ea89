//! `nichrome bench star`: measures a server with many connections, stateless (StaR) and stateful (RoCE).

mod memory;
mod plot;
mod point;

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use self::memory::{Allocated, Parts};
use self::point::{Memory, Point, TRANSPORTS};
use super::figures::{figure, median, medians, rounded};
use super::output::OutputOptions;
use super::rdma::pair::Pair;
use super::transport::{STAR, Transport};
use crate::distinct::Distinct;
use crate::failure;
use crate::number::Grouped;
use crate::page::{Axis, Figure, Line, Page, Scale, Style};
use crate::picture_file::{self, PictureFile};

/// Measure a server with 1 to 100,000 connections between two processes on loopback, over StaR with a
/// stateless server and over RoCE: memory of both ends, throughput, latency. Each connection has a memory
/// region of its own. Takes some minutes.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  nichrome bench star --plot star.svg\n  nichrome bench star --quick --json"
)]
pub(crate) struct Star {
    #[command(flatten)]
    output: OutputOptions,
    /// Draw the results as an SVG figure.
    #[arg(long, value_name = "FILE.svg", value_parser = picture_file::svg())]
    plot: Option<PathBuf>,
    /// Measure each value once, briefly, with at most 1000 connections, to check that it works. The results
    /// are rough.
    #[arg(long)]
    quick: bool,
    /// Do not authenticate packets to the stateless server.
    #[arg(long)]
    no_authenticate: bool,
}

/// Numbers of connections, duration and repetitions of each measurement.
struct Plan {
    connections: &'static [u32],
    duration: &'static str,
    rounds: usize,
}

const FULL: Plan = Plan { connections: &[1, 10, 100, 1000, 10_000, 100_000], duration: "500ms", rounds: 3 };
const QUICK: Plan = Plan { connections: &[1, 100, 1000], duration: "50ms", rounds: 1 };

/// Connections in this process whose allocations are counted.
const COUNTED: usize = 10_000;

/// Medians of the rounds. The names of the fields are JSON keys.
#[derive(Serialize)]
struct Report {
    points: Vec<Point>,
    /// Memory that each connection allocates, by end and part.
    allocated: Vec<Allocated>,
    authenticated: bool,
    rounds: usize,
}

impl Star {
    pub(super) fn run(&self) -> anyhow::Result<()> {
        Distinct::default().write([("--plot", self.plot.as_deref()), self.output.page()])?;
        let plot = self.plot.as_deref().map(PictureFile::create).transpose()?;
        let output = self.output.open()?;
        picture_file::end_on_signals()?;
        let plan = if self.quick { &QUICK } else { &FULL };
        let report = self.measure(plan)?;
        // Writes both outputs even if one fails: the measurement takes minutes.
        let drawn = plot.map_or(Ok(()), |file| file.finish(&plot::draw(&report.points)?));
        let shown =
            output.finish("A server with many connections", &report, &report, |page| report.figures(page));
        failure::first_of([drawn, shown].into_iter().filter_map(Result::err))
    }

    fn measure(&self, plan: &Plan) -> anyhow::Result<Report> {
        let pair = Pair::new()?;
        pair.warn_if_crowded();
        let style = ProgressStyle::with_template("{bar:30} {pos} of {len}, {msg}");
        let progress = ProgressBar::new((plan.connections.len() * TRANSPORTS.len()) as u64)
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let mut points = Vec::new();
        for &connections in plan.connections {
            for Transport { name, server, client } in TRANSPORTS {
                progress.set_message(format!("{name}, {} connections", Grouped(u64::from(connections))));
                let more = if self.no_authenticate && name == STAR.name { " --no-authenticate" } else { "" };
                let run = Run { pair: &pair, server: &format!("{server}{more}"), client, plan, connections };
                points.push(run.point(name)?);
                progress.inc(1);
            }
        }
        progress.finish_and_clear();
        let allocated = TRANSPORTS.map(|transport| memory::measure(transport.name, COUNTED));
        let allocated = allocated.into_iter().collect::<anyhow::Result<_>>()?;
        Ok(Report { points, allocated, authenticated: !self.no_authenticate, rounds: plan.rounds })
    }
}

impl Report {
    fn figures(&self, page: &mut Page) -> anyhow::Result<()> {
        let mut figure = |title: &str, y: Axis, value: fn(&Point) -> f64| {
            let line = |transport: Transport| {
                let points = self.points.iter().filter(|point| point.transport == transport.name);
                let points = points.map(|point| (f64::from(point.connections), value(point)));
                Line::new(transport.name, Style::Line, points)
            };
            page.figure(&Figure {
                title: title.into(),
                x: Axis::new("connections", Scale::Log10),
                y,
                lines: TRANSPORTS.map(line).into(),
            })
        };
        let bytes = Axis::new("bytes", Scale::Log10);
        figure("Connection state on its card", bytes, |point| point.card_state_bytes.max(1) as f64)?;
        figure("64 KB WRITEs to it", Axis::linear("Gbit/s"), |point| point.gbps)?;
        figure("8-byte WRITEs to it", Axis::linear("operations per second"), |point| point.messages_per_s)?;
        figure("8-byte WRITE, one at a time", Axis::linear("µs"), |point| point.latency_us)
    }
}

/// The measurement of one point.
struct Run<'a> {
    pair: &'a Pair,
    server: &'a str,
    client: &'a str,
    plan: &'a Plan,
    connections: u32,
}

impl Run<'_> {
    fn point(&self, transport: &'static str) -> anyhow::Result<Point> {
        let (mut gbps, mut messages, mut latency) = (Vec::new(), Vec::new(), Vec::new());
        let (mut card_state_bytes, mut memory) = (0, None);
        for _ in 0..self.plan.rounds {
            let [server, client] = self.writes(65_536, 128)?;
            gbps.push(figure(&client, "gbps")?);
            card_state_bytes = figure(&server, "card_state_bytes")? as u64;
            memory = Memory::of(&server, &client);
            messages.push(figure(&self.writes(8, 128)?[1], "messages_per_s")?);
            latency.push(1e6 / figure(&self.writes(8, 1)?[1], "messages_per_s")?);
        }
        Ok(Point {
            transport,
            connections: self.connections,
            card_state_bytes,
            memory,
            gbps: rounded(median(gbps)),
            messages_per_s: median(messages).round(),
            latency_us: rounded(median(latency)),
        })
    }

    /// Runs WRITEs from the client and returns the JSON of server and client.
    fn writes(&self, size: u32, depth: u16) -> anyhow::Result<[serde_json::Value; 2]> {
        let Self { pair, server, client, plan, connections } = self;
        let duration = plan.duration;
        let client = format!(
            "rdma bw --json --regions --size {size} --depth {depth} --qps {connections} --duration {duration} {client} 127.0.0.1"
        );
        let [server, client] = pair.run_both(&format!("rdma bw --json {server}"), &client)?;
        Ok([server?, client?])
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.authenticated { "" } else { ", StaR's packets not authenticated" };
        writeln!(f, "a server on loopback, {}{how}\n", medians(self.rounds, "round", "rounds"))?;
        write!(
            f,
            "{:<6} {:>11} {:>13} {:>15} {:>15} {:>8} {:>12} {:>9}",
            "",
            "connections",
            "card (bytes)",
            "server (each)",
            "client (each)",
            "Gbit/s",
            "8 B WRITEs/s",
            "8 B (us)"
        )?;
        for point in &self.points {
            let Point { transport, connections, card_state_bytes, gbps, messages_per_s, latency_us, .. } =
                point;
            let resident = |bytes: fn(&Memory) -> u64| {
                point
                    .memory
                    .as_ref()
                    .map_or_else(|| "-".to_owned(), |memory| Grouped(bytes(memory)).to_string())
            };
            let (server, client) = (resident(|memory| memory.server), resident(|memory| memory.client));
            let (connections, card) = (Grouped(u64::from(*connections)), Grouped(*card_state_bytes));
            let messages = Grouped(*messages_per_s as u64);
            write!(
                f,
                "\n{transport:<6} {:>11} {:>13} {server:>15} {client:>15} {gbps:>8.2} {:>12} {latency_us:>9.2}",
                connections.to_string(),
                card.to_string(),
                messages.to_string()
            )?;
        }
        write!(f, "\n\nallocated for each connection (bytes)\n")?;
        write!(
            f,
            "\n{:<14} {:>8} {:>11} {:>13} {:>8}",
            "", "region", "queue pair", "64 KB WRITEs", "in all"
        )?;
        for Allocated { transport, server, client, .. } in &self.allocated {
            for (end, parts) in [("server", server), ("client", client)] {
                let Parts { region, queue_pair, traffic } = parts;
                write!(
                    f,
                    "\n{:<14} {region:>8} {queue_pair:>11} {traffic:>13} {:>8}",
                    format!("{transport}, {end}"),
                    parts.total()
                )?;
            }
        }
        for Allocated { transport, connections, answer_queue, .. } in &self.allocated {
            let (queue, connections) = (Grouped(answer_queue.unsigned_abs()), Grouped(*connections as u64));
            write!(
                f,
                "\n{transport}: {queue} bytes for answers that wait, one of each of {connections} connections"
            )?;
        }
        Ok(())
    }
}
