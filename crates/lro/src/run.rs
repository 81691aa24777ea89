//! Segments that wait together: the aggregate under construction.

use nichrome_wire::{Instant, SeqNumber, TcpFlags};

use crate::frame::Frame;
use crate::identification::Identification;
use crate::reason::FlushReason;
use crate::recycle::Recycle;
use crate::segment::{self, Follower, Layout, Segment};
use crate::template::{Rule, Template};

/// How large an aggregate may become.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of the IP packet.
    pub(crate) bytes: u32,
    pub(crate) segments: u32,
}

/// The fields of a segment of which the latest counts for the whole.
#[derive(Clone, Copy)]
pub(crate) struct Latest {
    pub(crate) ack: SeqNumber,
    pub(crate) window: u16,
    pub(crate) flags: TcpFlags,
    pub(crate) timestamp: Option<u32>,
}

impl Latest {
    /// The ACK number becomes the latest, and the window the one that came with it.
    #[inline]
    fn follow(&mut self, next: Self) {
        if !next.ack.before(self.ack) {
            self.ack = next.ack;
            self.window = next.window;
        }
        self.flags = self.flags | next.flags;
        self.timestamp = next.timestamp;
    }
}

/// Frames that were found to be the next of a run, and the flags of the last where these end the run.
#[derive(Clone, Copy, Default)]
pub(crate) struct Predicted {
    pub(crate) count: usize,
    pub(crate) flags: TcpFlags,
}

/// Segments with consecutive payload, collected under the header of the first.
///
/// In memory as written here: a run often stays alone with its first frame, and then touches the first two cache lines.
#[repr(C, align(64))]
pub(crate) struct Run<B> {
    /// The first frame; present while the run is in use.
    first: Option<Frame<B>>,
    /// Where the headers of every frame lie.
    pub(crate) layout: Layout,
    /// The sequence number of the first byte.
    pub(crate) start: SeqNumber,
    /// The sequence number after the last byte.
    pub(crate) end: SeqNumber,
    /// Bytes of the first frame.
    frame_len: u32,
    /// Segments collected.
    count: u32,
    /// When the first segment came.
    pub(crate) since: Instant,
    /// Payload bytes.
    pub(crate) bytes: u32,
    /// The largest payload.
    pub(crate) mss: u32,
    /// The first segment's payload.
    pub(crate) first_len: u32,
    /// With more payload than this, another segment of the first one's size would not fit.
    full_above: u32,
    max_segments: u32,
    pub(crate) ack: SeqNumber,
    /// The newest timestamp value in it.
    pub(crate) newest_timestamp: Option<u32>,
    /// Only this timestamp value may join: the host has been handed a newer one, and may refuse this (PAWS).
    pub(crate) only_timestamp: Option<u32>,
    pub(crate) window: u16,
    /// Flags that one of the segments has: PSH and FIN of the last count for all.
    pub(crate) flags: TcpFlags,
    rule: Rule,
    /// Whether `template` is that of the first frame; it is made when a second one asks.
    has_template: bool,
    pub(crate) identification: Identification,
    pub(crate) reason: FlushReason,
    /// The frames after the first.
    frames: Vec<Frame<B>>,
    /// The first frame's header, and which of its bits the others share.
    template: Template,
}

impl<B: AsRef<[u8]>> Run<B> {
    /// A run that is not in use, with room for so many segments.
    pub(crate) fn with_room(segments: usize) -> Self {
        Self {
            first: None,
            layout: Layout::default(),
            rule: Rule::Lossless,
            has_template: false,
            frame_len: 0,
            start: SeqNumber(0),
            frames: Vec::with_capacity(segments),
            template: Template::default(),
            count: 0,
            bytes: 0,
            mss: 0,
            first_len: 0,
            full_above: 0,
            max_segments: 0,
            end: SeqNumber(0),
            identification: Identification::Any,
            flags: TcpFlags::default(),
            ack: SeqNumber(0),
            window: 0,
            newest_timestamp: None,
            only_timestamp: None,
            since: Instant::ZERO,
            reason: FlushReason::Drain,
        }
    }

    /// Starts anew with the first segment.
    #[inline(always)]
    pub(crate) fn begin(
        &mut self,
        frame: Frame<B>,
        segment: &Segment,
        rule: Rule,
        limits: Limits,
        now: Instant,
    ) {
        self.layout = segment.layout;
        self.rule = rule;
        self.has_template = false;
        self.frame_len = frame.bytes().len() as u32;
        self.start = segment.seq;
        self.count = 1;
        self.bytes = segment.payload_len;
        self.mss = segment.payload_len;
        self.first_len = segment.payload_len;
        let headers = u32::from(segment.layout.payload - segment.layout.network);
        self.full_above = limits.bytes.saturating_sub(headers + segment.payload_len);
        self.max_segments = limits.segments;
        self.since = now;
        self.end = segment.end();
        self.identification = match rule {
            // A guess until there are two: the usual sender counts.
            Rule::Lossless => Identification::Incrementing,
            Rule::Stream => Identification::Any,
        };
        self.flags = segment.flags;
        self.ack = segment.ack;
        self.window = segment.window;
        self.only_timestamp = None;
        self.newest_timestamp = segment.timestamps.map(|timestamps| timestamps.value);
        self.first = Some(frame);
    }

    /// Segments collected.
    #[inline]
    pub(crate) fn segments(&self) -> usize {
        self.count as usize
    }

    /// The template of the first frame.
    #[inline]
    pub(crate) fn template(&mut self) -> &Template {
        if !self.has_template
            && let Some(first) = &self.first
        {
            self.template.set(first.bytes(), self.layout, self.rule);
            self.has_template = true;
        }
        &self.template
    }

    /// As [`Run::template`], of a run that has two segments or more.
    pub(crate) fn shared_template(&self) -> &Template {
        &self.template
    }

    /// Whether `frame` is as long as the first and has the sequence number that is next: cheap to see, and seldom so in
    /// a frame of another flow.
    #[inline]
    pub(crate) fn may_be_next(&self, frame: &[u8]) -> bool {
        let seq = usize::from(self.layout.transport) + 4;
        frame.len() == self.frame_len as usize && frame.get(seq..seq + 4) == Some(&self.end.0.to_be_bytes())
    }

    /// Whether another segment of the first one's size would not fit.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.bytes > self.full_above || self.count >= self.max_segments
    }

    /// Bytes of the whole as an IP packet.
    #[inline]
    pub(crate) fn len_on_ip(&self) -> u32 {
        let layout = self.layout;
        u32::from(layout.payload - layout.network) + self.bytes
    }

    /// How the identifications go on with that of `follower`; `None` where they would follow no rule.
    #[inline]
    pub(crate) fn identification_with(&self, follower: &Follower) -> Option<Identification> {
        if !self.layout.is_ipv4() {
            return Some(Identification::Fixed);
        }
        let ahead = usize::from(follower.ident.wrapping_sub(self.template.first_ident()));
        let next = if ahead == 0 {
            Identification::Fixed
        } else if ahead == self.segments() {
            Identification::Incrementing
        } else {
            return None;
        };
        (self.segments() == 1 || next == self.identification).then_some(next)
    }

    /// Adds a segment that goes on where the run ends, under the lossless rule.
    #[inline]
    pub(crate) fn follow(&mut self, frame: Frame<B>, follower: &Follower) {
        self.identification = self.identification_with(follower).unwrap_or(Identification::Any);
        self.flags = self.flags | follower.flags;
        self.push(frame, follower.payload_len);
    }

    /// Why a segment that is next in sequence cannot join under the rule of equal streams; `None` where it can.
    #[inline]
    pub(crate) fn why_not_stream(
        &mut self,
        frame: &Frame<B>,
        segment: &Segment,
        limits: Limits,
    ) -> Option<FlushReason> {
        let timestamp = segment.timestamps.map(|timestamps| timestamps.value);
        if segment.layout != self.layout
            || !self.template().matches(frame.bytes())
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

    /// Whether a segment with this timestamp value may hide behind the first one's in the host's test for old segments
    /// (PAWS, RFC 7323 section 5): it must not be older than the last.
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

    /// Adds a segment that goes on where the run ends, under the rule of equal streams: the ACK number becomes the
    /// latest, and the window the one that came with it.
    #[inline]
    pub(crate) fn follow_stream(&mut self, frame: Frame<B>, segment: &Segment) {
        self.note(Latest {
            ack: segment.ack,
            window: segment.window,
            flags: segment.flags,
            timestamp: segment.timestamps.map(|timestamps| timestamps.value),
        });
        self.push(frame, segment.payload_len);
    }

    /// As [`Run::predicts`] under the rule of equal streams, up to one with a flag of `ends`: how many, and what the latest
    /// of them say. To be asked where the first [may be next](Run::may_be_next).
    #[inline(never)]
    pub(crate) fn predicts_stream(&mut self, frames: &[Frame<B>], ends: TcpFlags) -> Option<(usize, Latest)> {
        self.template();
        let mut latest = Latest {
            ack: self.ack,
            window: self.window,
            flags: TcpFlags::NONE,
            timestamp: self.newest_timestamp,
        };
        let (mut count, mut seq) = (0, self.end);
        for frame in frames.iter().take(self.room()) {
            let Some(next) = self.expected_stream(frame, seq, latest.timestamp) else { break };
            latest.follow(next);
            seq += self.first_len;
            count += 1;
            if next.flags.intersects(ends) {
                break;
            }
        }
        (count > 0).then_some((count, latest))
    }

    /// What a frame says that goes on at `seq`, of full size, after one with the timestamp value `newest`.
    #[inline]
    fn expected_stream(&self, frame: &Frame<B>, seq: SeqNumber, newest: Option<u32>) -> Option<Latest> {
        let (bytes, layout) = (frame.bytes(), self.layout);
        let tcp: &[u8; 20] = bytes.get(usize::from(layout.transport)..)?.first_chunk()?;
        if bytes.len() != self.frame_len as usize
            || tcp[4..8] != seq.0.to_be_bytes()
            || !self.template.matches_full_size(bytes)
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

    /// Adds segments, predicted under the rule of equal streams.
    #[inline]
    pub(crate) fn follow_predicted_stream(
        &mut self,
        frames: impl Iterator<Item = Frame<B>>,
        count: usize,
        latest: Latest,
    ) {
        self.note(latest);
        self.extend(frames, count);
    }

    /// The ACK number becomes the latest, and the window the one that came with it.
    #[inline]
    fn note(&mut self, latest: Latest) {
        let Self { ack, window, flags, newest_timestamp, .. } = self;
        let mut noted = Latest { ack: *ack, window: *window, flags: *flags, timestamp: *newest_timestamp };
        noted.follow(latest);
        (*ack, *window, *flags, *newest_timestamp) = (noted.ack, noted.window, noted.flags, noted.timestamp);
    }

    /// Which of these frames, from the first on, are the expected next segments, of full size: as many as there is room
    /// for, up to one that ends the run. To be asked where the first [may be next](Run::may_be_next).
    #[inline(never)]
    pub(crate) fn predicts(&mut self, frames: &[Frame<B>]) -> Predicted {
        self.template();
        let (mut seq, mut ident) = (self.end, self.next_ident());
        let step = u16::from(self.identification == Identification::Incrementing);
        let mut predicted = Predicted::default();
        let len = self.frame_len as usize;
        let Some(places) = self.template.places(len) else { return predicted };
        for frame in &frames[..frames.len().min(self.room())] {
            if frame.bytes().len() != len {
                break;
            }
            let Some(flags) = self.template.expects(frame.bytes(), places, seq, ident) else { break };
            if segment::verify(frame, self.layout, self.first_len).is_err() {
                break;
            }
            predicted.count += 1;
            if flags.intersects(TcpFlags::PSH | TcpFlags::FIN) {
                predicted.flags = flags;
                break;
            }
            seq += self.first_len;
            ident = ident.wrapping_add(step);
        }
        predicted
    }

    /// Adds the predicted segments, which come first in `frames`.
    #[inline]
    pub(crate) fn follow_predicted(&mut self, frames: impl Iterator<Item = Frame<B>>, predicted: Predicted) {
        self.flags = self.flags | predicted.flags;
        self.extend(frames.take(predicted.count), predicted.count);
    }

    /// Adds `count` segments of full size whose payload follows.
    #[inline]
    fn extend(&mut self, frames: impl Iterator<Item = Frame<B>>, count: usize) {
        let bytes = count as u32 * self.first_len;
        self.count += count as u32;
        self.bytes += bytes;
        self.end += bytes;
        self.frames.extend(frames);
    }

    /// How many more segments of the first one's size fit.
    #[inline]
    fn room(&self) -> usize {
        let by_bytes = match self.full_above.checked_sub(self.bytes) {
            Some(left) => left / self.first_len.max(1) + 1,
            None => 0,
        };
        by_bytes.min(self.max_segments.saturating_sub(self.count)) as usize
    }

    /// The identification that the next segment has if it goes on as those before it did.
    #[inline]
    fn next_ident(&self) -> u16 {
        match self.identification {
            Identification::Fixed => self.template.first_ident(),
            _ => self.template.first_ident().wrapping_add(self.segments() as u16),
        }
    }

    /// Adds a segment whose payload follows.
    #[inline]
    fn push(&mut self, frame: Frame<B>, len: u32) {
        self.count += 1;
        self.bytes += len;
        self.mss = self.mss.max(len);
        self.end += len;
        // There is always room; saying so saves the path that makes more, and with it a copy of the frame.
        if self.frames.len() < self.frames.capacity() {
            self.frames.push(frame);
        }
    }

    /// The frames in order.
    pub(crate) fn frames(&self) -> impl Iterator<Item = &Frame<B>> {
        self.first.iter().chain(&self.frames)
    }

    /// The payloads in order.
    pub(crate) fn payloads(&self) -> impl Iterator<Item = &[u8]> {
        self.frames().map(|frame| segment::payload(frame.bytes(), self.layout).unwrap_or_default())
    }

    /// Segment `nth`: the payload bytes before it, and its payload.
    pub(crate) fn segment(&self, nth: usize) -> Option<(u32, &[u8])> {
        let before: usize = self.payloads().take(nth).map(<[u8]>::len).sum();
        Some((before as u32, self.payloads().nth(nth)?))
    }

    /// Takes the first frame, of a run that goes.
    #[inline(always)]
    pub(crate) fn take_first(&mut self) -> Option<Frame<B>> {
        self.first.take()
    }

    /// Writes the header of the whole over that of the first segment: lengths, flags, ACK number, window, the IPv4
    /// header checksum, and the pseudo-header's sum in the TCP checksum field.
    pub(crate) fn seal(&mut self, reason: FlushReason) {
        self.reason = reason;
        self.template.seal(self.bytes, self.flags, self.ack, self.window);
    }
}

impl<B> Recycle for Run<B> {
    fn clear(&mut self) {
        self.first = None;
        self.frames.clear();
    }
}
