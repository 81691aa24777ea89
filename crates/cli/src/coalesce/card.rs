//! The driver of `coalesce`: passes a capture's frames to engines, one per interface, in the capture's time.

use nichrome_lro::verify::{Mismatch, Verified, Verifier};
use nichrome_lro::{Coalescer, ConfigError, Frame, Output, Packet, ProfileConfig};
use nichrome_port::capture::{Record, WriteError};
use nichrome_wire::{Engine, Instant, engine};

use super::captured::Captured;
use super::counters::Counters;
use super::host::Host;
use super::tally::Tally;
use crate::capture_files::{Capture, Interface};
use crate::engine_options::{EngineOptions, UdpByDefault};

/// Maximum number of engines: each reserves tens of megabytes. A further one replaces the engine whose interface was
/// idle for longest.
const ENGINES: usize = 32;

/// An interface with its engine.
struct Port {
    interface: Interface,
    engine: Coalescer<Captured>,
    verifier: Option<Verifier>,
    last_used: Instant,
}

/// The results of a run.
pub(super) struct Done {
    pub(super) counters: Counters,
    pub(super) tally: Tally,
}

/// The card with its ports and the host.
pub(super) struct Card<'a> {
    options: &'a EngineOptions,
    profile: ProfileConfig,
    verify: bool,
    host: Host,
    ports: Vec<Port>,
    now: Instant,
    counters: Counters,
    verified: Result<Verified, Mismatch>,
}

impl<'a> Card<'a> {
    pub(super) fn new(options: &'a EngineOptions, profile: ProfileConfig, verify: bool, host: Host) -> Self {
        Self {
            options,
            profile,
            verify,
            host,
            ports: Vec::new(),
            now: Instant::ZERO,
            counters: Counters::new(),
            verified: Ok(Verified::default()),
        }
    }

    /// Counts a frame that the filter excludes.
    pub(super) fn leave_out(&mut self) {
        self.counters.filtered += 1;
    }

    /// Receives a frame, the last record of a capture. Timestamps that go back are replaced by the last one.
    pub(super) fn receive(
        &mut self,
        record: &Record,
        bytes: Vec<u8>,
        capture: &Capture,
    ) -> anyhow::Result<()> {
        self.now = self.now.max(record.time);
        self.fire_timers(self.now);
        let index = self.port(Interface::of(record, &bytes), capture)?;
        let captured = Captured::new(record, bytes, capture.options());
        let Some(port) = self.ports.get_mut(index) else { return Ok(()) };
        port.last_used = self.now;
        self.counters.snapped += u64::from(captured.is_cut());
        self.host.tally.received(captured.as_ref(), port.interface.medium(), self.now);
        if captured.is_not_ip() {
            self.counters.pass_by(captured.link_header().len() as u64);
            let output = Output::ToHost(Packet::Frame(Frame::new(captured)));
            self.host.take(port.interface, self.now, &output);
            return Ok(self.host.check()?);
        }
        if let Some(verifier) = &mut port.verifier {
            verifier.received(captured.as_ref());
            verifier.observe_transmit(captured.as_ref());
        }
        // A capture contains both directions.
        port.engine.observe_transmit(captured.as_ref());
        let frame = Frame::new(captured);
        let (host, interface, verifier) = (&mut self.host, port.interface, &mut port.verifier);
        engine::deliver(&mut port.engine, frame, self.now, &mut |time, output| {
            hand_over(host, verifier.as_mut(), interface, time, &output);
        });
        Ok(self.host.check()?)
    }

    /// Fires every timer due at or before `now`, in time order over all ports.
    fn fire_timers(&mut self, now: Instant) {
        let due = |port: &mut Port| port.engine.poll_timeout().filter(|due| *due <= now);
        while let Some((due, port)) =
            self.ports.iter_mut().filter_map(|port| Some((due(port)?, port))).min_by_key(|(due, _)| *due)
        {
            let (host, interface, verifier) = (&mut self.host, port.interface, &mut port.verifier);
            engine::advance(&mut port.engine, due, &mut |time, output| {
                hand_over(host, verifier.as_mut(), interface, time, &output);
            });
        }
    }

    /// Returns the index of an interface's port, which is created on first use.
    fn port(&mut self, interface: Interface, capture: &Capture) -> Result<usize, ConfigError> {
        let same = |port: &Port| port.interface.is_same_link(interface);
        if let Some(index) = self.ports.iter().position(same) {
            return Ok(index);
        }
        if self.ports.len() >= ENGINES {
            self.retire_idlest();
        }
        let config = self.options.config(interface.medium(), UdpByDefault::Off);
        let verifier = self.verify.then(|| Verifier::new(self.profile.profile(), interface.medium()));
        let engine = Coalescer::new(&config, &self.profile)?;
        self.host.name(interface, capture.interface_name());
        self.ports.push(Port { interface, engine, verifier, last_used: self.now });
        Ok(self.ports.len() - 1)
    }

    fn retire_idlest(&mut self) {
        let ports = self.ports.iter().enumerate();
        if let Some((idlest, _)) = ports.min_by_key(|(_, port)| port.last_used) {
            let port = self.ports.swap_remove(idlest);
            self.retire(port);
        }
    }

    /// Flushes a port's engine and adds its counters to the totals.
    fn retire(&mut self, mut port: Port) {
        port.engine.drain();
        while let Some(output) = port.engine.poll() {
            hand_over(&mut self.host, port.verifier.as_mut(), port.interface, self.now, &output);
        }
        self.counters.add(port.engine.statistics());
        if let Some(verifier) = port.verifier
            && let Ok(sum) = &mut self.verified
        {
            match verifier.finish() {
                Ok(Verified { frames, flows, bytes }) => {
                    sum.frames += frames;
                    sum.flows += flows;
                    sum.bytes += bytes;
                }
                Err(mismatch) => self.verified = Err(mismatch),
            }
        }
    }

    /// Flushes everything and closes the captures. Returns the result of verification, if requested.
    pub(super) fn finish(mut self) -> Result<(Done, Option<Result<Verified, Mismatch>>), WriteError> {
        self.fire_timers(Instant::MAX);
        self.now = self.host.latest.max(self.now);
        while let Some(port) = self.ports.pop() {
            self.retire(port);
        }
        let done = Done { counters: self.counters, tally: self.host.finish()? };
        Ok((done, self.verify.then_some(self.verified)))
    }
}

/// Passes an output to the verifier, then to the host.
fn hand_over(
    host: &mut Host,
    verifier: Option<&mut Verifier>,
    interface: Interface,
    time: Instant,
    output: &Output<Captured>,
) {
    if let Some(verifier) = verifier {
        verifier.delivered(output);
    }
    host.take(interface, time, output);
}
