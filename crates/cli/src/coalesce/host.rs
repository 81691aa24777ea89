//! What takes the card's outputs: the captures that are kept, and the tally.

use std::collections::HashMap;
use std::io::Write;

use nichrome_lro::{Aggregate, Medium, Output, Packet};
use nichrome_port::capture::{LinkType, MAX_SNAP_LEN, Record, WriteError, Writer};
use nichrome_wire::Instant;

use super::captured::Captured;
use super::tally::Tally;

/// An interface of the input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interface {
    pub(super) number: u32,
    link_type: LinkType,
    /// The interface within that of the capture, as Linux's `any` has them.
    channel: u64,
}

impl Interface {
    /// The interface of a record.
    pub(super) fn of(record: &Record, bytes: &[u8]) -> Self {
        let channel = record.link_type.channel(bytes);
        Self { number: record.interface, link_type: record.link_type, channel }
    }

    /// What engines see of its frames begins with this.
    pub(super) fn medium(self) -> Medium {
        match self.link_type {
            LinkType::Ethernet => Medium::Ethernet,
            _ => Medium::Ip,
        }
    }

    /// Returns true if the frames of both came over one link in one direction.
    pub(super) fn is_same_link(self, other: Self) -> bool {
        (self.number, self.channel) == (other.number, other.channel)
    }
}

/// A capture that is written.
pub(super) struct Kept {
    writer: Writer<Box<dyn Write + Send>>,
    /// The numbers of the input's interfaces, and those that they have here.
    interfaces: HashMap<u32, u32>,
}

impl Kept {
    pub(super) fn new(writer: Writer<Box<dyn Write + Send>>) -> Self {
        Self { writer, interfaces: HashMap::new() }
    }

    fn write(
        &mut self,
        from: Interface,
        time: Instant,
        original_len: Option<u32>,
        parts: [&[u8]; 2],
        comment: Option<&str>,
    ) -> Result<(), WriteError> {
        let interface = match self.interfaces.get(&from.number) {
            Some(interface) => *interface,
            None => {
                let name = format!("interface {}", from.number);
                let interface = self.writer.add_interface(from.link_type, &name, MAX_SNAP_LEN)?;
                self.interfaces.insert(from.number, interface);
                interface
            }
        };
        self.writer.write(interface, time, original_len, parts, comment)
    }
}

/// The host that the packets go to, and the wire that acknowledgements go to.
pub(super) struct Host {
    packets: Option<Kept>,
    acks: Option<Kept>,
    pub(super) tally: Tally,
    /// When the last output left the card.
    pub(super) latest: Instant,
    /// The first error, until it is fetched.
    failed: Option<WriteError>,
    /// A packet being put together.
    packet: Vec<u8>,
}

impl Host {
    pub(super) fn new(packets: Option<Kept>, acks: Option<Kept>) -> Self {
        let (latest, packet) = (Instant::ZERO, Vec::new());
        Self { packets, acks, tally: Tally::new(), latest, failed: None, packet }
    }

    /// Takes what left the card at `time`.
    pub(super) fn take(&mut self, from: Interface, time: Instant, output: &Output<Captured>) {
        self.latest = self.latest.max(time);
        let time = self.latest;
        let written = match output {
            Output::ToHost(packet) => {
                self.tally.delivered(packet, from.medium(), time);
                self.keep(from, time, packet)
            }
            Output::ToWire(ack) => match &mut self.acks {
                Some(acks) => acks.write(from, time, None, [&[], ack.bytes()], None),
                None => Ok(()),
            },
            Output::Dropped(..) => Ok(()),
        };
        if let Err(error) = written {
            self.failed.get_or_insert(error);
        }
    }

    fn keep(&mut self, from: Interface, time: Instant, packet: &Packet<Captured>) -> Result<(), WriteError> {
        let Some(packets) = &mut self.packets else { return Ok(()) };
        match packet {
            Packet::Frame(frame) => {
                let Captured { original_len, comment, .. } = &frame.buffer;
                let parts = [frame.buffer.link_header(), frame.bytes()];
                packets.write(from, time, Some(*original_len), parts, comment.as_deref())
            }
            Packet::Aggregate(aggregate) => {
                aggregate.copy_to(&mut self.packet);
                let link_header = aggregate.buffers().next().map_or(&[][..], Captured::link_header);
                packets.write(from, time, None, [link_header, &self.packet], Some(&comment(aggregate)))
            }
        }
    }

    /// The error of a write since the last call, if there was one.
    #[inline]
    pub(super) fn check(&mut self) -> Result<(), WriteError> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Ends the captures.
    pub(super) fn finish(mut self) -> Result<Tally, WriteError> {
        self.check()?;
        for kept in [self.packets, self.acks].into_iter().flatten() {
            kept.writer.finish()?;
        }
        Ok(self.tally)
    }
}

/// What Wireshark shows as the packet's comment: what was merged, and the comments of the segments.
fn comment(aggregate: &Aggregate<Captured>) -> String {
    let (segments, mss) = (aggregate.segments(), aggregate.mss());
    let merged =
        format!("nichrome: {segments} segments, MSS {mss}, flush {}", aggregate.flush_reason().name());
    let comments = aggregate.buffers().filter_map(|captured| captured.comment.as_deref());
    [&*merged].into_iter().chain(comments).collect::<Vec<_>>().join("\n")
}
