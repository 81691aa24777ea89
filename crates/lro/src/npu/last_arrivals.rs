//! Last-arrival cache for sparse connections, whose inter-arrival time is above the hold limit. They have no
//! descriptor. Connections share the cells by hash.

use nichrome_wire::Instant;

/// Per cell: how many of its connections have a descriptor; which connection without one had the last
/// arrival, by some bits of its hash; and when.
pub(super) struct LastArrivals {
    cells: Box<[Cell]>,
}

/// From the lowest bit on: a count of descriptors, a tag (bits of a hash), and a time in ticks. Tag and time
/// are 0 before the first arrival.
#[derive(Clone, Copy, Default)]
struct Cell(u32);

const COUNT_BITS: u32 = 6;
const TAG_BITS: u32 = 10;
/// Length of a tick in nanoseconds. The time wraps every 2.1 s: an arrival so long ago may look recent.
const TICK: u64 = 1 << 15;

impl Cell {
    /// The count saturates here, and then never goes down.
    const MANY: u32 = (1 << COUNT_BITS) - 1;

    #[inline]
    fn count(self) -> u32 {
        self.0 & Self::MANY
    }

    /// Returns the upper bits for an arrival in a tick.
    #[inline]
    fn arrival(hash: u32, tick: u16) -> u32 {
        u32::from(tick) << (COUNT_BITS + TAG_BITS) | hash >> (u32::BITS - TAG_BITS) << COUNT_BITS
    }

    #[inline]
    fn tag(self) -> u32 {
        self.0 >> COUNT_BITS & ((1 << TAG_BITS) - 1)
    }

    #[inline]
    fn tick(self) -> u16 {
        (self.0 >> (COUNT_BITS + TAG_BITS)) as u16
    }
}

impl LastArrivals {
    /// Most cells: 256 KB fit in the second-level cache. The index uses other bits of the hash than the tag.
    const MOST: usize = 1 << 16;

    /// Creates the cache for a table of `connections`.
    pub(super) fn new(connections: usize) -> Self {
        Self { cells: vec![Cell::default(); connections.next_power_of_two().min(Self::MOST)].into() }
    }

    #[inline]
    fn cell(&self, hash: u32) -> Cell {
        self.cells[hash as usize & (self.cells.len() - 1)]
    }

    #[inline]
    fn cell_mut(&mut self, hash: u32) -> &mut Cell {
        let last = self.cells.len() - 1;
        &mut self.cells[hash as usize & last]
    }

    /// Prefetches the cells of these hashes, so that the cache misses of a batch overlap.
    #[inline]
    pub(super) fn look_ahead(&self, hashes: &[u32]) {
        std::hint::black_box(hashes.iter().fold(0, |sum, hash| sum ^ self.cell(*hash).0));
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

    /// Records an arrival of a connection without a descriptor.
    #[inline]
    pub(super) fn arrived(&mut self, hash: u32, now: Instant) {
        let cell = self.cell_mut(hash);
        *cell = Cell(Cell::arrival(hash, tick(now)) | cell.count());
    }

    /// Returns true if the connection certainly has no descriptor.
    #[inline]
    pub(super) fn has_no_descriptor(&self, hash: u32) -> bool {
        self.cell(hash).count() == 0
    }

    /// Returns true if the connection, without a descriptor, is sparse: its cell has had an arrival, and none
    /// of the same tag within the last `pause` nanoseconds. Connections that share a cell evict each other,
    /// and then count as sparse.
    #[inline]
    pub(super) fn is_sparse(&self, hash: u32, now: Instant, pause: u64) -> bool {
        let cell = self.cell(hash);
        let ago = u64::from(tick(now).wrapping_sub(cell.tick()));
        let is_other = cell.tag() != hash >> (u32::BITS - TAG_BITS);
        // The difference in ticks may exceed the time that has passed by up to two.
        cell.tick() > 0 && (is_other || ago.saturating_sub(2) * TICK > pause)
    }
}

/// Returns the tick of a time, truncated to the field; never 0, which stands for no arrival.
#[inline]
fn tick(time: Instant) -> u16 {
    ((time.as_nanos() / TICK) as u16).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: u64 = 1_000_000;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn a_sparse_interval_is_longer_than_the_pause_however_the_ticks_fall() {
        for start in (0..70_000).step_by(111) {
            let mut last_arrivals = LastArrivals::new(16);
            assert!(!last_arrivals.is_sparse(3, at(start + 10 * PAUSE), PAUSE), "no arrival yet");
            last_arrivals.arrived(3, at(start));
            for (passed, is_sparse) in
                [(0, false), (PAUSE, false), (PAUSE + 4 * TICK, true), (60 * PAUSE, true)]
            {
                assert_eq!(
                    last_arrivals.is_sparse(3, at(start + passed), PAUSE),
                    is_sparse,
                    "{start} + {passed}"
                );
            }
        }
    }

    #[test]
    fn a_connection_certainly_has_no_descriptor_while_no_other_of_its_cell_has_a_descriptor() {
        let mut last_arrivals = LastArrivals::new(16);
        assert!(last_arrivals.has_no_descriptor(3));
        last_arrivals.descriptor_added(3);
        last_arrivals.descriptor_added(3 + 16);
        last_arrivals.arrived(3, at(PAUSE));
        assert!(last_arrivals.has_no_descriptor(4) && !last_arrivals.has_no_descriptor(3));
        last_arrivals.descriptor_removed(3);
        assert!(!last_arrivals.has_no_descriptor(3));
        last_arrivals.descriptor_removed(3);
        assert!(last_arrivals.has_no_descriptor(3));
        assert!(last_arrivals.is_sparse(3, at(3 * PAUSE), PAUSE));
    }

    #[test]
    fn connections_that_share_a_cell_evict_each_other() {
        let mut last_arrivals = LastArrivals::new(16);
        assert!(!last_arrivals.is_sparse(3 | 1 << 31, at(0), PAUSE), "no arrival yet");
        last_arrivals.arrived(3, at(0));
        assert!(!last_arrivals.is_sparse(3, at(1), PAUSE));
        assert!(last_arrivals.is_sparse(3 | 1 << 31, at(1), PAUSE));
    }

    #[test]
    fn more_descriptors_than_can_be_counted_stay_for_ever() {
        let mut last_arrivals = LastArrivals::new(1);
        (0..1000).for_each(|_| last_arrivals.descriptor_added(0));
        (0..1000).for_each(|_| last_arrivals.descriptor_removed(0));
        assert!(!last_arrivals.has_no_descriptor(0));
    }

    #[test]
    fn an_arrival_long_ago_may_look_recent_but_no_recent_one_long_ago() {
        let turn = TICK << u16::BITS;
        let mut last_arrivals = LastArrivals::new(1);
        last_arrivals.arrived(0, at(turn - PAUSE / 2));
        assert!(!last_arrivals.is_sparse(0, at(turn + PAUSE / 4), PAUSE));
        assert!(last_arrivals.is_sparse(0, at(turn + 2 * PAUSE), PAUSE));
        assert!(!last_arrivals.is_sparse(0, at(2 * turn), PAUSE));
    }
}
