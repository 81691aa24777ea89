//! CPU time of threads and interrupts, and counters of a kernel's IP and TCP.

use std::fs;
use std::time::Duration;

use crate::threads;

/// Clock ticks per second in `/proc` (`USER_HZ`; 100 on all current architectures).
const TICKS: u32 = 100;

/// A clock tick.
const TICK: Duration = Duration::from_millis(1000 / TICKS as u64);

/// CPU time of threads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    /// User and system time.
    pub(super) total: Duration,
    /// System time, accurate to half a tick per thread.
    pub(super) kernel: Duration,
}

/// Returns the CPU time of all threads of this process whose names begin with `prefix`.
pub(super) fn of_threads(prefix: &str) -> Usage {
    let mut sum = Usage::default();
    for entry in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let task = entry.path();
        let stat = fs::read_to_string(task.join("stat")).unwrap_or_default();
        if let Some(ticks @ [user, kernel]) = whole_ticks(&stat, prefix) {
            let total = threads::processor_time(&task).unwrap_or_default().max(user + kernel);
            sum.total += total;
            sum.kernel += kernel_time(total, ticks);
        }
    }
    sum
}

/// Parses fields 14 and 15 of `/proc/PID/stat`, user and system time (proc_pid_stat(5)), if the thread's name
/// begins with `prefix`.
fn whole_ticks(stat: &str, prefix: &str) -> Option<[Duration; 2]> {
    let (start, rest) = stat.rsplit_once(')')?;
    start.split_once('(')?.1.starts_with(prefix).then_some(())?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut time = || Some(Duration::from_secs(fields.next()?.parse().ok()?) / TICKS);
    Some([time()?, time()?])
}

/// Returns the middle of the possible system times: user and system time are `total`, and each is less than a
/// tick longer than its whole ticks.
fn kernel_time(total: Duration, [user, kernel]: [Duration; 2]) -> Duration {
    let least = kernel.max(total.saturating_sub(user + TICK));
    let most = total.saturating_sub(user).min(kernel + TICK);
    (least + most) / 2
}

/// Returns the machine's time in soft interrupts, in which the receiving kernel of a veth runs.
pub(super) fn of_soft_interrupts() -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    // The seventh number (proc_stat(5)).
    let ticks = stat.lines().next().and_then(|all| all.split_whitespace().nth(7)?.parse().ok());
    Duration::from_secs(ticks.unwrap_or(0)) / TICKS
}

/// IPv4 packets that a kernel has received, and their bytes, headers included. The kernel counts both in one
/// place (`ip_rcv_core`).
#[derive(Clone, Copy, Debug)]
pub(super) struct IpReceived {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

/// Returns the IPv4 packets and bytes that the network namespace of this thread has received.
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
    use std::thread;

    use super::*;

    #[test]
    fn times_are_read_whatever_the_name_of_the_thread() {
        let stat = "7 (left-0 (x)) S 1 7 7 0 -1 0 1 0 0 0 250 125 0 0 20 0";
        let ticks = [2500, 1250].map(Duration::from_millis);
        assert_eq!(whole_ticks(stat, "left-"), Some(ticks));
        assert!(whole_ticks(stat, "right-").is_none());
    }

    #[test]
    fn a_thread_without_a_whole_tick_has_used_time() {
        let used = thread::Builder::new().name("short-0".into()).spawn(|| {
            // The kernel adds the time of a running thread at ticks and switches.
            thread::sleep(Duration::from_millis(1));
            of_threads("short-")
        });
        let Usage { total, kernel } = used.unwrap().join().unwrap();
        assert!(!total.is_zero() && !kernel.is_zero() && kernel <= total, "{total:?} {kernel:?}");
    }

    #[test]
    fn system_time_is_as_exact_as_the_total_and_the_ticks_allow() {
        for (total, user, kernel, expected) in [
            (4000, 0, 0, 2000),
            (25_000, 10_000, 10_000, 12_500),
            (39_000, 10_000, 20_000, 24_500),
            (30_000, 10_000, 20_000, 20_000),
        ] {
            let [total, user, kernel, expected] = [total, user, kernel, expected].map(Duration::from_micros);
            assert_eq!(kernel_time(total, [user, kernel]), expected);
        }
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
