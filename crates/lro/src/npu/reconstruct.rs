//! Reordering and reconstruction (lro-npu IV.C and IV.D), and the ACKs for delivered data (V.C).

use nichrome_wire::Instant;

use super::Npu;
use super::ack::{Acknowledgement, ActiveAck};
use super::config::Rules;
use super::reorder::Insertion;
use crate::frame::Frame;
use crate::mask::Rule;
use crate::reason::{DropReason, FlushReason, PassReason};
use crate::run::PooledRun;
use crate::segment::{Layout, Segment};
use crate::table::Index;
use crate::template::{HeaderBytes, MAX_HEADER};

impl<B: AsRef<[u8]>> Npu<B> {
    /// ReorderPacket (Algorithm 1).
    pub(super) fn reorder_packet(&mut self, index: Index, frame: Frame<B>, segment: &Segment, now: Instant) {
        let Some(descriptor) = self.table.get_mut(index) else { return };
        descriptor.arrived(now, &self.timeouts);
        if descriptor.resumes_at_frontier(segment.seq, self.config.reorder_bytes) {
            descriptor.resume();
            self.reconstruct(index, FlushReason::OutOfOrder);
        } else {
            descriptor.doubt_frontier(segment.seq, self.config.reorder_bytes);
        }
        let Some(descriptor) = self.table.get_mut(index) else { return };
        let ahead = segment.seq.since(descriptor.nextseq);
        if ahead == 0 {
            if descriptor.is_sparse() && self.config.rules == Rules::Safe {
                return self.deliver_sparse(index, frame, segment, now);
            }
            let answer = self.to_answer(&frame);
            self.append(index, frame, segment, now);
            self.update_nextseq(index);
            self.answer(index, segment, answer);
        } else if ahead < 0 || descriptor.frontier.is_some() {
            self.receive_old(index, frame, segment);
        } else if ahead.cast_unsigned() > self.config.reorder_bytes {
            self.release_alone(index, frame, segment, PassReason::FarAhead);
        } else if descriptor.skip_opaque(segment.seq) {
            let answer = self.to_answer(&frame);
            self.reconstruct(index, FlushReason::OutOfOrder);
            self.append(index, frame, segment, now);
            self.answer(index, segment, answer);
        } else {
            self.insert(index, frame, segment, now);
        }
        self.leave_untimed(index);
    }

    /// Delivers the segment at nextseq of a sparse connection, and releases its descriptor unless active ACK
    /// needs it.
    fn deliver_sparse(&mut self, index: Index, frame: Frame<B>, segment: &Segment, now: Instant) {
        if self.acker.is_none() {
            self.release(index);
            return self.pass_sparse(self.table.hash(&segment.flow), frame, segment.payload_len, now);
        }
        let Some(descriptor) = self.table.get_mut(index) else { return };
        descriptor.advance(segment.end());
        let timestamp = segment.timestamps.map(|timestamps| timestamps.value);
        let is_older = descriptor.is_older(timestamp);
        descriptor.delivered(timestamp);
        let answer = Header::of(&frame);
        self.out.flush_frame(frame, segment.payload_len, FlushReason::Sparse);
        self.note_delivered(index, segment.seq, segment.end());
        if segment.congestion_experienced || is_older || self.host_discards(index, segment.ack) {
            self.leave_to_host(index, segment.seq, segment.end());
        }
        if self.config.active_ack == ActiveAck::Paper {
            self.answer(index, segment, Some(answer));
        } else {
            self.acknowledge_delivered(index, &answer.0, segment.layout);
        }
    }

    /// Delivers a run that has ended.
    #[inline(never)]
    pub(super) fn deliver_ended(&mut self, index: Index) {
        let run = self.table.peek(index).and_then(|descriptor| descriptor.run.as_ref());
        if let Some(reason) = run.map(|run| run.end_reason()) {
            self.reconstruct(index, reason);
        }
    }

    /// Adds the segment at nextseq to the run, or delivers the run and starts another.
    fn append(&mut self, index: Index, frame: Frame<B>, segment: &Segment, now: Instant) {
        let Some(descriptor) = self.table.get_mut(index) else { return };
        descriptor.advance(segment.end());
        if let Some(run) = &mut descriptor.run {
            match run.why_not_stream(self.masks.of(run.layout), &frame, segment, self.limits) {
                None => run.follow_stream(frame, segment),
                Some(reason) => {
                    self.reconstruct(index, reason);
                    return self.start(index, frame, segment, now);
                }
            }
            if run.has_ended(self.ends) {
                self.deliver_ended(index);
            }
        } else {
            self.start(index, frame, segment, now);
        }
    }

    /// Starts a run with a segment. Returns the frame if no run is free.
    pub(super) fn start_run(
        &mut self,
        frame: Frame<B>,
        segment: &Segment,
        now: Instant,
    ) -> Result<PooledRun<B>, Frame<B>> {
        self.runs.start(frame, segment, Rule::Stream, self.limits, now).or_else(|frame| {
            self.free_run();
            self.runs.start(frame, segment, Rule::Stream, self.limits, now)
        })
    }

    /// Starts a run of a known connection with a segment.
    fn start(&mut self, index: Index, frame: Frame<B>, segment: &Segment, now: Instant) {
        let started = self.start_run(frame, segment, now);
        let Some(descriptor) = self.table.get_mut(index) else { return };
        match started {
            Ok(mut run) => {
                descriptor.limit_timestamps(&mut run);
                let has_ended = run.has_ended(self.ends);
                descriptor.hold(run);
                if has_ended {
                    self.deliver_ended(index);
                }
            }
            Err(frame) => {
                self.note_delivered_alone(index, segment);
                self.out.pass(frame, segment.payload_len, PassReason::PoolEmpty);
            }
        }
    }

    /// UpdateNextSeq (Algorithm 3): adds the waiting segments that nextseq has reached to the run.
    fn update_nextseq(&mut self, index: Index) {
        let Some(descriptor) = self.table.get_mut(index) else { return };
        let Some(mut list) = descriptor.waiting.take() else { return };
        let since = list.since;
        for waiting in list.take_consecutive(descriptor.nextseq) {
            self.append(index, waiting.frame, &waiting.segment, since);
        }
        let Some(descriptor) = self.table.get_mut(index) else { return };
        if let Some(run) = &mut descriptor.run {
            // The wait behind the gap counts towards the ceiling.
            run.since = run.since.min(since);
        }
        let nextseq = descriptor.nextseq;
        let overlaps = list.first_seq().is_some_and(|seq| seq.before(nextseq));
        if list.is_empty() {
            self.lists.give_back(list);
        } else {
            descriptor.waiting = Some(list);
        }
        if overlaps {
            self.reconstruct_all(index, FlushReason::OutOfOrder);
            // A waiting segment that ends before nextseq has moved it back.
            if let Some(descriptor) = self.table.get_mut(index) {
                descriptor.catch_up(nextseq);
            }
        }
    }

    /// Insert (Algorithm 2): a segment ahead of nextseq waits.
    fn insert(&mut self, index: Index, frame: Frame<B>, segment: &Segment, now: Instant) {
        let Some(descriptor) = self.table.get_mut(index) else { return };
        if descriptor.waiting.is_none() {
            descriptor.waiting = self.lists.take();
            if let Some(list) = &mut descriptor.waiting {
                list.since = now;
            }
            if let Some(host) = self.acker.as_mut().and_then(|acker| acker.host(index)) {
                host.leave_to_host(segment.seq, segment.end());
            }
        }
        let answer = (self.config.active_ack == ActiveAck::Paper).then(|| Header::of(&frame));
        let inserted = match &mut descriptor.waiting {
            Some(list) => list.insert(frame, *segment),
            None => Insertion::Full(frame),
        };
        match inserted {
            Insertion::Waits => {}
            Insertion::Duplicate(frame) if self.config.rules == Rules::Paper => {
                self.out.drop(frame, DropReason::Duplicate);
            }
            Insertion::Duplicate(frame) | Insertion::Overlap(frame) => {
                return self.release_alone(index, frame, segment, PassReason::Old);
            }
            Insertion::Full(frame) => {
                self.reconstruct_all(index, FlushReason::ReorderFull);
                return self.release_alone(index, frame, segment, PassReason::OutOfOrder);
            }
        }
        self.answer(index, segment, answer);
    }

    /// Handles a segment that begins below nextseq: bytes received before, and perhaps new ones.
    fn receive_old(&mut self, index: Index, frame: Frame<B>, segment: &Segment) {
        if self.config.rules == Rules::Paper {
            let answer = Header::of(&frame);
            self.out.drop(frame, DropReason::Duplicate);
            return self.answer(index, segment, Some(answer));
        }
        if self.config.active_ack == ActiveAck::Safe
            && segment.payload_len > 1
            && let Some(descriptor) = self.table.peek(index)
            && let Some(host) = self.acker.as_mut().and_then(|acker| acker.host(index))
            && host.has_acknowledged(segment.end())
            && let Some(repetition) = host.repetition(descriptor.newest_timestamp())
        {
            self.acknowledge(frame.bytes(), segment.layout, &repetition);
            return self.out.drop(frame, DropReason::Duplicate);
        }
        if let Some(descriptor) = self.table.get_mut(index)
            && descriptor.frontier.is_none()
        {
            descriptor.reset_runs_behind();
        }
        self.release_alone(index, frame, segment, PassReason::Old);
        if let Some(descriptor) = self.table.get_mut(index) {
            descriptor.rewind(segment.end());
        }
    }

    /// Flushes a connection, then passes a segment of it.
    fn release_alone(&mut self, index: Index, frame: Frame<B>, segment: &Segment, reason: PassReason) {
        let answer = self.to_answer(&frame);
        self.reconstruct_all(index, FlushReason::Barrier);
        self.note_delivered_alone(index, segment);
        self.out.pass(frame, segment.payload_len, reason);
        self.answer(index, segment, answer);
    }

    /// Packet reconstruction (IV.D): delivers the run to the host, and acknowledges it if active ACK `safe`
    /// permits.
    #[inline]
    pub(super) fn reconstruct(&mut self, index: Index, reason: FlushReason) {
        if self.acker.is_some() {
            if let Some((header, layout)) = self.deliver_run(index, reason) {
                self.acknowledge_delivered(index, &header, layout);
            }
        } else if let Some(run) = self.take_run(index) {
            self.runs.finish(run, reason, &mut self.out);
        }
    }

    /// Takes a connection's run for delivery.
    #[inline]
    fn take_run(&mut self, index: Index) -> Option<PooledRun<B>> {
        self.table.get_mut(index)?.take_run()
    }

    /// Acknowledges the delivered bytes if active ACK `safe` permits, in answer to a received header.
    fn acknowledge_delivered(&mut self, index: Index, received: &[u8], layout: Layout) {
        if let Some(descriptor) = self.table.peek(index)
            && let Some(host) = self.acker.as_mut().and_then(|acker| acker.host(index))
            && let Some(acknowledgement) = host.acknowledgement(descriptor.newest_timestamp())
        {
            self.acknowledge(received, layout, &acknowledgement);
        }
    }

    /// Delivers the run to the host. Returns its received header if active ACK `safe` may acknowledge now: no
    /// segment waits behind a gap. Leaves the acknowledgement to the host if a segment has a CE mark, which
    /// the host echoes, or if the host may discard the run for its timestamp or ACK number.
    fn deliver_run(&mut self, index: Index, reason: FlushReason) -> Option<(HeaderBytes, Layout)> {
        let run = self.take_run(index)?;
        let (seq, end) = (run.start, run.end);
        let safe = self.config.active_ack == ActiveAck::Safe;
        if safe
            && (run.only_timestamp.is_some()
                || run.received_header().is_congestion_experienced(run.layout)
                || self.host_discards(index, run.ack))
        {
            self.leave_to_host(index, seq, end);
        }
        let may_acknowledge =
            safe && self.table.peek(index).is_some_and(|descriptor| descriptor.waiting.is_none());
        let answered = may_acknowledge.then(|| (run.received_header().header_array(), run.layout));
        self.runs.finish(run, reason, &mut self.out);
        self.note_delivered(index, seq, end);
        answered
    }

    /// Delivers all segments of a connection in order of sequence, across gaps.
    pub(super) fn reconstruct_all(&mut self, index: Index, reason: FlushReason) {
        let Some(descriptor) = self.table.get_mut(index) else { return };
        let Some(mut list) = descriptor.waiting.take() else { return self.reconstruct(index, reason) };
        let since = list.since;
        self.deliver_run(index, reason);
        while let Some(seq) = list.first_seq() {
            let Some(descriptor) = self.table.get_mut(index) else { return };
            descriptor.catch_up(seq);
            for waiting in list.take_consecutive(seq) {
                self.append(index, waiting.frame, &waiting.segment, since);
            }
            self.deliver_run(index, reason);
        }
        self.lists.give_back(list);
    }

    /// Returns the header of a data packet if active ACK follows the paper, which acknowledges each one.
    fn to_answer(&self, frame: &Frame<B>) -> Option<Header> {
        (self.config.active_ack == ActiveAck::Paper).then(|| Header::of(frame))
    }

    /// Sends the ACK of the paper's rule for a data packet.
    fn answer(&mut self, index: Index, segment: &Segment, received: Option<Header>) {
        if self.config.active_ack != ActiveAck::Paper {
            return;
        }
        if let Some(received) = received
            && let Some(descriptor) = self.table.get_mut(index)
        {
            let acknowledgement = Acknowledgement::paper(segment, descriptor.nextseq);
            self.acknowledge(&received.0, segment.layout, &acknowledgement);
        }
    }

    /// Sends an ACK frame in answer to a received header.
    fn acknowledge(&mut self, received: &[u8], layout: Layout, acknowledgement: &Acknowledgement) {
        if let Some(acker) = &mut self.acker
            && let Some(frame) = acker.frame(received, layout, acknowledgement)
        {
            self.out.acknowledge(frame);
        }
    }
}

/// A copy of a received frame's headers: the ACK is built from it after the frame was handed on.
struct Header(HeaderBytes);

impl Header {
    fn of<B: AsRef<[u8]>>(frame: &Frame<B>) -> Self {
        let mut header = [0; MAX_HEADER];
        for (place, byte) in header.iter_mut().zip(frame.bytes()) {
            *place = *byte;
        }
        Self(header)
    }
}
