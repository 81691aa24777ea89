//! Responses to the peer's READ and atomic requests, which leave in the order of the requests.

use std::collections::VecDeque;

use nichrome_wire::iwarp::{
    AtomicResponse, MessageNumber, Opcode, ReadRequest, STag, Segment, SegmentDestination, TerminateCode,
};
use nichrome_wire::rdma::RKey;

use super::fault::{self, Fault, Faulty};
use super::segment::{Body, Data, Origin, Outgoing, untagged};
use crate::core::protection::Refusal;

/// READ and atomic requests of the peer without their response.
pub(super) struct Responses {
    ird: usize,
    queue: VecDeque<Response>,
    /// Bytes of the oldest READ's response that have left.
    sent: u32,
    /// The next message of queue 3.
    next_atomic: MessageNumber,
}

enum Response {
    Read(MessageNumber, ReadRequest),
    Atomic(AtomicResponse),
}

impl Responses {
    pub(super) fn new(ird: u16) -> Self {
        Self { ird: ird.into(), queue: VecDeque::new(), sent: 0, next_atomic: MessageNumber::FIRST }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns true if some segments of a response have left, and others have not.
    #[inline]
    pub(super) fn is_within_message(&self) -> bool {
        self.sent > 0
    }

    /// Checks that the peer keeps to the IRD.
    ///
    /// # Errors
    /// The peer has as many requests outstanding as the IRD allows already.
    pub(super) fn check_room(&self) -> Result<(), Fault> {
        if self.queue.len() < self.ird { Ok(()) } else { Err(TerminateCode::NO_BUFFER.into()) }
    }

    pub(super) fn push_read(&mut self, number: MessageNumber, request: ReadRequest) {
        self.queue.push_back(Response::Read(number, request));
    }

    pub(super) fn push_atomic(&mut self, response: AtomicResponse) {
        self.queue.push_back(Response::Atomic(response));
    }

    /// Returns the next segment to send.
    #[inline]
    pub(super) fn next(&self) -> Option<Outgoing> {
        Some(match self.queue.front()? {
            Response::Read(_, request) => {
                let sent = u64::from(self.sent);
                let destination = SegmentDestination::Tagged {
                    stag: request.sink,
                    offset: request.sink_offset.wrapping_add(sent),
                };
                let address = request.source_offset.wrapping_add(sent);
                let origin = Origin::Remote { rkey: RKey(request.source.0), address };
                let (opcode, left) = (Opcode::ReadResponse, request.len - self.sent);
                Outgoing::Data(Data { opcode, destination, origin, left })
            }
            Response::Atomic(response) => {
                let (opcode, destination) = (Opcode::AtomicResponse, untagged(self.next_atomic));
                Outgoing::Whole(
                    Segment { is_last: true, opcode, destination },
                    Body::AtomicResponse(response.to_bytes()),
                )
            }
        })
    }

    /// Records that `len` bytes of a READ response were sent.
    #[inline]
    pub(super) fn data_sent(&mut self, len: usize, is_last: bool) {
        self.sent += len as u32;
        if is_last {
            self.sent = 0;
            self.queue.pop_front();
        }
    }

    /// Records that an atomic response was sent.
    pub(super) fn atomic_sent(&mut self) {
        self.next_atomic = self.next_atomic.next();
        self.queue.pop_front();
    }

    /// Returns the error of the oldest READ, whose memory can no longer be accessed, and the payload of its
    /// TERMINATE, which has the headers of the request.
    pub(super) fn read_failed(&self, refusal: Refusal) -> (Fault, Vec<u8>) {
        let fault = Fault::remote(refusal);
        let Some(Response::Read(number, request)) = self.queue.front() else {
            return (fault, fault::terminate(fault.code, None));
        };
        let segment = Segment { is_last: true, opcode: Opcode::ReadRequest, destination: untagged(*number) };
        let mut ulpdu = [0; Segment::UNTAGGED_LEN + ReadRequest::LEN];
        if let Some(body) = segment.write(&mut ulpdu) {
            body.copy_from_slice(&request.to_bytes());
        }
        (fault, fault::terminate(fault.code, Some(Faulty::whole(&ulpdu))))
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.sent = 0;
    }
}

/// Returns the remote key that an STag stands for.
#[inline]
pub(super) fn key(stag: STag) -> RKey {
    RKey(stag.0)
}
