//! Bursts of many flows: finds the frames that share their flow with no other frame of the burst, and holds
//! them without a run.

use std::convert::identity;
use std::mem;
use std::vec::IntoIter;

use nichrome_wire::{EtherType, EthernetHeader, Ipv4Header};

use crate::common::{self, Head};
use crate::frame::Frame;
use crate::outbox::Outbox;
use crate::reason::FlushReason;

/// Longest burst that [`alone`] examines: one bit per frame.
const MOST: usize = u64::BITS as usize;

/// Returns the vector of a burst whose frames were all consumed: empty, with its allocation. Consuming frames
/// by an iterator takes fewer instructions than `drain`, and collecting the iterator keeps the allocation.
#[inline]
#[expect(
    clippy::map_identity,
    reason = "an iterator that was begun, collected as it is, would give up the memory"
)]
pub(crate) fn emptied<B>(burst: IntoIter<Frame<B>>) -> Vec<Frame<B>> {
    burst.map(identity).collect()
}

/// Number of tag values: their counters fit in the L1 cache, and few flows of a burst share a tag.
const TAGS: usize = 512;

/// Returns a bit mask of the [common frames](common) that are the only frame of their flow in a burst of
/// Ethernet frames. Bit 0 is the last frame. May miss some. Returns 0 for bursts of more than [`MOST`]
/// frames, and if the flow of a frame is unknown (IPv4 options, a fragment).
#[inline(never)]
pub(crate) fn alone<B: AsRef<[u8]>>(frames: &[Frame<B>]) -> u64 {
    const NONE: u16 = u16::MAX;
    if frames.len() > MOST {
        return 0;
    }
    let mut counts = [0u8; TAGS];
    let mut tags = [NONE; MOST];
    for (place, frame) in tags.iter_mut().zip(frames) {
        if let Some(head) = frame.bytes().first_chunk().filter(|head| common::is_tcp(head)) {
            let tag = tag(head);
            counts[tag] += 1;
            *place = tag as u16;
        } else if may_be_of_any_flow(frame.bytes()) {
            return 0;
        }
    }
    let is_alone = |tag: &u16| counts.get(usize::from(*tag)) == Some(&1);
    tags[..frames.len()].iter().fold(0, |bits, tag| bits << 1 | u64::from(is_alone(tag)))
}

/// Returns a hash of a common frame's flow, below [`TAGS`].
#[inline(always)]
fn tag(head: &Head) -> usize {
    let (addresses, ports) = common::flow_words(head);
    // The highest bits of each product depend on all bits of its factors, and with two factors, ports that
    // increase along with the addresses do not cancel them.
    let sum = addresses
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .wrapping_add(u64::from(ports).wrapping_mul(0xC2B2_AE3D_27D4_EB4F));
    (sum >> (u64::BITS - TAGS.ilog2())) as usize
}

/// Returns true for an IPv4 packet with options or a fragment: its ports, if any, may not be at the offsets
/// of a common frame.
fn may_be_of_any_flow(frame: &[u8]) -> bool {
    let is_ipv4 = EthernetHeader::new(frame).is_some_and(|link| link.ethertype() == EtherType::IPV4);
    let ip = frame.get(EthernetHeader::LEN..).and_then(Ipv4Header::new).filter(|_| is_ipv4);
    ip.is_some_and(|ip| ip.version() == 4 && (ip.header_len() != Ipv4Header::LEN || ip.is_fragment()))
}

/// Segments that are the only one of their flow in a batch. Held as frames, without a run.
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

    /// Holds segments with `payload` bytes in total, counted when they are flushed.
    #[inline]
    pub(crate) fn hold(&mut self, frames: impl Iterator<Item = Frame<B>>, payload: u64) {
        self.frames.extend(frames);
        self.payload += payload;
    }

    /// Flushes all segments.
    #[inline(never)]
    pub(crate) fn flush(&mut self, reason: FlushReason, out: &mut Outbox<B>) {
        out.stats.tcp_payload_bytes_in += self.payload;
        out.flush_frames(&mut self.frames, mem::take(&mut self.payload), reason);
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
    use nichrome_wire::{Network, TcpFrame};

    use super::*;

    fn frame(src_port: u16) -> Frame<Vec<u8>> {
        Frame::new(TcpFrame { src_port, payload: vec![0; 10], ..TcpFrame::default() }.build())
    }

    #[test]
    fn frames_of_flows_with_others_in_the_burst_are_not_alone() {
        let burst = [1, 3, 2, 4, 2].map(frame);
        assert_eq!(alone(&burst), 0b11010);
        assert_eq!(alone(&burst[..3]), 0b111);
    }

    #[test]
    fn few_flows_share_a_tag_if_addresses_and_ports_count_together() {
        let flow = |addresses: u32, ports: u16, nth: u16| {
            let network =
                Network::ipv4((0x0A00_0000 + addresses * u32::from(nth)).into(), [10, 77, 0, 1].into());
            let src_port = 1024 + ports * nth;
            Frame::new(TcpFrame { network, src_port, payload: vec![0; 10], ..TcpFrame::default() }.build())
        };
        for (addresses, ports) in [(1, 1), (1, 0), (0, 1), (256, 1), (1, 256), (65536, 1), (257, 257)] {
            let burst: Vec<_> = (0..64).map(|nth| flow(addresses, ports, nth)).collect();
            let alone = alone(&burst).count_ones();
            assert!(alone >= 48, "{alone} of 64 for steps of {addresses} and {ports}");
        }
    }

    #[test]
    fn nothing_is_alone_beside_what_may_be_of_any_flow() {
        let mut burst = [1, 2, 3].map(frame);
        burst[1].buffer[20] |= 0x20; // more fragments
        assert_eq!(alone(&burst), 0);
        burst[1].buffer[20] = 0;
        burst[1].buffer[14] = 0x46; // options
        assert_eq!(alone(&burst), 0);
        burst[1].buffer[12..14].copy_from_slice(&[0x08, 0x06]); // ARP
        assert_eq!(alone(&burst), 0b101);
    }

    #[test]
    fn short_frames_and_long_bursts_are_not_looked_at() {
        let mut burst = vec![frame(1), frame(2)];
        burst[0].buffer.truncate(37);
        assert_eq!(alone(&burst), 0b01);
        burst.extend((3..66).map(frame));
        assert_eq!(alone(&burst), 0);
    }
}
