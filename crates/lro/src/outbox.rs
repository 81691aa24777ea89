//! What an engine has decided and the driver has not fetched yet.

use std::collections::VecDeque;

use crate::aggregate::Packet;
use crate::frame::Frame;
use crate::npu::AckFrame;
use crate::reason::{DropReason, FlushReason, PassReason};
use crate::stats::Statistics;

/// What comes out of a coalescing engine.
pub enum Output<B> {
    /// A packet for the host's network stack.
    ToHost(Packet<B>),
    /// An acknowledgement for the wire (active ACK, lro-npu V.C), to be sent after the packets before it were handed
    /// to the host, and only if they were.
    ToWire(AckFrame),
    /// A frame that goes no further.
    Dropped(Frame<B>, DropReason),
}

/// Outputs in order, counted as they are put in.
pub(crate) struct Outbox<B> {
    queue: VecDeque<Output<B>>,
    pub(crate) stats: Statistics,
}

impl<B: AsRef<[u8]>> Outbox<B> {
    /// Room for what one input can bring about.
    pub(crate) fn new(room: usize) -> Self {
        Self { queue: VecDeque::with_capacity(room), stats: Statistics::default() }
    }

    /// Counts a frame that came in.
    #[inline]
    pub(crate) fn received(&mut self, frame: &Frame<B>) {
        self.stats.packets_in += 1;
        self.stats.bytes_in += frame.bytes().len() as u64;
    }

    /// Hands on a frame as it came.
    #[inline(always)]
    pub(crate) fn pass(&mut self, frame: Frame<B>, payload_len: u32, reason: PassReason) {
        self.stats.passes.count(reason);
        self.hand_on(Packet::Frame(frame), payload_len);
    }

    /// Hands on what was held.
    #[inline(always)]
    pub(crate) fn flush(&mut self, packet: Packet<B>, payload_len: u32, reason: FlushReason) {
        self.stats.flushes.count(reason);
        let segments = packet.segments() as u64;
        if segments > 1 {
            self.stats.aggregates += 1;
            self.stats.segments_aggregated += segments;
        }
        self.hand_on(packet, payload_len);
    }

    #[inline(always)]
    fn hand_on(&mut self, packet: Packet<B>, payload_len: u32) {
        self.stats.packets_out += 1;
        self.stats.bytes_out += packet.len() as u64;
        self.stats.tcp_payload_bytes_out += u64::from(payload_len);
        self.queue.push_back(Output::ToHost(packet));
    }

    pub(crate) fn drop(&mut self, frame: Frame<B>, reason: DropReason) {
        self.stats.drops.count(reason);
        self.queue.push_back(Output::Dropped(frame, reason));
    }

    pub(crate) fn acknowledge(&mut self, ack: AckFrame) {
        self.stats.acks_sent += 1;
        self.queue.push_back(Output::ToWire(ack));
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<Output<B>> {
        let output = self.queue.pop_front();
        if self.queue.is_empty() {
            // Start over at the front of the ring, which is warm, instead of walking through all of it.
            self.queue.clear();
        }
        output
    }
}
