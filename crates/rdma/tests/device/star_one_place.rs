//! Consecutive operations of StaR that change the same bytes: they overlap in time, and memory is never older
//! than the last completed one.

use std::ops::Range;

use crate::common::{ALL, BASE, Fate, Faults, Link, Pair};
use nichrome_rdma::*;
use nichrome_wire::star::{PacketType, Repr};
use proptest::prelude::*;

const CLIENT: usize = 0;
const SERVER: usize = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    ClientWrites,
    ClientReads,
    ClientSends,
    ServerWrites,
    ServerReads,
    ServerSends,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::ClientWrites,
        Self::ClientReads,
        Self::ClientSends,
        Self::ServerWrites,
        Self::ServerReads,
        Self::ServerSends,
    ];

    /// The side whose program posts the operations.
    const fn posts(self) -> usize {
        match self {
            Self::ClientWrites | Self::ClientReads | Self::ClientSends => CLIENT,
            Self::ServerWrites | Self::ServerReads | Self::ServerSends => SERVER,
        }
    }

    /// The side whose memory they change.
    const fn changes(self) -> usize {
        match self {
            Self::ClientReads | Self::ServerWrites | Self::ServerSends => CLIENT,
            Self::ClientWrites | Self::ClientSends | Self::ServerReads => SERVER,
        }
    }
}

/// Operations that fill the first `len` bytes of a side. All bytes of an operation are its number, from 1.
struct Versions {
    qps: [QpHandle; 2],
    kind: Kind,
    len: usize,
    /// Bytes from the place of an operation to that of the next.
    stride: usize,
    posted: u8,
    completed: u8,
}

impl Versions {
    fn new(qps: [QpHandle; 2], kind: Kind, len: usize) -> Self {
        Self { qps, kind, len, stride: 0, posted: 0, completed: 0 }
    }

    fn post(&mut self, pair: &mut Pair) {
        self.posted += 1;
        let (posts, changes) = (self.kind.posts(), self.kind.changes());
        let (nth, from, to) = (
            u64::from(self.posted),
            0x1000 + usize::from(self.posted) * self.len,
            usize::from(self.posted) * self.stride,
        );
        pair.ends[1 - changes].fill(from, &vec![self.posted; self.len]);
        let (operation, local) = match self.kind {
            Kind::ClientWrites | Kind::ServerWrites => {
                (Operation::Write(pair.ends[changes].remote(to)), from)
            }
            Kind::ClientReads | Kind::ServerReads => {
                (Operation::Read(pair.ends[1 - changes].remote(from)), to)
            }
            Kind::ClientSends | Kind::ServerSends => {
                pair.ends[changes].receive(self.qps[changes], nth, to, self.len);
                (Operation::Send, from)
            }
        };
        pair.ends[posts].post(self.qps[posts], nth, operation, local, self.len);
    }

    /// Checks that completions are in order and that memory holds the last completed operation or a later
    /// one. Returns failures.
    fn look(&mut self, pair: &mut Pair) -> Vec<Completion> {
        let (mut failed, mut received) = (Vec::new(), 0);
        for wc in pair.ends[CLIENT].completions().into_iter().chain(pair.ends[SERVER].completions()) {
            if wc.status != Status::Success {
                failed.push(wc);
            } else if wc.operation == CompletedOperation::Receive {
                received = wc.wr_id as u8;
            } else {
                self.completed += 1;
                assert_eq!(wc.wr_id, u64::from(self.completed));
            }
        }
        if self.stride == 0 {
            let oldest = pair.ends[self.kind.changes()].bytes(0, self.len).iter().min().copied().unwrap();
            let completed = self.completed.max(received);
            assert!(oldest >= completed, "{oldest} where {completed} has completed");
        }
        failed
    }
}

/// Drops the packets to the server whose numbers, from 1, are in `which`.
fn lose(pair: &mut Pair, which: Range<u32>) {
    let mut count = 0;
    pair.fates = Some(Box::new(move |to, _| {
        count += u32::from(to == SERVER);
        if to == SERVER && which.contains(&count) { Fate::IsLost } else { Fate::Arrives }
    }));
}

/// Gives the first packet of this type a fate.
fn treat_first(pair: &mut Pair, of: PacketType, fate: Fate) {
    let mut is_first = true;
    pair.fates = Some(Box::new(move |_, bytes| {
        let is_it = Repr::parse(bytes).unwrap().0.message.packet_type() == of;
        if is_it && std::mem::take(&mut is_first) { fate } else { Fate::Arrives }
    }));
}

#[test]
fn operations_on_one_place_take_a_round_trip_more_at_most_than_on_many() {
    let time = |kind, stride| {
        let mut pair = Pair::new();
        let qps = pair.connect_star(SERVER, &Link { mtu: PathMtu::B256, ..Link::default() });
        let mut versions = Versions { stride, ..Versions::new(qps, kind, 500) };
        (0..100).for_each(|_| versions.post(&mut pair));
        pair.run_until(|pair| {
            versions.look(pair);
            versions.completed == 100
        });
        pair.now.as_nanos()
    };
    for kind in Kind::ALL {
        let (one, many) = (time(kind, 0), time(kind, 500));
        // Operations on the server's memory complete a round trip later, when its contents are certain.
        let round_trip = if kind.changes() == SERVER { 2 * Pair::new().delay } else { 0 };
        assert!(one <= many + round_trip, "{kind:?}: {one} ns on one place, {many} on many");
    }
}

#[test]
fn writes_to_one_place_do_not_wait_for_each_other() {
    let mut pair = Pair::new();
    let qps = pair.connect_star(SERVER, &Link::default());
    let mut versions = Versions::new(qps, Kind::ClientWrites, 8);
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
    let qps = pair.connect_star(SERVER, &Link::default());
    let mut versions = Versions::new(qps, Kind::ClientWrites, 8);
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
    let qps = pair.connect_star(SERVER, &Link { timeout: 12, ..Link::default() });
    let mut versions = Versions::new(qps, Kind::ClientWrites, 8);
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
    let qps = pair.connect_star(SERVER, &Link::default());
    let mut versions = Versions::new(qps, Kind::ClientWrites, 8);
    (0..3).for_each(|_| versions.post(&mut pair));
    let there = pair.ends[SERVER].remote(0);
    let none = [Sge { lkey: LKey(0x5555), ..pair.ends[CLIENT].sge(0, 8) }];
    pair.ends[CLIENT]
        .device
        .post_send(qps[CLIENT], &SendRequest::new(4, Operation::Write(there), &none))
        .unwrap();
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
    let qps = pair.connect_star(SERVER, &Link::default());
    let mut versions = Versions::new(qps, Kind::ClientWrites, 8);
    let until = pair.now.plus_nanos(u64::from(ROUND_TRIPS) * 2 * pair.delay);
    while pair.now < until {
        (versions.posted..versions.completed + DEPTH).for_each(|_| versions.post(&mut pair));
        assert!(pair.step());
        versions.look(&mut pair);
    }
    // With a second round trip to establish the order, half as many would complete.
    assert!(versions.completed > ROUND_TRIPS / 4 * 3 * DEPTH, "{} completed", versions.completed);
}

/// The second WRITE overtakes the first. The third, which was to vouch for the second, is refused: the
/// contents of the memory are unknown.
#[test]
fn a_write_whose_successor_to_its_place_is_refused_has_failed_as_well() {
    let mut pair = Pair::new();
    let qps = pair.connect_star(SERVER, &Link::default());
    let late = pair.delay / 2;
    treat_first(&mut pair, PacketType::Rdp, Fate::ArrivesLate(late));
    let mut versions = Versions::new(qps, Kind::ClientWrites, 8);
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

/// As above, with the server's READs: the client's program deregisters the region before the third is sent.
#[test]
fn a_read_whose_successor_to_its_place_fails_has_failed_as_well() {
    let mut pair = Pair::new();
    let qps = pair.connect_star(SERVER, &Link::default());
    let late = pair.delay / 2;
    treat_first(&mut pair, PacketType::Rdp, Fate::ArrivesLate(late));
    let mut versions = Versions::new(qps, Kind::ServerReads, 8);
    (0..3).for_each(|_| versions.post(&mut pair));
    pair.run_until(|pair| pair.ends[SERVER].device.view::<star::CardCounters>().stored == 2);
    let region = pair.ends[CLIENT].region;
    pair.ends[CLIENT].device.deregister(region).unwrap();
    pair.run();
    let failed: Vec<_> = versions.look(&mut pair).iter().map(|wc| (wc.wr_id, wc.status)).collect();
    assert_eq!(versions.completed, 1);
    assert_eq!(failed, [(2, Status::RemoteAccess), (3, Status::Flushed)]);
}

/// The answer of the first READ is lost, and the second is refused, so that it fills nothing.
#[test]
fn a_read_whose_successor_to_its_place_is_refused_is_retransmitted() {
    let mut pair = Pair::new();
    let qps = pair.connect_star(SERVER, &Link::default());
    treat_first(&mut pair, PacketType::Sdp, Fate::IsLost);
    let (region, RegionReport { rkey, .. }) =
        pair.ends[SERVER].register(RegionConfig::new(BASE, 0x2000, ALL));
    pair.run();
    let mut versions = Versions::new(qps, Kind::ClientReads, 8);
    versions.post(&mut pair);
    let there = Remote { rkey, ..pair.ends[SERVER].remote(0x1800) };
    pair.ends[CLIENT].post(qps[CLIENT], 2, Operation::Read(there), 0, 8);
    pair.ends[SERVER].device.deregister(region).unwrap();
    pair.run();
    let failed = versions.look(&mut pair);
    assert_eq!((versions.completed, failed[0].status), (1, Status::RemoteAccess));
    assert_eq!(pair.ends[SERVER].device.view::<star::CardCounters>().refused_memory, 1);
    assert_eq!(pair.ends[CLIENT].device.counters().retransmitted, 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn memory_never_shows_less_than_what_has_completed(
        steps in proptest::collection::vec(0..4u8, 2..100),
        chances in prop::array::uniform3(prop_oneof![Just(0.0), 0.0..0.3]),
        seed in any::<u64>(),
        kind in prop::sample::select(&Kind::ALL[..]),
        len in prop_oneof![1..300usize, 300..3000usize],
        window in prop_oneof![Just(1u32), 2..8u32, Just(64)],
    ) {
        let [loss, reorder, mark] = chances;
        // No duplicates by the network: docs/star.md, Limits.
        let faults = Faults { loss: loss / 3.0, reorder, mark, ..Faults::default() };
        let mut pair = Pair::with(|config| {
            config.window = SendWindow { initial: window, max: 4 * window, read: 1 };
        }).seeded(seed, faults);
        let qps = pair.connect_star(SERVER, &Link { mtu: PathMtu::B256, ..Link::default() });
        let mut versions = Versions::new(qps, kind, len);
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
