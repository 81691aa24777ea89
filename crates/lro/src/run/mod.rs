//! A run: the aggregate under construction.

mod stream;
mod train;

use std::mem;
use std::vec::IntoIter;

use nichrome_wire::{Instant, SeqNumber, TcpFlags};

use crate::checksums;
use crate::common::{self, AggregateFields};
use crate::followers::Followers;
use crate::frame::Frame;
use crate::identification::Identification;
use crate::mask::{Masks, Rule};
use crate::reason::{DropReason, FlushReason};
use crate::recycle::{Pooled, Recycle};
use crate::segment::{self, FirstSegment, Idents, Layout, Segment};
use crate::template::Template;
use crate::tunnel::Tunnel;

/// Maximum size of an aggregate.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Bytes of the IP packet.
    pub(crate) bytes: u32,
    pub(crate) segments: u32,
}

/// Segments with consecutive payload, collected under the header of the first.
///
/// The order of fields is the order in memory: a run of one frame touches the first two cache lines only.
#[repr(C, align(64))]
pub(crate) struct Run<B> {
    /// The first frame; present while the run is in use.
    first: Option<Frame<B>>,
    /// Positions of the headers, equal in all frames.
    pub(crate) layout: Layout,
    /// Sequence number of the first byte.
    pub(crate) start: SeqNumber,
    /// Sequence number after the last byte.
    pub(crate) end: SeqNumber,
    /// Length of the first frame in bytes, while every added frame of this length has
    /// [`first_len`](Self::first_len) bytes of payload. 0 after a frame of this length with less payload
    /// (padding): then no frame is accepted by its length.
    frame_len: u32,
    /// Segments collected.
    count: u32,
    /// Arrival of the first segment.
    pub(crate) since: Instant,
    /// Payload bytes.
    pub(crate) bytes: u32,
    /// The largest payload of a segment in bytes.
    pub(crate) mss: u32,
    /// The first segment's payload in bytes.
    pub(crate) first_len: u32,
    /// How many more segments of the first one's size fit: 0 or less if the run is full.
    room: i32,
    /// The value of [`room`](Self::room) with only the first segment.
    room_behind_first: i32,
    pub(crate) ack: SeqNumber,
    /// The newest timestamp value of the segments.
    pub(crate) newest_timestamp: Option<u32>,
    /// If set, the only timestamp value that may join: the host has received a newer one, and may refuse this
    /// one (PAWS).
    pub(crate) only_timestamp: Option<u32>,
    pub(crate) window: u16,
    /// Union of the segments' flags; PSH and FIN come from the last segment.
    pub(crate) flags: TcpFlags,
    /// The IPv4 identification of the first segment.
    first_ident: u16,
    pub(crate) identification: Identification,
    /// As `identification`, for the header of an IPv4 tunnel.
    pub(crate) outer_identification: Identification,
    pub(crate) reason: FlushReason,
    /// The frames are [common ones](crate::common).
    pub(crate) is_common: bool,
    /// The frames have a [stream layout](common::is_stream_layout); valid under the stream rule only.
    is_stream: bool,
    /// All frames [repeat](common::repeats) the header of the first; valid under the stream rule only.
    is_steady: bool,
    /// The frames after the first.
    followers: Followers<B>,
    /// The header of the aggregate, once [sealed](Run::seal).
    template: Template,
    /// Above this number of payload bytes, another segment of the first one's size does not fit.
    full_above: u32,
    max_segments: u32,
}

/// How a frame continues a run of [common frames](crate::common), by its sequence and ACK number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextCommon {
    /// Next in sequence, with the ACK number of the run.
    SameAck,
    /// Next in sequence, with another ACK number.
    OtherAck,
    Other,
}

/// A run from a [`RunPool`](crate::run_pool::RunPool).
pub(crate) type PooledRun<B> = Pooled<Run<B>>;

impl<B: AsRef<[u8]>> Run<B> {
    /// Creates an unused run with room for `segments` segments.
    pub(crate) fn with_room(segments: usize) -> Self {
        Self {
            first: None,
            layout: Layout::default(),
            first_ident: 0,
            frame_len: 0,
            start: SeqNumber(0),
            followers: Followers::with_room(segments.saturating_sub(1)),
            template: Template::default(),
            count: 0,
            bytes: 0,
            mss: 0,
            first_len: 0,
            full_above: 0,
            max_segments: 0,
            room: 0,
            room_behind_first: 0,
            end: SeqNumber(0),
            identification: Identification::Any,
            outer_identification: Identification::Any,
            flags: TcpFlags::default(),
            ack: SeqNumber(0),
            window: 0,
            newest_timestamp: None,
            only_timestamp: None,
            since: Instant::ZERO,
            reason: FlushReason::Drain,
            is_common: false,
            is_stream: false,
            is_steady: false,
        }
    }

    /// Starts the run with its first segment.
    #[inline(always)]
    pub(crate) fn begin(
        &mut self,
        frame: Frame<B>,
        segment: &Segment,
        rule: Rule,
        limits: Limits,
        now: Instant,
    ) {
        let first = FirstSegment {
            layout: segment.layout,
            seq: segment.seq,
            payload_len: segment.payload_len,
            ident: Idents::read(frame.bytes(), segment.layout).own,
            flags: segment.flags,
            ack: segment.ack,
            window: segment.window,
        };
        if rule == Rule::Lossless {
            self.start_with(frame, first, limits, now);
        } else {
            let timestamp = segment.timestamps.map(|timestamps| timestamps.value);
            self.start_stream(frame, first, timestamp, limits, now);
        }
    }

    /// As [`Run::begin`], with the fields that the stream rule needs.
    #[inline(always)]
    pub(crate) fn start_stream(
        &mut self,
        frame: Frame<B>,
        segment: FirstSegment,
        timestamp: Option<u32>,
        limits: Limits,
        now: Instant,
    ) {
        self.start_with(frame, segment, limits, now);
        self.identification = Identification::Any;
        self.is_steady = true;
        self.only_timestamp = None;
        self.newest_timestamp = timestamp;
    }

    /// As [`Run::begin`], with the fields that the lossless rule needs.
    #[inline(always)]
    pub(crate) fn start_with(
        &mut self,
        frame: Frame<B>,
        segment: FirstSegment,
        limits: Limits,
        now: Instant,
    ) {
        let FirstSegment { layout, seq, payload_len, ident, flags, ack, window } = segment;
        let frame_len = frame.bytes().len() as u32;
        // The run mostly had the same sizes in its last use, and the limits are equal for all segments of a
        // layout.
        if (self.layout, self.frame_len, self.first_len) != (layout, frame_len, payload_len) {
            self.set_sizes(layout, frame_len, payload_len, limits);
        }
        self.first_ident = ident;
        self.start = seq;
        self.count = 1;
        self.room = self.room_behind_first;
        self.bytes = payload_len;
        self.mss = payload_len;
        self.since = now;
        self.end = seq + payload_len;
        // An assumption until the second segment: most senders increment.
        self.identification = Identification::Incrementing;
        self.outer_identification = Identification::Incrementing;
        self.flags = flags;
        self.ack = ack;
        self.window = window;
        // The place holds None: forgetting it saves a test and a drop.
        mem::forget(self.first.replace(frame));
    }

    /// Sets the fields that depend on the sizes of the first frame only.
    #[inline(never)]
    fn set_sizes(&mut self, layout: Layout, frame_len: u32, payload_len: u32, limits: Limits) {
        self.layout = layout;
        self.is_common = common::is_layout(layout);
        self.is_stream = common::is_stream_layout(layout);
        self.frame_len = frame_len;
        self.first_len = payload_len;
        self.full_above = limits.bytes.saturating_sub(layout.counted_headers() + payload_len);
        self.max_segments = limits.segments;
        self.room_behind_first = self.room_behind(payload_len, 1);
    }

    /// Returns how many segments of the first one's size fit behind this number of bytes and segments.
    fn room_behind(&self, bytes: u32, segments: u32) -> i32 {
        let by_bytes = match self.full_above.checked_sub(bytes) {
            Some(left) => left / self.first_len.max(1) + 1,
            None => 0,
        };
        by_bytes.min(self.max_segments.saturating_sub(segments)).try_into().unwrap_or(i32::MAX)
    }

    /// As [`Run::start_with`], for a run of one segment, which is returned.
    #[inline(always)]
    pub(crate) fn start_again(
        &mut self,
        frame: Frame<B>,
        segment: FirstSegment,
        limits: Limits,
        now: Instant,
    ) -> Option<Frame<B>> {
        let alone = self.first.take();
        self.start_with(frame, segment, limits, now);
        alone
    }

    /// Returns true if a frame may restart the run with [`Run::start_alike`]: the run has one segment, and
    /// the frame is next in sequence, has another ACK number, and otherwise an equal header, except for
    /// window and options. For [common frames](crate::common).
    #[inline(always)]
    pub(crate) fn may_start_again(&self, frame: &Frame<B>) -> bool {
        let bytes = frame.bytes();
        self.count == 1
            && bytes.len() == self.frame_len as usize
            && common::sequence_and_ack(bytes).is_some_and(|(seq, ack)| seq == self.end && ack != self.ack)
            && common::is_alike(self.first(), bytes)
            && checksums::verify_common(frame, self.layout, self.first_len).is_ok()
    }

    /// As [`Run::start_again`], with a frame that [`Run::may_start_again`] accepts: most fields stay.
    #[inline(always)]
    pub(crate) fn start_alike(&mut self, frame: Frame<B>) -> Option<Frame<B>> {
        let bytes = frame.bytes();
        if let (Some((seq, ack)), Some((ident, window))) =
            (common::sequence_and_ack(bytes), common::ident_and_window(bytes))
        {
            (self.start, self.end) = (seq, seq + self.first_len);
            (self.ack, self.window, self.first_ident) = (ack, window, ident);
        }
        self.first.replace(frame)
    }

    /// Returns the number of segments.
    #[inline]
    pub(crate) fn segments(&self) -> usize {
        self.count as usize
    }

    /// Returns the first frame's bytes; empty before [`Run::begin`].
    #[inline]
    pub(crate) fn first(&self) -> &[u8] {
        self.first.as_ref().map_or(&[], Frame::bytes)
    }

    /// Returns the last frame.
    #[inline(always)]
    fn last(&self) -> Option<&Frame<B>> {
        self.followers.last().or(self.first.as_ref())
    }

    /// Returns the header of the first segment as received.
    pub(crate) fn received_header(&self) -> Template {
        let mut header = Template::default();
        header.set(self.first(), self.layout);
        header
    }

    /// Returns the header of a sealed run.
    pub(crate) fn template(&self) -> &Template {
        &self.template
    }

    /// Returns true if `frame` has the length of the first and the next sequence number: a cheap test that
    /// few frames of other flows pass.
    #[inline]
    pub(crate) fn may_be_next(&self, frame: &[u8]) -> bool {
        let seq = usize::from(self.layout.transport) + 4;
        frame.len() == self.frame_len as usize && frame.get(seq..seq + 4) == Some(&self.end.0.to_be_bytes())
    }

    /// Returns how the first frame continues the run, by its sequence and ACK number. For [common
    /// frames](crate::common).
    #[inline(always)]
    pub(crate) fn next_common(&self, frames: &[Frame<B>]) -> NextCommon {
        let next = frames.first().and_then(|next| common::sequence_and_ack(next.bytes()));
        match next {
            Some((seq, ack)) if seq == self.end && ack == self.ack => NextCommon::SameAck,
            Some((seq, _)) if seq == self.end => NextCommon::OtherAck,
            _ => NextCommon::Other,
        }
    }

    /// As [`Run::add_train`], for [common frames](crate::common).
    #[inline(always)]
    pub(crate) fn add_common(
        &mut self,
        masks: &mut Masks,
        frames: &mut IntoIter<Frame<B>>,
    ) -> (u32, TcpFlags) {
        let [first, behind @ ..] = frames.as_slice() else { return (0, TcpFlags::NONE) };
        let second = behind.first().and_then(|second| common::sequence_and_ack(second.bytes()));
        if second.is_some_and(|(seq, _)| seq == self.end + self.first_len) {
            return self.add_train(masks, frames);
        }
        let Some(flags) = self.expects_common(first) else { return (0, TcpFlags::NONE) };
        self.add_expected(frames, flags);
        (self.first_len, flags)
    }

    /// Returns true if another segment of the first one's size does not fit.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.room <= 0
    }

    /// Returns why the run [is full](Run::is_full).
    #[inline]
    pub(crate) fn full_reason(&self) -> FlushReason {
        if self.bytes > self.full_above { FlushReason::MaxLength } else { FlushReason::MaxSegments }
    }

    /// Returns the TCP payload in bytes, 0 for UDP.
    #[inline]
    pub(crate) fn tcp_bytes(&self) -> u32 {
        if !self.is_common && self.layout.is_udp() { 0 } else { self.bytes }
    }

    /// Returns the length of the aggregate as an IP packet, tunnel headers included.
    #[inline]
    pub(crate) fn len_on_ip(&self) -> u32 {
        self.layout.counted_headers() + self.bytes
    }

    /// Returns the identification rules, inner and tunnel, after adding a packet with `idents`; `None` if
    /// `idents` break a rule.
    #[inline]
    pub(crate) fn identification_with(&self, idents: Idents) -> Option<(Identification, Identification)> {
        let count = self.segments();
        let own = match self.layout.is_ipv4() {
            true => self.identification.with(self.first_ident, idents.own, count)?,
            false => Identification::Fixed,
        };
        let outer = match self.layout.tunnel {
            Tunnel::Ipv4 => {
                let first = Idents::read(self.first(), self.layout).outer;
                self.outer_identification.with(first, idents.outer, count)?
            }
            Tunnel::None | Tunnel::Ipv6 | Tunnel::Pppoe => Identification::Fixed,
        };
        Some((own, outer))
    }

    /// Adds the next segment or datagram, of `len` payload bytes, under the lossless rule.
    #[inline]
    pub(crate) fn follow(&mut self, frame: Frame<B>, idents: Idents, len: u32, flags: TcpFlags) {
        (self.identification, self.outer_identification) =
            self.identification_with(idents).unwrap_or((Identification::Any, Identification::Any));
        self.flags = self.flags | flags;
        self.push(frame, len);
    }

    /// Returns the flags of a frame if it is the expected next segment of full size, for [common
    /// frames](crate::common).
    #[inline(always)]
    pub(crate) fn expects_common(&self, frame: &Frame<B>) -> Option<TcpFlags> {
        let bytes = frame.bytes();
        if bytes.len() != self.frame_len as usize || self.is_full() {
            return None;
        }
        let payload = usize::from(self.layout.payload);
        let flags = common::expected(self.first(), bytes, payload, (self.end, self.ack), self.ident_steps())?;
        checksums::verify_transport(frame, self.layout, self.first_len).is_ok().then_some(flags)
    }

    /// Returns the identification that the next segment has under the current rule.
    #[inline(always)]
    pub(crate) fn next_ident(&self) -> u16 {
        self.first_ident.wrapping_add(self.ident_steps())
    }

    /// Returns the difference between the identifications of the next segment and the first one.
    #[inline(always)]
    fn ident_steps(&self) -> u16 {
        self.ident_step().wrapping_mul(self.count as u16)
    }

    /// Returns the difference between the identifications of consecutive segments under the current rule: 1
    /// or 0.
    #[inline(always)]
    fn ident_step(&self) -> u16 {
        u16::from(self.identification == Identification::Incrementing)
    }

    /// Verifies the checksums of a frame of the first one's layout and length.
    #[inline(always)]
    fn verify(&self, frame: &Frame<B>) -> Result<(), DropReason> {
        if self.is_common {
            checksums::verify_common(frame, self.layout, self.first_len)
        } else {
            checksums::verify(frame, self.layout, self.first_len)
        }
    }

    /// Returns the leading frames for which there is room, if all have the first one's size.
    #[inline(always)]
    fn fitting<'f>(&self, frames: &'f [Frame<B>]) -> &'f [Frame<B>] {
        frames.get(..usize::try_from(self.room).unwrap_or(0)).unwrap_or(frames)
    }

    /// Adds the first frame, a full-size segment that is next in sequence.
    #[inline(always)]
    pub(crate) fn add_expected(&mut self, frames: &mut IntoIter<Frame<B>>, flags: TcpFlags) {
        self.flags = self.flags | flags;
        self.count += 1;
        self.room -= 1;
        self.bytes += self.first_len;
        self.end += self.first_len;
        self.followers.add_first(frames);
    }

    /// Adds the first `count` frames, full-size segments that are next in sequence.
    #[inline]
    fn extend(&mut self, frames: &mut IntoIter<Frame<B>>, count: u32) {
        let bytes = count * self.first_len;
        self.count += count;
        self.room -= count.cast_signed();
        self.bytes += bytes;
        self.end += bytes;
        self.followers.extend(frames, count as usize);
    }

    /// Adds a segment that is next in sequence.
    #[inline]
    fn push(&mut self, frame: Frame<B>, len: u32) {
        if len != self.first_len && frame.bytes().len() == self.frame_len as usize {
            self.frame_len = 0;
        }
        self.followers.add(Some(frame));
        self.count += 1;
        self.bytes += len;
        self.room =
            if len == self.first_len { self.room - 1 } else { self.room_behind(self.bytes, self.count) };
        self.mss = self.mss.max(len);
        self.end += len;
    }

    /// Returns the frames in order.
    pub(crate) fn frames(&self) -> impl Iterator<Item = &Frame<B>> {
        self.first.iter().chain(self.followers.iter())
    }

    /// Returns the payloads in order.
    pub(crate) fn payloads(&self) -> impl Iterator<Item = &[u8]> {
        self.frames().map(|frame| segment::payload(frame.bytes(), self.layout).unwrap_or_default())
    }

    /// Returns segment `nth`: the number of payload bytes before it, and its payload.
    pub(crate) fn segment(&self, nth: usize) -> Option<(u32, &[u8])> {
        let before: usize = self.payloads().take(nth).map(<[u8]>::len).sum();
        Some((before as u32, self.payloads().nth(nth)?))
    }

    /// Takes the first frame out of a run that ends.
    #[inline(always)]
    pub(crate) fn take_first(&mut self) -> Option<Frame<B>> {
        self.first.take()
    }

    /// Writes the header of the aggregate: lengths, flags, ACK number, window, IPv4 header checksum, and the
    /// pseudo-header sum in the transport checksum field.
    #[inline(always)]
    pub(crate) fn seal(&mut self, reason: FlushReason) {
        self.reason = reason;
        let fields = self.aggregate_fields();
        match self.first.as_ref().and_then(|first| first.bytes().first_chunk()) {
            Some(first) if self.is_common => self.template.seal_common(first, self.layout, fields),
            _ => self.seal_uncommon(),
        }
    }

    /// As [`Run::seal`], for a short or uncommon first frame.
    #[inline(never)]
    fn seal_uncommon(&mut self) {
        let fields = self.aggregate_fields();
        if let Some(first) = &self.first {
            self.template.seal(first.bytes(), self.layout, fields);
        }
    }

    /// Returns the header fields of the aggregate.
    #[inline(always)]
    fn aggregate_fields(&self) -> AggregateFields {
        let Self { bytes: payload, flags, ack, window, .. } = *self;
        AggregateFields { payload, flags, ack, window }
    }
}

impl<B> Recycle for Run<B> {
    fn clear(&mut self) {
        self.first = None;
        self.followers.clear();
    }
}
