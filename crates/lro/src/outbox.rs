//! The outputs of an engine that the driver has not fetched yet.

use std::collections::VecDeque;
use std::fmt;
use std::mem;

use crate::ack_frame::AckFrame;
use crate::aggregate::{Aggregate, Packet};
use crate::frame::Frame;
use crate::reason::{DropReason, FlushReason, PassReason};
use crate::stats::Statistics;

/// An output of a coalescing engine.
pub enum Output<B> {
    /// A packet for the host's network stack.
    ToHost(Packet<B>),
    /// An ACK frame for the wire (active ACK, lro-npu V.C). Send it only after the outputs before it were
    /// delivered to the host.
    ToWire(AckFrame),
    /// A dropped frame.
    Dropped(Frame<B>, DropReason),
}

impl<B: AsRef<[u8]> + fmt::Debug> fmt::Debug for Output<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ToHost(packet) => f.debug_tuple("ToHost").field(packet).finish(),
            Self::ToWire(ack) => f.debug_tuple("ToWire").field(ack).finish(),
            Self::Dropped(frame, reason) => f.debug_tuple("Dropped").field(frame).field(reason).finish(),
        }
    }
}

/// The outputs in order; counts each when it is added.
pub(crate) struct Outbox<B> {
    /// Outputs that `pop` returns before those in `outputs`.
    ready: VecDeque<Output<B>>,
    outputs: Vec<Output<B>>,
    /// Most outputs of one input.
    room: usize,
    pub(crate) stats: Statistics,
}

impl<B: AsRef<[u8]>> Outbox<B> {
    /// Reserves memory for `room` outputs, the most of one input.
    pub(crate) fn new(room: usize) -> Self {
        Self {
            ready: VecDeque::with_capacity(room),
            outputs: Vec::with_capacity(room),
            room,
            stats: Statistics::default(),
        }
    }

    /// Counts received frames.
    #[inline]
    pub(crate) fn received(&mut self, frames: &[Frame<B>]) {
        self.stats.packets_in += frames.len() as u64;
        self.stats.bytes_in += frames.iter().map(|frame| frame.bytes().len() as u64).sum::<u64>();
    }

    /// Delivers a frame as received, with `payload_len` bytes of TCP payload.
    #[inline]
    pub(crate) fn pass(&mut self, frame: Frame<B>, payload_len: u32, reason: PassReason) {
        self.stats.passes.count(reason);
        self.count_out(frame.bytes().len(), payload_len);
        self.push(Output::ToHost(Packet::Frame(frame)));
    }

    /// Delivers a single held segment, with `payload_len` bytes of TCP payload.
    #[inline]
    pub(crate) fn flush_frame(&mut self, frame: Frame<B>, payload_len: u32, reason: FlushReason) {
        self.stats.flushes.count(reason);
        self.count_out(frame.bytes().len(), payload_len);
        self.push(Output::ToHost(Packet::Frame(frame)));
    }

    /// As [`Outbox::flush_frame`], for all `frames`, with `payload` bytes of TCP payload in total. Their
    /// vector is empty afterwards.
    #[inline]
    pub(crate) fn flush_frames(&mut self, frames: &mut Vec<Frame<B>>, payload: u64, reason: FlushReason) {
        let count = frames.len() as u64;
        self.stats.flushes.count_several(reason, count);
        self.stats.packets_out += count;
        self.stats.bytes_out += frames.iter().map(|frame| frame.bytes().len() as u64).sum::<u64>();
        self.stats.tcp_payload_bytes_out += payload;
        self.outputs.extend(frames.drain(..).map(|frame| Output::ToHost(Packet::Frame(frame))));
    }

    /// Delivers two or more held segments as an aggregate.
    #[inline]
    pub(crate) fn flush_aggregate(&mut self, aggregate: Aggregate<B>, reason: FlushReason) {
        self.stats.flushes.count(reason);
        self.stats.aggregates += 1;
        self.stats.segments_aggregated += aggregate.segments() as u64;
        self.count_out(aggregate.len(), aggregate.tcp_payload_len());
        self.push(Output::ToHost(Packet::Aggregate(aggregate)));
    }

    /// Appends an output. With room, the output is built in its place: built on the stack, it would be read
    /// back at once in other sizes than it was written, which stalls store forwarding.
    #[inline]
    fn push(&mut self, output: Output<B>) {
        if self.outputs.len() < self.outputs.capacity() {
            self.outputs.push(output);
        } else {
            self.push_beyond_room(output);
        }
    }

    /// Grows the vector first: the driver has not fetched earlier outputs.
    #[cold]
    fn push_beyond_room(&mut self, output: Output<B>) {
        self.outputs.push(output);
    }

    #[inline]
    fn count_out(&mut self, len: usize, payload_len: u32) {
        self.stats.packets_out += 1;
        self.stats.bytes_out += len as u64;
        self.stats.tcp_payload_bytes_out += u64::from(payload_len);
    }

    pub(crate) fn drop(&mut self, frame: Frame<B>, reason: DropReason) {
        self.stats.drops.count(reason);
        self.push(Output::Dropped(frame, reason));
    }

    pub(crate) fn acknowledge(&mut self, ack: AckFrame) {
        self.stats.acks_sent += 1;
        self.push(Output::ToWire(ack));
    }

    /// Takes the first output. Not inlined, so that it is moved as it lies in memory: see [`Outbox::push`].
    #[inline(never)]
    pub(crate) fn pop(&mut self) -> Option<Output<B>> {
        if self.ready.is_empty() {
            if self.outputs.is_empty() {
                return None;
            }
            // The drained buffer becomes the new `outputs`. It is filled from its start, which is in the
            // cache.
            let mut drained = mem::take(&mut self.ready);
            drained.clear();
            self.ready = mem::replace(&mut self.outputs, drained.into()).into();
        }
        self.ready.pop_front()
    }

    /// Takes all outputs. If `outputs` is empty, swaps the two vectors and reserves room for the next input
    /// in the new one.
    pub(crate) fn pop_all(&mut self, outputs: &mut Vec<Output<B>>) {
        outputs.extend(self.ready.drain(..));
        if outputs.is_empty() {
            mem::swap(outputs, &mut self.outputs);
        } else {
            outputs.append(&mut self.outputs);
        }
        self.outputs.reserve(self.room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes a frame of this length.
    fn pass(out: &mut Outbox<Vec<u8>>, len: usize) {
        out.pass(Frame::new(vec![0; len]), 0, PassReason::NotTcp);
    }

    fn len(output: &Output<Vec<u8>>) -> usize {
        let Output::ToHost(packet) = output else { panic!("not for the host") };
        packet.len()
    }

    #[test]
    fn what_is_taken_at_once_comes_in_the_order_of_what_is_taken_singly() {
        for room in [0, 2, 100] {
            let mut out = Outbox::new(2);
            let mut outputs = Vec::with_capacity(room);
            for round in [0, 10, 20, 30] {
                (1..=4).for_each(|nth| pass(&mut out, round + nth));
                assert_eq!(out.pop().as_ref().map(len), Some(round + 1));
                out.pop_all(&mut outputs);
                pass(&mut out, round + 5);
                out.pop_all(&mut outputs);
                assert!(out.pop().is_none());
                let lens: Vec<usize> = outputs.drain(..).map(|output| len(&output)).collect();
                assert_eq!(lens, [2, 3, 4, 5].map(|nth| round + nth), "room for {room}");
            }
        }
    }

    #[test]
    fn outputs_change_places_with_an_empty_vector_once_it_has_the_room() {
        let mut out = Outbox::new(2);
        let mut outputs = Vec::new();
        let places: Vec<*const _> = (0..4)
            .map(|_| {
                pass(&mut out, 1);
                outputs.clear();
                out.pop_all(&mut outputs);
                outputs.as_ptr()
            })
            .collect();
        assert_ne!(places[0], places[1]);
        assert_eq!(places[..2], places[2..]);
    }
}
