//! StaR between two devices: what each verb does in both directions, and what it survives.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod common;

use common::{Link, Pair, pattern};
use nichrome_rdma::*;

const SIZES: [usize; 9] = [0, 1, 7, 8, 1023, 1024, 1025, 5000, 1 << 20];

/// Both ways of giving the roles: the end that is stateless. End 0 always begins.
const SERVERS: [usize; 2] = [0, 1];

fn ok(done: &[Completion]) -> Vec<u64> {
    assert!(done.iter().all(|wc| wc.status == Status::Success), "{done:?}");
    done.iter().map(|wc| wc.wr_id).collect()
}

#[test]
fn writes_and_reads_of_any_size_in_both_directions() {
    for server in SERVERS {
        for len in SIZES {
            let mut pair = Pair::new();
            let [a, _] = pair.connect_star(server, &Link::default());
            let data = pattern(len, len as u64);
            pair.ends[0].fill(0, &data);
            let there = pair.ends[1].remote(1 << 20);
            pair.ends[0].post(a, 1, Operation::Write(there), 0, len);
            pair.run();
            assert_eq!(ok(&pair.ends[0].completions()), [1], "{server} {len}");
            assert!(pair.ends[1].bytes(1 << 20, len) == data);
            pair.ends[0].post(a, 2, Operation::Read(there), 2 << 20, len);
            pair.run();
            assert_eq!(ok(&pair.ends[0].completions()), [2], "{server} {len}");
            assert!(pair.ends[0].bytes(2 << 20, len) == data);
            assert_eq!(pair.ends[1].completions(), []);
        }
    }
}

#[test]
fn messages_of_any_size_in_both_directions() {
    for server in SERVERS {
        for len in SIZES {
            let mut pair = Pair::new();
            let [a, b] = pair.connect_star(server, &Link::default());
            let data = pattern(len, len as u64);
            pair.ends[0].fill(0, &data);
            pair.ends[1].receive(b, 7, 1 << 20, 1 << 20);
            let immediate = ImmediateData([1, 2, 3, 4]);
            pair.ends[0].post(a, 1, Operation::SendWithImmediate(immediate), 0, len);
            pair.run();
            assert_eq!(ok(&pair.ends[0].completions()), [1], "{server} {len}");
            let done = pair.ends[1].completions();
            assert_eq!(ok(&done), [7]);
            assert_eq!((done[0].len as usize, done[0].notice), (len, Some(Notice::Immediate(immediate))));
            assert_eq!(done[0].operation, CompletedOperation::Receive);
            assert!(pair.ends[1].bytes(1 << 20, len) == data);
        }
    }
}
