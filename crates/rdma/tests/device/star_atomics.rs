//! StaR's atomic operations: once each, in order, and with the right only.

use crate::common::{Fate, Faults, Link, Pair};
use nichrome_rdma::*;

/// A counter of the stateless side, to which its client and its own program add. Each answer of the card is lost once, and each
/// AOP arrives twice.
#[test]
fn atomics_of_both_sides_take_effect_once_and_in_order() {
    for server in [0, 1] {
        let mut pair = Pair::new();
        let qps = pair.connect_star(server, &Link::default());
        let mut lost = std::collections::HashSet::new();
        pair.fates = Some(Box::new(move |_, bytes| match bytes[0] & 0xF {
            7 if lost.insert(bytes[8..12].to_vec()) && lost.len() % 2 == 1 => Fate::IsLost,
            8 => Fate::ArrivesTwice,
            _ => Fate::Arrives,
        }));
        let remote = pair.ends[1].remote(64);
        for nth in 0..20 {
            let operation = match nth % 2 {
                0 => Operation::FetchAdd { remote, add: 3 },
                _ => Operation::CompareSwap { remote, compare: 3 * (nth / 2 + 1), swap: 3 * (nth / 2 + 1) },
            };
            pair.ends[0].post(qps[0], nth, operation, 8 * nth as usize, 8);
        }
        pair.run();
        let statuses = pair.ends[0].statuses();
        assert_eq!(
            statuses,
            (0..20).map(|nth| (nth, Status::Success)).collect::<Vec<_>>(),
            "server {server}"
        );
        assert_eq!(pair.ends[1].bytes(64, 8), 30u64.to_ne_bytes());
        for nth in 0..20usize {
            let found = 3 * (nth as u64).div_ceil(2);
            assert_eq!(pair.ends[0].bytes(8 * nth, 8), found.to_ne_bytes(), "server {server}, {nth}");
        }
    }
}

#[test]
fn an_atomic_of_the_client_waits_for_writes_before_it_and_writes_behind_it_wait() {
    let mut pair = Pair::new().seeded(5, Faults { loss: 0.2, ..Faults::default() });
    let qps = pair.connect_star(1, &Link::default());
    let remote = pair.ends[1].remote(0);
    for round in 0..30u64 {
        pair.ends[0].fill(0, &(100 * round).to_ne_bytes());
        pair.ends[0].fill(8, &u64::MAX.to_ne_bytes());
        pair.ends[0].post(qps[0], 1, Operation::Write(remote), 0, 8);
        pair.ends[0].post(qps[0], 2, Operation::FetchAdd { remote, add: 1 }, 16, 8);
        pair.ends[0].post(qps[0], 3, Operation::Write(remote), 8, 8);
        pair.run();
        assert_eq!(pair.ends[0].completions().len(), 3);
        assert_eq!(pair.ends[0].bytes(16, 8), (100 * round).to_ne_bytes());
        assert_eq!(pair.ends[1].bytes(0, 8), u64::MAX.to_ne_bytes());
    }
}

#[test]
fn an_atomic_needs_the_right_and_an_aligned_address() {
    let without = Link { access: Access::REMOTE_WRITE | Access::REMOTE_READ, ..Link::default() };
    for (link, at) in [(without, 0), (Link::default(), 4)] {
        let mut pair = Pair::new();
        let qps = pair.connect_star(1, &link);
        let remote = pair.ends[1].remote(at);
        pair.ends[0].post(qps[0], 1, Operation::FetchAdd { remote, add: 1 }, 0, 8);
        pair.run();
        assert_eq!(pair.ends[0].statuses(), [(1, Status::RemoteInvalidRequest)]);
        assert_eq!(pair.ends[1].bytes(0, 16), [0; 16]);
    }
}
