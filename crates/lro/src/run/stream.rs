//! The stream rule: keeps the byte stream, and the ACK number, window and timestamp of the latest segment.

use std::vec::IntoIter;

use nichrome_wire::{SeqNumber, TcpFlags};
use pulp::{Arch, NullaryFnOnce};

use super::{Limits, NextCommon, Run};
use crate::checksums;
use crate::common;
use crate::frame::Frame;
use crate::latest::Latest;
use crate::mask::{Mask, Masks};
use crate::reason::FlushReason;
use crate::segment::Segment;
use crate::template::COMMON_LEN;

impl<B: AsRef<[u8]>> Run<B> {
    /// Returns true if the run ends with the segment just added: no other segment fits, or it has a flag of
    /// `ends`.
    #[inline(always)]
    pub(crate) fn has_ended(&self, ends: TcpFlags) -> bool {
        self.is_full() || self.flags.intersects(ends)
    }

    /// Returns why the run [has ended](Run::has_ended).
    pub(crate) fn end_reason(&self) -> FlushReason {
        if self.is_full() { self.full_reason() } else { FlushReason::Psh }
    }

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
    /// one with a flag of `ends` or until the run is full. Returns their number. The run must have room, and
    /// must not have ended with a flag of `ends`.
    #[inline(always)]
    pub(crate) fn add_stream_train(
        &mut self,
        masks: &mut Masks,
        frames: &mut IntoIter<Frame<B>>,
        ends: TcpFlags,
    ) -> u32 {
        if !self.is_stream {
            let is_next = frames.as_slice().first().is_some_and(|next| self.may_be_next(next.bytes()));
            return if is_next { self.add_masked_train(masks, frames, ends) } else { 0 };
        }
        let count = match self.next_common(frames.as_slice()) {
            NextCommon::SameAck if self.is_second_next(frames.as_slice()) => {
                self.add_repeated_train(masks.arch, frames)
            }
            NextCommon::SameAck => u32::from(self.add_repeated(frames)),
            NextCommon::OtherAck => 0,
            NextCommon::Other => return 0,
        };
        if count > 0 {
            count
        } else if self.is_second_next(frames.as_slice()) {
            self.add_masked_train(masks, frames, ends)
        } else {
            u32::from(self.add_common_stream(frames))
        }
    }

    /// Returns true if the second frame may be the next segment after the first, by its sequence number. For
    /// [common frames](crate::common).
    #[inline(always)]
    fn is_second_next(&self, frames: &[Frame<B>]) -> bool {
        frames.get(1).is_some_and(|second| common::has_sequence(second.bytes(), self.end + self.first_len))
    }

    /// Adds the first frame, which is next in sequence, if it repeats the header of the last one: such a
    /// frame changes no [`Latest`] field, and the tests that accepted the last one accept it. For [common
    /// frames](crate::common).
    #[inline(always)]
    fn add_repeated(&mut self, frames: &mut IntoIter<Frame<B>>) -> bool {
        let (Some(last), [next, ..]) = (self.steady(), frames.as_slice()) else { return false };
        let repeats = self.repeats(last, next);
        if repeats {
            self.add_expected(frames, TcpFlags::NONE);
        }
        repeats
    }

    /// As [`Run::add_repeated`], for all leading frames. Returns their number. Not inlined, so that the
    /// compiler keeps the header in registers across frames.
    #[inline(never)]
    fn add_repeated_train(&mut self, arch: Arch, frames: &mut IntoIter<Frame<B>>) -> u32 {
        arch.dispatch(AddRepeated { run: self, frames })
    }

    /// Returns a frame whose header repeats the last one's: the first frame, which is in the cache, as long
    /// as all frames repeat its header.
    #[inline(always)]
    fn steady(&self) -> Option<&Frame<B>> {
        if self.is_steady { self.first.as_ref() } else { self.last() }
    }

    /// Returns true if `frame` repeats the header of `last`, but for the sequence number, and both have the
    /// first one's size.
    #[inline(always)]
    fn repeats(&self, last: &Frame<B>, frame: &Frame<B>) -> bool {
        let (last, bytes) = (last.bytes(), frame.bytes());
        bytes.len() == self.frame_len as usize
            && bytes.len() == last.len()
            && common::repeats(last, bytes, usize::from(self.layout.payload))
            && checksums::verify_common(frame, self.layout, self.first_len).is_ok()
    }

    /// As [`Run::add_stream_train`], for the first frame only, if it is a [common one](crate::common).
    #[inline(always)]
    fn add_common_stream(&mut self, frames: &mut IntoIter<Frame<B>>) -> bool {
        let Some(frame) = frames.as_slice().first() else { return false };
        let payload = usize::from(self.layout.payload);
        let Some(next) = common::expected_stream(self.first(), frame.bytes(), payload) else { return false };
        if frame.bytes().len() != self.frame_len as usize
            || checksums::verify_common(frame, self.layout, self.first_len).is_err()
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
    fn add_masked_train(
        &mut self,
        masks: &mut Masks,
        frames: &mut IntoIter<Frame<B>>,
        ends: TcpFlags,
    ) -> u32 {
        let (arch, mask) = (masks.arch, masks.of(self.layout));
        arch.dispatch(AddMasked { run: self, mask, frames, ends })
    }

    /// Returns the fields of the frame if it is the full-size segment at `seq`, and its timestamp may follow
    /// `newest`.
    #[inline(always)]
    fn expected_stream(
        &self,
        mask: &Mask,
        first: &[u8; COMMON_LEN],
        frame: &Frame<B>,
        seq: SeqNumber,
        newest: Option<u32>,
    ) -> Option<Latest> {
        let (bytes, layout) = (frame.bytes(), self.layout);
        let tcp: &[u8; 20] = bytes.get(usize::from(layout.transport)..)?.first_chunk()?;
        if bytes.len() != self.frame_len as usize
            || tcp[4..8] != seq.0.to_be_bytes()
            || !mask.matches_full_size(first, bytes.first_chunk()?)
            || self.verify(frame).is_err()
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

    /// Stores the fields that follow the latest segment, which may have another header than the first.
    #[inline(always)]
    fn note(&mut self, Latest { ack, window, flags, timestamp }: Latest) {
        self.is_steady = false;
        self.ack = ack;
        self.window = window;
        self.flags = flags;
        self.newest_timestamp = timestamp;
    }
}

/// [`Run::add_repeated_train`], compiled once for AVX2 and once without.
struct AddRepeated<'a, B> {
    run: &'a mut Run<B>,
    frames: &'a mut IntoIter<Frame<B>>,
}

impl<B: AsRef<[u8]>> NullaryFnOnce for AddRepeated<'_, B> {
    type Output = u32;

    #[inline(always)]
    fn call(self) -> u32 {
        let Self { run, frames } = self;
        let Some(last) = run.steady() else { return 0 };
        let (mut count, mut seq) = (0, run.end);
        for frame in run.fitting(frames.as_slice()) {
            // All frames that this loop has accepted repeat the header of `last`.
            if !common::has_sequence(frame.bytes(), seq) || !run.repeats(last, frame) {
                break;
            }
            count += 1;
            seq += run.first_len;
        }
        run.extend(frames, count);
        count
    }
}

/// [`Run::add_masked_train`], compiled once for AVX2 and once without.
struct AddMasked<'a, B> {
    run: &'a mut Run<B>,
    mask: &'a Mask,
    frames: &'a mut IntoIter<Frame<B>>,
    ends: TcpFlags,
}

impl<B: AsRef<[u8]>> NullaryFnOnce for AddMasked<'_, B> {
    type Output = u32;

    #[inline(always)]
    fn call(self) -> u32 {
        let Self { run, mask, frames, ends } = self;
        let Some(first) = run.first().first_chunk() else { return 0 };
        let mut latest = run.latest();
        let (mut count, mut seq) = (0, run.end);
        for frame in run.fitting(frames.as_slice()) {
            let Some(next) = run.expected_stream(mask, first, frame, seq, latest.timestamp) else { break };
            latest.follow(next);
            count += 1;
            seq += run.first_len;
            if next.flags.intersects(ends) {
                break;
            }
        }
        run.note(latest);
        run.extend(frames, count);
        count
    }
}
