//! One of the three engines, chosen at run time.

use nichrome_wire::{Engine, Instant};

use crate::config::{Config, ConfigError, Hold, Profile};
use crate::frame::Frame;
use crate::gro::Gro;
use crate::netfpga::{Netfpga, NetfpgaConfig};
use crate::npu::{Npu, NpuConfig};
use crate::outbox::Output;
use crate::stats::Statistics;

/// A profile and its own configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProfileConfig {
    /// The `gro` profile with its hold time.
    Gro(Hold),
    /// The `netfpga` profile with its timer and number of flows.
    Netfpga(NetfpgaConfig),
    /// The `npu` profile with its rules.
    Npu(NpuConfig),
}

impl ProfileConfig {
    /// Returns the profile.
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

/// Calls a method of the engine inside.
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
    /// Creates the engine of a profile.
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

    /// Returns the counters since the engine was created.
    pub fn statistics(&self) -> &Statistics {
        each!(self, engine => engine.statistics())
    }

    /// Flushes all flows, at the end of the traffic.
    pub fn drain(&mut self) {
        each!(self, engine => engine.drain());
    }

    /// Flushes the flows that have held segments the longest, until this number of frames has left or none is
    /// held: for a driver that runs low on buffers.
    pub fn drain_oldest(&mut self, frames: usize) {
        each!(self, engine => engine.drain_oldest(frames));
    }

    /// Shows the engine a frame that the host transmits. From the host's ACK number and window, `npu` learns
    /// what active ACK may acknowledge.
    pub fn observe_transmit(&mut self, frame: &[u8]) {
        if let Self::Npu(npu) = self {
            npu.observe_transmit(frame);
        }
    }

    /// Reports a packet that the host refused; `npu` then does not acknowledge its bytes.
    pub fn observe_refusal(&mut self, packet: &[u8]) {
        if let Self::Npu(npu) = self {
            npu.observe_refusal(packet);
        }
    }

    /// Returns the number of flows in the engine's table: with `npu` those with a descriptor or with held
    /// segments, else those that hold segments.
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
