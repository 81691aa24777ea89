//! Congestion control: how many packets a connection has outstanding, and when the next may leave. RoCE and StaR use the
//! same controllers.
//!
//! | file | controller | signal |
//! |---|---|---|
//! | `window.rs` | a window that halves on loss (RFC 5681) | loss, congestion notifications |
//! | `dctcp.rs` | a window that shrinks by the share of marked packets (RFC 8257) | ECN echoes, loss |
//! | `dcqcn.rs` | a rate, over a window for losses | congestion notifications, ECN echoes |
//! | `fixed.rs` | none: the largest window at all times | |

mod dcqcn;
mod dctcp;
mod fixed;
mod window;

use nichrome_wire::{Instant, SeqNumber};

pub use dcqcn::Dcqcn;
use dcqcn::DcqcnRate;
use dctcp::Dctcp;
use fixed::Fixed;
use window::LossWindow;

/// How many packets a queue pair has outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendWindow {
    /// Packets outstanding at first.
    pub initial: u32,
    /// Packets outstanding at most.
    pub max: u32,
    /// Packets that one READ request asks for at most; longer READs are split. No more than `initial`.
    pub read: u32,
}

impl Default for SendWindow {
    fn default() -> Self {
        Self { initial: 64, max: 256, read: 32 }
    }
}

/// The congestion controller of a transport's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Congestion {
    /// Losses and congestion notifications halve the window. The default of RoCE.
    #[default]
    Window,
    /// The share of marked packets shrinks the window (DCTCP). The default of StaR. RoCE peers must both be of this crate
    /// and both use it: ACKs then echo marks, and no congestion notifications are sent.
    Dctcp,
    /// Congestion notifications set a rate (DCQCN); losses halve the window.
    Dcqcn(Dcqcn),
    /// Neither losses nor marks change the window, which is [`SendWindow::max`].
    None,
}

/// Whether an acknowledged packet met congestion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Unmarked,
    Marked,
}

impl From<bool> for Mark {
    fn from(is_marked: bool) -> Self {
        if is_marked { Self::Marked } else { Self::Unmarked }
    }
}

/// An acknowledgement of packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acknowledged {
    /// The last packet that it acknowledges.
    pub(crate) sequence: SeqNumber,
    /// How many packets it acknowledges.
    pub(crate) packets: u32,
    /// The packet that is sent next for the first time.
    pub(crate) next: SeqNumber,
    pub(crate) mark: Mark,
    pub(crate) now: Instant,
}

/// Decides how many packets are outstanding and when they leave. Packets have serial numbers of 32 bits; shorter ones are
/// shifted to the top.
pub(crate) trait Controller {
    /// Packets that may be outstanding.
    fn window(&self) -> u32;

    fn acknowledged(&mut self, ack: &Acknowledged);

    /// The packet `sequence` was lost while `next` was to be sent next.
    fn lost(&mut self, sequence: SeqNumber, next: SeqNumber);

    /// The retransmission timer expired.
    fn timed_out(&mut self);

    /// A congestion notification arrived while `unacknowledged` was the oldest packet outstanding.
    fn notified(&mut self, unacknowledged: SeqNumber, next: SeqNumber, now: Instant);

    /// The next packet leaves no earlier; `None` where packets are not paced.
    fn departure(&self) -> Option<Instant> {
        None
    }

    /// A packet of `bytes` bytes left at `now`.
    fn sent(&mut self, bytes: usize, now: Instant) {
        let _ = (bytes, now);
    }

    /// Updates what depends on time alone.
    fn advance(&mut self, now: Instant) {
        let _ = now;
    }
}

/// The controller of one connection, chosen by the configuration.
#[derive(Clone, Debug)]
pub(crate) enum Control {
    Fixed(Fixed),
    Window(LossWindow),
    Dctcp(Box<Dctcp>),
    Dcqcn(Box<DcqcnRate>),
}

impl Control {
    /// The controller of a connection whose first packet has the number `first`.
    pub(crate) fn new(congestion: &Congestion, window: &SendWindow, first: SeqNumber) -> Self {
        match congestion {
            Congestion::None => Self::Fixed(Fixed::new(window)),
            Congestion::Window => Self::Window(LossWindow::new(window)),
            Congestion::Dctcp => Self::Dctcp(Box::new(Dctcp::new(window, first))),
            Congestion::Dcqcn(dcqcn) => Self::Dcqcn(Box::new(DcqcnRate::new(*dcqcn, window))),
        }
    }
}

macro_rules! forward {
    ($self:ident, $control:ident => $call:expr) => {
        match $self {
            Self::Fixed($control) => $call,
            Self::Window($control) => $call,
            Self::Dctcp($control) => $call,
            Self::Dcqcn($control) => $call,
        }
    };
}

impl Controller for Control {
    #[inline]
    fn window(&self) -> u32 {
        forward!(self, control => control.window())
    }

    #[inline]
    fn acknowledged(&mut self, ack: &Acknowledged) {
        forward!(self, control => control.acknowledged(ack));
    }

    fn lost(&mut self, sequence: SeqNumber, next: SeqNumber) {
        forward!(self, control => control.lost(sequence, next));
    }

    fn timed_out(&mut self) {
        forward!(self, control => control.timed_out());
    }

    fn notified(&mut self, unacknowledged: SeqNumber, next: SeqNumber, now: Instant) {
        forward!(self, control => control.notified(unacknowledged, next, now));
    }

    #[inline]
    fn departure(&self) -> Option<Instant> {
        forward!(self, control => control.departure())
    }

    #[inline]
    fn sent(&mut self, bytes: usize, now: Instant) {
        forward!(self, control => control.sent(bytes, now));
    }

    #[inline]
    fn advance(&mut self, now: Instant) {
        forward!(self, control => control.advance(now));
    }
}
