//! The packets of a frame, written over it.

use std::ops::Range;

use crate::plan::Plan;

/// The packets of a frame, to be written over the frame, one behind the other. The last payload stays in
/// place; each other payload moves towards the start by the headers of the packets behind it. The written
/// memory is already in the cache.
#[derive(Clone, Debug)]
pub struct InPlace(Plan);

/// Where packets were written, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// All packets, one behind the other.
    pub packets: Range<usize>,
    /// The length of each packet but the last, which may be shorter.
    pub packet_len: usize,
}

impl InPlace {
    pub(crate) fn new(plan: Plan) -> Self {
        Self(plan)
    }

    /// Returns the bytes needed before the frame: the headers of all packets but one.
    #[inline]
    pub fn needs_before(&self) -> usize {
        self.0.remaining.saturating_sub(1) * self.0.header_len
    }

    /// Writes the packets of the frame that is at `frame_at` in `memory`.
    ///
    /// # Panics
    /// `memory` has fewer than [`InPlace::needs_before`] bytes before the frame, or ends before the frame
    /// does.
    pub fn write(self, memory: &mut [u8], frame_at: usize) -> Placed {
        let before = self.needs_before();
        let Self(mut plan) = self;
        let (header_len, packet_len) = (plan.header_len, plan.packet_len());
        let start = frame_at - before;
        let packets = start..start + plan.bytes_remaining();
        let (mut header_at, mut packet_at) = (frame_at, start);
        while let Some(payload) = plan.next_payload() {
            let (from, to) = (frame_at + payload.start, frame_at + payload.end);
            memory.copy_within(header_at..header_at + header_len, packet_at);
            memory.copy_within(from..to, packet_at + header_len);
            let packet = &mut memory[packet_at..packet_at + header_len + payload.len()];
            let sum = plan.sum(&packet[header_len..]);
            plan.write_fields(packet, sum);
            header_at = packet_at;
            packet_at += packet.len();
        }
        Placed { packets, packet_len }
    }
}
