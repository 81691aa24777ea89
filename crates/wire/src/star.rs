//! StaR: RDMA between a stateful peer and a peer whose card keeps no connection state ("Towards Stateless
//! RNIC for Data Center Networks", APNet 2019). The specification is `docs/star.md`.
//!
//! A datagram is a common header, the header of its type (the table is in [`PacketType`]), the payload, an
//! [`Authentication`] if the connection uses tags, and the [integrity check](PacketCheck). [`Repr`] holds
//! typed headers. "Server" is the stateless peer and "client" the stateful one, as in the paper.

mod capability;
mod check;
mod completion;
mod datagram;
mod element;
mod error;
mod header;
mod message;
mod packet_type;
mod segment;
mod writer;

pub use capability::{Capability, GrantCode, Lease, Rights};
pub use check::{Epoch, PacketCheck};
pub use completion::{Completed, Cqe, CqeNotice, StatusCode};
pub use datagram::{Authentication, Repr, Stamp};
pub use element::{Data, Element, NextLease, Operands, Registration, Request, Target, Wqe, WqeFlags};
pub use error::StarError;
pub use header::{CommonHeader, Flags};
pub use message::{Atomic, AtomicKind, Message, Reason, Span};
pub use packet_type::PacketType;
pub use segment::{Segment, segments};
pub use writer::PacketWriter;

/// The UDP port of StaR: not registered with IANA; RoCEv2's plus 2.
pub const STAR_PORT: u16 = 4793;

/// The protocol version.
pub const VERSION: u8 = 2;

/// Bytes of the integrity check.
pub const CHECK_LEN: usize = 4;

/// Bytes of an [`Authentication`].
pub const AUTHENTICATION_LEN: usize = 8;
