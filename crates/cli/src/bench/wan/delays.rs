//! Accuracy of delays: datagrams at 20,000 per second over a live path between two hosts, compared with
//! Mahimahi's mm-delay.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use std::{fmt, fs};

use anyhow::{Context, anyhow, bail};
use nichrome_port::Offloads;
use nichrome_wan::{DelayHistogram, Impairments};
use serde::Serialize;

use super::super::figures::rounded;
use super::plan::Plan;
use super::probe::{self, RATE};
use crate::page::{Axis, Figure, Line};
use crate::shared_device::SharedDevice;
use crate::side::Side;
use crate::wan::{Host, LivePath, Setup};

/// The receiver's port.
const PORT: u16 = 7000;

/// Upper bounds of the histogram's bins, in microseconds.
const BARS: [f64; 8] = [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, f64::INFINITY];

#[derive(Serialize)]
pub(super) struct Delays {
    packets_per_second: u64,
    seconds: f64,
    paths: Vec<Measured>,
    /// The reason if Mahimahi was not measured.
    mahimahi: Option<String>,
}

/// The result for one delay. Errors are differences from the configured delay, in microseconds.
#[derive(Serialize)]
struct Measured {
    path: &'static str,
    asked_ms: u64,
    received: u64,
    error_p50_us: f64,
    error_p99_us: f64,
    error_max_us: f64,
    /// Share of time that the path had work but waited for a CPU. Datagrams are evenly spaced, so it is also
    /// the share of datagrams delayed by this.
    waited_percent: Option<f64>,
    /// Share of CPU time that other virtual machines took.
    stolen_percent: Option<f64>,
    /// Packets per bin with the bin's upper bound in microseconds; the last one has none.
    histogram: Vec<(Option<f64>, u64)>,
}

impl Delays {
    pub(super) fn new(plan: &Plan) -> Self {
        let seconds = plan.sending.as_secs_f64();
        Self { packets_per_second: RATE, seconds, paths: Vec::new(), mahimahi: None }
    }

    /// Measures all delays over mm-delay, up to the first failure. Uses the machine's own network.
    pub(super) fn measure_mahimahi(&mut self, plan: &Plan) {
        for &delay_ms in plan.delays {
            match mm_delay(delay_ms) {
                Ok(errors) => {
                    let path = "mm-delay, program to program";
                    self.paths.push(Measured::new(path, delay_ms, &errors, Machine::default()));
                }
                Err(error) => {
                    self.mahimahi = Some(format!("{error:#}"));
                    break;
                }
            }
        }
    }

    /// Measures all delays over our path, between the timestamps at the two TAP devices and from program to
    /// program.
    pub(super) fn measure_ours(&mut self, plan: &Plan) -> anyhow::Result<()> {
        for &delay_ms in plan.delays {
            let (at_devices, at_programs, machine) = ours(delay_ms, plan.sending)?;
            self.paths.push(Measured::new("nichrome, TAP to TAP", delay_ms, &at_devices, machine));
            self.paths.push(Measured::new("nichrome, program to program", delay_ms, &at_programs, machine));
        }
        self.paths.sort_by_key(|path| path.asked_ms);
        Ok(())
    }

    /// Returns the figure of errors by configured delay: medians, with a range up to the 99th percentile.
    pub(super) fn figure(&self) -> Figure {
        let mut names: Vec<&str> = Vec::new();
        for path in &self.paths {
            if !names.contains(&path.path) {
                names.push(path.path);
            }
        }
        let line = |name: &str| {
            let points =
                self.paths.iter().filter(|of| of.path == name).map(|of| {
                    (of.asked_ms as f64, of.error_p50_us, Some((of.error_p50_us, of.error_p99_us)))
                });
            Line::with_ranges(name, points)
        };
        Figure {
            title: "Error of the delays".into(),
            x: Axis::linear("configured delay (ms)"),
            y: Axis::linear("error: median, and up to the 99th percentile (µs)"),
            lines: names.into_iter().map(line).collect(),
        }
    }
}

/// CPU time that the machine withheld, in percent.
#[derive(Clone, Copy, Default)]
struct Machine {
    waited: Option<f64>,
    stolen: Option<f64>,
}

/// Measures the errors between the timestamps, and from program to program.
fn ours(delay_ms: u64, sending: Duration) -> anyhow::Result<(DelayHistogram, DelayHistogram, Machine)> {
    let [left, right] = Side::BOTH;
    let hosts = [Host::new(left, 1500, Offloads::All)?, Host::new(right, 1500, Offloads::All)?];
    let impairments = Impairments { delay: format!("{delay_ms}ms").parse()?, ..Impairments::default() };
    let setup = Setup {
        devices: hosts.each_ref().map(|host| Arc::clone(&host.tap) as SharedDevice),
        impairments: &[impairments.clone(), impairments],
        seed: 1,
        recording: None,
    };
    let path = LivePath::start(&setup, || {})?;
    let before = Ticks::now();
    let socket = hosts[0].run(|| UdpSocket::bind((left.ipv4(), PORT)))??;
    let sender =
        hosts[1].run(|| thread::spawn(move || probe::send((Side::Left.ipv4(), PORT).into(), sending)))?;
    let errors = probe::receive(&socket, Duration::from_millis(delay_ms))?;
    sender.join().map_err(|_| anyhow!("the sender has panicked"))??;
    let [to_left, _] = path.stop()?;
    let stolen = before.zip(Ticks::now()).map(|(before, after)| after.stolen_percent_since(before));
    let duration = to_left.duration().as_secs_f64();
    let waited = to_left.waited.map(|waited| waited.as_secs_f64() * 100.0 / duration);
    Ok((to_left.measured.error, errors, Machine { waited, stolen }))
}

/// Measures the errors from a program inside mm-delay to one outside.
fn mm_delay(delay_ms: u64) -> anyhow::Result<DelayHistogram> {
    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
    let port = socket.local_addr()?.port();
    let nichrome = std::env::current_exe()?;
    let send = format!("'{}' bench wan-probe $MAHIMAHI_BASE:{port}", nichrome.display());
    let mut command = Command::new("mm-delay");
    command.arg(delay_ms.to_string()).args(["sh", "-c", &send]).stdin(Stdio::null());
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let child = child.context("mm-delay, of Mahimahi, cannot be started")?;
    let errors = probe::receive(&socket, Duration::from_millis(delay_ms))?;
    let output = child.wait_with_output()?;
    if !output.status.success() || errors.count() == 0 {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("mm-delay failed: {}", stderr.lines().next().unwrap_or("it printed nothing"));
    }
    Ok(errors)
}

/// Clock ticks of all CPUs since boot (proc_stat(5)).
#[derive(Clone, Copy)]
struct Ticks {
    all: u64,
    stolen: u64,
}

impl Ticks {
    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Parses the first line up to the stolen time. The user time includes the guests' time, which follows.
    fn parse(stat: &str) -> Option<Self> {
        let numbers = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
        let numbers = numbers.map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
        Some(Self { all: numbers.iter().sum(), stolen: *numbers.get(7)? })
    }

    /// Returns the share of stolen time. Ticks may decrease (proc_stat(5)), such as when a machine is moved.
    fn stolen_percent_since(self, before: Self) -> f64 {
        let [stolen, all] = [(self.stolen, before.stolen), (self.all, before.all)]
            .map(|(now, before)| now.saturating_sub(before));
        stolen as f64 * 100.0 / all.max(1) as f64
    }
}

impl Measured {
    fn new(path: &'static str, asked_ms: u64, errors: &DelayHistogram, machine: Machine) -> Self {
        let micros = |duration: Duration| rounded(duration.as_nanos() as f64 / 1e3);
        let mut before = 0;
        let histogram = BARS.map(|end| {
            let until = if end.is_finite() {
                errors.count_at_most(Duration::from_nanos((end * 1e3) as u64))
            } else {
                errors.count()
            };
            let count = until - before;
            before = until;
            (end.is_finite().then_some(end), count)
        });
        Self {
            path,
            asked_ms,
            received: errors.count(),
            error_p50_us: micros(errors.p50()),
            error_p99_us: micros(errors.p99()),
            error_max_us: micros(errors.max()),
            waited_percent: machine.waited.map(rounded),
            stolen_percent: machine.stolen.map(rounded),
            histogram: histogram.into(),
        }
    }
}

impl fmt::Display for Delays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "error of the delays, {} datagrams/s for {} s: percentiles in µs, and the share of packets by error",
            self.packets_per_second, self.seconds
        )?;
        write!(f, "{:<30}{:>7}{:>9}{:>9}{:>9} ", "", "delay", "p50", "p99", "max")?;
        for end in BARS {
            if end.is_finite() { write!(f, "{end:>7}")? } else { write!(f, "{:>7}", "more")? }
        }
        write!(f, "{:>8}{:>8}", "waited", "stolen")?;
        for of in &self.paths {
            write!(
                f,
                "\n{:<30}{:>4} ms{:>9.1}{:>9.1}{:>9.1} ",
                of.path, of.asked_ms, of.error_p50_us, of.error_p99_us, of.error_max_us
            )?;
            for (_, count) in &of.histogram {
                write!(f, "{:>6.1}%", *count as f64 * 100.0 / of.received.max(1) as f64)?;
            }
            for share in [of.waited_percent, of.stolen_percent] {
                write!(f, "{:>8}", share.map_or_else(|| "–".to_owned(), |share| format!("{share:.1}%")))?;
            }
        }
        write!(
            f,
            "\nwaited: share of the time in which the path waited for a processor; stolen: share that other virtual \
             machines took"
        )?;
        match &self.mahimahi {
            Some(why) => write!(f, "\nnot measured: {why}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_a_share_of_all_time() {
        let at = |stat: &str| Ticks::parse(stat).unwrap();
        let (before, after) =
            (at("cpu  10 0 10 70 5 0 3 2 9 9\ncpu0 1\n"), at("cpu  60 0 10 100 5 0 3 22 99 9\n"));
        assert_eq!((before.all, before.stolen), (100, 2));
        assert_eq!(after.stolen_percent_since(before), 20.0);
        assert_eq!(before.stolen_percent_since(after), 0.0);
        assert!(Ticks::parse("cpu  1 2 3\n").is_none() && Ticks::parse("").is_none());
    }
}
