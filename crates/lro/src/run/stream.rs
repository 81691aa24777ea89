//! The stream rule: the payload is kept, and ACK number, window and timestamp become those of the latest segment.

use std::vec::IntoIter;

use nichrome_wire::{SeqNumber, TcpFlags};

use super::{Limits, Run};
use crate::frame::Frame;
use crate::latest::Latest;
use crate::mask::{Mask, Masks};
use crate::reason::FlushReason;
use crate::segment::{self, Segment};
use crate::template::USUAL;
use crate::usual;

impl<B: AsRef<[u8]>> Run<B> {
    /// Returns why a segment that is next in sequence cannot join under the stream rule; `None` if it can.
    #[inline]
    pub(crate) fn why_not_stream(
        &self,
        mask: &Mask,
        frame: &Frame<B>,
        segment: &Segment,
        limits: Limits,
    ) -> Option<FlushReason> {
        let timestamp = segment.timestamps.map(|timestamps| timestamps.value);
        if segment.layout != self.layout
            || !mask.matches(self.first(), frame.bytes())
            || !self.accepts_timestamp(timestamp, self.newest_timestamp)
        {
            Some(FlushReason::UnequalField)
        } else if self.len_on_ip() + segment.payload_len > limits.bytes {
            Some(FlushReason::MaxLength)
        } else if self.segments() >= limits.segments as usize {
            Some(FlushReason::MaxSegments)
        } else {
            None
        }
    }

    /// Returns true if a segment with this timestamp value may join. The host sees the first segment's value
    /// in its test for old segments (PAWS, RFC 7323 section 5), so a later one must not be older.
    #[inline]
    fn accepts_timestamp(&self, timestamp: Option<u32>, newest: Option<u32>) -> bool {
        match (timestamp, newest) {
            (Some(new), Some(newest)) => {
                !SeqNumber(new).before(SeqNumber(newest))
                    && self.only_timestamp.is_none_or(|only| only == new)
            }
            _ => true,
        }
    }

    /// Adds the next in-order segment under the stream rule. ACK number and window become those of the latest
    /// ACK number.
    #[inline]
    pub(crate) fn follow_stream(&mut self, frame: Frame<B>, segment: &Segment) {
        let mut latest = self.latest();
        latest.follow(Latest {
            ack: segment.ack,
            window: segment.window,
            flags: segment.flags,
            timestamp: segment.timestamps.map(|timestamps| timestamps.value),
        });
        self.note(latest);
        self.push(frame, segment.payload_len);
    }

    /// Adds the leading frames that are the expected next segments of full size, under the stream rule, up to
    /// one with a flag of `ends` or until the run is full. Returns their number. The first frame must be one that
    /// [may be next](Run::may_be_next); the run must have room, and must not have ended with a flag of `ends`.
    #[inline(always)]
    pub(crate) fn add_stream_train(
        &mut self,
        masks: &mut Masks,
        frames: &mut IntoIter<Frame<B>>,
        ends: TcpFlags,
    ) -> u32 {
        if !self.is_stream {
            return self.add_masked_stream(masks.of(self.layout), frames, ends);
        }
        if !self.may_follow(frames.as_slice(), 1) {
            return u32::from(self.add_usual_stream(frames));
        }
        let count = if !frames.as_slice().first().is_some_and(|next| self.may_be_next_usual(next)) {
            // Another ACK number: the frame is not steady.
            0
        } else if self.may_follow(frames.as_slice(), 3) {
            self.add_steady_train(frames)
        } else {
            self.add_steady(frames)
        };
        if count > 0 { count } else { self.add_masked_stream(masks.of(self.layout), frames, ends) }
    }

    /// Returns true if frame `nth` (from 0) may be the next segment after the frames before it, by its sequence number.
    /// For [common frames](crate::usual).
    #[inline(always)]
    fn may_follow(&self, frames: &[Frame<B>], nth: u32) -> bool {
        let frame = frames.get(nth as usize).and_then(|frame| usual::sequence_and_ack(frame.bytes()));
        frame.is_some_and(|(seq, _)| seq == self.end + nth * self.first_len)
    }

    /// Adds the leading frames that repeat the header of the last one and are next in sequence: such a frame changes no
    /// [`Latest`] field, and is accepted as the last one was. Returns their number. For [common frames](crate::usual).
    #[inline(always)]
    fn add_steady(&mut self, frames: &mut IntoIter<Frame<B>>) -> u32 {
        let mut count = 0;
        while let (Some(last), Some(next)) = (self.last(), frames.as_slice().first())
            && self.has_room()
            && self.repeats(last, next, self.end)
        {
            self.add_expected(frames, TcpFlags::NONE);
            count += 1;
        }
        count
    }

    /// As [`Run::add_steady`]. Not inlined, so that the compiler keeps what it needs in registers across frames.
    #[inline(never)]
    fn add_steady_train(&mut self, frames: &mut IntoIter<Frame<B>>) -> u32 {
        let Some(mut last) = self.last() else { return 0 };
        let (mut count, mut seq) = (0, self.end);
        for frame in self.fitting(frames.as_slice()) {
            if !self.repeats(last, frame, seq) {
                break;
            }
            last = frame;
            count += 1;
            seq += self.first_len;
        }
        self.extend(frames, count);
        count
    }

    /// Returns true if `frame` repeats the header of `last`, with the sequence number `seq`.
    #[inline(always)]
    fn repeats(&self, last: &Frame<B>, frame: &Frame<B>, seq: SeqNumber) -> bool {
        let (last, bytes) = (last.bytes(), frame.bytes());
        bytes.len() == self.frame_len as usize
            && usual::repeats(last, bytes, usize::from(self.layout.payload), seq)
            && segment::verify(frame, self.layout, self.first_len).is_ok()
    }

    /// As [`Run::add_stream_train`], for the first frame only, if it is a [common one](crate::usual).
    #[inline(always)]
    fn add_usual_stream(&mut self, frames: &mut IntoIter<Frame<B>>) -> bool {
        let Some(frame) = frames.as_slice().first() else { return false };
        let payload = usize::from(self.layout.payload);
        let Some(next) = usual::expected_stream(self.first(), frame.bytes(), payload) else { return false };
        if segment::verify(frame, self.layout, self.first_len).is_err()
            || !self.accepts_timestamp(next.timestamp, self.newest_timestamp)
        {
            return false;
        }
        let mut latest = self.latest();
        latest.follow(next);
        self.note(latest);
        self.add_expected(frames, TcpFlags::NONE);
        true
    }

    /// As [`Run::add_stream_train`], for any frames. Not inlined, so that the compiler keeps the first header
    /// and the mask in registers across frames.
    #[inline(never)]
    fn add_masked_stream(&mut self, mask: &Mask, frames: &mut IntoIter<Frame<B>>, ends: TcpFlags) -> u32 {
        let Some(first) = self.first().first_chunk() else { return 0 };
        let mut latest = self.latest();
        let (mut count, mut seq) = (0, self.end);
        for frame in self.fitting(frames.as_slice()) {
            let Some(next) = self.expected_stream(mask, first, frame, seq, latest.timestamp) else { break };
            latest.follow(next);
            count += 1;
            seq += self.first_len;
            if next.flags.intersects(ends) {
                break;
            }
        }
        self.note(latest);
        self.extend(frames, count);
        count
    }

    /// Returns the fields of the frame if it is the full-size segment at `seq`, and its timestamp may follow
    /// `newest`.
    #[inline(always)]
    fn expected_stream(
        &self,
        mask: &Mask,
        first: &[u8; USUAL],
        frame: &Frame<B>,
        seq: SeqNumber,
        newest: Option<u32>,
    ) -> Option<Latest> {
        let (bytes, layout) = (frame.bytes(), self.layout);
        let tcp: &[u8; 20] = bytes.get(usize::from(layout.transport)..)?.first_chunk()?;
        if bytes.len() != self.frame_len as usize
            || tcp[4..8] != seq.0.to_be_bytes()
            || !mask.matches_full_size(first, bytes.first_chunk()?)
            || segment::verify(frame, layout, self.first_len).is_err()
        {
            return None;
        }
        let timestamp = match layout.timestamps() {
            Some(at) => Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?)),
            None => None,
        };
        self.accepts_timestamp(timestamp, newest).then(|| Latest {
            ack: SeqNumber(u32::from_be_bytes([tcp[8], tcp[9], tcp[10], tcp[11]])),
            window: u16::from_be_bytes([tcp[14], tcp[15]]),
            flags: TcpFlags::from_bits_truncate(u16::from(tcp[13])),
            timestamp,
        })
    }

    /// Returns the fields that follow the latest segment.
    #[inline(always)]
    fn latest(&self) -> Latest {
        let Self { ack, window, flags, newest_timestamp: timestamp, .. } = *self;
        Latest { ack, window, flags, timestamp }
    }

    /// Stores the fields that follow the latest segment.
    #[inline(always)]
    fn note(&mut self, Latest { ack, window, flags, timestamp }: Latest) {
        self.ack = ack;
        self.window = window;
        self.flags = flags;
        self.newest_timestamp = timestamp;
    }
}
