//! The receiver of the card's outputs: writes captures and tallies.

use nichrome_lro::{Aggregate, Identification, Output, Packet};
use nichrome_port::capture::{PacketOptions, WriteError};
use nichrome_wire::Instant;

use super::captured::Captured;
use super::tally::Tally;
use crate::capture_files::{Interface, Kept, Merged};
use crate::number::plural;

/// The host for packets, and the wire for ACKs.
pub(super) struct Host {
    packets: Option<Kept>,
    acks: Option<Kept>,
    pub(super) tally: Tally,
    /// Time of the card's last output.
    pub(super) latest: Instant,
    /// The first error, until it is returned.
    failed: Option<WriteError>,
    /// Buffer for assembling a packet.
    packet: Vec<u8>,
}

impl Host {
    /// Creates the receiver; `tunnels` is true if the engine coalesces segments in tunnels.
    pub(super) fn new(packets: Option<Kept>, acks: Option<Kept>, tunnels: bool) -> Self {
        let (latest, packet) = (Instant::ZERO, Vec::new());
        Self { packets, acks, tally: Tally::new(tunnels), latest, failed: None, packet }
    }

    /// Records the name of an interface, if it has one.
    pub(super) fn name(&mut self, interface: Interface, name: Option<&str>) {
        for kept in [&mut self.packets, &mut self.acks].into_iter().flatten() {
            kept.name(interface, name);
        }
    }

    /// Receives an output of the card at `time`.
    pub(super) fn take(&mut self, from: Interface, time: Instant, output: &Output<Captured>) {
        self.latest = self.latest.max(time);
        let time = self.latest;
        let written = match output {
            Output::ToHost(packet) => {
                self.tally.delivered(packet, from.medium(), time);
                self.keep(from, time, packet)
            }
            Output::ToWire(ack) => match &mut self.acks {
                Some(acks) => {
                    let (from, packet) = from.of_generated(ack.bytes());
                    acks.write(from, time, None, [&[], packet], PacketOptions::default())
                }
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
                let captured = &frame.buffer;
                let parts = captured.as_captured(frame.bytes());
                packets.write(from, time, Some(captured.original_len()), parts, captured.options())
            }
            Packet::Aggregate(aggregate) => {
                aggregate.copy_to(&mut self.packet);
                let parts = match aggregate.buffers().next() {
                    Some(first) => first.as_captured(&self.packet),
                    None => [&[], &self.packet[..]],
                };
                let options = || aggregate.buffers().map(Captured::options);
                let options = PacketOptions {
                    comment: Some(&comment(aggregate)),
                    flags: options().next().and_then(|first| first.flags),
                    dropped: options().filter_map(|of| of.dropped).reduce(u64::saturating_add),
                };
                packets.write(from, time, None, parts, options)
            }
        }
    }

    /// Returns the write error since the last call, if any.
    #[inline]
    pub(super) fn check(&mut self) -> Result<(), WriteError> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Closes the captures.
    pub(super) fn finish(mut self) -> Result<Tally, WriteError> {
        self.check()?;
        for kept in [self.packets, self.acks].into_iter().flatten() {
            kept.finish()?;
        }
        Ok(self.tally)
    }
}

/// Maximum length of a comment in pcapng, in bytes.
const MAX_COMMENT: usize = 65_535;

/// Room for the line about comments that are left out, in bytes.
const OMISSION_ROOM: usize = 100;

/// Returns the comment of an aggregate: its properties, and as many of its segments' comments as fit.
fn comment(aggregate: &Aggregate<Captured>) -> String {
    let merged = Merged {
        segments: aggregate.segments(),
        mss: aggregate.mss(),
        reason: aggregate.flush_reason().name(),
        has_fixed_identification: aggregate.identification() == Identification::Fixed,
        has_fixed_tunnel_identification: aggregate.tunnel_identification() == Some(Identification::Fixed),
        has_accurate_ecn: aggregate.repeats_cwr(),
    };
    let comments = aggregate.buffers().filter_map(|captured| captured.options().comment);
    joined(merged.to_string(), comments)
}

/// Appends comments to a text, one per line: as many whole comments as fit into [`MAX_COMMENT`] bytes, then
/// the number of the others.
fn joined<'a>(mut text: String, comments: impl Iterator<Item = &'a str>) -> String {
    let mut left_out = 0;
    for comment in comments {
        if text.len() + 1 + comment.len() + OMISSION_ROOM > MAX_COMMENT {
            left_out += 1;
            continue;
        }
        text.push('\n');
        text.push_str(comment);
    }
    if left_out > 0 {
        let comments = plural(left_out, "comment", "comments");
        text.push_str(&format!("\nnichrome: {comments} left out: pcapng allows 65,535 bytes"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_that_do_not_fit_are_counted() {
        let long = "é".repeat(5470);
        let text = joined("properties".into(), [&long, "short", &long].into_iter());
        assert_eq!(text, format!("properties\n{long}\nshort\n{long}"));
        let given = [[&*long; 6].as_slice(), &["short"]].concat();
        let text = joined("properties".into(), given.into_iter());
        let lines: Vec<&str> = text.lines().collect();
        let [properties, fit @ .., short, left_out] = &lines[..] else { panic!("{} lines", lines.len()) };
        assert_eq!((*properties, *short), ("properties", "short"));
        assert!(fit.len() == 5 && fit.iter().all(|line| *line == long));
        assert_eq!(*left_out, "nichrome: 1 comment left out: pcapng allows 65,535 bytes");
        let text = joined("x".repeat(200), std::iter::repeat_n(&*"y".repeat(70_000), 1_000_000));
        assert!(text.len() <= 200 + OMISSION_ROOM, "{}", text.len());
    }
}
