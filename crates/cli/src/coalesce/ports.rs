//! The ports of the card: an engine for each interface of a capture, and the deadlines of their timers.

use std::collections::{BTreeSet, HashMap};

use nichrome_lro::verify::Verifier;
use nichrome_lro::{Coalescer, Config};
use nichrome_wire::{Engine, Instant};

use super::captured::Captured;
use crate::capture_files::Interface;

/// Maximum number of ports. A further one replaces the port that was idle for longest.
pub(super) const MAX_PORTS: usize = 1024;

/// Number of ports whose engines have the configured size. Of the further ports, the engine of the `n`th has
/// `FULL_SIZE_PORTS / n` of that size, so that all engines together reserve about five times the memory of
/// these.
const FULL_SIZE_PORTS: usize = 16;

/// An interface with its engine.
pub(super) struct Port {
    pub(super) interface: Interface,
    pub(super) engine: Coalescer<Captured>,
    pub(super) verifier: Option<Verifier>,
    /// Time of the last received frame.
    pub(super) last_used: Instant,
    /// The engine's deadline as recorded in [`Ports`].
    due: Option<Instant>,
}

impl Port {
    pub(super) fn new(
        interface: Interface,
        engine: Coalescer<Captured>,
        verifier: Option<Verifier>,
        now: Instant,
    ) -> Self {
        Self { interface, engine, verifier, last_used: now, due: None }
    }
}

/// The ports, numbered from 0.
#[derive(Default)]
pub(super) struct Ports {
    ports: Vec<Port>,
    numbers: HashMap<Interface, usize>,
    /// The deadlines of the engines that have a timer.
    deadlines: BTreeSet<(Instant, usize)>,
}

impl Ports {
    /// Returns the number of an interface's port, if it has one.
    pub(super) fn number(&self, interface: Interface) -> Option<usize> {
        self.numbers.get(&interface).copied()
    }

    /// Returns the number for the next new port. If there are [`MAX_PORTS`], this is the number of the port
    /// that has been idle for longest, which the new one replaces.
    pub(super) fn next_number(&self) -> usize {
        let ports = self.ports.iter().enumerate();
        let idlest = ports.min_by_key(|(_, port)| port.last_used).map(|(number, _)| number);
        idlest.filter(|_| self.ports.len() >= MAX_PORTS).unwrap_or(self.ports.len())
    }

    /// Inserts a port with the [next number](Self::next_number); returns the port that it replaces.
    pub(super) fn insert(&mut self, number: usize, port: Port) -> Option<Port> {
        self.numbers.insert(port.interface, number);
        let Some(place) = self.ports.get_mut(number) else {
            self.ports.push(port);
            return None;
        };
        let replaced = std::mem::replace(place, port);
        self.numbers.remove(&replaced.interface);
        if let Some(due) = replaced.due {
            self.deadlines.remove(&(due, number));
        }
        Some(replaced)
    }

    /// Removes the last port.
    pub(super) fn pop(&mut self) -> Option<Port> {
        self.ports.pop()
    }

    /// Returns the earliest deadline up to `now`, with the number of its port.
    pub(super) fn due(&self, now: Instant) -> Option<(Instant, usize)> {
        self.deadlines.first().copied().filter(|(due, _)| *due <= now)
    }

    /// Calls `used` with a port, then records the new deadline of its engine.
    pub(super) fn with_port(&mut self, number: usize, used: impl FnOnce(&mut Port)) {
        let Some(port) = self.ports.get_mut(number) else { return };
        used(port);
        let due = port.engine.poll_timeout();
        if due != port.due {
            if let Some(before) = std::mem::replace(&mut port.due, due) {
                self.deadlines.remove(&(before, number));
            }
            self.deadlines.extend(due.map(|due| (due, number)));
        }
    }
}

/// Returns the configuration of port `number`'s engine.
pub(super) fn sized(config: Config, number: usize) -> Config {
    let part = |whole: usize| (whole * FULL_SIZE_PORTS / (number + 1)).clamp(1, whole);
    let [max_connections, max_aggregates] = [config.max_connections, config.max_aggregates].map(part);
    Config { max_connections, max_aggregates, ..config }
}
