//! The driver of `coalesce`: passes a capture's frames to engines, one per interface, in the capture's time.

use nichrome_lro::verify::{Mismatch, Verified, Verifier};
use nichrome_lro::{Coalescer, ConfigError, Frame, Output, Packet, ProfileConfig};
use nichrome_port::capture::{Record, WriteError};
use nichrome_wire::{Engine, Instant, engine};

use super::captured::Captured;
use super::counters::Counters;
use super::host::Host;
use super::ports::{self, Port, Ports};
use super::tally::Tally;
use crate::capture_files::{Capture, Interface};
use crate::engine_options::{EngineOptions, UdpByDefault};

/// The results of a run.
pub(super) struct RunResult {
    pub(super) counters: Counters,
    pub(super) tally: Tally,
}

/// The card with its ports and the host.
pub(super) struct Card<'a> {
    options: &'a EngineOptions,
    profile: ProfileConfig,
    verify: bool,
    host: Host,
    ports: Ports,
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
            ports: Ports::default(),
            now: Instant::ZERO,
            counters: Counters::new(),
            verified: Ok(Verified::default()),
        }
    }

    /// Counts a frame that the filter excludes.
    pub(super) fn leave_out(&mut self) {
        self.counters.filtered += 1;
    }

    /// Receives a frame, the record that was last read from `capture`. Replaces a timestamp that goes back by
    /// the previous one.
    pub(super) fn receive(
        &mut self,
        record: &Record,
        bytes: Vec<u8>,
        capture: &Capture,
    ) -> anyhow::Result<()> {
        self.now = self.now.max(record.time);
        self.fire_timers(self.now);
        let interface = Interface::of(record, &bytes);
        let captured_len = bytes.len() as u64;
        let captured = Captured::new(record, bytes, capture.options());
        self.counters.snapped += u64::from(captured.is_cut());
        self.host.tally.received(captured.as_ref(), interface.medium(), self.now);
        if captured.is_not_ip() {
            self.counters.pass_by(captured_len);
            self.host.name(interface, capture.interface_name());
            let output = Output::ToHost(Packet::Frame(Frame::new(captured)));
            self.host.take(interface, self.now, &output);
            return Ok(self.host.check()?);
        }
        let number = self.port(interface, capture)?;
        let (host, now) = (&mut self.host, self.now);
        self.ports.with_port(number, |port| {
            port.last_used = now;
            if let Some(verifier) = &mut port.verifier {
                verifier.received(captured.as_ref());
                verifier.observe_transmit(captured.as_ref());
            }
            // A capture contains both directions.
            port.engine.observe_transmit(captured.as_ref());
            engine::deliver(&mut port.engine, Frame::new(captured), now, &mut |time, output| {
                hand_over(host, port.verifier.as_mut(), interface, time, &output);
            });
        });
        Ok(self.host.check()?)
    }

    /// Fires every timer due at or before `now`, in time order over all ports.
    fn fire_timers(&mut self, now: Instant) {
        while let Some((due, number)) = self.ports.due(now) {
            let host = &mut self.host;
            self.ports.with_port(number, |port| {
                engine::advance(&mut port.engine, due, &mut |time, output| {
                    hand_over(host, port.verifier.as_mut(), port.interface, time, &output);
                });
            });
        }
    }

    /// Returns the number of an interface's port, which is created on first use.
    fn port(&mut self, interface: Interface, capture: &Capture) -> Result<usize, ConfigError> {
        if let Some(number) = self.ports.number(interface) {
            return Ok(number);
        }
        let number = self.ports.next_number();
        let config = ports::sized(self.options.config(interface.medium(), UdpByDefault::Off), number);
        let verifier = self.verify.then(|| Verifier::of(&self.profile, interface.medium()));
        let engine = Coalescer::new(&config, &self.profile)?;
        self.host.name(interface, capture.interface_name());
        if let Some(replaced) = self.ports.insert(number, Port::new(interface, engine, verifier, self.now)) {
            self.counters.replaced_engines += 1;
            self.retire(replaced);
        }
        Ok(number)
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
    pub(super) fn finish(mut self) -> Result<(RunResult, Option<Result<Verified, Mismatch>>), WriteError> {
        self.fire_timers(Instant::MAX);
        self.now = self.host.latest.max(self.now);
        while let Some(port) = self.ports.pop() {
            self.retire(port);
        }
        let done = RunResult { counters: self.counters, tally: self.host.finish()? };
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
