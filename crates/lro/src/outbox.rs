//! What an engine has decided and the driver has not fetched yet.

use std::collections::VecDeque;

use crate::aggregate::{Aggregate, Packet};
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
///
/// Each kind has a queue of its own, and `order` says which is next: frames are then moved as they lie in memory. As
/// one enum they would be put together from a tag and the rest and read again at once in wider pieces, for which the
/// processor waits (a failed store-to-load forwarding costs as much as the rest of the queue).
pub(crate) struct Outbox<B> {
    order: VecDeque<Kind>,
    frames: VecDeque<Frame<B>>,
    aggregates: VecDeque<Aggregate<B>>,
    acks: VecDeque<AckFrame>,
    pub(crate) stats: Statistics,
}

#[derive(Clone, Copy)]
enum Kind {
    Frame,
    Aggregate,
    Ack,
    Dropped(DropReason),
}

impl<B: AsRef<[u8]>> Outbox<B> {
    /// Room for what one input can bring about.
    pub(crate) fn new(room: usize) -> Self {
        Self {
            order: VecDeque::with_capacity(room),
            frames: VecDeque::with_capacity(room),
            aggregates: VecDeque::with_capacity(room),
            acks: VecDeque::with_capacity(room),
            stats: Statistics::default(),
        }
    }

    /// Counts a frame that came in.
    #[inline]
    pub(crate) fn received(&mut self, frame: &Frame<B>) {
        self.stats.packets_in += 1;
        self.stats.bytes_in += frame.bytes().len() as u64;
    }

    /// Hands on a frame as it came.
    #[inline]
    pub(crate) fn pass(&mut self, frame: Frame<B>, payload_len: u32, reason: PassReason) {
        self.stats.passes.count(reason);
        self.count_out(frame.bytes().len(), payload_len);
        self.push_frame(frame, Kind::Frame);
    }

    /// Hands on a single segment that was held.
    #[inline]
    pub(crate) fn flush_frame(&mut self, frame: Frame<B>, payload_len: u32, reason: FlushReason) {
        self.stats.flushes.count(reason);
        self.count_out(frame.bytes().len(), payload_len);
        self.push_frame(frame, Kind::Frame);
    }

    /// Hands on two or more segments that were held.
    #[inline]
    pub(crate) fn flush_aggregate(&mut self, aggregate: Aggregate<B>, reason: FlushReason) {
        self.stats.flushes.count(reason);
        self.stats.aggregates += 1;
        self.stats.segments_aggregated += aggregate.segments() as u64;
        self.count_out(aggregate.len(), aggregate.payload_len() as u32);
        self.order.push_back(Kind::Aggregate);
        self.aggregates.push_back(aggregate);
    }

    #[inline]
    fn push_frame(&mut self, frame: Frame<B>, kind: Kind) {
        if self.frames.len() < self.frames.capacity() && self.order.len() < self.order.capacity() {
            self.order.push_back(kind);
            self.frames.push_back(frame);
        } else {
            self.push_beyond_room(frame, kind);
        }
    }

    /// Makes room first: the driver has not fetched what there was.
    #[cold]
    fn push_beyond_room(&mut self, frame: Frame<B>, kind: Kind) {
        self.order.push_back(kind);
        self.frames.push_back(frame);
    }

    #[inline]
    fn count_out(&mut self, len: usize, payload_len: u32) {
        self.stats.packets_out += 1;
        self.stats.bytes_out += len as u64;
        self.stats.tcp_payload_bytes_out += u64::from(payload_len);
    }

    pub(crate) fn drop(&mut self, frame: Frame<B>, reason: DropReason) {
        self.stats.drops.count(reason);
        self.push_frame(frame, Kind::Dropped(reason));
    }

    pub(crate) fn acknowledge(&mut self, ack: AckFrame) {
        self.stats.acks_sent += 1;
        self.order.push_back(Kind::Ack);
        self.acks.push_back(ack);
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Output<B>> {
        let Some(kind) = self.order.pop_front() else {
            // Start over at the front of the rings, which is warm, instead of walking through all of them.
            self.order.clear();
            self.frames.clear();
            self.aggregates.clear();
            return None;
        };
        match kind {
            Kind::Frame => self.frames.pop_front().map(|frame| Output::ToHost(Packet::Frame(frame))),
            Kind::Aggregate => {
                self.aggregates.pop_front().map(|aggregate| Output::ToHost(Packet::Aggregate(aggregate)))
            }
            Kind::Ack => self.acks.pop_front().map(Output::ToWire),
            Kind::Dropped(reason) => self.frames.pop_front().map(|frame| Output::Dropped(frame, reason)),
        }
    }
}
