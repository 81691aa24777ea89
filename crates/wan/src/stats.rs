//! What a path has counted.

use crate::{DelayHistogram, Drops};

/// What a path has done since it was made. Every packet that came in, and every copy, is counted once more as fragmented,
/// gone out or dropped, or is in flight; so is every fragment.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Packets received.
    pub packets_in: u64,
    /// Bytes of the packets received, link headers included.
    pub bytes_in: u64,
    /// Packets released.
    pub packets_out: u64,
    /// Bytes of the packets released, link headers included.
    pub bytes_out: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Copies that were due but not made, because the path or the driver had no room for them.
    pub duplicates_missed: u64,
    /// Packets that were too long for the MTU and cut to fragments.
    pub fragmented: u64,
    /// The fragments that they were cut to.
    pub fragments: u64,
    /// Packets of which a bit was flipped.
    pub corrupted: u64,
    /// Packets released after one that had arrived later (RFC 4737 section 3.3).
    pub reordered: u64,
    /// Packets marked "congestion experienced".
    pub ce_marked: u64,
    /// Why packets were dropped.
    pub drops: Drops,
    /// The delays of the packets released, from their arrival to when they were due: as asked, not as given.
    pub delay: DelayHistogram,
    /// The delays that jitter has drawn, before [`JitterOrder::Keep`](crate::JitterOrder::Keep) lengthens any.
    pub drawn: DelayHistogram,
    /// How long packets with jitter waited for those before them to leave, to keep their order.
    pub kept_in_order: DelayHistogram,
}
