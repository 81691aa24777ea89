//! Checks posted requests: immediate errors, and requests that complete in error without being sent.
//!
//! A request is refused when it is posted only where the standard names an immediate error (IBA 11.4.1.1): an
//! unknown queue pair, RESET, INIT or RTR, a full queue, too many buffers, an unknown address handle. Errors
//! that hardware finds when it executes the request are reported by a completion.
//!
//! | request | rxe | hardware | here |
//! |---|---|---|---|
//! | longer than the port's largest message (IBA 11.6.2) | EINVAL | local length error | [`Status::LocalLength`] |
//! | a datagram longer than the port's MTU | success, and nothing is sent | local length error | [`Status::LocalLength`] |
//! | an atomic or ATOMIC WRITE whose buffers are not 8 bytes | EINVAL below 8, 8 bytes else | local length error | [`Status::LocalLength`] |
//! | an atomic on an address that is no multiple of 8 | EINVAL | NAK, invalid request | sent; the responder refuses it |
//! | READ, atomic, FLUSH or ATOMIC WRITE on UC; these or WRITE on UD | EINVAL | local QP operation error | [`Status::LocalQpOperation`] |
//! | key operation on UD, SEND with invalidate on UC or UD | EINVAL | error when posted | refused |
//! | more inline bytes than the queue was made for; READ or atomic with inline bytes | EINVAL | error when posted | refused |

use crate::core::attributes::QpType;
use crate::core::completion::Status;
use crate::core::send_queue::Progress;
use crate::core::work::Operation;

/// A request's length in bytes, and whether it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SendForm {
    /// Bytes of payload; `u32::MAX` stands for more.
    pub(super) len: u32,
    /// [`Progress::Posted`], or the error with which the request completes in order.
    pub(super) progress: Progress,
}

impl SendForm {
    /// Creates the form of a request of `len` bytes on a queue pair whose messages have at most `limit`.
    #[inline]
    pub(super) fn new(kind: QpType, operation: &Operation, len: u32, limit: u32) -> Self {
        let progress = if !is_carried(kind, operation) {
            Progress::Failed(Status::LocalQpOperation)
        } else if len > limit || is_of_8_bytes(operation) && len != 8 {
            Progress::Failed(Status::LocalLength)
        } else {
            Progress::Posted
        };
        Self { len, progress }
    }
}

/// Returns false for an operation on the peer's memory that the service has no packets for.
#[inline]
pub(super) fn is_carried(kind: QpType, operation: &Operation) -> bool {
    let reads = wants_response(operation);
    match kind {
        QpType::Rc | QpType::XrcSend | QpType::XrcReceive => true,
        QpType::Uc => !reads,
        QpType::Ud => !reads && !matches!(operation, Operation::Write(_) | Operation::WriteWithImmediate(..)),
    }
}

/// Returns true if the operation needs a response other than an ACK.
#[inline]
pub(super) fn wants_response(operation: &Operation) -> bool {
    is_of_8_bytes(operation) || matches!(operation, Operation::Read(_) | Operation::Flush { .. })
}

#[inline]
fn is_of_8_bytes(operation: &Operation) -> bool {
    use Operation as O;
    matches!(operation, O::CompareSwap { .. } | O::FetchAdd { .. } | O::AtomicWrite(_))
}
