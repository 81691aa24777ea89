//! TCP keepalive: ends the connection with a peer whose machine no longer answers, even while nothing is
//! sent. Chelsio's RNICs enable it. siw does not, and waits forever for the response of a READ.
//!
//! `TCP_USER_TIMEOUT` is not set. It would limit retransmissions too, as [unanswered](super::unanswered)
//! does, but the kernel also counts the time that a live peer's window is closed (tcp(7)), as while its
//! program posts no receive.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl};

/// Maximum number of probes without an answer. A path may lose several.
const PROBES: u64 = 15;

/// The longest silence: an interval of TCP has at most 32,767 seconds.
const LONGEST: Duration = Duration::from_secs(65_000);

const SHORTEST: Duration = Duration::from_secs(2);

/// Returns the nearest time that a machine can be given to answer.
pub(super) fn within_limits(silence: Duration) -> Duration {
    silence.clamp(SHORTEST, LONGEST)
}

/// The times of a connection's keepalive, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    /// Between the last segment of the peer and the first probe.
    idle: u64,
    interval: u64,
    probes: u64,
}

impl Times {
    /// Half of the time passes before the first probe.
    fn of(silence: Duration) -> Self {
        let silence = within_limits(silence).as_secs();
        let idle = silence / 2;
        let probing = silence - idle;
        let interval = probing.div_ceil(PROBES);
        Self { idle, interval, probes: probing.div_ceil(interval) }
    }
}

/// Makes a connection fail if the peer's machine answers nothing for about `silence`, while nothing is sent.
///
/// # Errors
/// The descriptor is not a TCP socket.
pub(super) fn limit_silence(socket: &TcpStream, silence: Duration) -> io::Result<()> {
    let Times { idle, interval, probes } = Times::of(silence);
    set_tcp_keepidle(socket, Duration::from_secs(idle))?;
    set_tcp_keepintvl(socket, Duration::from_secs(interval))?;
    set_tcp_keepcnt(socket, probes as u32)?;
    set_socket_keepalive(socket, true)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_silence_passes_before_the_first_probe() {
        let times = |silence| {
            let Times { idle, interval, probes } = Times::of(silence);
            (idle, interval, probes)
        };
        assert_eq!(times(Duration::from_secs(30)), (15, 1, 15));
        assert_eq!(times(Duration::from_secs(600)), (300, 20, 15));
        assert_eq!(times(Duration::ZERO), (1, 1, 1));
        assert_eq!(times(Duration::MAX), (32_500, 2167, 15));
    }
}
