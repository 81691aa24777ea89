//! Requests that a program builds piece by piece.

use std::ops::Range;

use nichrome_rdma::{Operation, Payload, Recipient, SendFlags, SendRequest, Sge};

use crate::errno::Errno;

/// Requests that are being built.
#[derive(Default)]
pub(crate) struct Builder {
    pub(crate) requests: Vec<Request>,
    pub(crate) buffers: Vec<Sge>,
    pub(crate) bytes: Vec<u8>,
    /// The first thing that was wrong.
    pub(crate) error: Option<Errno>,
}

/// A request.
pub(crate) struct Request {
    pub(crate) wr_id: u64,
    pub(crate) operation: Operation,
    pub(crate) flags: SendFlags,
    pub(crate) recipient: Option<Recipient>,
    pub(crate) content: Content,
}

/// What a request sends, in the builder's buffers or bytes.
pub(crate) enum Content {
    Buffers(Range<usize>),
    Bytes(Range<usize>),
}

impl Builder {
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.buffers.clear();
        self.bytes.clear();
        self.error = None;
    }

    pub(crate) fn fail(&mut self, errno: Errno) {
        self.error.get_or_insert(errno);
    }

    /// Gives the request that is being built its content or recipient.
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

    pub(crate) fn as_request(&self, request: &Request) -> SendRequest<'_> {
        let Request { wr_id, operation, flags, recipient, ref content } = *request;
        SendRequest { wr_id, operation, payload: self.payload(content), flags, recipient }
    }
}
