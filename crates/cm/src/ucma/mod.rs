//! The commands of `/dev/infiniband/rdma_cm`, kernel ABI 4 (`rdma/rdma_user_cm.h`), without the file.
//!
//! A program writes a command: its number, the lengths of its body and of the answer, and the body, which
//! names the memory for the answer. [`execute`] parses the bytes, executes the command, and returns the
//! answer for the caller to write there.
//!
//! - The ABI grows at the end of structures: missing bytes of a body count as zeros, unknown ones are
//!   ignored, and answers are cut to the length of the program's buffer. A buffer shorter than the answer's
//!   first version fails with ENOSPC.
//! - Addresses are IPv4 and IPv6. Binding to an address of InfiniBand (AF_IB) fails with EINVAL, by which
//!   librdmacm recognizes a kernel without AF_IB: it then uses BIND_IP, RESOLVE_IP and QUERY_ROUTE instead of
//!   BIND, RESOLVE_ADDR and QUERY.
//! - GET_EVENT on a channel without events fails with EAGAIN; a caller with a blocking file waits and repeats
//!   it.
//!
//! | file | concept |
//! |---|---|
//! | `layout.rs` | sizes and offsets; a test compares them with the C compiler's |
//! | `fields.rs` | reading and writing fields in the machine's byte order |
//! | `address.rs` | `sockaddr` |
//! | `command.rs` | parses commands |
//! | `answer.rs` | encodes events and answers |
//! | `execute.rs` | executes commands on a manager |

mod address;
mod answer;
mod command;
mod execute;
mod fields;
mod layout;

pub use command::{Command, CommandHeader};
pub use execute::{Answer, Caller, execute};
pub use layout::{Field, LAYOUTS, Layout};

/// The version of the ABI, as in `/sys/class/misc/rdma_cm/abi_version`.
pub const ABI_VERSION: u32 = 4;
