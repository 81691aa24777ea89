//! Distribution of connections over workers: the packet distribution of lro-npu, section IV.

use nichrome_wire::{RssKey, Toeplitz};

/// Maps frames to workers: all frames of a connection, in both directions, to the same worker.
#[derive(Clone, Debug)]
pub struct Distribution {
    hash: Toeplitz,
    workers: usize,
}

impl Distribution {
    /// Creates a distribution over `workers` workers, at least 1.
    pub fn new(workers: usize) -> Self {
        Self { hash: Toeplitz::new(&RssKey::SYMMETRIC), workers: workers.max(1) }
    }

    /// Returns the worker of a frame, from 0, by the Toeplitz hash of addresses and ports. Frames without
    /// them go to worker 0.
    #[inline]
    pub fn worker(&self, frame: &[u8]) -> usize {
        if self.workers == 1 {
            return 0;
        }
        let hash = self.hash.hash_frame(frame).unwrap_or(0);
        // Uses the top bits: a multiplication is cheaper than a remainder.
        ((u64::from(hash) * self.workers as u64) >> 32) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nichrome_wire::{SeqNumber, TcpFrame};

    fn connection(nth: u16) -> TcpFrame {
        TcpFrame { src_port: 1024 + nth, ..TcpFrame::default() }
    }

    #[test]
    fn connections_spread_evenly_and_stay_where_they_are() {
        let distribution = Distribution::new(4);
        let mut counts = [0; 4];
        for nth in 0..4000 {
            let frame = connection(nth);
            let worker = distribution.worker(&frame.build());
            let later = TcpFrame { seq: SeqNumber(99), payload: vec![1; 700], ..frame };
            assert_eq!(distribution.worker(&later.build()), worker);
            counts[worker] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }

    #[test]
    fn frames_other_than_ip_go_to_the_first_worker() {
        assert_eq!(Distribution::new(4).worker(&[0; 60]), 0);
        assert_eq!(Distribution::new(4).worker(&[]), 0);
    }
}
