//! Consecutive WRITEs of a StaR client to the same bytes: they overlap in time, and memory is never older than the last
//! completed WRITE.

use std::ops::Range;

use crate::common::{Fate, Faults, Link, Pair};
use nichrome_rdma::*;
use proptest::prelude::*;

/// The client.
const CLIENT: usize = 0;
const SERVER: usize = 1;

/// WRITEs to the first `len` bytes of the server. All bytes of a WRITE are its number, from 1.
struct Versions {
    qp: QpHandle,
    len: usize,
    posted: u8,
    completed: u8,
}

impl Versions {
    fn new(qp: QpHandle, len: usize) -> Self {
        Self { qp, len, posted: 0, completed: 0 }
    }

    fn post(&mut self, pair: &mut Pair) {
        self.posted += 1;
        let at = 0x1000 + usize::from(self.posted) * self.len;
        let there = pair.ends[SERVER].remote(0);
        pair.ends[CLIENT].fill(at, &vec![self.posted; self.len]);
        pair.ends[CLIENT].post(self.qp, u64::from(self.posted), Operation::Write(there), at, self.len);
    }

    /// Checks that completions are in order and that memory holds the last completed WRITE or a later one. Returns failures.
    fn look(&mut self, pair: &mut Pair) -> Vec<Completion> {
        let mut failed = Vec::new();
        for wc in pair.ends[CLIENT].completions() {
            if wc.status == Status::Success {
                self.completed += 1;
                assert_eq!(wc.wr_id, u64::from(self.completed));
            } else {
                failed.push(wc);
            }
        }
        let oldest = pair.ends[SERVER].bytes(0, self.len).iter().min().copied().unwrap();
        assert!(oldest >= self.completed, "{oldest} where {} has completed", self.completed);
        failed
    }
}

/// Drops these of the packets to the server, counted from 1.
fn lose(pair: &mut Pair, which: Range<u32>) {
    let mut count = 0;
    pair.fates = Some(Box::new(move |to, _| {
        count += u32::from(to == SERVER);
        if to == SERVER && which.contains(&count) { Fate::IsLost } else { Fate::Arrives }
    }));
}

#[test]
fn writes_to_one_place_do_not_wait_for_each_other() {
    let mut pair = Pair::new();
    let [qp, _] = pair.connect_star(SERVER, &Link::default());
    let mut versions = Versions::new(qp, 8);
    (0..100).for_each(|_| versions.post(&mut pair));
    pair.run_until(|pair| {
        versions.look(pair);
        versions.completed == 100
    });
    let round_trip = 2 * pair.delay;
    assert!(pair.now <= Instant::from_nanos(3 * round_trip), "{}", pair.now);
    assert_eq!(pair.ends[SERVER].device.view::<star::CardCounters>().stored, 100);
}

#[test]
fn a_lost_write_is_not_retransmitted_when_a_later_one_was_sent_to_its_place() {
    let mut pair = Pair::new();
    let [qp, _] = pair.connect_star(SERVER, &Link::default());
    let mut versions = Versions::new(qp, 8);
    lose(&mut pair, 3..4);
    (0..10).for_each(|_| versions.post(&mut pair));
    let mut newest = 0;
    while pair.step() {
        versions.look(&mut pair);
        // Memory never returns to an older version.
        let version = pair.ends[SERVER].bytes(0, 1)[0];
        assert!(version >= newest, "{version} after {newest}");
        newest = version;
    }
    assert_eq!((versions.completed, newest), (10, 10));
    assert_eq!(pair.ends[SERVER].device.view::<star::CardCounters>().stored, 9);
    assert_eq!(pair.ends[CLIENT].device.counters().retransmitted, 0);
}

#[test]
fn a_write_that_never_arrived_completes_when_a_later_one_is_in_its_place() {
    let mut pair = Pair::new();
    let [qp, _] = pair.connect_star(SERVER, &Link { timeout: 12, ..Link::default() });
    let mut versions = Versions::new(qp, 8);
    lose(&mut pair, 1..6);
    (0..3).for_each(|_| versions.post(&mut pair));
    while pair.step() {
        versions.look(&mut pair);
    }
    assert_eq!(versions.completed, 3);
    assert!(pair.now > Instant::from_nanos(10_000_000), "the first is given up before another arrives");
}

#[test]
fn a_write_from_an_invalid_buffer_lets_those_before_it_complete() {
    let mut pair = Pair::new();
    let [qp, _] = pair.connect_star(SERVER, &Link::default());
    let mut versions = Versions::new(qp, 8);
    (0..3).for_each(|_| versions.post(&mut pair));
    let there = pair.ends[SERVER].remote(0);
    let none = [Sge { lkey: LKey(0x5555), ..pair.ends[CLIENT].sge(0, 8) }];
    pair.ends[CLIENT].device.post_send(qp, &SendRequest::new(4, Operation::Write(there), &none)).unwrap();
    pair.run();
    let failed = versions.look(&mut pair);
    assert_eq!(versions.completed, 3);
    assert_eq!((failed[0].wr_id, failed[0].status), (4, Status::LocalProtection));
}

#[test]
fn writes_that_are_stored_in_order_complete_in_a_round_trip() {
    const DEPTH: u8 = 16;
    const ROUND_TRIPS: u8 = 12;
    let mut pair = Pair::new();
    let [qp, _] = pair.connect_star(SERVER, &Link::default());
    let mut versions = Versions::new(qp, 8);
    let until = pair.now.plus_nanos(u64::from(ROUND_TRIPS) * 2 * pair.delay);
    while pair.now < until {
        (versions.posted..versions.completed + DEPTH).for_each(|_| versions.post(&mut pair));
        assert!(pair.step());
        versions.look(&mut pair);
    }
    // With the second round trip for the order it were half as many.
    assert!(versions.completed > ROUND_TRIPS / 4 * 3 * DEPTH, "{} completed", versions.completed);
}

/// The second WRITE overtakes the first. The third was to vouch for it: the contents of the memory are unknown.
#[test]
fn a_write_whose_successor_to_its_place_is_refused_has_failed_as_well() {
    let mut pair = Pair::new();
    let [qp, _] = pair.connect_star(SERVER, &Link::default());
    let (mut count, late) = (0, pair.delay / 2);
    pair.fates = Some(Box::new(move |to, _| {
        count += u32::from(to == SERVER);
        if to == SERVER && count == 1 { Fate::ArrivesLate(late) } else { Fate::Arrives }
    }));
    let mut versions = Versions::new(qp, 8);
    (0..3).for_each(|_| versions.post(&mut pair));
    pair.run_until(|pair| pair.ends[SERVER].device.view::<star::CardCounters>().stored == 2);
    let region = pair.ends[SERVER].region;
    pair.ends[SERVER].device.deregister(region).unwrap();
    pair.run();
    let failed = versions.look(&mut pair);
    let failed: Vec<_> = failed.iter().map(|wc| (wc.wr_id, wc.status)).collect();
    assert_eq!(versions.completed, 1);
    assert_eq!(failed, [(2, Status::RemoteAccess), (3, Status::Flushed)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn memory_never_shows_less_than_what_has_completed(
        steps in proptest::collection::vec(0..4u8, 2..100),
        chances in prop::array::uniform3(prop_oneof![Just(0.0), 0.0..0.3]),
        seed in any::<u64>(),
        len in prop_oneof![1..300usize, 300..3000usize],
        window in prop_oneof![Just(1u32), 2..8u32, Just(64)],
    ) {
        let [loss, reorder, mark] = chances;
        // No duplicates by the network: docs/star.md, Limits.
        let faults = Faults { loss: loss / 3.0, reorder, mark, ..Faults::default() };
        let mut pair = Pair::with(|config| {
            config.window = SendWindow { initial: window, max: 4 * window, read: 1 };
        }).seeded(seed, faults);
        let [qp, _] = pair.connect_star(SERVER, &Link { mtu: PathMtu::B256, ..Link::default() });
        let mut versions = Versions::new(qp, len);
        for pause in steps {
            versions.post(&mut pair);
            for _ in 0..pause {
                pair.step();
                prop_assert_eq!(versions.look(&mut pair), []);
            }
        }
        while pair.step() {
            prop_assert_eq!(versions.look(&mut pair), []);
        }
        prop_assert_eq!(versions.completed, versions.posted);
        prop_assert_eq!(pair.ends[CLIENT].device.poll_timeout(), None);
    }
}
