//! Impaired paths of streams. TCP repairs faults of segments, so a stream is only delayed, limited in rate
//! and corrupted.

use std::num::NonZeroU64;

use nichrome_rdma::StreamEnd;
use nichrome_wan::{Aqm, EcnMode, Impairments, Jitter, JitterOrder, Limit, Output, Packet, Path, QueueLimit};
use nichrome_wire::{Ecn, Engine, EthernetHeader, Instant, Ipv4Header, TcpHeader};

use crate::config::{Faults, StreamFaultsError};

/// Payload of a chunk, in bytes: a TCP segment's on Ethernet.
const CHUNK: usize = 1460;

/// Maximum number of chunks in flight in one direction, about 48 MB; at the limit the adapter neither reads
/// nor sends.
const MAX_IN_FLIGHT: usize = 1 << 15;

/// Bytes of headers before the payload of a chunk, for rates.
const HEADERS: usize = EthernetHeader::LEN + Ipv4Header::LEN + TcpHeader::LEN;

/// A piece of a stream in flight.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    /// The stream's token.
    pub(super) stream: u64,
    pub(super) content: Content,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    Bytes(Vec<u8>),
    /// The stream ends after these bytes: the peer's direction as the peer ended it, this one by a FIN.
    End(StreamEnd),
}

impl Packet for Chunk {
    fn wire_len(&self) -> usize {
        HEADERS + if let Content::Bytes(bytes) = &self.content { bytes.len() } else { 0 }
    }

    /// Flips a bit of the payload only: TCP would retransmit a segment with a damaged header, and the stream
    /// would not change.
    fn flip_bit(&mut self, bit: usize) {
        if let (Content::Bytes(bytes), Some(at)) = (&mut self.content, (bit / 8).checked_sub(HEADERS))
            && let Some(byte) = bytes.get_mut(at)
        {
            *byte ^= 1 << (bit % 8);
        }
    }

    fn duplicate(&self) -> Option<Self> {
        None
    }

    fn ecn(&self) -> Ecn {
        Ecn::NotEct
    }

    fn mark_ce(&mut self) {}
}

/// A direction of all streams.
pub(super) struct StreamPath(Path<Chunk>);

impl StreamPath {
    /// The outbound and the inbound path.
    ///
    /// # Errors
    /// The impairments do not apply to a stream.
    pub(super) fn both(Faults { impairments, seed }: &Faults) -> Result<[Self; 2], StreamFaultsError> {
        let impairments = of_streams(impairments)?;
        let path = |seed| Path::new(&impairments, seed).map(Self).map_err(StreamFaultsError::Config);
        Ok([path(*seed)?, path(seed.wrapping_add(1))?])
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.in_flight() >= MAX_IN_FLIGHT
    }

    pub(super) fn send(&mut self, stream: u64, bytes: &[u8], now: Instant) {
        for piece in bytes.chunks(CHUNK) {
            self.0.receive(Chunk { stream, content: Content::Bytes(piece.to_vec()) }, now);
        }
    }

    pub(super) fn end(&mut self, stream: u64, end: StreamEnd, now: Instant) {
        self.0.receive(Chunk { stream, content: Content::End(end) }, now);
    }

    /// Returns the next chunk that has passed the path.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Chunk> {
        self.0.handle_timeout(now);
        loop {
            match self.0.poll()? {
                Output::Released(departure) => return Some(departure.packet),
                // Does not happen: `of_streams` accepts no impairment that drops.
                Output::Dropped { .. } => {}
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.0.poll_timeout()
    }
}

/// The impairments without the limits that would drop chunks.
fn of_streams(impairments: &Impairments) -> Result<Impairments, StreamFaultsError> {
    let Impairments { jitter, jitter_order, loss, duplicate, reorder, aqm, ecn, mtu, .. } = impairments;
    let reorders =
        reorder.is_some() || jitter.as_ref().is_some_and(|_: &Jitter| *jitter_order == JitterOrder::Reorder);
    let has = |is_set: bool, name| if is_set { Err(StreamFaultsError::Repaired(name)) } else { Ok(()) };
    has(loss.is_some(), "loss")?;
    has(reorders, "reordering")?;
    has(*duplicate > nichrome_wan::Probability::NEVER, "duplication")?;
    has(mtu.is_some(), "an MTU")?;
    has(*aqm != Aqm::TailDrop || *ecn == EcnMode::Mark, "queue management")?;
    let queue = QueueLimit::Bytes(NonZeroU64::MAX);
    Ok(Impairments { queue, limit: Limit::MAX, ..impairments.clone() })
}
