//! The counters of a path.

use crate::{DelayHistogram, Drops};

/// The counters of a path since its creation. Every received packet, copy and fragment is in flight, or is
/// counted once as fragmented, released or dropped.
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
    /// Copies omitted because the path or the driver had no room.
    pub duplicates_missed: u64,
    /// Packets fragmented because they exceeded the MTU.
    pub fragmented: u64,
    /// Fragments made of them.
    pub fragments: u64,
    /// Packets with a flipped bit.
    pub corrupted: u64,
    /// Packets released after one that had arrived later (RFC 4737 section 3.3).
    pub reordered: u64,
    /// Packets marked CE.
    pub ce_marked: u64,
    /// Dropped packets by reason.
    pub drops: Drops,
    /// Scheduled delay of released packets, from arrival to [`Departure::due`](crate::Departure::due).
    /// Excludes the driver's lateness.
    pub delay: DelayHistogram,
    /// Delays drawn by jitter, before [`JitterOrder::Keep`](crate::JitterOrder::Keep) extends them.
    pub drawn: DelayHistogram,
    /// Extra delay of packets with jitter to keep their order.
    pub kept_in_order: DelayHistogram,
}
