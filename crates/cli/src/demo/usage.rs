//! CPU time of threads and interrupts, and counters of a kernel's IP and TCP.

use std::fs;
use std::time::Duration;

/// Clock ticks per second in `/proc` (`USER_HZ`; 100 on all current architectures).
const TICKS: u32 = 100;

/// User and system time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) user: Duration,
    pub(super) kernel: Duration,
}

impl Usage {
    pub(super) fn total(self) -> Duration {
        self.user + self.kernel
    }
}

/// Returns the CPU time of all threads of this process whose names begin with `prefix`.
pub(super) fn of_threads(prefix: &str) -> Usage {
    let mut sum = Usage::default();
    for entry in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some(usage) = usage(&stat, prefix) {
            sum.user += usage.user;
            sum.kernel += usage.kernel;
        }
    }
    sum
}

/// Parses fields 14 and 15 of `/proc/PID/stat` (proc_pid_stat(5)), if the thread's name begins with `prefix`.
fn usage(stat: &str, prefix: &str) -> Option<Usage> {
    let (start, rest) = stat.rsplit_once(')')?;
    start.split_once('(')?.1.starts_with(prefix).then_some(())?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut time = || Some(Duration::from_secs(fields.next()?.parse().ok()?) / TICKS);
    Some(Usage { user: time()?, kernel: time()? })
}

/// Returns the machine's time in soft interrupts, in which the receiving kernel of a veth runs.
pub(super) fn of_soft_interrupts() -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    // The seventh number (proc_stat(5)).
    let ticks = stat.lines().next().and_then(|all| all.split_whitespace().nth(7)?.parse().ok());
    Duration::from_secs(ticks.unwrap_or(0)) / TICKS
}

/// IPv4 packets that a kernel has received, and their bytes, headers included. The kernel counts both in one place (`ip_rcv_core`).
#[derive(Clone, Copy, Debug)]
pub(super) struct IpReceived {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

/// Returns what the network namespace of this thread has received.
pub(super) fn ip_received() -> IpReceived {
    IpReceived {
        packets: counter("snmp", "Ip", "InReceives"),
        bytes: counter("netstat", "IpExt", "InOctets"),
    }
}

/// Returns the TCP segments that the network namespace of this thread has retransmitted.
pub(super) fn retransmits() -> u64 {
    counter("snmp", "Tcp", "RetransSegs")
}

/// Returns a counter of a file in `/proc/net` in the network namespace of this thread.
fn counter(file: &str, protocol: &str, counter: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol)?.strip_prefix(':'));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs.find(|(name, _)| *name == counter).and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn times_are_read_whatever_the_name_of_the_thread() {
        let stat = "7 (left-0 (x)) S 1 7 7 0 -1 0 1 0 0 0 250 125 0 0 20 0";
        let found = usage(stat, "left-").unwrap();
        assert_eq!((found.user, found.kernel), (Duration::from_millis(2500), Duration::from_millis(1250)));
        assert!(usage(stat, "right-").is_none());
    }

    #[test]
    fn a_packet_counts_with_its_headers() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let before = ip_received();
        socket.send_to(&[0; 30_000], socket.local_addr().unwrap()).unwrap();
        let after = ip_received();
        // Other tests receive, too.
        assert!(
            after.packets > before.packets && after.bytes >= before.bytes + 30_028,
            "{before:?} {after:?}"
        );
    }

    #[test]
    fn the_kernels_counters_are_found_by_name() {
        assert!(counter("snmp", "Ip", "DefaultTTL") > 0);
        assert_eq!(counter("snmp", "Ip", "NoSuchCounter"), 0);
    }
}
