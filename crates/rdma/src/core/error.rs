//! Errors of the verbs.

use std::net::IpAddr;

use thiserror::Error;

use crate::core::access::Access;
use crate::core::attributes::{AttributeMask, QpState, QpType};

/// An object does not exist, or cannot be created, changed or destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ObjectError {
    /// The object does not exist or was destroyed.
    #[error("there is no such {0}")]
    Unknown(ObjectKind),
    /// The device's limit for such objects is reached.
    #[error("the device has no room for another {0}")]
    Exhausted(ObjectKind),
    /// Other objects depend on the object.
    #[error("the {0} is in use")]
    InUse(ObjectKind),
    /// A size is out of its range.
    #[error("{what} is {value}, but must be between {min} and {max}")]
    Size {
        /// The name of the size.
        what: &'static str,
        /// The requested size.
        value: usize,
        /// The minimum.
        min: usize,
        /// The maximum.
        max: usize,
    },
    /// The device's transport has no queue pairs of this service.
    #[error("the device has no {0:?} queue pairs")]
    Service(QpType),
    /// The device has no address of this index and of the destination's family.
    #[error("the device has no address {0} of the destination's family")]
    Address(u8),
}

/// A queue pair cannot be attached to a multicast group, or detached from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MulticastError {
    /// The queue pair, or the number of groups or members.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// Only UD queue pairs receive multicast datagrams.
    #[error("a {0:?} queue pair receives no multicast datagrams: use UD")]
    Service(QpType),
    /// The address is not a multicast address.
    #[error("{0} is not a multicast address")]
    Unicast(IpAddr),
    /// The device has no address of the group's family.
    #[error("the device has no address of the family of {0}")]
    Family(IpAddr),
    /// The queue pair is not attached to the group.
    #[error("the queue pair is not attached to the multicast group")]
    NotAttached,
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
    /// Multicast group, or membership in one.
    Group,
    /// XRC domain.
    Xrc,
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
            Self::Group => "multicast group",
            Self::Xrc => "XRC domain",
        })
    }
}

/// Memory could not be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RegisterError {
    /// An object does not exist, or the limit of regions is reached.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// Remote write and remote atomic require local write (IBA C10-44).
    #[error("remote write and remote atomic need local write")]
    NeedsLocalWrite,
    /// The rights contain one that applies to windows only.
    #[error("a region cannot have the rights {0:?}")]
    Rights(Access),
    /// The addresses wrap around.
    #[error("{len} bytes at {address:#x} exceed the address space")]
    Range {
        /// First address.
        address: u64,
        /// Length in bytes.
        len: u64,
    },
    /// Some of the memory does not exist.
    #[error("the {len} bytes at {address:#x} are not all mapped")]
    NotMapped {
        /// First address.
        address: u64,
        /// Length in bytes.
        len: u64,
    },
}

/// A queue pair could not be changed; all its attributes are unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ModifyError {
    /// The queue pair does not exist.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The current state is not the expected one.
    #[error("the queue pair is in state {actual:?}, not {expected:?}")]
    State {
        /// The expected state.
        expected: QpState,
        /// The current state.
        actual: QpState,
    },
    /// The transition does not exist.
    #[error("a {kind:?} queue pair cannot go from {from:?} to {to:?}")]
    Transition {
        /// The transport service.
        kind: QpType,
        /// The current state.
        from: QpState,
        /// The requested state.
        to: QpState,
    },
    /// The transition requires more attributes.
    #[error("going from {from:?} to {to:?} needs {missing}")]
    Missing {
        /// The current state.
        from: QpState,
        /// The requested state.
        to: QpState,
        /// The missing attributes.
        missing: AttributeMask,
    },
    /// The transition does not allow some of the attributes.
    #[error("going from {from:?} to {to:?} cannot set {extra}")]
    NotAllowed {
        /// The current state.
        from: QpState,
        /// The requested state.
        to: QpState,
        /// The attributes that are not allowed.
        extra: AttributeMask,
    },
    /// A value is out of its range.
    #[error("{attribute} is {value}, but can be at most {max}")]
    Value {
        /// The name of the attribute.
        attribute: &'static str,
        /// The value.
        value: u64,
        /// The maximum.
        max: u64,
    },
    /// The port is not 1.
    #[error("there is no port {0}, only port 1")]
    Port(u8),
    /// The send queue is still draining.
    #[error("the send queue is still draining")]
    Draining,
}

/// A request could not be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PostError {
    /// The queue does not exist.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The queue accepts no requests in this state.
    #[error("the queue accepts no requests in state {0:?}")]
    State(QpState),
    /// The queue is full.
    #[error("the queue is full: it holds {0} requests")]
    Full(usize),
    /// More buffers than the queue's capacity.
    #[error("{count} buffers, but the queue's requests can have at most {max}")]
    Buffers {
        /// The number of buffers.
        count: usize,
        /// The maximum.
        max: usize,
    },
    /// More bytes in a receive than a 32-bit length can hold.
    #[error("the buffers have more than {} bytes", u32::MAX)]
    TooLong,
    /// More inline bytes than the queue's capacity.
    #[error("{len} inline bytes, but the queue's requests can have at most {max}")]
    Inline {
        /// The number of inline bytes.
        len: usize,
        /// The maximum.
        max: usize,
    },
    /// Inline bytes are not in the program's memory.
    #[error("the inline bytes are not all in the program's memory")]
    Memory,
    /// The transport service does not support the operation.
    #[error("a {0:?} queue pair does not support this operation")]
    Operation(QpType),
    /// The payload does not fit the operation: READs and atomics have no inline bytes, local operations no
    /// bytes.
    #[error("the operation cannot have this payload")]
    Payload,
    /// A READ or atomic on a queue pair whose `max_rd_atomic` is 0.
    #[error("max_rd_atomic is 0: the queue pair allows no READs and atomics")]
    NoReads,
    /// The connection's transport does not support the operation on this side.
    #[error("the connection's transport does not support this operation on this side")]
    Transport,
    /// UD requests need a recipient in the queue pair's protection domain; RC and UC requests have none.
    #[error("the recipient is missing, unknown or not allowed")]
    Recipient,
    /// The queue pair takes its receives from a shared queue.
    #[error("the queue pair takes receives from its shared receive queue")]
    Shared,
}
