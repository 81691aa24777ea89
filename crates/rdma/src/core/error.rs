//! Why a verb was refused.

use thiserror::Error;

use crate::core::access::Access;
use crate::core::attributes::{AttributeMask, QpState, QpType};

/// An object is not there, or not to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ObjectError {
    /// The handle is of none, or of one that was destroyed.
    #[error("there is no such {0}")]
    Unknown(ObjectKind),
    /// As many as the device allows exist already.
    #[error("the device has no room for another {0}")]
    Exhausted(ObjectKind),
    /// Others depend on it: they must go first.
    #[error("the {0} is in use")]
    InUse(ObjectKind),
    /// A size is not one that the device offers.
    #[error("{what} is {value}, but must be between {min} and {max}")]
    Size {
        /// What has the size.
        what: &'static str,
        /// The size asked for.
        value: usize,
        /// The least.
        min: usize,
        /// The most.
        max: usize,
    },
    /// The device has no address of this index and of the destination's family.
    #[error("the device has no address {0} of the destination's family")]
    Address(u8),
}

/// The kinds of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    /// Protection domain.
    Domain,
    /// Memory region.
    Region,
    /// Memory window.
    Window,
    /// Completion queue.
    Cq,
    /// Shared receive queue.
    Srq,
    /// Queue pair.
    Qp,
    /// Address handle.
    Address,
}

impl std::fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Domain => "protection domain",
            Self::Region => "memory region",
            Self::Window => "memory window",
            Self::Cq => "completion queue",
            Self::Srq => "shared receive queue",
            Self::Qp => "queue pair",
            Self::Address => "address handle",
        })
    }
}

/// Why memory was not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RegisterError {
    /// An object is missing, or there is no room for another.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// Peers may change only what the device may change for its own program (IBA C10-44).
    #[error("remote write and remote atomic need local write")]
    NeedsLocalWrite,
    /// This right is none of a region.
    #[error("a region cannot have the rights {0:?}")]
    Rights(Access),
    /// The addresses wrap around.
    #[error("{len} bytes from {address:#x} on are more than there are addresses")]
    Range {
        /// The first.
        address: u64,
        /// How many.
        len: u64,
    },
    /// The memory is not all there.
    #[error("not all of the {len} bytes from {address:#x} on are the program's")]
    NotThere {
        /// The first.
        address: u64,
        /// How many.
        len: u64,
    },
}

/// Why a queue pair was not changed. Nothing of the change was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ModifyError {
    /// The queue pair does not exist.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The program takes it to be in another state.
    #[error("the queue pair is in state {actual:?}, not {expected:?}")]
    State {
        /// What the program said.
        expected: QpState,
        /// What it is.
        actual: QpState,
    },
    /// No such change of state.
    #[error("a {kind:?} queue pair cannot go from {from:?} to {to:?}")]
    Transition {
        /// The service.
        kind: QpType,
        /// The state before.
        from: QpState,
        /// The state wanted.
        to: QpState,
    },
    /// The change of state needs more.
    #[error("going from {from:?} to {to:?} needs {missing}")]
    Missing {
        /// The state before.
        from: QpState,
        /// The state wanted.
        to: QpState,
        /// What is missing.
        missing: AttributeMask,
    },
    /// Something cannot be set with this change of state.
    #[error("going from {from:?} to {to:?} cannot set {extra}")]
    NotAllowed {
        /// The state before.
        from: QpState,
        /// The state wanted.
        to: QpState,
        /// What cannot be set.
        extra: AttributeMask,
    },
    /// A value is out of its range.
    #[error("{attribute} is {value}, but can be at most {max}")]
    Value {
        /// What.
        attribute: &'static str,
        /// The value.
        value: u64,
        /// The most.
        max: u64,
    },
    /// There is one port, and its number is 1.
    #[error("there is no port {0}, only port 1")]
    Port(u8),
    /// The send queue is still draining.
    #[error("the send queue is still draining")]
    Draining,
}

/// Why a request was not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PostError {
    /// The queue does not exist.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The queue pair takes no such requests in this state.
    #[error("nothing can be posted here in state {0:?}")]
    State(QpState),
    /// The queue is full.
    #[error("the queue holds the {0} requests that it has room for")]
    Full(usize),
    /// More buffers than the queue was made for.
    #[error("{count} buffers, but the queue was made for {max}")]
    Buffers {
        /// How many.
        count: usize,
        /// How many there can be.
        max: usize,
    },
    /// More bytes than a message can have.
    #[error("the message is longer than {0} bytes")]
    TooLong(u32),
    /// More inline bytes than the queue was made for.
    #[error("{len} inline bytes, but the queue was made for {max}")]
    Inline {
        /// How many.
        len: usize,
        /// How many there can be.
        max: usize,
    },
    /// Inline bytes are not the program's memory.
    #[error("the inline bytes are not all the program's")]
    Memory,
    /// The service or the request does not go with this operation.
    #[error("a {0:?} queue pair does not do this operation")]
    Operation(QpType),
    /// An atomic has one buffer of 8 bytes; READs and atomics have no inline bytes; what stays on the device has none.
    #[error("the operation cannot have this payload")]
    Payload,
    /// The queue pair allows no READs and atomics.
    #[error("max_rd_atomic is 0: the queue pair does no READs and atomics")]
    NoReads,
    /// The connection's transport does not do this operation, or not on this side.
    #[error("the connection's transport does not do this operation on this side")]
    Transport,
    /// A datagram needs a recipient, in the queue pair's protection domain; others have none.
    #[error("the recipient is missing, unknown or not to be named here")]
    Recipient,
    /// The queue pair takes its receives from a shared queue.
    #[error("the queue pair takes receives from its shared receive queue")]
    Shared,
}
