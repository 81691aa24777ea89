//! Last-arrival cache for connections without a descriptor: those whose bursts come further apart than the
//! hold limit, and those with a single burst so far. Connections share the cells by hash.

use nichrome_wire::Instant;
use prefetch_index::prefetch_index;

/// Each cell has the number of its connections that have a descriptor and, for the last arrival of a
/// connection without one, some bits of the connection's hash, whether a single segment arrived, and the
/// time.
pub(super) struct LastArrivals {
    cells: Box<[Cell]>,
    /// Maximum difference in ticks of two arrivals that count as within the hold limit: all intervals up to
    /// the limit, and some that are a few ticks longer.
    near: u16,
    /// Number of single-segment arrivals in a row: since the last arrival of several segments, or since a
    /// connection came back within the hold limit.
    alone: u64,
}

/// From the lowest bit on: a count of descriptors, a tag (bits of a hash), a bit for a single segment, and a
/// time in ticks. All but the count are 0 before the first arrival.
#[derive(Clone, Copy, Default)]
struct Cell(u32);

const COUNT_BITS: u32 = 6;
const TAG_BITS: u32 = 9;
/// Position of the bit for a single segment.
const ALONE: u32 = COUNT_BITS + TAG_BITS;
const TIME: u32 = ALONE + 1;
/// Length of a tick in nanoseconds. The time wraps every 2.1 s: an arrival that long ago may look recent.
const TICK: u64 = 1 << 15;

impl Cell {
    /// The count saturates here, and then never goes down.
    const MANY: u32 = (1 << COUNT_BITS) - 1;

    #[inline]
    fn count(self) -> u32 {
        self.0 & Self::MANY
    }

    /// Returns the cell with an arrival recorded: its tick, and whether a single segment arrived `alone`.
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

    /// Returns true if the last arrival was a single segment, and no connection of the cell has a descriptor.
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
    /// Maximum error of a recorded arrival, in nanoseconds: it may have been earlier or later.
    pub(super) const RESOLUTION: u64 = 2 * TICK - 1;

    /// Upper bound of `near`: 1.07 s, half of the time in which the ticks wrap. Other connections can take
    /// the cell in the other half.
    const NEAR: u64 = 1 << (u16::BITS - 1);

    /// Number of single-segment arrivals in a row after which the next arrival is expected to be a single
    /// segment.
    const ALONE: u64 = 64;

    /// Maximum number of cells: 256 KB fit in the L2 cache. The index uses other bits of the hash than the
    /// tag.
    const MOST: usize = 1 << 16;

    /// Creates the cache for a table of `connections`, with a hold limit of `pause` nanoseconds.
    pub(super) fn new(connections: usize, pause: u64) -> Self {
        let cells = vec![Cell::default(); connections.next_power_of_two().min(Self::MOST)].into();
        // Rounding may make the difference in ticks up to two greater than the time that has passed.
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

    /// Records that a connection has taken a descriptor.
    pub(super) fn descriptor_added(&mut self, hash: u32) {
        let cell = self.cell_mut(hash);
        cell.0 += u32::from(cell.count() < Cell::MANY);
    }

    /// Records that a connection has released its descriptor.
    pub(super) fn descriptor_removed(&mut self, hash: u32) {
        let cell = self.cell_mut(hash);
        cell.0 -= u32::from((1..Cell::MANY).contains(&cell.count()));
    }

    /// Records at `now` that segments of a connection without a descriptor arrived at `at`: a single one if
    /// `alone`, else several in a burst. If another connection had an arrival in the cell within the hold
    /// limit, the cell keeps that one: the other connection takes a descriptor if it comes back in time.
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

    /// As [`LastArrivals::arrived`] at `at`, unless the connection's previous segments arrived within the
    /// hold limit. If so, records nothing and returns the time of that arrival: the connection takes a
    /// descriptor.
    #[inline(always)]
    pub(super) fn arrived_again(&mut self, hash: u32, at: Instant, alone: bool) -> Option<Instant> {
        if let Standing::Recent(before) = self.standing(hash, at) {
            return Some(before);
        }
        self.arrived(hash, at, at, alone);
        None
    }

    /// Records that a connection has come back within the hold limit.
    #[inline]
    pub(super) fn note_return(&mut self) {
        self.alone = 0;
    }

    /// Returns true if a connection without a descriptor, whose cell this is, is sparse: its last arrival was
    /// a single segment, longer ago than the hold limit. If another connection has the cell, with a single
    /// segment, and the last [`LastArrivals::ALONE`] arrivals were single segments, too, this one also counts
    /// as sparse: many sparse connections share the cells, and need no runs.
    #[inline(always)]
    fn is_sparse(&self, cell: Cell, hash: u32, tick: u16) -> bool {
        let is_past =
            if cell.is_of(hash) { cell.is_past(tick, self.near) } else { self.alone >= Self::ALONE };
        cell.is_alone() && is_past
    }

    /// Returns the arrival of a single segment, to be [recorded](LastArrivals::record), if its connection
    /// certainly has no descriptor and is sparse.
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

    /// Records the arrival of a single segment.
    #[inline(always)]
    pub(super) fn record(&mut self, Arrival { place, after }: Arrival) {
        self.alone += 1;
        self.cells[place] = after;
    }

    /// Returns the standing of a connection without a descriptor at `now`.
    #[inline]
    pub(super) fn standing(&self, hash: u32, now: Instant) -> Standing {
        let (cell, tick) = (self.cell(hash), tick(now));
        if cell.is_of(hash) && !cell.is_past(tick, self.near) {
            // A single segment in the same tick may have been one of this burst, delivered at once.
            let least = u64::from(!cell.is_alone());
            let nanos = (u64::from(tick.wrapping_sub(cell.tick())) * TICK).max(least);
            Standing::Recent(Instant::from_nanos(now.as_nanos().saturating_sub(nanos)))
        } else if self.is_sparse(cell, hash, tick) {
            Standing::Sparse
        } else {
            Standing::NotRecent
        }
    }
}

/// The arrival of a single segment that is not recorded yet.
pub(super) struct Arrival {
    place: usize,
    /// The cell with the arrival recorded.
    after: Cell,
}

/// A connection without a descriptor, as its last arrival shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing, or that its last burst came longer ago than the hold limit.
    NotRecent,
    /// Its last arrival was a single segment, longer ago than the hold limit.
    Sparse,
    /// Its last segments came within the hold limit, at this time, accurate to [`LastArrivals::RESOLUTION`].
    Recent(Instant),
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

    fn is_recent(standing: Standing) -> bool {
        matches!(standing, Standing::Recent(_))
    }

    #[test]
    fn a_sparse_interval_is_longer_than_the_pause_however_the_ticks_fall() {
        for (start, alone) in (0..70_000).step_by(111).flat_map(|start| [(start, true), (start, false)]) {
            let mut last_arrivals = cells(16);
            let nothing_known = last_arrivals.standing(3, at(start + 10 * PAUSE));
            assert_eq!(nothing_known, Standing::NotRecent, "no arrival yet");
            last_arrivals.arrived(3, at(start), at(start), alone);
            for passed in [0, PAUSE] {
                let Standing::Recent(when) = last_arrivals.standing(3, at(start + passed)) else {
                    panic!("{start} + {passed}")
                };
                assert!(when.as_nanos().abs_diff(start) <= 2 * TICK, "{start}, {when:?}");
            }
            let past = if alone { Standing::Sparse } else { Standing::NotRecent };
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
            assert!(is_recent(last_arrivals.standing(one, at(2))));
            assert_eq!(last_arrivals.standing(other, at(2)), Standing::NotRecent);
            last_arrivals.arrived(other, at(2 * PAUSE), at(2 * PAUSE), alone);
            assert_eq!(last_arrivals.standing(one, at(2 * PAUSE)), Standing::NotRecent);
            assert!(is_recent(last_arrivals.standing(other, at(2 * PAUSE))));
        }
    }

    #[test]
    fn while_all_come_alone_those_that_share_a_cell_do() {
        let [one, other] = SHARED;
        let ends: [fn(&mut LastArrivals); 2] = [
            |last_arrivals| last_arrivals.arrived(4, at(0), at(0), false),
            |last_arrivals| last_arrivals.note_return(),
        ];
        for end in ends {
            let mut last_arrivals = cells(16);
            for nth in 1..=LastArrivals::ALONE {
                assert_eq!(last_arrivals.standing(other, at(1)), Standing::NotRecent, "{nth}");
                last_arrivals.arrived(one, at(0), at(0), true);
            }
            assert_eq!(last_arrivals.standing(other, at(1)), Standing::Sparse);
            assert!(is_recent(last_arrivals.standing(one, at(1))));
            assert_eq!(last_arrivals.standing(5, at(1)), Standing::NotRecent, "its cell is empty");
            end(&mut last_arrivals);
            assert_eq!(last_arrivals.standing(other, at(1)), Standing::NotRecent);
        }
    }

    proptest! {
        /// [`LastArrivals::if_sparse`] finds exactly the connections whose standing is sparse, and
        /// [`LastArrivals::record`] has the effect of [`LastArrivals::arrived`].
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
                        prop_assert_eq!(met.map(|met| met.is_some()), [is_recent(standing); 2]);
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
        assert!(is_recent(last_arrivals.standing(0, at(turn + PAUSE / 4))));
        assert_eq!(last_arrivals.standing(0, at(turn + 2 * PAUSE)), Standing::Sparse);
        assert!(is_recent(last_arrivals.standing(0, at(2 * turn))));
    }

    #[test]
    fn with_a_hold_limit_beyond_the_clock_a_cell_is_left_to_others_after_half_a_turn() {
        let [one, other] = SHARED;
        let half = TICK << (u16::BITS - 1);
        let mut last_arrivals = LastArrivals::new(1, u64::MAX);
        last_arrivals.arrived(one, at(PAUSE), at(PAUSE), true);
        last_arrivals.arrived(other, at(half), at(half), true);
        assert!(is_recent(last_arrivals.standing(one, at(half))));
        assert_eq!(last_arrivals.standing(one, at(half + 2 * PAUSE)), Standing::Sparse);
        let later = at(half + 2 * PAUSE);
        last_arrivals.arrived(other, later, later, true);
        assert!(is_recent(last_arrivals.standing(other, later)));
    }

    #[test]
    fn an_arrival_that_is_recorded_late_replaces_no_newer_one() {
        let [one, other] = SHARED;
        let mut last_arrivals = cells(16);
        last_arrivals.arrived(one, at(10 * PAUSE), at(10 * PAUSE), true);
        last_arrivals.arrived(other, at(9 * PAUSE), at(10 * PAUSE), true);
        assert!(is_recent(last_arrivals.standing(one, at(10 * PAUSE))));
    }
}
