//! The quality of a path, and the choice of a transport by it.

use std::time::Duration;

use crate::config::Transport;

/// The quality of a path, measured by probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathQuality {
    /// The shortest round trip: queues and busy processors only lengthen round trips.
    pub round_trip: Duration,
    /// Probes sent.
    pub sent: u32,
    /// Probes without an answer: lost in either direction.
    pub lost: u32,
}

impl PathQuality {
    /// The share of probes that were lost, 0 to 1.
    pub fn loss(&self) -> f64 {
        f64::from(self.lost) / f64::from(self.sent.max(1))
    }
}

/// Limits of a path on which a peer is within the cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// The longest round trip.
    pub near: Duration,
    /// The largest loss, 0 to 1.
    pub loss: f64,
}

impl Default for Policy {
    /// 1 ms, and no loss.
    fn default() -> Self {
        Self { near: Duration::from_millis(1), loss: 0.0 }
    }
}

impl Policy {
    /// RoCE for a peer within both limits, iWARP for any other.
    pub fn transport(&self, path: &PathQuality) -> Transport {
        if path.round_trip <= self.near && path.loss() <= self.loss {
            Transport::Roce
        } else {
            Transport::Iwarp
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn path(micros: u64, lost: u32) -> PathQuality {
        PathQuality { round_trip: Duration::from_micros(micros), sent: 100, lost }
    }

    #[test]
    fn a_peer_is_near_within_both_limits() {
        let policy = Policy { near: Duration::from_millis(1), loss: 0.02 };
        for (path, transport) in [
            (path(30, 0), Transport::Roce),
            (path(1000, 2), Transport::Roce),
            (path(1001, 0), Transport::Iwarp),
            (path(30, 3), Transport::Iwarp),
            (path(64_000, 3), Transport::Iwarp),
        ] {
            assert_eq!(policy.transport(&path), transport, "{path:?}");
        }
    }

    #[test]
    fn by_default_a_single_lost_probe_is_too_many() {
        let policy = Policy::default();
        assert_eq!(policy.transport(&path(30, 0)), Transport::Roce);
        assert_eq!(policy.transport(&path(30, 1)), Transport::Iwarp);
    }

    #[test]
    fn a_path_without_probes_has_no_loss() {
        assert_eq!(PathQuality { round_trip: Duration::ZERO, sent: 0, lost: 0 }.loss(), 0.0);
    }
}
