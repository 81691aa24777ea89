//! Many concurrent StaR connections between two devices over a lossy path.

use crate::common::{Faults, Link, Pair};
use nichrome_rdma::*;

#[test]
fn no_connection_gets_stuck_when_packets_are_lost() {
    for seed in 0..20 {
        for server in [0, 1] {
            let mut pair = Pair::new().seeded(seed, Faults { loss: 0.02, ..Faults::default() });
            let link = Link { timeout: 14, mtu: PathMtu::B4096, ..Link::default() };
            let qps: Vec<_> = (0..16).map(|_| pair.connect_star(server, &link)[0]).collect();
            let there = pair.ends[1].remote(0);
            for qp in &qps {
                (0..20).for_each(|wr_id| pair.ends[0].post(*qp, wr_id, Operation::Write(there), 0, 65_536));
            }
            let mut done = 0;
            pair.run_until(|pair| {
                done += pair.ends[0].completions().len();
                done == 320 || pair.now > Instant::from_nanos(20_000_000_000)
            });
            assert_eq!(done, 320, "seed {seed}, server {server}, at {}", pair.now);
        }
    }
}
