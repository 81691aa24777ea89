//! State of one flow of a profile that keeps byte streams: its bytes, and its control segments.

use std::collections::{HashMap, VecDeque};

use nichrome_wire::{SeqNumber, TcpFlags};

use super::Difference;
use super::frames::{Frames, fingerprint};
use super::pending::{Brought, Fields, News, Stream};
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
    /// Data segments whose bytes the receiver may have, by fingerprint: acknowledged, or contained in
    /// segments that are not parsed. They may be dropped.
    pub(super) had_already: HashMap<u64, u64>,
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
            News::Nothing => *self.repeated.entry(fingerprint(frame)).or_default() += 1,
            News::Bytes if !is_acknowledged => {}
            News::SeenOpaque | News::Bytes => _ = self.had_already.insert(fingerprint(frame), number),
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
        let brought = self.data(tcp)?;
        if !tcp.control && brought.is_empty() && !self.repeated.is_empty() {
            self.forget(fingerprint(frame));
        }
        if !brought.is_empty() && !self.had_already.is_empty() {
            self.had_already.remove(&fingerprint(frame));
        }
        Ok(())
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
    fn data(&mut self, tcp: &Tcp<'_>) -> Result<Vec<Brought>, Difference> {
        if tcp.payload.is_empty() {
            return Ok(Vec::new());
        }
        let unknown = Difference::NotReceived { seq: tcp.seq, len: tcp.payload.len() };
        let stream = self.streams.front_mut().ok_or(unknown)?;
        let brought = stream.deliver(tcp.seq, tcp.payload)?;
        if let Some(control) = self.controls.oldest()
            && let Some(early) = brought.iter().find(|part| part.fields.frame > control.number)
        {
            return Err(Difference::Overtook { frame: early.fields.frame, overtaken: control.number });
        }
        Ok(brought)
    }

    /// Checks an aggregate: its bytes, and the header fields in common with its segments, whose payloads have
    /// these lengths.
    pub(super) fn aggregate(
        &mut self,
        tcp: &Tcp<'_>,
        payloads: impl Iterator<Item = usize>,
    ) -> Result<(), Difference> {
        let differs = |field| Err(Difference::Field { seq: tcp.seq, field });
        if tcp.control {
            return differs("set of flags or options");
        }
        let brought = self.data(tcp)?;
        let mut at = 0;
        let segments: Vec<(usize, usize)> = payloads
            .map(|len| {
                at += len;
                (at - len, len)
            })
            .collect();
        self.came_out += segments.len() as u64;
        if !brought.iter().map(|part| (part.at, part.len)).eq(segments) {
            // Other segments contained some of the bytes first: which ones were merged is unknown.
            return Ok(());
        }
        if !self.had_already.is_empty() {
            self.had_already.retain(|_, number| brought.iter().all(|part| part.fields.frame != *number));
        }
        let fields = || brought.iter().map(|part| part.fields);
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
        let justified = self.forget(fingerprint(frame)) || self.withdraw(fingerprint(frame));
        let reason = DropReason::Duplicate;
        justified.then_some(()).ok_or(Difference::Dropped { len: frame.len(), reason })
    }

    /// Records that a segment without a new byte came out; false if there was none.
    fn forget(&mut self, fingerprint: u64) -> bool {
        let Some(count) = self.repeated.get_mut(&fingerprint) else { return false };
        *count -= 1;
        if *count == 0 {
            self.repeated.remove(&fingerprint);
        }
        true
    }

    /// Records that a segment whose bytes the receiver may have will not come out; false if there was none.
    fn withdraw(&mut self, fingerprint: u64) -> bool {
        let Some(number) = self.had_already.remove(&fingerprint) else { return false };
        self.streams.iter_mut().for_each(|stream| stream.withdraw(number));
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
