//! InfiniBand connection management (InfiniBand Architecture Specification volume 1, chapter 12), as RoCEv2
//! uses it.
//!
//! A [`Mad`] is a datagram of 256 bytes between the queue pairs 1 of two adapters: a MAD header of 24 bytes,
//! then the body of one [`Message`]. Programs that address each other by IP put an [`IpHeader`] (annex A11)
//! in front of their private data in [`Req`] and [`SidrReq`], and derive the [`ServiceId`] from port space
//! and port.

mod body;
mod error;
mod identifier;
mod ip_header;
mod mad;
mod messages;
mod path;
mod private_data;
mod reject;
mod rep;
mod req;
mod service_id;
mod sidr;

pub use body::MAD_LEN;
pub use error::CmError;
pub use identifier::{CommId, CommIds, Ece, Gid, Guid, TimeExponent, TransactionId};
pub use ip_header::{AddressedPrivateData, IpHeader, IpHeaderError};
pub use mad::{Attribute, GSI_QKEY, Mad, Message};
pub use messages::{Apr, Drep, Dreq, Lap, Mra, MraMessage, Rtu};
pub use path::Path;
pub use private_data::{PrivateData, PrivateDataError};
pub use reject::{Rej, RejMessage, RejectReason};
pub use rep::Rep;
pub use req::{Req, TransportService};
pub use service_id::{PortSpace, ServiceId};
pub use sidr::{SidrRep, SidrReq, SidrStatus};
