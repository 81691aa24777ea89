//! Latencies per peer, as a table and as JSON.

use std::fmt;
use std::time::Duration;

use nichrome_hca::reach::Policy;
use nichrome_wan::DelayHistogram;
use serde::Serialize;

use crate::server_results::ServerResults;

/// The result. The names of its fields, and of those of the types below, are JSON keys.
#[derive(Serialize)]
pub(crate) struct Report {
    policy: Limits,
    peers: Vec<Line>,
}

#[derive(Serialize)]
struct Limits {
    near_us: f64,
    loss: f64,
}

#[derive(Serialize)]
struct Line {
    name: String,
    address: String,
    transport: Option<&'static str>,
    round_trip_us: Option<f64>,
    loss: Option<f64>,
    get: Latency,
    put: Latency,
    error: Option<String>,
}

#[derive(Serialize)]
struct Latency {
    count: u64,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
    /// Upper bound of each bin in microseconds, a power of two, and the number of requests in the bin.
    histogram: Vec<(u64, u64)>,
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

impl Latency {
    fn of(times: &DelayHistogram) -> Self {
        let mut below = 0;
        let mut histogram = Vec::new();
        for bound in (0..).map(|exponent| 1 << exponent) {
            if below == times.count() {
                break;
            }
            let until = times.count_at_most(Duration::from_micros(bound));
            histogram.push((bound, until - below));
            below = until;
        }
        let first = histogram.iter().position(|(_, count)| *count > 0).unwrap_or(0);
        Self {
            count: times.count(),
            p50_us: micros(times.p50()),
            p99_us: micros(times.p99()),
            max_us: micros(times.max()),
            histogram: histogram.split_off(first),
        }
    }

    fn at(&self, bound: u64) -> u64 {
        self.histogram.iter().find(|(of, _)| *of == bound).map_or(0, |(_, count)| *count)
    }
}

impl Report {
    pub(crate) fn of(policy: &Policy, peers: &[ServerResults<'_>]) -> Self {
        let line = |peer: &ServerResults<'_>| Line {
            name: peer.entry.name.clone(),
            address: peer.entry.address.to_string(),
            transport: peer.route.map(|route| route.transport.name()),
            round_trip_us: peer.route.map(|route| micros(route.path.round_trip)),
            loss: peer.route.map(|route| route.path.loss()),
            get: Latency::of(&peer.gets),
            put: Latency::of(&peer.puts),
            error: peer.error.clone(),
        };
        let policy = Limits { near_us: micros(policy.near), loss: policy.loss };
        Self { policy, peers: peers.iter().map(line).collect() }
    }

    /// Returns the bounds of all bins.
    fn bounds(&self) -> Vec<u64> {
        let bins = self.peers.iter().flat_map(|peer| [&peer.get, &peer.put]).flat_map(|of| &of.histogram);
        let mut bounds: Vec<u64> = bins.map(|(bound, _)| *bound).collect();
        bounds.sort_unstable();
        bounds.dedup();
        bounds
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limits { near_us, loss } = self.policy;
        writeln!(f, "RoCE to {near_us} us and a loss of {} %, iWARP beyond; times in us\n", loss * 1e2)?;
        write!(f, "{:<12}{:<22}{:<10}{:>10}{:>8}", "peer", "address", "transport", "round trip", "loss %")?;
        writeln!(f, "{:>8}{:>10}{:>10}{:>8}{:>10}{:>10}", "GETs", "p50", "p99", "PUTs", "p50", "p99")?;
        for Line { name, address, transport, round_trip_us, loss, get, put, .. } in &self.peers {
            let shown = |number: Option<f64>| number.map_or("-".to_owned(), |number| format!("{number:.1}"));
            write!(f, "{name:<12}{address:<22}{:<10}", transport.unwrap_or("-"))?;
            write!(f, "{:>10}{:>8}", shown(*round_trip_us), shown(loss.map(|loss| loss * 1e2)))?;
            write!(f, "{:>8}{:>10.1}{:>10.1}", get.count, get.p50_us, get.p99_us)?;
            writeln!(f, "{:>8}{:>10.1}{:>10.1}", put.count, put.p50_us, put.p99_us)?;
        }
        write!(f, "\n{:>12}", "until us")?;
        for Line { name, .. } in &self.peers {
            write!(f, "{:>16}{:>16}", format!("GET {name}"), format!("PUT {name}"))?;
        }
        for bound in self.bounds() {
            write!(f, "\n{bound:>12}")?;
            for Line { get, put, .. } in &self.peers {
                write!(f, "{:>16}{:>16}", get.at(bound), put.at(bound))?;
            }
        }
        Ok(())
    }
}
