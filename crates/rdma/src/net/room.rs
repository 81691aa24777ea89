//! Room for what leaves: the driver's buffer, filled by one or several queue pairs.

use super::Route;
use crate::core::slab::Handle;
use crate::kind;

/// What leaves next, at the front of the driver's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// Datagrams to one destination.
    Datagrams(DatagramBatch),
    /// Bytes of a queue pair's stream.
    Stream(StreamBytes),
}

/// Datagrams to one destination.
///
/// Each is of `segment_len` bytes, but for the last, which may be shorter: a driver hands them to the kernel at once
/// (`UDP_SEGMENT`). Over IPv4, the n-th (from 0) has the ICRC of identification n, which is what the kernel then gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramBatch {
    /// Where they go.
    pub route: Route,
    /// Bytes of all together.
    pub len: usize,
    /// Bytes of each but the last.
    pub segment_len: usize,
}

/// Bytes of a queue pair's stream. What the stream does not take at once is the driver's to keep and send later: see
/// [`Device::block_stream`](crate::Device::block_stream).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamBytes {
    /// Whose stream.
    pub qp: Handle<kind::Qp>,
    /// How many bytes.
    pub len: usize,
}

impl Transmit {
    /// The datagrams; `None` where it is bytes of a stream.
    pub const fn datagrams(self) -> Option<DatagramBatch> {
        match self {
            Self::Datagrams(batch) => Some(batch),
            Self::Stream(_) => None,
        }
    }
}

impl DatagramBatch {
    /// The datagrams within the buffer that was filled.
    pub fn datagrams<'a>(&self, buffer: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        buffer[..self.len].chunks(self.segment_len)
    }
}

/// The driver's buffer while it is filled.
pub(crate) struct Room<'b> {
    buffer: &'b mut [u8],
    max_segments: usize,
    target: Option<Target>,
    len: usize,
    segment_len: usize,
    count: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Route(Route),
    Stream(Handle<kind::Qp>),
}

impl<'b> Room<'b> {
    pub(crate) fn new(max_segments: usize, buffer: &'b mut [u8]) -> Self {
        Self { buffer, max_segments, target: None, len: 0, segment_len: 0, count: 0 }
    }

    /// What was placed; `None` where nothing was.
    pub(crate) fn into_transmit(self) -> Option<Transmit> {
        let Self { len, segment_len, .. } = self;
        Some(match self.target? {
            Target::Route(route) => Transmit::Datagrams(DatagramBatch { route, len, segment_len }),
            Target::Stream(qp) => Transmit::Stream(StreamBytes { qp, len }),
        })
    }

    /// Whether a datagram of `len` bytes for this route fits behind those that are there.
    #[inline]
    pub(crate) fn fits(&self, route: &Route, len: usize) -> bool {
        let is_same = || matches!(&self.target, Some(Target::Route(target)) if target == route);
        self.fits_behind(len) && (self.count == 0 || is_same())
    }

    /// Whether a datagram of `len` bytes fits that goes where the others go.
    #[inline]
    pub(crate) fn fits_behind(&self, len: usize) -> bool {
        let fits = self.len + len <= self.buffer.len() && self.count < self.max_segments;
        fits && (self.count == 0 || len <= self.segment_len && !self.is_closed())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Datagrams that are there.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The place of the next datagram.
    #[inline]
    pub(crate) fn free(&mut self) -> &mut [u8] {
        &mut self.buffer[self.len..]
    }

    /// A datagram of `len` bytes was built at its place.
    #[inline]
    pub(crate) fn add(&mut self, route: Route, len: usize) {
        if self.count == 0 {
            (self.segment_len, self.target) = (len, Some(Target::Route(route)));
        }
        self.len += len;
        self.count += 1;
    }

    /// Has a queue pair fill an empty room with bytes of its stream: `fill` returns how many. Returns false if the room is
    /// not empty.
    #[cfg_attr(not(test), expect(dead_code, reason = "the transports of the library have no streams yet"))]
    pub(crate) fn fill_stream(
        &mut self,
        qp: Handle<kind::Qp>,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> bool {
        if self.count > 0 {
            return false;
        }
        self.len = fill(self.buffer);
        if self.len > 0 {
            (self.segment_len, self.count, self.target) =
                (self.len, self.max_segments, Some(Target::Stream(qp)));
        }
        true
    }

    /// Whether the last datagram is shorter than the others.
    #[inline]
    fn is_closed(&self) -> bool {
        self.len < self.segment_len * self.count
    }
}
