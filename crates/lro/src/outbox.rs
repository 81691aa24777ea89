//! What an engine has decided and the driver has not fetched yet.

use std::collections::VecDeque;
use std::fmt;
use std::mem;

use crate::ack_frame::AckFrame;
use crate::aggregate::{Aggregate, Packet};
use crate::frame::Frame;
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

impl<B: AsRef<[u8]> + fmt::Debug> fmt::Debug for Output<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ToHost(packet) => f.debug_tuple("ToHost").field(packet).finish(),
            Self::ToWire(ack) => f.debug_tuple("ToWire").field(ack).finish(),
            Self::Dropped(frame, reason) => f.debug_tuple("Dropped").field(frame).field(reason).finish(),
        }
    }
}

/// Outputs in order, counted as they are put in.
pub(crate) struct Outbox<B> {
    /// Those that are taken first.
    ready: VecDeque<Output<B>>,
    outputs: Vec<Output<B>>,
    /// What one input can bring about.
    room: usize,
    pub(crate) stats: Statistics,
}

impl<B: AsRef<[u8]>> Outbox<B> {
    /// Room for what one input can bring about.
    pub(crate) fn new(room: usize) -> Self {
        Self {
            ready: VecDeque::with_capacity(room),
            outputs: Vec::with_capacity(room),
            room,
            stats: Statistics::default(),
        }
    }

    /// Counts frames that came in.
    #[inline]
    pub(crate) fn received(&mut self, frames: &[Frame<B>]) {
        self.stats.packets_in += frames.len() as u64;
        self.stats.bytes_in += frames.iter().map(|frame| frame.bytes().len() as u64).sum::<u64>();
    }

    /// Hands on a frame as it came, with so many bytes of TCP payload.
    #[inline]
    pub(crate) fn pass(&mut self, frame: Frame<B>, payload_len: u32, reason: PassReason) {
        self.stats.passes.count(reason);
        self.count_out(frame.bytes().len(), payload_len);
        self.push(Output::ToHost(Packet::Frame(frame)));
    }

    /// Hands on a single segment that was held, with so many bytes of TCP payload.
    #[inline]
    pub(crate) fn flush_frame(&mut self, frame: Frame<B>, payload_len: u32, reason: FlushReason) {
        self.stats.flushes.count(reason);
        self.count_out(frame.bytes().len(), payload_len);
        self.push(Output::ToHost(Packet::Frame(frame)));
    }

    /// Hands on two or more segments that were held.
    #[inline]
    pub(crate) fn flush_aggregate(&mut self, aggregate: Aggregate<B>, reason: FlushReason) {
        self.stats.flushes.count(reason);
        self.stats.aggregates += 1;
        self.stats.segments_aggregated += aggregate.segments() as u64;
        self.count_out(aggregate.len(), aggregate.tcp_payload_len());
        self.push(Output::ToHost(Packet::Aggregate(aggregate)));
    }

    /// Puts an output last. Where there is room, it is put together in its place: put together elsewhere, it would be read
    /// again at once in other pieces than it was written in, for which the processor waits.
    #[inline]
    fn push(&mut self, output: Output<B>) {
        if self.outputs.len() < self.outputs.capacity() {
            self.outputs.push(output);
        } else {
            self.push_beyond_room(output);
        }
    }

    /// Makes room first: the driver has not fetched what there was.
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
            // From the front on, which is warm.
            let mut drained = mem::take(&mut self.ready);
            drained.clear();
            self.ready = mem::replace(&mut self.outputs, drained.into()).into();
        }
        self.ready.pop_front()
    }

    /// Takes all outputs. Where `outputs` is empty, the two change places, and `outputs` gets room for what comes next
    /// unless it has it, as one that was given before.
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
