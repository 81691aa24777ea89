//! The kernel's state of its TCP connections (ss(8), of iproute2).

use std::collections::HashMap;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::hosts::Host;

/// Interval between two readings: a fraction of a timeout.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A connection's state at one of its ends.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Socket {
    /// The retransmission timeout, doubled for each successive expiry.
    pub(crate) timeout: Duration,
    /// Number of successive expiries.
    pub(crate) backoff: u32,
    /// Number of retransmitted packets so far.
    pub(crate) retransmitted: u64,
}

/// Returns the connections of a host, by its port.
pub(crate) fn sockets(host: &Host) -> HashMap<u16, Socket> {
    let mut command = Command::new("ss");
    command.args(["--tcp", "--info", "--numeric", "--oneline", "--no-header"]);
    let output = host.namespace.run(|| command.output().expect("these tests need ss (Debian: iproute2)"));
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    text.lines().map(|line| socket(line).expect(line)).collect()
}

fn socket(line: &str) -> Option<(u16, Socket)> {
    let words = || line.split_whitespace();
    let port = words().nth(3)?.rsplit(':').next()?.parse().ok()?;
    let value = |name: &str| words().find_map(|word| word.strip_prefix(name)?.strip_prefix(':'));
    let number = |name| value(name).map_or(Some(0), |text| text.parse().ok());
    let millis = |text: &str| text.parse::<f64>().ok().map(|millis| Duration::from_secs_f64(millis / 1e3));
    let timeout = value("rto").map_or(Some(Duration::ZERO), millis)?;
    let retransmitted = value("retrans").map_or(Some(0), |text| text.rsplit('/').next()?.parse().ok())?;
    Some((port, Socket { timeout, backoff: number("backoff")? as u32, retransmitted }))
}

/// Reads the connections of a host repeatedly until the other end of `stop` is dropped. Returns the maximum
/// of each value by port, and the longest time between two readings.
pub(crate) fn watch(host: &Host, stop: &Receiver<()>) -> (HashMap<u16, Socket>, Duration) {
    let (mut all, mut away, mut last) = (HashMap::<u16, Socket>::new(), Duration::ZERO, Instant::now());
    loop {
        let ended = stop.recv_timeout(POLL_INTERVAL) != Err(RecvTimeoutError::Timeout);
        for (port, now) in sockets(host) {
            let most = all.entry(port).or_default();
            *most = Socket {
                timeout: most.timeout.max(now.timeout),
                backoff: most.backoff.max(now.backoff),
                retransmitted: most.retransmitted.max(now.retransmitted),
            };
        }
        away = away.max(last.elapsed());
        last = Instant::now();
        if ended {
            return (all, away);
        }
    }
}
