//! StaR's atomic operations: once each, in order, and with the right only.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{Fate, Faults, Link, Pair};
use nichrome_rdma::star::{CardAuthentication, ServerSecret};
use nichrome_rdma::*;
use nichrome_wire::star::{PacketType, Repr};

/// A counter of the stateless side, to which its client and its own program add. Each answer of the card is
/// lost once, and each AOP arrives twice.
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

/// The server's program sees an atomic operation's effect and deregisters the memory, while the client
/// retransmits because the answers are lost. Returns how the operation ends, and the client's buffer.
fn atomic_whose_memory_is_deregistered(
    config: impl Fn(&mut Config),
    is_lost: impl Fn(PacketType) -> bool + 'static,
    lost_until: u64,
) -> (Status, u64) {
    let mut pair = Pair::with(config);
    let [a, _] = pair.connect_star(1, &Link::default());
    let remote = pair.ends[1].remote(0);
    pair.ends[1].fill(0, &40u64.to_ne_bytes());
    let is_over = Rc::new(Cell::new(false));
    let over = Rc::clone(&is_over);
    pair.fates = Some(Box::new(move |_, bytes| {
        let kind = Repr::parse(bytes).unwrap().0.message.packet_type();
        if is_lost(kind) && !over.get() { Fate::IsLost } else { Fate::Arrives }
    }));
    pair.ends[0].post(a, 1, Operation::FetchAdd { remote, add: 2 }, 0, 8);
    pair.run_for(lost_until);
    let region = pair.ends[1].region;
    pair.ends[1].device.deregister(region).unwrap();
    pair.run_for(lost_until);
    is_over.set(true);
    pair.run();
    let [(1, status)] = pair.ends[0].statuses()[..] else { panic!("one completion") };
    let expected = if status == Status::Success { 42u64 } else { 40 };
    assert_eq!(pair.ends[1].bytes(0, 8), expected.to_ne_bytes());
    (status, u64::from_ne_bytes(pair.ends[0].bytes(0, 8).try_into().unwrap()))
}

#[test]
fn an_atomic_whose_answer_is_lost_gets_its_result_after_its_memory_was_deregistered() {
    let with_tags = |config: &mut Config| {
        config.star.authentication = Some(CardAuthentication { secret: ServerSecret::new([7; 16]) });
    };
    for config in [(|_| {}) as fn(&mut Config), with_tags] {
        // The client learns of the deregistration before it retransmits, or not before its operation is
        // complete.
        for is_lost in [(|kind| kind == PacketType::Sdp) as fn(PacketType) -> bool, |kind| {
            matches!(kind, PacketType::Sdp | PacketType::Wqep)
        }] {
            let (status, found) = atomic_whose_memory_is_deregistered(config, is_lost, 5_000_000);
            assert_eq!((status, found), (Status::Success, 40));
        }
        let (status, found) =
            atomic_whose_memory_is_deregistered(config, |kind| kind == PacketType::Aop, 5_000_000);
        assert_eq!((status, found), (Status::RemoteAccess, 0), "not executed before");
    }
}
