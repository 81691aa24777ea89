//! `nichrome bench rdma --connect`: connections by address and port over RoCE, StaR, iWARP and TCP.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::super::figures::{figure, median, medians, rounded};
use super::super::transport::{IWARP, ROCE, STAR, Transport};
use super::measurement::progress;
use super::pair::Pair;
use crate::number::Grouped;
use crate::page::{Axis, Figure, Line, Page, Style};

const TRANSPORTS: [Transport; 3] = [ROCE, STAR, IWARP];

/// Numbers of connections and repetitions.
pub(super) struct ConnectionPlan {
    rounds: usize,
    /// Connections set up one at a time.
    in_turn: u32,
    /// Connections set up, [`AT_A_TIME`] of them at once.
    together: u32,
    /// Connections open at once.
    standing: u32,
}

/// Number of concurrent set-ups in the measurement of the rate.
const AT_A_TIME: u32 = 16;

impl ConnectionPlan {
    pub(super) const FULL: Self = Self { rounds: 5, in_turn: 1000, together: 4000, standing: 10_000 };

    /// Few connections, for a rough check.
    pub(super) const QUICK: Self = Self { rounds: 1, in_turn: 50, together: 100, standing: 1000 };
}

/// Medians of the rounds. The names of the fields are JSON keys.
#[derive(Serialize)]
pub(super) struct Connections {
    transports: Vec<Figures>,
    /// Number of concurrent set-ups in the measurement of the rate.
    parallel: u32,
    /// Connections open at once.
    standing: u32,
    rounds: usize,
}

/// The results of a transport. The names of the fields are JSON keys.
#[derive(Serialize)]
struct Figures {
    transport: &'static str,
    /// Times of one connection at a time: until it is established at the client, and until the client has
    /// received the server's first message.
    connect_us: f64,
    first_message_us: f64,
    /// Rate of concurrent set-ups, each connection ended after its message.
    connections_per_s: f64,
    /// `None` for TCP, whose connections are in the kernel.
    standing: Option<Standing>,
}

/// Many connections between two processes. The names of the fields are JSON keys.
#[derive(Serialize)]
struct Standing {
    /// Rate of their set-up, several at a time.
    connections_per_s: f64,
    /// Growth of an end's resident memory per connection.
    client_bytes: u64,
    server_bytes: u64,
}

/// The commands of a pair's ends, with their options.
struct Commands {
    name: &'static str,
    server: String,
    client: String,
    /// Last argument of the client's command.
    peer: &'static str,
}

impl Commands {
    fn of(Transport { name, server, client }: Transport) -> Self {
        let command = |options| format!("rdma connect --json {options}");
        Self { name, server: command(server), client: command(client), peer: " 127.0.0.1" }
    }

    fn tcp() -> Self {
        let command = |end| format!("bench tcp-connect {end}");
        Self { name: "tcp", server: command("server"), client: command("client"), peer: "" }
    }

    /// Makes connections; returns the JSON of server and client. TCP's server has none.
    fn run(&self, pair: &Pair, how: &str) -> anyhow::Result<[anyhow::Result<Value>; 2]> {
        let Self { name, server, client, peer } = self;
        // The connection manager's server learns the number of connections from its client.
        let server = if *name == "tcp" { format!("{server} {how}") } else { server.clone() };
        pair.run_both(&server, &format!("{client} {how}{peer}"))
    }
}

/// The results of all rounds of a transport.
#[derive(Default)]
struct Samples {
    connect: Vec<f64>,
    first_message: Vec<f64>,
    rate: Vec<f64>,
}

impl Samples {
    /// Measures all values once.
    fn add_round(&mut self, pair: &Pair, plan: &ConnectionPlan, commands: &Commands) -> anyhow::Result<()> {
        let how = |connections, parallel| format!("--connections {connections} --parallel {parallel}");
        let [_, in_turn] = commands.run(pair, &how(plan.in_turn, 1))?;
        let in_turn = in_turn?;
        self.connect.push(figure(&in_turn, "connect_p50_us")?);
        self.first_message.push(figure(&in_turn, "first_message_p50_us")?);
        let [_, together] = commands.run(pair, &how(plan.together, AT_A_TIME))?;
        self.rate.push(figure(&together?, "connections_per_s")?);
        Ok(())
    }

    fn medians(self, transport: &'static str) -> Figures {
        Figures {
            transport,
            connect_us: rounded(median(self.connect)),
            first_message_us: rounded(median(self.first_message)),
            connections_per_s: median(self.rate).round(),
            standing: None,
        }
    }
}

impl Standing {
    fn measure(pair: &Pair, plan: &ConnectionPlan, commands: &Commands) -> anyhow::Result<Self> {
        let how = format!("--connections {} --parallel {AT_A_TIME} --keep", plan.standing);
        let [server, client] = commands.run(pair, &how)?;
        let (server, client) = (server?, client?);
        Ok(Self {
            connections_per_s: figure(&client, "connections_per_s")?.round(),
            client_bytes: figure(&client, "bytes_per_qp")? as u64,
            server_bytes: figure(&server, "bytes_per_qp")? as u64,
        })
    }
}

impl Connections {
    /// Measures all values once in each round, so that noise affects them alike; then many connections at
    /// once.
    pub(super) fn measure(plan: &ConnectionPlan) -> anyhow::Result<Self> {
        let pair = Pair::new()?;
        pair.warn_if_crowded();
        let mut of_rdma = TRANSPORTS.map(|transport| (Commands::of(transport), Samples::default()));
        let mut of_tcp = (Commands::tcp(), Samples::default());
        let progress = progress(plan.rounds * (TRANSPORTS.len() + 1) + TRANSPORTS.len());
        for round in 1..=plan.rounds {
            for (commands, samples) in of_rdma.iter_mut().chain([&mut of_tcp]) {
                progress.set_message(format!("round {round} of {}, {}", plan.rounds, commands.name));
                samples.add_round(&pair, plan, commands)?;
                progress.inc(1);
            }
        }
        let mut transports = Vec::new();
        for (commands, samples) in of_rdma {
            let standing = Grouped(u64::from(plan.standing));
            progress.set_message(format!("{standing} connections, {}", commands.name));
            let standing = Some(Standing::measure(&pair, plan, &commands)?);
            transports.push(Figures { standing, ..samples.medians(commands.name) });
            progress.inc(1);
        }
        transports.push(of_tcp.1.medians(of_tcp.0.name));
        progress.finish_and_clear();
        Ok(Self { transports, parallel: AT_A_TIME, standing: plan.standing, rounds: plan.rounds })
    }
}

impl Connections {
    /// Adds a figure for latencies and one for rates, a group of bars per transport.
    pub(super) fn figures(&self, page: &mut Page) -> anyhow::Result<()> {
        let bars = |name: &str, value: fn(&Figures) -> f64| {
            let values = self.transports.iter().map(value);
            Line::new(name, Style::Bars, (0..).map(f64::from).zip(values))
        };
        let mut figure = |title: &str, unit: &str, lines| {
            let names = self.transports.iter().map(|of| of.transport.to_owned());
            page.figure(&Figure {
                title: title.into(),
                x: Axis::named("transport", names),
                y: Axis::linear(unit),
                lines,
            })
        };
        figure(
            "One connection at a time",
            "microseconds",
            vec![
                bars("until it is established", |of| of.connect_us),
                bars("until the first message", |of| of.first_message_us),
            ],
        )?;
        let together = format!("{} connections at a time", self.parallel);
        figure(&together, "connections per second", vec![bars("made and ended", |of| of.connections_per_s)])
    }
}

impl fmt::Display for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "two processes on loopback, {}\n", medians(self.rounds, "round", "rounds in turn"))?;
        let together = format!("{} at a time", self.parallel);
        let standing = format!("{} at once", Grouped(u64::from(self.standing)));
        writeln!(f, "{:<10} {:>26} {together:>14} {standing:>39}", "", "one at a time")?;
        write!(
            f,
            "{:<10} {:>12} {:>13} {:>14} {:>11} {:>13} {:>13}",
            "", "connect (us)", "message (us)", "per second", "per second", "client (each)", "server (each)"
        )?;
        for Figures { transport, connect_us, first_message_us, connections_per_s, standing } in
            &self.transports
        {
            let rate = Grouped(*connections_per_s as u64);
            write!(f, "\n{transport:<10} {connect_us:>12.1} {first_message_us:>13.1} {rate:>14}")?;
            if let Some(Standing { connections_per_s, client_bytes, server_bytes }) = standing {
                let rate = Grouped(*connections_per_s as u64);
                let [client, server] = [client_bytes, server_bytes].map(|bytes| Grouped(*bytes));
                write!(f, " {rate:>11} {client:>13} {server:>13}")?;
            }
        }
        Ok(())
    }
}
