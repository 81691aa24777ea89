//! Segments that wait together: the aggregate under construction.

use nichrome_wire::{Instant, SeqNumber, TcpFlags};

use crate::aggregate::{Aggregate, Identification};
use crate::frame::Frame;
use crate::outbox::Outbox;
use crate::reason::FlushReason;
use crate::recycle::{Recycle, Recycler};
use crate::segment::{Follower, Layout, Segment};
use crate::template::{Rule, Template};

/// How large an aggregate may become.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of the IP packet.
    pub(crate) bytes: u32,
    pub(crate) segments: u32,
}

/// A received segment whose payload is part of an aggregate.
pub(crate) struct Piece<B> {
    pub(crate) frame: Frame<B>,
    /// Where the payload starts in the frame.
    start: u32,
    /// Payload bytes.
    pub(crate) len: u32,
}

impl<B: AsRef<[u8]>> Piece<B> {
    #[inline]
    fn new(frame: Frame<B>, layout: Layout, payload_len: u32) -> Self {
        Self { frame, start: u32::from(layout.payload), len: payload_len }
    }

    pub(crate) fn payload(&self) -> &[u8] {
        let start = self.start as usize;
        self.frame.bytes().get(start..start + self.len as usize).unwrap_or_default()
    }
}

/// The fields of a segment of which the latest counts for the whole.
#[derive(Clone, Copy)]
pub(crate) struct Latest {
    pub(crate) ack: SeqNumber,
    pub(crate) window: u16,
    pub(crate) flags: TcpFlags,
    pub(crate) timestamp: Option<u32>,
}

/// Segments with consecutive payload, collected under the header of the first.
pub(crate) struct Run<B> {
    /// The first segment's header, and which of its bits the others share.
    pub(crate) template: Template,
    pub(crate) pieces: Vec<Piece<B>>,
    /// Payload bytes.
    pub(crate) bytes: u32,
    /// The largest payload.
    pub(crate) mss: u32,
    /// The first segment's payload.
    pub(crate) first_len: u32,
    /// With more payload than this, another segment of the first one's size would not fit.
    full_above: u32,
    max_segments: u32,
    /// The sequence number after the last byte.
    pub(crate) end: SeqNumber,
    pub(crate) identification: Identification,
    /// Flags that one of the segments has: PSH and FIN of the last count for all.
    pub(crate) flags: TcpFlags,
    pub(crate) ack: SeqNumber,
    pub(crate) window: u16,
    /// The newest timestamp value in it.
    pub(crate) newest_timestamp: Option<u32>,
    /// Only this timestamp value may join: the host has been handed a newer one, and may refuse this (PAWS).
    pub(crate) only_timestamp: Option<u32>,
    /// When the first segment came.
    pub(crate) since: Instant,
    pub(crate) reason: FlushReason,
}

impl<B: AsRef<[u8]>> Run<B> {
    fn with_room(segments: usize) -> Self {
        Self {
            template: Template::default(),
            pieces: Vec::with_capacity(segments),
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

    /// Segments collected.
    #[inline]
    pub(crate) fn segments(&self) -> usize {
        self.pieces.len()
    }

    /// Whether another segment of the first one's size would not fit.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.bytes > self.full_above || self.segments() >= self.max_segments as usize
    }

    /// Bytes of the whole as an IP packet.
    #[inline]
    pub(crate) fn len_on_ip(&self) -> u32 {
        let layout = self.template.layout;
        u32::from(layout.payload - layout.network) + self.bytes
    }

    /// How the identifications go on with that of `follower`; `None` where they would follow no rule.
    #[inline]
    pub(crate) fn identification_with(&self, follower: &Follower) -> Option<Identification> {
        if !self.template.layout.is_ipv4() {
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
        self.push(Piece::new(frame, self.template.layout, follower.payload_len));
    }

    /// Why a segment that is next in sequence cannot join under the rule of equal streams; `None` where it can.
    #[inline]
    pub(crate) fn why_not_stream(
        &self,
        frame: &Frame<B>,
        segment: &Segment,
        limits: Limits,
    ) -> Option<FlushReason> {
        let timestamp = segment.timestamps.map(|timestamps| timestamps.value);
        if segment.layout != self.template.layout
            || !self.template.matches(frame.bytes())
            || !self.accepts_timestamp(timestamp)
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
    fn accepts_timestamp(&self, timestamp: Option<u32>) -> bool {
        match (timestamp, self.newest_timestamp) {
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
        self.push(Piece::new(frame, segment.layout, segment.payload_len));
    }

    /// As [`Run::predicts`] under the rule of equal streams: the fields that may differ.
    #[inline]
    pub(crate) fn predicts_stream(&self, frame: &Frame<B>) -> Option<Latest> {
        let bytes = frame.bytes();
        if self.is_full() || !self.template.matches_full_size(bytes) {
            return None;
        }
        let layout = self.template.layout;
        let tcp: &[u8; 20] = bytes.get(usize::from(layout.transport)..)?.first_chunk()?;
        if self.end != SeqNumber(u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]])) {
            return None;
        }
        let timestamp = match layout.timestamps() {
            Some(at) => Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?)),
            None => None,
        };
        if !self.accepts_timestamp(timestamp) {
            return None;
        }
        Some(Latest {
            ack: SeqNumber(u32::from_be_bytes([tcp[8], tcp[9], tcp[10], tcp[11]])),
            window: u16::from_be_bytes([tcp[14], tcp[15]]),
            flags: TcpFlags::from_bits_truncate(u16::from(tcp[13])),
            timestamp,
        })
    }

    /// Adds a segment, predicted under the rule of equal streams.
    #[inline]
    pub(crate) fn follow_predicted_stream(&mut self, frame: Frame<B>, latest: Latest) {
        self.note(latest);
        self.push(Piece::new(frame, self.template.layout, self.first_len));
    }

    /// The ACK number becomes the latest, and the window the one that came with it.
    #[inline]
    fn note(&mut self, latest: Latest) {
        if !latest.ack.before(self.ack) {
            self.ack = latest.ack;
            self.window = latest.window;
        }
        self.flags = self.flags | latest.flags;
        self.newest_timestamp = latest.timestamp;
    }

    /// Whether `frame` is the expected next segment, of full size, and there is room for it: with these flags.
    #[inline]
    pub(crate) fn predicts(&self, frame: &Frame<B>) -> Option<TcpFlags> {
        let bytes = frame.bytes();
        if self.is_full() || !self.template.matches_full_size(bytes) {
            return None;
        }
        let layout = self.template.layout;
        let tcp: &[u8; 20] = bytes.get(usize::from(layout.transport)..)?.first_chunk()?;
        let ip: &[u8; 12] = bytes.get(usize::from(layout.network)..)?.first_chunk()?;
        let mut expected = self.end == SeqNumber(u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]));
        expected &= tcp[16..18] != [0xFF; 2];
        if layout.is_ipv4() {
            expected &= self.next_ident() == u16::from_be_bytes([ip[4], ip[5]]);
            expected &= ip[10..12] != [0xFF; 2];
        }
        expected.then(|| TcpFlags::from_bits_truncate(u16::from(tcp[13])))
    }

    /// Adds a predicted segment.
    #[inline]
    pub(crate) fn follow_predicted(&mut self, frame: Frame<B>, flags: TcpFlags) {
        self.flags = self.flags | flags;
        self.push(Piece::new(frame, self.template.layout, self.first_len));
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
    pub(crate) fn push(&mut self, piece: Piece<B>) {
        self.bytes += piece.len;
        self.mss = self.mss.max(piece.len);
        self.end += piece.len;
        // There is always room; saying so saves the path that makes more, and with it a copy of the piece.
        if self.pieces.len() < self.pieces.capacity() {
            self.pieces.push(piece);
        }
    }

    /// Writes the header of the whole over that of the first segment: lengths, flags, ACK number, window, the IPv4
    /// header checksum, and the pseudo-header's sum in the TCP checksum field.
    fn seal(&mut self, reason: FlushReason) {
        self.reason = reason;
        self.template.seal(self.bytes, self.flags, self.ack, self.window);
    }
}

impl<B> Recycle for Run<B> {
    fn clear(&mut self) {
        self.pieces.clear();
    }
}

/// Memory for a fixed number of runs.
pub(crate) struct RunPool<B>(Recycler<Run<B>>);

impl<B: AsRef<[u8]>> RunPool<B> {
    /// Room for `runs` runs of up to `segments` segments.
    pub(crate) fn new(runs: usize, segments: usize) -> Self {
        Self(Recycler::new((0..runs).map(|_| Run::with_room(segments))))
    }

    /// Starts a run with its first segment; gives the frame back where all runs are in use.
    #[inline]
    pub(crate) fn start(
        &mut self,
        frame: Frame<B>,
        segment: &Segment,
        rule: Rule,
        limits: Limits,
        now: Instant,
    ) -> Result<Box<Run<B>>, Frame<B>> {
        let Some(mut run) = self.0.take() else { return Err(frame) };
        run.template.set(frame.bytes(), segment.layout, rule);
        run.bytes = 0;
        run.mss = 0;
        run.first_len = segment.payload_len;
        let headers = u32::from(segment.layout.payload - segment.layout.network);
        run.full_above = limits.bytes.saturating_sub(headers + segment.payload_len);
        run.max_segments = limits.segments;
        run.since = now;
        run.end = segment.seq;
        run.identification = match rule {
            // A guess until there are two: the usual sender counts.
            Rule::Lossless => Identification::Incrementing,
            Rule::Stream => Identification::Any,
        };
        run.flags = segment.flags;
        run.ack = segment.ack;
        run.window = segment.window;
        run.only_timestamp = None;
        run.newest_timestamp = segment.timestamps.map(|timestamps| timestamps.value);
        run.push(Piece::new(frame, segment.layout, segment.payload_len));
        Ok(run)
    }

    /// Hands on a run: a single segment leaves as the frame that it was, more as an aggregate.
    #[inline]
    pub(crate) fn finish(&mut self, mut run: Box<Run<B>>, reason: FlushReason, out: &mut Outbox<B>) {
        if run.pieces.len() == 1
            && let Some(piece) = run.pieces.pop()
        {
            out.flush_frame(piece.frame, piece.len, reason);
            self.0.give_back(run);
        } else {
            run.seal(reason);
            out.flush_aggregate(Aggregate::new(self.0.lend(run)), reason);
        }
    }
}
