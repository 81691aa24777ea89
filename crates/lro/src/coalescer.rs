//! One of the three engines, chosen at run time.

use nichrome_wire::{Engine, Instant};

use crate::config::{Config, ConfigError, Hold, Profile};
use crate::frame::Frame;
use crate::gro::Gro;
use crate::netfpga::{Netfpga, NetfpgaConfig};
use crate::npu::{Npu, NpuConfig};
use crate::outbox::Output;
use crate::stats::Statistics;

/// Which engine, with what only it is configured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileConfig {
    /// The `gro` profile with its hold time.
    Gro(Hold),
    /// The `netfpga` profile with its timer and flows.
    Netfpga(NetfpgaConfig),
    /// The `npu` profile with its rules.
    Npu(NpuConfig),
}

impl ProfileConfig {
    /// Which profile this configures.
    pub const fn profile(&self) -> Profile {
        match self {
            Self::Gro(_) => Profile::Gro,
            Self::Netfpga(_) => Profile::Netfpga,
            Self::Npu(_) => Profile::Npu,
        }
    }
}

/// An engine of any profile.
#[derive(Debug)]
pub enum Coalescer<B: AsRef<[u8]>> {
    /// Lossless.
    Gro(Box<Gro<B>>),
    /// The hardware module.
    Netfpga(Box<Netfpga<B>>),
    /// Reorders.
    Npu(Box<Npu<B>>),
}

/// Calls the same method of whichever engine it is.
macro_rules! each {
    ($coalescer:expr, $engine:ident => $call:expr) => {
        match $coalescer {
            Coalescer::Gro($engine) => $call,
            Coalescer::Netfpga($engine) => $call,
            Coalescer::Npu($engine) => $call,
        }
    };
}

impl<B: AsRef<[u8]>> Coalescer<B> {
    /// The engine of a profile.
    ///
    /// # Errors
    /// A value is out of its range.
    pub fn new(config: &Config, profile: &ProfileConfig) -> Result<Self, ConfigError> {
        Ok(match profile {
            ProfileConfig::Gro(hold) => Self::Gro(Box::new(Gro::new(config, *hold)?)),
            ProfileConfig::Netfpga(netfpga) => Self::Netfpga(Box::new(Netfpga::new(config, netfpga)?)),
            ProfileConfig::Npu(npu) => Self::Npu(Box::new(Npu::new(config, npu)?)),
        })
    }

    /// What the engine has done so far.
    pub fn statistics(&self) -> &Statistics {
        each!(self, engine => engine.statistics())
    }

    /// Hands on everything that is held, at the end of the traffic.
    pub fn drain(&mut self) {
        each!(self, engine => engine.drain());
    }

    /// Shows the engine a frame that the host sends; `npu` learns from it what active ACK may acknowledge.
    pub fn observe_transmit(&mut self, frame: &[u8]) {
        if let Self::Npu(npu) = self {
            npu.observe_transmit(frame);
        }
    }

    /// Tells the engine of a packet that the host did not take; `npu` then does not acknowledge it.
    pub fn observe_refusal(&mut self, packet: &[u8]) {
        if let Self::Npu(npu) = self {
            npu.observe_refusal(packet);
        }
    }

    /// Flows in the engine's table now: with `npu` the connections that it knows, otherwise those that hold segments.
    pub fn connections(&self) -> usize {
        each!(self, engine => engine.connections())
    }
}

impl<B: AsRef<[u8]>> Engine for Coalescer<B> {
    type Input = Frame<B>;
    type Output = Output<B>;

    #[inline]
    fn receive(&mut self, frame: Frame<B>, now: Instant) {
        each!(self, engine => engine.receive(frame, now));
    }

    #[inline]
    fn receive_batch(&mut self, frames: &mut Vec<Frame<B>>, now: Instant) {
        each!(self, engine => engine.receive_batch(frames, now));
    }

    #[inline]
    fn end_of_batch(&mut self, now: Instant) {
        each!(self, engine => engine.end_of_batch(now));
    }

    #[inline]
    fn poll(&mut self) -> Option<Output<B>> {
        each!(self, engine => engine.poll())
    }

    #[inline]
    fn poll_all(&mut self, outputs: &mut Vec<Output<B>>) {
        each!(self, engine => engine.poll_all(outputs));
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        each!(self, engine => engine.poll_timeout())
    }

    #[inline]
    fn handle_timeout(&mut self, now: Instant) {
        each!(self, engine => engine.handle_timeout(now));
    }
}
