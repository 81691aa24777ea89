//! The send requests that a program builds between `ibv_wr_start` and `ibv_wr_complete`.

use std::ops::Range;

use nichrome_rdma::{Operation, Payload, Recipient, SendFlags, SendRequest, Sge, SrqNumber};

use crate::errno::Errno;
use crate::header::ibv_mw;

/// Send requests under construction.
#[derive(Default)]
pub(crate) struct Builder {
    pub(crate) requests: Vec<Request>,
    pub(crate) buffers: Vec<Sge>,
    pub(crate) bytes: Vec<u8>,
    /// The windows that the requests bind, in order, and their keys before each bind.
    pub(crate) bound: Vec<(*mut ibv_mw, u32)>,
    /// The first error.
    pub(crate) error: Option<Errno>,
}

/// A send request under construction.
pub(crate) struct Request {
    pub(crate) wr_id: u64,
    pub(crate) operation: Operation,
    pub(crate) flags: SendFlags,
    pub(crate) recipient: Option<Recipient>,
    pub(crate) srq: Option<SrqNumber>,
    pub(crate) content: Content,
}

/// A request's payload: a range of the builder's `buffers` or of its inline `bytes`.
pub(crate) enum Content {
    Buffers(Range<usize>),
    Bytes(Range<usize>),
}

impl Builder {
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.buffers.clear();
        self.bytes.clear();
        self.bound.clear();
        self.error = None;
    }

    /// Records an error; only the first is kept.
    pub(crate) fn fail(&mut self, errno: Errno) {
        self.error.get_or_insert(errno);
    }

    /// Changes the last request; records `EINVAL` if there is none.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Request)) {
        match self.requests.last_mut() {
            Some(request) => change(request),
            None => self.fail(Errno::INVALID),
        }
    }

    fn payload(&self, content: &Content) -> Payload<'_> {
        match content {
            Content::Buffers(range) => Payload::Buffers(self.buffers.get(range.clone()).unwrap_or_default()),
            Content::Bytes(range) => Payload::Inline(self.bytes.get(range.clone()).unwrap_or_default()),
        }
    }

    /// Returns the engine's form of a request.
    pub(crate) fn as_request(&self, request: &Request) -> SendRequest<'_> {
        let Request { wr_id, operation, flags, recipient, srq, ref content } = *request;
        SendRequest { wr_id, operation, payload: self.payload(content), flags, recipient, srq }
    }
}
