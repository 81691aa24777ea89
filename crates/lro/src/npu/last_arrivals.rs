//! Last-arrival cache for connections without a descriptor, whose bursts come further apart than the hold
//! limit, or have come once. Connections share the cells by hash.

use nichrome_wire::Instant;
use prefetch_index::prefetch_index;

/// Per cell: how many of its connections have a descriptor; which connection without one had the last
/// arrival, by some bits of its hash; whether one segment came alone; and when.
pub(super) struct LastArrivals {
    cells: Box<[Cell]>,
    /// Most ticks between arrivals that are certainly within the hold limit or little above.
    near: u16,
    /// Arrivals of one segment since the last one of several, or since a connection has come back.
    alone: u64,
}

/// From the lowest bit on: a count of descriptors, a tag (bits of a hash), whether the segment came alone,
/// and a time in ticks. All but the count are 0 before the first arrival.
#[derive(Clone, Copy, Default)]
struct Cell(u32);

const COUNT_BITS: u32 = 6;
const TAG_BITS: u32 = 9;
/// Position of the bit for segments that came alone.
const ALONE: u32 = COUNT_BITS + TAG_BITS;
const TIME: u32 = ALONE + 1;
/// Length of a tick in nanoseconds. The time wraps every 2.1 s: an arrival so long ago may look recent.
const TICK: u64 = 1 << 15;

impl Cell {
    /// The count saturates here, and then never goes down.
    const MANY: u32 = (1 << COUNT_BITS) - 1;

    #[inline]
    fn count(self) -> u32 {
        self.0 & Self::MANY
    }

    /// Returns the cell after an arrival in a tick.
    #[inline]
    fn after(self, hash: u32, tick: u16, alone: bool) -> Self {
        let tag = hash >> (u32::BITS - TAG_BITS);
        Self(u32::from(tick) << TIME | u32::from(alone) << ALONE | tag << COUNT_BITS | self.count())
    }

    /// Returns true if the last arrival was probably of the connection with this hash.
    #[inline]
    fn is_of(self, hash: u32) -> bool {
        self.0 >> COUNT_BITS & ((1 << TAG_BITS) - 1) == hash >> (u32::BITS - TAG_BITS)
    }

    /// Returns true if there was no arrival within `near` ticks before `tick`.
    #[inline]
    fn is_past(self, tick: u16, near: u16) -> bool {
        self.tick() == 0 || tick.wrapping_sub(self.tick()) > near
    }

    #[inline]
    fn is_alone(self) -> bool {
        self.0 >> ALONE & 1 == 1
    }

    /// Returns true if the last segment came alone, and no connection has a descriptor.
    #[inline]
    fn is_alone_without_descriptor(self) -> bool {
        self.0 & (Self::MANY | 1 << ALONE) == 1 << ALONE
    }

    #[inline]
    fn tick(self) -> u16 {
        (self.0 >> TIME) as u16
    }
}

impl LastArrivals {
    /// Nanoseconds by which an arrival may have been later or earlier than it is known to be.
    pub(super) const RESOLUTION: u64 = 2 * TICK - 1;

    /// The largest `near`, 1.07 s: half of the clock's turn. Other connections take the cell in the other
    /// half.
    const NEAR: u64 = 1 << (u16::BITS - 1);

    /// Number of arrivals of one segment after which the next one is expected to be the same.
    const ALONE: u64 = 64;

    /// Most cells: 256 KB fit in the second-level cache. The index uses other bits of the hash than the tag.
    const MOST: usize = 1 << 16;

    /// Creates the cache for a table of `connections`, with a hold limit of `pause` nanoseconds.
    pub(super) fn new(connections: usize, pause: u64) -> Self {
        let cells = vec![Cell::default(); connections.next_power_of_two().min(Self::MOST)].into();
        // The difference in ticks may exceed the time that has passed by up to two.
        Self { cells, near: (pause / TICK + 2).min(Self::NEAR) as u16, alone: 0 }
    }

    #[inline(always)]
    fn place(&self, hash: u32) -> usize {
        hash as usize & (self.cells.len() - 1)
    }

    #[inline]
    fn cell(&self, hash: u32) -> Cell {
        self.cells[self.place(hash)]
    }

    #[inline]
    fn cell_mut(&mut self, hash: u32) -> &mut Cell {
        let place = self.place(hash);
        &mut self.cells[place]
    }

    /// Prefetches the cell of a connection.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u32) {
        prefetch_index(&*self.cells, self.place(hash));
    }

    /// Records that a connection has got a descriptor.
    pub(super) fn descriptor_added(&mut self, hash: u32) {
        let cell = self.cell_mut(hash);
        cell.0 += u32::from(cell.count() < Cell::MANY);
    }

    /// Records that a connection has lost its descriptor.
    pub(super) fn descriptor_removed(&mut self, hash: u32) {
        let cell = self.cell_mut(hash);
        cell.0 -= u32::from((1..Cell::MANY).contains(&cell.count()));
    }

    /// Records at `now` an arrival at `at` of a connection without a descriptor: of one segment `alone`, or
    /// of several in a burst. Cells keep other connections' arrivals within the hold limit: one that comes
    /// back in time takes a descriptor.
    #[inline(always)]
    pub(super) fn arrived(&mut self, hash: u32, at: Instant, now: Instant, alone: bool) {
        self.alone = if alone { self.alone + 1 } else { 0 };
        let near = self.near;
        let cell = self.cell_mut(hash);
        if cell.is_of(hash) || cell.is_past(tick(now), near) {
            *cell = cell.after(hash, tick(at), alone);
        }
    }

    /// Returns true if the connection certainly has no descriptor.
    #[inline(always)]
    pub(super) fn has_no_descriptor(&self, hash: u32) -> bool {
        self.cell(hash).count() == 0
    }

    /// Records the arrival at `at` of one segment `alone`, or of several, of a connection without a
    /// descriptor. Records nothing if its last segments came within the hold limit, and returns when: it
    /// takes a descriptor.
    #[inline(always)]
    pub(super) fn arrived_again(&mut self, hash: u32, at: Instant, alone: bool) -> Option<Instant> {
        if let Standing::Met(before) = self.standing(hash, at) {
            return Some(before);
        }
        self.arrived(hash, at, at, alone);
        None
    }

    /// Records that a connection has come back within the hold limit.
    #[inline]
    pub(super) fn came_back(&mut self) {
        self.alone = 0;
    }

    /// Returns true if the connection without a descriptor that has this cell is sparse: its last segment
    /// came alone, longer ago than the hold limit. While all come with one segment, a connection is taken for
    /// the one that has its cell: many sparse connections share the cells, and take no runs.
    #[inline(always)]
    fn is_sparse(&self, cell: Cell, hash: u32, tick: u16) -> bool {
        let is_past =
            if cell.is_of(hash) { cell.is_past(tick, self.near) } else { self.alone >= Self::ALONE };
        cell.is_alone() && is_past
    }

    /// Returns the arrival of a segment alone if its connection certainly has no descriptor and is sparse.
    #[inline(always)]
    pub(super) fn if_sparse(&self, hash: u32, now: Instant) -> Option<Arrival> {
        let (place, tick) = (self.place(hash), tick(now));
        let cell = self.cells[place];
        if !cell.is_alone_without_descriptor() || !self.is_sparse(cell, hash, tick) {
            return None;
        }
        let keeps_other = !cell.is_of(hash) && !cell.is_past(tick, self.near);
        Some(Arrival { place, after: if keeps_other { cell } else { cell.after(hash, tick, true) } })
    }

    /// Records the arrival of a segment alone.
    #[inline(always)]
    pub(super) fn record(&mut self, Arrival { place, after }: Arrival) {
        self.alone += 1;
        self.cells[place] = after;
    }

    /// Returns what is known at `now` of a connection without a descriptor.
    #[inline]
    pub(super) fn standing(&self, hash: u32, now: Instant) -> Standing {
        let (cell, tick) = (self.cell(hash), tick(now));
        if cell.is_of(hash) && !cell.is_past(tick, self.near) {
            // A segment alone in the same tick may be one of the same burst, which was passed at once.
            let least = u64::from(!cell.is_alone());
            let nanos = (u64::from(tick.wrapping_sub(cell.tick())) * TICK).max(least);
            Standing::Met(Instant::from_nanos(now.as_nanos().saturating_sub(nanos)))
        } else if self.is_sparse(cell, hash, tick) {
            Standing::Sparse
        } else {
            Standing::Stranger
        }
    }
}

/// An arrival of a segment alone that is not recorded yet.
pub(super) struct Arrival {
    place: usize,
    /// The cell with it.
    after: Cell,
}

/// What is known of a connection without a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing, or that its last burst came longer ago than the hold limit.
    Stranger,
    /// Its last segment came alone, longer ago than the hold limit.
    Sparse,
    /// Its last segments came within the hold limit, at this time to [`LastArrivals::RESOLUTION`].
    Met(Instant),
}

/// Returns the tick of a time, truncated to the field; never 0, which stands for no arrival.
#[inline]
fn tick(time: Instant) -> u16 {
    ((time.as_nanos() / TICK) as u16).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAUSE: u64 = 1_000_000;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn cells(connections: usize) -> LastArrivals {
        LastArrivals::new(connections, PAUSE)
    }

    fn is_met(standing: Standing) -> bool {
        matches!(standing, Standing::Met(_))
    }

    #[test]
    fn a_sparse_interval_is_longer_than_the_pause_however_the_ticks_fall() {
        for (start, alone) in (0..70_000).step_by(111).flat_map(|start| [(start, true), (start, false)]) {
            let mut last_arrivals = cells(16);
            let nothing_known = last_arrivals.standing(3, at(start + 10 * PAUSE));
            assert_eq!(nothing_known, Standing::Stranger, "no arrival yet");
            last_arrivals.arrived(3, at(start), at(start), alone);
            for passed in [0, PAUSE] {
                let Standing::Met(when) = last_arrivals.standing(3, at(start + passed)) else {
                    panic!("{start} + {passed}")
                };
                assert!(when.as_nanos().abs_diff(start) <= 2 * TICK, "{start}, {when:?}");
            }
            let past = if alone { Standing::Sparse } else { Standing::Stranger };
            for passed in [PAUSE + 4 * TICK, 60 * PAUSE] {
                assert_eq!(last_arrivals.standing(3, at(start + passed)), past, "{start} + {passed}");
            }
        }
    }

    #[test]
    fn a_connection_certainly_has_no_descriptor_while_no_other_of_its_cell_has_a_descriptor() {
        let mut last_arrivals = cells(16);
        assert!(last_arrivals.has_no_descriptor(3));
        last_arrivals.descriptor_added(3);
        last_arrivals.descriptor_added(3 + 16);
        last_arrivals.arrived(3, at(PAUSE), at(PAUSE), true);
        assert!(last_arrivals.if_sparse(3, at(3 * PAUSE)).is_none(), "it may have a descriptor");
        assert!(last_arrivals.has_no_descriptor(4) && !last_arrivals.has_no_descriptor(3));
        last_arrivals.descriptor_removed(3);
        assert!(!last_arrivals.has_no_descriptor(3));
        last_arrivals.descriptor_removed(3);
        assert!(last_arrivals.has_no_descriptor(3));
        assert_eq!(last_arrivals.standing(3, at(3 * PAUSE)), Standing::Sparse);
    }

    /// Hashes of two connections that share a cell.
    const SHARED: [u32; 2] = [3, 3 | 1 << 31];

    #[test]
    fn of_connections_that_share_a_cell_the_one_that_came_within_the_hold_limit_is_known() {
        let [one, other] = SHARED;
        for alone in [false, true] {
            let mut last_arrivals = cells(16);
            last_arrivals.arrived(one, at(0), at(0), alone);
            last_arrivals.arrived(other, at(1), at(1), alone);
            assert!(is_met(last_arrivals.standing(one, at(2))));
            assert_eq!(last_arrivals.standing(other, at(2)), Standing::Stranger);
            last_arrivals.arrived(other, at(2 * PAUSE), at(2 * PAUSE), alone);
            assert_eq!(last_arrivals.standing(one, at(2 * PAUSE)), Standing::Stranger);
            assert!(is_met(last_arrivals.standing(other, at(2 * PAUSE))));
        }
    }

    #[test]
    fn while_all_come_alone_those_that_share_a_cell_do() {
        let [one, other] = SHARED;
        let ends: [fn(&mut LastArrivals); 2] = [
            |last_arrivals| last_arrivals.arrived(4, at(0), at(0), false),
            |last_arrivals| last_arrivals.came_back(),
        ];
        for end in ends {
            let mut last_arrivals = cells(16);
            for nth in 1..=LastArrivals::ALONE {
                assert_eq!(last_arrivals.standing(other, at(1)), Standing::Stranger, "{nth}");
                last_arrivals.arrived(one, at(0), at(0), true);
            }
            assert_eq!(last_arrivals.standing(other, at(1)), Standing::Sparse);
            assert!(is_met(last_arrivals.standing(one, at(1))));
            assert_eq!(last_arrivals.standing(5, at(1)), Standing::Stranger, "its cell is empty");
            end(&mut last_arrivals);
            assert_eq!(last_arrivals.standing(other, at(1)), Standing::Stranger);
        }
    }

    proptest! {
        /// The short way for sparse connections finds those whose standing is that, and records their
        /// arrivals as the long way does.
        #[test]
        fn sparse_connections_are_recorded_alike_by_both_ways(
            steps in proptest::collection::vec((0usize..4, 0..3 * PAUSE, 0..30), 0..200),
        ) {
            let (mut short, mut long) = (cells(2), cells(2));
            for cells in [&mut short, &mut long] {
                (0..LastArrivals::ALONE).for_each(|_| cells.arrived(4, at(0), at(0), true));
            }
            let mut now = at(0);
            for (nth, interval, several) in steps {
                let alone = several > 0;
                let hash = [SHARED[0], SHARED[1], 4, 4 | 1 << 31][nth];
                now = now.plus_nanos(interval);
                let standing = long.standing(hash, now);
                prop_assert_eq!(short.standing(hash, now), standing);
                let sparse = short.if_sparse(hash, now);
                prop_assert_eq!(sparse.is_some(), standing == Standing::Sparse);
                match sparse {
                    Some(arrival) => {
                        short.record(arrival);
                        long.arrived(hash, now, now, true);
                    }
                    None => {
                        let met = [&mut short, &mut long].map(|cells| cells.arrived_again(hash, now, alone));
                        prop_assert_eq!(met.map(|met| met.is_some()), [is_met(standing); 2]);
                    }
                }
                prop_assert_eq!(short.alone, long.alone);
            }
        }
    }

    #[test]
    fn more_descriptors_than_can_be_counted_stay_for_ever() {
        let mut last_arrivals = cells(1);
        (0..1000).for_each(|_| last_arrivals.descriptor_added(0));
        (0..1000).for_each(|_| last_arrivals.descriptor_removed(0));
        assert!(!last_arrivals.has_no_descriptor(0));
    }

    #[test]
    fn an_arrival_long_ago_may_look_recent_but_no_recent_one_long_ago() {
        let turn = TICK << u16::BITS;
        let mut last_arrivals = cells(1);
        last_arrivals.arrived(0, at(turn - PAUSE / 2), at(turn - PAUSE / 2), true);
        assert!(is_met(last_arrivals.standing(0, at(turn + PAUSE / 4))));
        assert_eq!(last_arrivals.standing(0, at(turn + 2 * PAUSE)), Standing::Sparse);
        assert!(is_met(last_arrivals.standing(0, at(2 * turn))));
    }

    #[test]
    fn with_a_hold_limit_beyond_the_clock_a_cell_is_left_to_others_after_half_a_turn() {
        let [one, other] = SHARED;
        let half = TICK << (u16::BITS - 1);
        let mut last_arrivals = LastArrivals::new(1, u64::MAX);
        last_arrivals.arrived(one, at(PAUSE), at(PAUSE), true);
        last_arrivals.arrived(other, at(half), at(half), true);
        assert!(is_met(last_arrivals.standing(one, at(half))));
        assert_eq!(last_arrivals.standing(one, at(half + 2 * PAUSE)), Standing::Sparse);
        let later = at(half + 2 * PAUSE);
        last_arrivals.arrived(other, later, later, true);
        assert!(is_met(last_arrivals.standing(other, later)));
    }

    #[test]
    fn an_arrival_that_is_recorded_late_replaces_no_newer_one() {
        let [one, other] = SHARED;
        let mut last_arrivals = cells(16);
        last_arrivals.arrived(one, at(10 * PAUSE), at(10 * PAUSE), true);
        last_arrivals.arrived(other, at(9 * PAUSE), at(10 * PAUSE), true);
        assert!(is_met(last_arrivals.standing(one, at(10 * PAUSE))));
    }
}
