//! A constant window: no congestion control.

use nichrome_wire::{Instant, SeqNumber};

use super::controller::{Acknowledged, Controller, SendWindow};

/// A constant window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fixed {
    window: u32,
}

impl Fixed {
    pub(crate) fn new(window: &SendWindow) -> Self {
        Self { window: window.max }
    }
}

impl Controller for Fixed {
    fn window(&self) -> u32 {
        self.window
    }

    fn acknowledged(&mut self, _: &Acknowledged) {}

    fn lost(&mut self, _: SeqNumber, _: SeqNumber) {}

    fn timed_out(&mut self) {}

    fn notified(&mut self, _: SeqNumber, _: SeqNumber, _: Instant) {}
}
