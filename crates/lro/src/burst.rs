//! Bursts of many flows: finds the frames that share their flow with no other frame of the burst, and holds
//! them without a run.

use std::convert::identity;
use std::mem;
use std::vec::IntoIter;

use nichrome_wire::{EtherType, EthernetHeader, Ipv4Header};

use crate::frame::Frame;
use crate::outbox::Outbox;
use crate::reason::FlushReason;
use crate::segment::Medium;

/// Longest burst that [`alone`] examines: one bit per frame.
const MOST: usize = u64::BITS as usize;

/// Returns the memory of a burst whose frames were all consumed. Iterating over the vector moves frames with
/// fewer instructions than `drain`, and collecting the iterator keeps the allocation.
#[inline]
#[expect(
    clippy::map_identity,
    reason = "an iterator that was begun, collected as it is, would give up the memory"
)]
pub(crate) fn emptied<B>(burst: IntoIter<Frame<B>>) -> Vec<Frame<B>> {
    burst.map(identity).collect()
}

/// Number of tag values of flows: the counters fit in the nearest cache, and few frames of a burst collide.
const TAGS: usize = 512;

/// A tag that all frames of a flow have in common.
enum Tag {
    /// An IPv4 packet without options: a hash of addresses and ports.
    Of(usize),
    /// An IPv4 packet with options, or a fragment: its ports are unknown, so it may belong to any flow.
    Unclear,
    /// Not IPv4, or with a VLAN tag.
    Other,
}

/// Returns, as bits with the last frame lowest, the untagged IPv4 frames that share their flow with no other
/// frame of the burst. May miss some. Returns 0 for bursts of more than [`MOST`] frames.
#[inline(never)]
pub(crate) fn alone<B: AsRef<[u8]>>(frames: &[Frame<B>], medium: Medium) -> u64 {
    if frames.len() > MOST {
        return 0;
    }
    let mut counts = [0u8; TAGS];
    let mut tags = [None; MOST];
    for (place, frame) in tags.iter_mut().zip(frames) {
        match tag(frame.bytes(), medium) {
            Tag::Of(tag) => {
                counts[tag] += 1;
                *place = Some(tag);
            }
            Tag::Unclear => return 0,
            Tag::Other => {}
        }
    }
    let is_alone = |tag: &Option<usize>| tag.is_some_and(|tag| counts[tag] == 1);
    tags[..frames.len()].iter().fold(0, |bits, tag| bits << 1 | u64::from(is_alone(tag)))
}

#[inline]
fn tag(frame: &[u8], medium: Medium) -> Tag {
    let start = match medium {
        Medium::Ip => 0,
        Medium::Ethernet
            if EthernetHeader::new(frame).is_some_and(|link| link.ethertype() == EtherType::IPV4) =>
        {
            EthernetHeader::LEN
        }
        Medium::Ethernet => return Tag::Other,
    };
    let packet: Option<&[u8; Ipv4Header::LEN + 4]> =
        frame.get(start..).and_then(|packet| packet.first_chunk());
    let Some((packet, ip)) = packet.and_then(|packet| Some((packet, Ipv4Header::new(packet)?))) else {
        return Tag::Other;
    };
    if ip.version() != 4 {
        return Tag::Other;
    }
    if ip.header_len() != Ipv4Header::LEN || ip.is_fragment() {
        return Tag::Unclear;
    }
    let words = packet.as_chunks::<4>().0;
    let [source, destination, ports] = [3, 4, 5].map(|nth| u64::from(u32::from_ne_bytes(words[nth])));
    let mixed = (source << 32 | destination) ^ ports.rotate_left(16);
    // Fibonacci hashing: the highest bits of the product depend on all others.
    Tag::Of((mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - TAGS.ilog2())) as usize)
}

/// Segments of a batch that are alone in their flow, held as frames: no run is started for them.
pub(crate) struct Singles<B> {
    frames: Vec<Frame<B>>,
    payload: u64,
}

impl<B: AsRef<[u8]>> Singles<B> {
    /// Reserves room for the frames of one burst.
    pub(crate) fn new() -> Self {
        Self { frames: Vec::with_capacity(MOST), payload: 0 }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Holds a segment with `payload_len` bytes of payload, counted when it is flushed.
    #[inline]
    pub(crate) fn hold(&mut self, frame: Option<Frame<B>>, payload_len: u32) {
        self.frames.extend(frame);
        self.payload += u64::from(payload_len);
    }

    /// Flushes all segments.
    #[inline(never)]
    pub(crate) fn flush(&mut self, reason: FlushReason, out: &mut Outbox<B>) {
        out.stats.tcp_payload_bytes_in += self.payload;
        out.stats.tcp_payload_bytes_out += self.payload;
        self.payload = 0;
        for frame in self.frames.drain(..) {
            out.flush_frame(frame, 0, reason);
        }
    }

    /// Takes out all segments, with their vector; [`Singles::give_back`] returns the vector.
    pub(crate) fn take(&mut self) -> Vec<Frame<B>> {
        self.payload = 0;
        mem::take(&mut self.frames)
    }

    /// Takes back the emptied vector.
    pub(crate) fn give_back(&mut self, frames: Vec<Frame<B>>) {
        self.frames = frames;
    }
}

#[cfg(test)]
mod tests {
    use nichrome_wire::TcpFrame;

    use super::*;

    fn frame(src_port: u16) -> Frame<Vec<u8>> {
        Frame::new(TcpFrame { src_port, payload: vec![0; 10], ..TcpFrame::default() }.build())
    }

    #[test]
    fn frames_of_flows_with_others_in_the_burst_are_not_alone() {
        let burst = [1, 3, 2, 4, 2].map(frame);
        assert_eq!(alone(&burst, Medium::Ethernet), 0b11010);
        assert_eq!(alone(&burst[..3], Medium::Ethernet), 0b111);
    }

    #[test]
    fn nothing_is_alone_beside_what_may_be_of_any_flow() {
        let mut burst = [1, 2, 3].map(frame);
        burst[1].buffer[20] |= 0x20; // more fragments
        assert_eq!(alone(&burst, Medium::Ethernet), 0);
        burst[1].buffer[20] = 0;
        burst[1].buffer[14] = 0x46; // options
        assert_eq!(alone(&burst, Medium::Ethernet), 0);
        burst[1].buffer[12..14].copy_from_slice(&[0x08, 0x06]); // ARP
        assert_eq!(alone(&burst, Medium::Ethernet), 0b101);
    }

    #[test]
    fn short_frames_and_long_bursts_are_not_looked_at() {
        let mut burst = vec![frame(1), frame(2)];
        burst[0].buffer.truncate(37);
        assert_eq!(alone(&burst, Medium::Ethernet), 0b01);
        burst.extend((3..66).map(frame));
        assert_eq!(alone(&burst, Medium::Ethernet), 0);
    }
}
