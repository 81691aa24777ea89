//! The packet distribution engine (lro-npu IV.A, VI): all packets of a connection go to one receiving thread.

use nichrome_wire::{RssKey, Toeplitz};

/// Selects a thread by a hash of the four-tuple that is equal for both directions of a connection.
#[derive(Clone, Debug)]
pub(super) struct Distribution {
    hash: Toeplitz,
    threads: usize,
}

impl Distribution {
    /// Creates a distribution over `threads` threads, at least 1.
    pub(super) fn new(threads: usize) -> Self {
        Self { hash: Toeplitz::new(&RssKey::SYMMETRIC), threads: threads.max(1) }
    }

    /// Returns the index of a frame's receiving thread; 0 for frames without a four-tuple.
    pub(super) fn place(&self, frame: &[u8]) -> usize {
        // Upper bits of the product instead of a remainder: the hashes of adjacent ports differ in the low
        // bits only.
        let hash = u64::from(self.hash.hash_frame(frame).unwrap_or(0));
        let mixed = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        ((mixed * self.threads as u64) >> 32) as usize
    }
}

#[cfg(test)]
mod tests {
    use nichrome_wire::{Network, TcpFrame};

    use super::*;

    #[test]
    fn both_directions_of_a_connection_have_one_thread() {
        let distribution = Distribution::new(13);
        let there = TcpFrame { src_port: 40_001, dst_port: 5201, ..TcpFrame::default() };
        let Network::Ipv4 { src, dst, .. } = there.network else { panic!("IPv4 by default") };
        let back =
            TcpFrame { src_port: 5201, dst_port: 40_001, network: Network::ipv4(dst, src), ..there.clone() };
        assert_eq!(distribution.place(&there.build()), distribution.place(&back.build()));
    }

    #[test]
    fn neighbouring_ports_are_spread_over_all_threads() {
        let distribution = Distribution::new(13);
        let mut counts = [0; 13];
        for src_port in 40_000..41_300 {
            counts[distribution.place(&TcpFrame { src_port, ..TcpFrame::default() }.build())] += 1;
        }
        assert!(counts.iter().all(|count| (50..=150).contains(count)), "{counts:?}");
    }
}
