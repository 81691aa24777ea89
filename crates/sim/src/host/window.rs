//! The receive window of a connection.

use std::ops::Range;

use smoltcp::wire::TcpSeqNumber;

/// The sequence numbers that are accepted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// The next sequence number expected.
    pub(super) start: TcpSeqNumber,
    /// The first sequence number beyond the window.
    pub(super) end: TcpSeqNumber,
}

impl Window {
    /// Returns the range of a segment's payload that is within the window; `None` if the segment is not
    /// acceptable (RFC 9293, 3.10.7.4). As in smoltcp, a keep-alive is not acceptable, nor is a segment that
    /// begins before the window and ends behind it.
    pub(super) fn cut(self, first: TcpSeqNumber, len: usize) -> Option<Range<usize>> {
        let (Self { start, end }, last) = (self, first + len);
        let is_within = match (len == 0, start == end) {
            (true, _) if last == start - 1 => false,
            (true, true) => first == start,
            (true, false) => start <= first && first < end,
            (false, true) => false,
            (false, false) => (start <= first && first < end) || (start < last && last <= end),
        };
        is_within.then(|| start.max(first) - first..end.min(last) - first)
    }
}
