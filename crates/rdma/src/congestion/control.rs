//! Selection of a connection's congestion controller.

use nichrome_wire::{Instant, SeqNumber};

use super::controller::{Acknowledged, Controller, SendWindow};
use super::dcqcn::{Dcqcn, DcqcnRate};
use super::dctcp::Dctcp;
use super::fixed::Fixed;
use super::window::LossWindow;

/// The congestion controller of a transport's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Congestion {
    /// Losses and CNPs halve the window. The default of RoCE.
    #[default]
    Window,
    /// DCTCP: the fraction of marked packets reduces the window. The default of StaR. With RoCE, both peers
    /// must be of this crate and use DCTCP: ACKs then echo marks, and no CNPs are sent.
    Dctcp,
    /// DCQCN: CNPs control a rate; losses halve the window.
    Dcqcn(Dcqcn),
    /// No congestion control: the window is always [`SendWindow::max`].
    None,
}

impl Congestion {
    /// Returns the parameters of DCQCN, if that is the controller.
    pub(crate) const fn dcqcn(&self) -> Option<&Dcqcn> {
        match self {
            Self::Dcqcn(dcqcn) => Some(dcqcn),
            Self::Window | Self::Dctcp | Self::None => None,
        }
    }
}

/// The controller of one connection.
#[derive(Clone, Debug)]
pub(crate) enum Control {
    Fixed(Fixed),
    Window(LossWindow),
    Dctcp(Box<Dctcp>),
    Dcqcn(Box<DcqcnRate>),
}

impl Control {
    /// Creates the controller of a connection whose first packet has sequence number `first`.
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
