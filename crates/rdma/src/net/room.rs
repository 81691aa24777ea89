//! The driver's send buffer, filled by one or several queue pairs.

use super::{Route, SteeringKey};
use crate::core::kind;
use crate::core::slab::Handle;

/// Data to send, at the front of the driver's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// Datagrams to one destination.
    Datagrams(DatagramBatch),
    /// Bytes of a queue pair's stream.
    Stream(StreamBytes),
    /// The end of a queue pair's stream.
    End(StreamEnding),
}

/// Datagrams to one destination.
///
/// All have `segment_len` bytes, except the last, which may be shorter, so that the driver can send them in
/// one system call (`UDP_SEGMENT`). All are for one process: see [`STEERING_BITS`](crate::STEERING_BITS).
/// Over IPv4, the ICRC of the n-th (from 0) assumes IP identification n, which the kernel then assigns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramBatch {
    /// Route of all datagrams.
    pub route: Route,
    /// Total length in bytes.
    pub len: usize,
    /// Length of each datagram but the last in bytes.
    pub segment_len: usize,
}

/// Bytes of a queue pair's stream. The requests in these bytes have completed: TCP is responsible for the
/// bytes, and the driver sends them even if the queue pair is destroyed or reset. It keeps the bytes that a
/// write does not accept, and sends them later: see [`Device::hold_sends`](crate::Device::hold_sends).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamBytes {
    /// The queue pair.
    pub qp: Handle<kind::Qp>,
    /// Length in bytes.
    pub len: usize,
}

/// The end of a queue pair's stream, behind all bytes that were sent. The driver reads and drops bytes that
/// still arrive, until the peer has closed too or the driver's deadline passes: a socket that is closed with
/// unread bytes resets the connection, and the peer may lose the TERMINATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEnding {
    /// The queue pair.
    pub qp: Handle<kind::Qp>,
    /// How the driver ends it.
    pub how: StreamShutdown,
}

/// How a driver ends a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamShutdown {
    /// Sends the bytes that it has kept, then closes (TCP: FIN).
    Orderly,
    /// Drops the bytes that it has kept, and resets (TCP: RST).
    Abort,
}

impl Transmit {
    /// Returns the datagrams; `None` for a stream.
    pub const fn datagrams(self) -> Option<DatagramBatch> {
        match self {
            Self::Datagrams(batch) => Some(batch),
            Self::Stream(_) | Self::End(_) => None,
        }
    }
}

impl DatagramBatch {
    /// Splits the driver's buffer into datagrams.
    pub fn datagrams<'a>(&self, buffer: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        buffer[..self.len].chunks(self.segment_len)
    }
}

/// The driver's buffer while it is filled.
pub(crate) struct Room<'b> {
    buffer: &'b mut [u8],
    max_segments: usize,
    target: Option<Target>,
    /// Key of the first datagram.
    steering: SteeringKey,
    len: usize,
    segment_len: usize,
    count: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Route(Route),
    Stream(Handle<kind::Qp>),
    End(StreamEnding),
}

impl<'b> Room<'b> {
    pub(crate) fn new(max_segments: usize, buffer: &'b mut [u8]) -> Self {
        let (target, steering) = (None, SteeringKey::MANAGEMENT);
        Self { buffer, max_segments, target, steering, len: 0, segment_len: 0, count: 0 }
    }

    /// Returns the data that was added; `None` if the room is empty.
    pub(crate) fn into_transmit(self) -> Option<Transmit> {
        let Self { len, segment_len, .. } = self;
        Some(match self.target? {
            Target::Route(route) => Transmit::Datagrams(DatagramBatch { route, len, segment_len }),
            Target::Stream(qp) => Transmit::Stream(StreamBytes { qp, len }),
            Target::End(ending) => Transmit::End(ending),
        })
    }

    /// Returns true if a datagram of `len` bytes for this route and process can be added.
    #[inline]
    pub(crate) fn fits(&self, route: &Route, steering: SteeringKey, len: usize) -> bool {
        let is_same = || matches!(&self.target, Some(Target::Route(target)) if target == route);
        self.fits_behind(steering, len) && (self.count == 0 || is_same())
    }

    /// Returns true if a datagram of `len` bytes for the current route and this process can be added.
    #[inline]
    pub(crate) fn fits_behind(&self, steering: SteeringKey, len: usize) -> bool {
        let fits = self.len + len <= self.buffer.len() && self.count < self.max_segments;
        let follows = || steering.may_follow(self.steering) && len <= self.segment_len && !self.is_closed();
        fits && (self.count == 0 || follows())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of datagrams.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the free part of the buffer, where the next datagram is built.
    #[inline]
    pub(crate) fn free(&mut self) -> &mut [u8] {
        &mut self.buffer[self.len..]
    }

    /// Adds the datagram of `len` bytes that was built at the front of [`free`](Self::free).
    #[inline]
    pub(crate) fn add(&mut self, route: Route, steering: SteeringKey, len: usize) {
        if self.count == 0 {
            (self.segment_len, self.target, self.steering) = (len, Some(Target::Route(route)), steering);
        }
        self.len += len;
        self.count += 1;
    }

    /// Fills an empty room with bytes of a queue pair's stream: `fill` returns how many. Returns false if the
    /// room is not empty.
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

    /// Fills an empty room with the end of a queue pair's stream. Returns false if the room is not empty.
    pub(crate) fn end_stream(&mut self, qp: Handle<kind::Qp>, how: StreamShutdown) -> bool {
        if self.count > 0 {
            return false;
        }
        (self.count, self.target) = (self.max_segments, Some(Target::End(StreamEnding { qp, how })));
        true
    }

    /// Returns true if the last datagram is shorter than the others: no more can follow.
    #[inline]
    fn is_closed(&self) -> bool {
        self.len < self.segment_len * self.count
    }
}
