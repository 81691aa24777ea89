//! Each operation between a pair.

use nichrome_rdma::*;

use crate::common::pattern;
use crate::support::{TERMS, connected};

#[test]
fn a_send_fills_a_receive() {
    for len in [0, 1, 7, 1000, 65_512, 65_513, 200_000] {
        let (mut pair, qps) = connected(TERMS);
        let bytes = pattern(len, 1);
        pair.ends[1].fill(0, &bytes);
        pair.ends[0].receive(qps[0], 5, 300_000, len);
        pair.ends[1].post(qps[1], 6, Operation::Send, 0, len);
        pair.run();
        assert_eq!(pair.ends[1].statuses(), [(6, Status::Success)]);
        let done = pair.ends[0].completions();
        assert_eq!((done[0].wr_id, done[0].status, done[0].len), (5, Status::Success, len as u32));
        assert_eq!(pair.ends[0].bytes(300_000, len), bytes);
    }
}

#[test]
fn a_write_and_a_read_reach_registered_memory() {
    for len in [0, 1, 7, 1000, 65_516, 65_517, 200_000] {
        let (mut pair, qps) = connected(TERMS);
        let bytes = pattern(len, 1);
        pair.ends[0].fill(0, &bytes);
        let there = pair.ends[1].remote(300_000);
        pair.ends[0].post(qps[0], 1, Operation::Write(there), 0, len);
        pair.ends[0].post(qps[0], 2, Operation::Read(there), 600_000, len);
        pair.run();
        assert_eq!(pair.ends[0].statuses(), [(1, Status::Success), (2, Status::Success)]);
        assert_eq!(pair.ends[1].bytes(300_000, len), bytes);
        assert_eq!(pair.ends[0].bytes(600_000, len), bytes);
    }
}
