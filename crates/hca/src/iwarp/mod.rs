//! iWARP at a live adapter: options, and how queue pairs get their TCP connections.
//!
//! | way | file |
//! |---|---|
//! | by address and queue pair number, as programs without a connection manager connect | `handshake.rs`, `pending.rs`, `set_up.rs` |
//! | by address and port, with private data, as rdma_cm connects | `establish.rs`, `listener.rs` |
//!
//! An RC queue pair that its program moves to [`Rtr`](nichrome_rdma::QpState::Rtr) is held until its
//! connection is set up. The verb returns at once. The side with the lower address and QP number connects, to
//! [`port_of`] the other's queue pair, in peer-to-peer mode with a WRITE as the ready-to-receive message; the
//! MPA private data names both queue pairs ([`Identity`](nichrome_rdma::iwarp::setup::Identity)).

mod counters;
mod establish;
mod handshake;
mod listener;
mod pending;
mod set_up;

use std::sync::Arc;
use std::time::Duration;

use nichrome_rdma::QpNumber;
use nichrome_rdma::iwarp::setup::Options;

pub use counters::IwarpCounters;
pub(crate) use counters::{Refused, SharedCounters};
pub use establish::EstablishError;
pub(crate) use establish::{Established, connect};
pub use listener::{Incoming, Listener};
pub(crate) use pending::{AttachError, Request, StreamHost};
pub(crate) use set_up::{IwarpSetup, listen};

/// TCP port of the adapter that has the lowest queue pair numbers at an address. Adapters that share an
/// address use the following ports, up to 4863.
pub const IWARP_PORT: u16 = 4832;

/// Number of a queue pair number's low bits, below the bits that name the adapter at an address.
const SLOT_SHIFT: u32 = 19;

/// The TCP port at which the adapter of a queue pair listens: [`IWARP_PORT`] plus the top five bits of the
/// number, which distinguish the adapters at an address.
pub fn port_of(qp: QpNumber) -> u16 {
    IWARP_PORT + (qp.value() >> SLOT_SHIFT) as u16
}

/// The longest DDP segment sent, in bytes: its FPDU fits an IPv4 packet of a capture.
const MAX_ULPDU: u16 = 65_486;

/// The default of [`IwarpOptions::silence`].
const SILENCE: Duration = Duration::from_secs(30);

/// Options of iWARP.
#[derive(Clone, Copy, Debug)]
pub struct IwarpOptions {
    /// Asks for CRC-32C in FPDUs. It is used if either side asks.
    pub crc: bool,
    /// How long a peer's machine may leave this side unanswered, in whole seconds, from 2 to 65,000. The
    /// queue pair then enters ERROR, up to a quarter of this time later if bytes were sent.
    pub silence: Duration,
    /// Called with a line per connection that could not be set up, whose queue pair is then in ERROR.
    pub report: fn(&str),
}

impl Default for IwarpOptions {
    fn default() -> Self {
        Self { crc: false, silence: SILENCE, report: |_| {} }
    }
}

/// State shared by the ways to connect: by queue pair number, and by address and port.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared {
    pub(crate) options: IwarpOptions,
    /// Counts the connections of peers that were refused.
    pub(crate) counters: Arc<SharedCounters>,
}

impl IwarpOptions {
    /// The MPA options of an end with these depths of READs and atomics.
    pub(crate) fn of(&self, ird: u16, ord: u16) -> Options {
        Options { crc: self.crc, ird, ord, max_ulpdu: MAX_ULPDU, ..Options::default() }
    }
}
