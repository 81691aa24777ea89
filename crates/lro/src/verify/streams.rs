//! State of one flow of a profile that keeps byte streams: its bytes, and its control segments.

use std::collections::{HashMap, VecDeque};

use nichrome_wire::{SeqNumber, TcpFlags};

use super::Difference;
use super::frames::{Frames, fingerprint};
use super::pending::{DeliveredPart, Fields, NewData, Stream};
use super::read::{Content, Read, Tcp};
use crate::DropReason;

/// The outstanding parts of one flow.
#[derive(Default)]
pub(super) struct Streams {
    /// The current stream, then one for each SYN that has not come out.
    streams: VecDeque<Stream>,
    /// Frames that must come out unchanged.
    controls: Frames,
    /// Data segments without a new byte, by fingerprint: may be dropped.
    repeated: HashMap<u64, u32>,
    /// Numbers of data segments whose bytes the receiver may have, by fingerprint: acknowledged bytes, or
    /// bytes in segments that are not parsed. These segments may be dropped.
    pub(super) already_received: HashMap<u64, u64>,
    /// The receiver's latest ACK number on this connection.
    acknowledged: Option<SeqNumber>,
    came_in: u64,
    came_out: u64,
    bytes: u64,
}

impl Streams {
    /// Records a frame.
    pub(super) fn received(&mut self, number: u64, frame: &[u8], read: &Read<'_>) {
        self.came_in += 1;
        if self.streams.is_empty() {
            self.streams.push_back(Stream::default());
        }
        let Content::Tcp(tcp) = &read.content else {
            if let (Content::Opaque { seq, len }, Some(stream)) = (&read.content, self.streams.back_mut()) {
                stream.receive_opaque(*seq, *len);
            }
            return self.controls.received(number, fingerprint(frame));
        };
        if tcp.control {
            self.controls.received(number, fingerprint(frame));
        }
        if tcp.flags.contains(TcpFlags::SYN) {
            self.streams.push_back(Stream::beginning_at(tcp.seq));
            self.acknowledged = None;
        }
        let fields = Fields { frame: number, class: tcp.class, flags: tcp.flags, ack: tcp.ack };
        let end = tcp.seq + tcp.payload.len() as u32;
        let is_acknowledged = self.acknowledged.is_some_and(|acknowledged| !end.after(acknowledged));
        let Some(stream) = self.streams.back_mut() else { return };
        match stream.receive(tcp.seq, tcp.payload, fields) {
            _ if tcp.control => {}
            NewData::Nothing => *self.repeated.entry(fingerprint(frame)).or_default() += 1,
            NewData::Bytes if !is_acknowledged => {}
            NewData::SeenOpaque | NewData::Bytes => {
                _ = self.already_received.insert(fingerprint(frame), number);
            }
        }
    }

    /// Records that the receiver has acknowledged every byte before `ack`. A SYN of the receiver opens a
    /// connection.
    pub(super) fn acknowledged(&mut self, ack: SeqNumber, flags: TcpFlags) {
        if flags.intersects(TcpFlags::SYN | TcpFlags::RST) {
            self.acknowledged = None;
        }
        if flags.contains(TcpFlags::ACK) && !flags.contains(TcpFlags::RST) {
            self.acknowledged = Some(self.acknowledged.map_or(ack, |before| before.later(ack)));
        }
    }

    /// Checks a frame that passed.
    pub(super) fn frame(&mut self, frame: &[u8], read: &Read<'_>) -> Result<(), Difference> {
        self.came_out += 1;
        let Content::Tcp(tcp) = &read.content else { return self.control(frame).map(|_| ()) };
        if tcp.control {
            self.control(frame)?;
            if tcp.flags.contains(TcpFlags::SYN) {
                self.next_stream()?;
            }
        }
        let parts = self.data(tcp)?;
        if !tcp.control {
            self.may_not_be_dropped(frame, !parts.is_empty());
        }
        Ok(())
    }

    /// Forgets that a data segment may be dropped, since it has come out: with new bytes if `is_new`.
    fn may_not_be_dropped(&mut self, frame: &[u8], is_new: bool) {
        if self.repeated.is_empty() && self.already_received.is_empty() {
            return;
        }
        let fingerprint = fingerprint(frame);
        if is_new || !self.take_repeated(fingerprint) {
            self.already_received.remove(&fingerprint);
        }
    }

    /// Checks a frame that must come out unchanged: all frames received before it must be out.
    fn control(&mut self, frame: &[u8]) -> Result<(), Difference> {
        let number = self.controls.take(frame)?;
        match self.streams.iter().filter_map(Stream::oldest).min() {
            Some(data) if data < number => Err(Difference::Overtook { frame: number, overtaken: data }),
            _ => Ok(()),
        }
    }

    /// Moves on to the stream that a SYN opened.
    fn next_stream(&mut self) -> Result<(), Difference> {
        if let Some(stream) = self.streams.pop_front() {
            self.bytes += stream.finish()?;
        }
        Ok(())
    }

    /// Checks delivered bytes; returns the segments that contained them.
    fn data(&mut self, tcp: &Tcp<'_>) -> Result<Vec<DeliveredPart>, Difference> {
        if tcp.payload.is_empty() {
            return Ok(Vec::new());
        }
        let unknown = Difference::NotReceived { seq: tcp.seq, len: tcp.payload.len() };
        let stream = self.streams.front_mut().ok_or(unknown)?;
        let parts = stream.deliver(tcp.seq, tcp.payload)?;
        if let Some(control) = self.controls.oldest()
            && let Some(early) = parts.iter().find(|part| part.fields.frame > control.number)
        {
            return Err(Difference::Overtook { frame: early.fields.frame, overtaken: control.number });
        }
        Ok(parts)
    }

    /// Checks an aggregate: its bytes, and the header fields that its segments determine. `segments` are
    /// their frames and the lengths of their payloads.
    pub(super) fn aggregate<'a>(
        &mut self,
        tcp: &Tcp<'_>,
        segments: impl Iterator<Item = (&'a [u8], usize)> + Clone,
    ) -> Result<(), Difference> {
        let differs = |field| Err(Difference::Field { seq: tcp.seq, field });
        if tcp.control {
            return differs("set of flags or options");
        }
        let parts = self.data(tcp)?;
        let mut at = 0;
        let places: Vec<(usize, usize)> = segments
            .clone()
            .map(|(_, len)| {
                at += len;
                (at - len, len)
            })
            .collect();
        self.came_out += places.len() as u64;
        if !parts.iter().map(|part| (part.at, part.len)).eq(places.iter().copied()) {
            // Other segments contained some of the bytes first, so the fields of the merged segments are
            // unknown.
            for ((frame, _), (at, len)) in segments.zip(places) {
                let is_new = parts.iter().any(|part| part.at < at + len && at < part.at + part.len);
                self.may_not_be_dropped(frame, is_new);
            }
            return Ok(());
        }
        if !self.already_received.is_empty() {
            self.already_received.retain(|_, number| parts.iter().all(|part| part.fields.frame != *number));
        }
        let fields = || parts.iter().map(|part| part.fields);
        let without_psh = |flags: TcpFlags| flags.difference(TcpFlags::PSH);
        let all_flags = fields().fold(TcpFlags::NONE, |flags, fields| flags | fields.flags);
        if fields().any(|fields| fields.class != tcp.class) {
            differs("type of service or ECN mark")
        } else if fields().any(|fields| without_psh(fields.flags) != without_psh(tcp.flags))
            || all_flags != tcp.flags
        {
            differs("set of flags")
        } else if fields().map(|fields| fields.ack).reduce(SeqNumber::later) != Some(tcp.ack) {
            differs("ACK number")
        } else {
            Ok(())
        }
    }

    /// Records a dropped frame with a wrong checksum.
    pub(super) fn dropped_corrupt(&mut self, frame: &[u8]) -> Result<(), Difference> {
        self.came_out += 1;
        self.controls.dropped(frame)
    }

    /// Checks that a dropped frame had no new byte.
    pub(super) fn dropped_duplicate(&mut self, frame: &[u8]) -> Result<(), Difference> {
        self.came_out += 1;
        let justified =
            self.take_repeated(fingerprint(frame)) || self.take_already_received(fingerprint(frame));
        let reason = DropReason::Duplicate;
        justified.then_some(()).ok_or(Difference::Dropped { len: frame.len(), reason })
    }

    /// Records that a segment without a new byte came out; false if there was none.
    fn take_repeated(&mut self, fingerprint: u64) -> bool {
        let Some(count) = self.repeated.get_mut(&fingerprint) else { return false };
        *count -= 1;
        if *count == 0 {
            self.repeated.remove(&fingerprint);
        }
        true
    }

    /// Records that a segment whose bytes the receiver may have will not come out; false if there was none.
    fn take_already_received(&mut self, fingerprint: u64) -> bool {
        let Some(number) = self.already_received.remove(&fingerprint) else { return false };
        self.streams.iter_mut().for_each(|stream| stream.forget_frame(number));
        true
    }

    /// Checks that nothing is outstanding; returns the number of compared bytes.
    pub(super) fn finish(&self) -> Result<u64, Difference> {
        self.controls.finish()?;
        let mut bytes = self.bytes;
        for stream in &self.streams {
            bytes += stream.finish()?;
        }
        let (came_in, came_out) = (self.came_in, self.came_out);
        if came_in == came_out { Ok(bytes) } else { Err(Difference::Count { came_in, came_out }) }
    }
}

#[cfg(test)]
mod tests {
    use nichrome_wire::TcpFrame;

    use super::*;
    use crate::Medium;
    use crate::verify::read::read;

    /// The streams of one connection, and the number of its frames.
    struct Connection {
        streams: Streams,
        frames: u64,
    }

    /// Bytes of each segment.
    const LEN: usize = 10;

    fn frame(at: u32, segments: usize) -> Vec<u8> {
        let default = TcpFrame::default();
        TcpFrame { seq: default.seq + at, payload: vec![7; segments * LEN], ..default }.build()
    }

    impl Connection {
        fn new() -> Self {
            Self { streams: Streams::default(), frames: 0 }
        }

        fn receive(&mut self, frame: &[u8]) {
            self.frames += 1;
            self.streams.received(self.frames, frame, &read(frame, Medium::Ethernet));
        }

        fn deliver(&mut self, frame: &[u8]) {
            self.streams.frame(frame, &read(frame, Medium::Ethernet)).unwrap();
        }

        /// Delivers an aggregate of the segments from `at` on.
        fn deliver_aggregate(&mut self, at: u32, segments: &[Vec<u8>]) {
            let whole = frame(at, segments.len());
            let read = read(&whole, Medium::Ethernet);
            let Content::Tcp(tcp) = &read.content else { panic!("no segment") };
            self.streams.aggregate(tcp, segments.iter().map(|frame| (&frame[..], LEN))).unwrap();
        }

        /// Returns the number of frames and bytes that are remembered.
        fn remembered(&self) -> (usize, usize, Option<u64>) {
            let Streams { streams, repeated, already_received, .. } = &self.streams;
            (repeated.len(), already_received.len(), streams.iter().filter_map(Stream::oldest).min())
        }
    }

    /// Each segment comes twice; the second copy is delivered in an aggregate with the next segment, or
    /// alone. The receiver may have acknowledged the segment before.
    #[test]
    fn of_retransmissions_only_what_is_held_is_remembered() {
        for (is_acknowledged, in_aggregate) in [(false, true), (false, false), (true, true), (true, false)] {
            let mut connection = Connection::new();
            connection.receive(&frame(0, 1));
            connection.deliver(&frame(0, 1));
            for at in (0..1000).step_by(LEN) {
                let segments = [frame(at, 1), frame(at + LEN as u32, 1)];
                if is_acknowledged {
                    let end = TcpFrame::default().seq + at + 2 * LEN as u32;
                    connection.streams.acknowledged(end, TcpFlags::ACK);
                }
                segments.iter().for_each(|segment| connection.receive(segment));
                let acknowledged = usize::from(is_acknowledged);
                assert_eq!(connection.remembered(), (1, acknowledged, Some(connection.frames)));
                if in_aggregate {
                    connection.deliver_aggregate(at, &segments);
                } else {
                    segments.iter().for_each(|segment| connection.deliver(segment));
                }
                assert_eq!(connection.remembered(), (0, 0, None), "{at}, {in_aggregate}");
            }
            assert!(connection.streams.finish().is_ok());
        }
    }

    /// An aggregate with old bytes delivers the first copy of a segment while the engine holds the second.
    #[test]
    fn a_copy_that_is_held_may_be_dropped() {
        let mut connection = Connection::new();
        let [old, new] = [frame(0, 1), frame(10, 1)];
        connection.receive(&old);
        connection.deliver(&old);
        for segment in [&old, &new, &new] {
            connection.receive(segment);
        }
        connection.deliver_aggregate(0, &[old, new.clone()]);
        assert_eq!(connection.remembered(), (1, 0, None));
        assert!(connection.streams.dropped_duplicate(&new).is_ok());
        assert!(connection.streams.finish().is_ok());
    }
}
