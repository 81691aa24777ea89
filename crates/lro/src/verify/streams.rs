//! One flow of a profile that keeps byte streams: its bytes, and its segments that are more than bytes.

use std::collections::{HashMap, VecDeque};

use nichrome_wire::{SeqNumber, TcpFlags};

use super::Difference;
use super::frames::{Frames, fingerprint};
use super::pending::{Brought, Fields, News, Stream};
use super::read::{Content, Read, Tcp};
use crate::DropReason;

/// What is due of one flow.
#[derive(Default)]
pub(super) struct Streams {
    /// The stream that comes out now, and behind it one for each SYN that has not come out.
    streams: VecDeque<Stream>,
    /// Frames that must come out as they are.
    controls: Frames,
    /// Data segments that brought nothing new, by fingerprint: those may be dropped.
    repeated: HashMap<u64, u32>,
    /// Data segments whose bytes the receiver may have had already, by fingerprint: it has acknowledged them, or they had
    /// come in segments that are not looked into. Those may be dropped, too.
    had_already: HashMap<u64, u64>,
    /// The receiver's latest ACK number on this connection.
    acknowledged: Option<SeqNumber>,
    came_in: u64,
    came_out: u64,
    bytes: u64,
}

impl Streams {
    /// Notes a frame.
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

    /// Notes that the receiver of this flow has acknowledged every byte before `ack`. A SYN of its own begins a connection.
    pub(super) fn acknowledged(&mut self, ack: SeqNumber, flags: TcpFlags) {
        if flags.intersects(TcpFlags::SYN | TcpFlags::RST) {
            self.acknowledged = None;
        }
        if flags.contains(TcpFlags::ACK) && !flags.contains(TcpFlags::RST) {
            self.acknowledged = Some(self.acknowledged.map_or(ack, |before| before.later(ack)));
        }
    }

    /// Checks a frame that was passed on.
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

    /// Checks a frame that must come out as it is: all that was received before it is out.
    fn control(&mut self, frame: &[u8]) -> Result<(), Difference> {
        let number = self.controls.take(frame)?;
        match self.streams.iter().filter_map(Stream::oldest).min() {
            Some(data) if data < number => Err(Difference::Overtook { frame: number, overtaken: data }),
            _ => Ok(()),
        }
    }

    /// Goes on to the stream that a SYN began.
    fn next_stream(&mut self) -> Result<(), Difference> {
        if let Some(stream) = self.streams.pop_front() {
            self.bytes += stream.finish()?;
        }
        Ok(())
    }

    /// Checks bytes that came out; returns which segments had brought them.
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

    /// Checks a merged packet: its bytes, and the fields that it has in common with its segments, whose payloads have
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
            // Some bytes came in other segments first: which ones were merged is not known.
            return Ok(());
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

    /// Notes a frame with a wrong checksum that was dropped.
    pub(super) fn dropped_corrupt(&mut self, frame: &[u8]) -> Result<(), Difference> {
        self.came_out += 1;
        self.controls.dropped(frame)
    }

    /// Checks that a frame that was dropped brought no new byte.
    pub(super) fn dropped_duplicate(&mut self, frame: &[u8]) -> Result<(), Difference> {
        self.came_out += 1;
        let justified = self.forget(fingerprint(frame)) || self.withdraw(fingerprint(frame));
        let reason = DropReason::Duplicate;
        justified.then_some(()).ok_or(Difference::Dropped { len: frame.len(), reason })
    }

    /// Notes that a segment which brought nothing new came out; `false` where there was none such.
    fn forget(&mut self, fingerprint: u64) -> bool {
        let Some(count) = self.repeated.get_mut(&fingerprint) else { return false };
        *count -= 1;
        if *count == 0 {
            self.repeated.remove(&fingerprint);
        }
        true
    }

    /// Notes that the bytes of a segment, which the receiver may have had already, will not come again; `false` where there
    /// was none such.
    fn withdraw(&mut self, fingerprint: u64) -> bool {
        let Some(number) = self.had_already.remove(&fingerprint) else { return false };
        self.streams.iter_mut().for_each(|stream| stream.withdraw(number));
        true
    }

    /// Checks that nothing is left; the bytes that were compared.
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
