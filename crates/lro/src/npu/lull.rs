//! Connections that are not known, because their segments come too far apart for any to be merged: of them only the
//! last arrival is kept, for all together whose hashes agree in some bits.

use nichrome_wire::Instant;

/// Which connections certainly have no descriptor, and when those without one were last heard of: of each cell, for all
/// connections whose hashes say the same, only how many have descriptors, who without one was heard of last, and when.
pub(super) struct Lulls {
    cells: Box<[Cell]>,
}

/// From the lowest bit on: a count of descriptors, some more bits of a hash, and a time in ticks. All are 0 where none
/// without a descriptor was heard of.
#[derive(Clone, Copy, Default)]
struct Cell(u32);

const COUNT_BITS: u32 = 6;
const TAG_BITS: u32 = 10;
/// Nanoseconds of a tick. What was heard of 2.1 s ago, when the time comes round, looks recent.
const TICK: u64 = 1 << 15;

impl Cell {
    /// A cell that has had so many descriptors is said to have some for ever.
    const MANY: u32 = (1 << COUNT_BITS) - 1;

    #[inline]
    fn count(self) -> u32 {
        self.0 & Self::MANY
    }

    /// What the upper bits say of a connection that is heard of in a tick.
    #[inline]
    fn heard(hash: u32, tick: u16) -> u32 {
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

impl Lulls {
    /// As many cells as stay in a near cache, whose place is in other bits of the hash than the tag.
    const MOST: usize = 1 << 16;

    /// For a table of `connections`.
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

    /// Reads the cells of these hashes, so that the cache misses of a batch overlap.
    #[inline]
    pub(super) fn look_ahead(&self, hashes: &[u32]) {
        std::hint::black_box(hashes.iter().fold(0, |sum, hash| sum ^ self.cell(*hash).0));
    }

    /// Notes that a connection has got a descriptor.
    pub(super) fn joined(&mut self, hash: u32) {
        let cell = self.cell_mut(hash);
        cell.0 += u32::from(cell.count() < Cell::MANY);
    }

    /// Notes that a connection has none any more.
    pub(super) fn left(&mut self, hash: u32) {
        let cell = self.cell_mut(hash);
        cell.0 -= u32::from((1..Cell::MANY).contains(&cell.count()));
    }

    /// Notes an arrival of a connection without a descriptor.
    #[inline]
    pub(super) fn heard(&mut self, hash: u32, now: Instant) {
        let cell = self.cell_mut(hash);
        *cell = Cell(Cell::heard(hash, tick(now)) | cell.count());
    }

    /// Whether a connection certainly has no descriptor.
    #[inline]
    pub(super) fn is_unknown(&self, hash: u32) -> bool {
        self.cell(hash).count() == 0
    }

    /// Whether one like a connection without a descriptor was heard of before, and the same not for `pause`
    /// nanoseconds. Of two that take turns in a cell each is in a lull.
    #[inline]
    pub(super) fn is_lull(&self, hash: u32, now: Instant, pause: u64) -> bool {
        let cell = self.cell(hash);
        let ago = u64::from(tick(now).wrapping_sub(cell.tick()));
        let is_other = cell.tag() != hash >> (u32::BITS - TAG_BITS);
        // The ticks may be up to two more than the time that has passed.
        cell.tick() > 0 && (is_other || ago.saturating_sub(2) * TICK > pause)
    }
}

/// The tick of a time, in the bits that there are for it: never 0, which is for none.
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
    fn a_lull_is_longer_than_the_pause_however_the_ticks_fall() {
        for start in (0..70_000).step_by(111) {
            let mut lulls = Lulls::new(16);
            assert!(!lulls.is_lull(3, at(start + 10 * PAUSE), PAUSE), "not heard of");
            lulls.heard(3, at(start));
            for (passed, is_lull) in
                [(0, false), (PAUSE, false), (PAUSE + 4 * TICK, true), (60 * PAUSE, true)]
            {
                assert_eq!(lulls.is_lull(3, at(start + passed), PAUSE), is_lull, "{start} + {passed}");
            }
        }
    }

    #[test]
    fn a_connection_is_unknown_while_no_other_of_its_cell_has_a_descriptor() {
        let mut lulls = Lulls::new(16);
        assert!(lulls.is_unknown(3));
        lulls.joined(3);
        lulls.joined(3 + 16);
        lulls.heard(3, at(PAUSE));
        assert!(lulls.is_unknown(4) && !lulls.is_unknown(3));
        lulls.left(3);
        assert!(!lulls.is_unknown(3));
        lulls.left(3);
        assert!(lulls.is_unknown(3));
        assert!(lulls.is_lull(3, at(3 * PAUSE), PAUSE));
    }

    #[test]
    fn another_connection_of_the_cell_was_not_heard_of() {
        let mut lulls = Lulls::new(16);
        assert!(!lulls.is_lull(3 | 1 << 31, at(0), PAUSE), "nobody was");
        lulls.heard(3, at(0));
        assert!(!lulls.is_lull(3, at(1), PAUSE));
        assert!(lulls.is_lull(3 | 1 << 31, at(1), PAUSE));
    }

    #[test]
    fn more_descriptors_than_can_be_counted_stay_for_ever() {
        let mut lulls = Lulls::new(1);
        (0..1000).for_each(|_| lulls.joined(0));
        (0..1000).for_each(|_| lulls.left(0));
        assert!(!lulls.is_unknown(0));
    }

    #[test]
    fn an_arrival_long_ago_may_look_recent_but_no_recent_one_long_ago() {
        let turn = TICK << u16::BITS;
        let mut lulls = Lulls::new(1);
        lulls.heard(0, at(turn - PAUSE / 2));
        assert!(!lulls.is_lull(0, at(turn + PAUSE / 4), PAUSE));
        assert!(lulls.is_lull(0, at(turn + 2 * PAUSE), PAUSE));
        assert!(!lulls.is_lull(0, at(2 * turn), PAUSE));
    }
}
