//! One run: two hosts, a card and traffic.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use nichrome_lab::{Lab, MTU};
use nichrome_lro::{ActiveAck, Config, ProfileConfig};
use nichrome_port::{NetworkNamespace, Offloads};
use nichrome_wan::Impairments;

use super::summary::{Run, Traffic, Unsegmented};
use super::traffic::{Extent, RECEIVER, transfer};
use super::usage::{self, IpReceived};
use crate::copy_loop::CopyLoop;
use crate::shared_device::SharedDevice;
use crate::side::Side;
use crate::wan::{Host, veth_hosts};

/// Seed of the wire's random impairments.
pub(super) const SEED: u64 = 1;

/// The card between wire and host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Card {
    /// A card without receive offload.
    WithoutOffload,
    /// A card with receive offload.
    Nichrome(ProfileConfig),
    /// No card: the kernel's veth and GRO.
    KernelGro,
}

impl Card {
    /// Returns the name in reports.
    const fn name(&self) -> &'static str {
        match self {
            Self::WithoutOffload => "none",
            Self::Nichrome(profile) => profile.profile().name(),
            Self::KernelGro => "kernel-gro",
        }
    }

    const fn active_ack(&self) -> &'static str {
        match self {
            Self::Nichrome(ProfileConfig::Npu(npu)) => match npu.active_ack {
                ActiveAck::Off => "off",
                ActiveAck::Paper => "paper",
                ActiveAck::Safe => "safe",
            },
            _ => "off",
        }
    }
}

/// A planned run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) card: Card,
    pub(super) traffic: Traffic,
    pub(super) time: Duration,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {} connections", self.card.name(), self.traffic.connections())
    }
}

/// The receiving host's CPU use and counters at a point in time.
struct Mark {
    host_cpu: Duration,
    received: IpReceived,
    retransmits: u64,
}

impl Plan {
    /// Executes the run.
    pub(super) fn measure(&self, impairments: &[Impairments; 2]) -> anyhow::Result<Run> {
        match &self.card {
            Card::KernelGro => {
                let [left, right] = veth_hosts(MTU)?;
                self.transfer([&left, &right], impairments)
            }
            Card::WithoutOffload => self.measure_lab(impairments, None),
            Card::Nichrome(profile) => self.measure_lab(impairments, Some(*profile)),
        }
    }

    fn measure_lab(
        &self,
        impairments: &[Impairments; 2],
        profile: Option<ProfileConfig>,
    ) -> anyhow::Result<Run> {
        let lab = Lab::with_offload(impairments, SEED, Config::default(), profile)?;
        let run = self.transfer(Side::BOTH.map(|side| lab.host(side).namespace()), impairments);
        lab.stop()?;
        run
    }

    fn transfer(
        &self,
        [receiver, sender]: [&NetworkNamespace; 2],
        impairments: &[Impairments; 2],
    ) -> anyhow::Result<Run> {
        let mark = || -> anyhow::Result<Mark> {
            // Counts the kernel time of the delivering thread as the host's: it corresponds to the kernel's
            // interrupt handling. It includes reading the sending host's packets, just as the interrupts of
            // kernel GRO include the sender's.
            let interrupts = match self.card {
                Card::KernelGro => usage::of_soft_interrupts(),
                _ => usage::of_threads(Side::Left.name()).kernel,
            };
            Ok(Mark {
                host_cpu: interrupts + usage::of_threads(RECEIVER).total,
                received: receiver.run(usage::ip_received)?,
                retransmits: sender.run(usage::retransmits)?,
            })
        };
        let extent = Extent::new(self.time, impairments);
        let (received, [before, after]) =
            transfer([receiver, sender], Side::Left.ipv4(), self.traffic, extent, mark)?;
        let packets = after.received.packets - before.received.packets;
        let ip_bytes = after.received.bytes - before.received.bytes;
        let gigabytes = received.bytes() as f64 / 1e9;
        Ok(Run {
            profile: self.card.name(),
            active_ack: self.card.active_ack(),
            connections: self.traffic.connections(),
            traffic: self.traffic,
            gbps: gigabytes * 8.0 / received.time.as_secs_f64(),
            packets_to_host: packets,
            bytes_per_packet: ip_bytes as f64 / packets.max(1) as f64,
            host_cpu_s_per_gb: (after.host_cpu.saturating_sub(before.host_cpu)).as_secs_f64()
                / gigabytes.max(f64::MIN_POSITIVE),
            retransmits: after.retransmits - before.retransmits,
        })
    }
}

fn hosts() -> anyhow::Result<[Host; 2]> {
    let [left, right] = Side::BOTH;
    Ok([Host::new(left, MTU, Offloads::All)?, Host::new(right, MTU, Offloads::All)?])
}

/// Measures a loop that copies frames between the hosts unchanged.
pub(super) fn unsegmented(connections: usize, time: Duration) -> anyhow::Result<Unsegmented> {
    let hosts = hosts()?;
    let copying = CopyLoop::start(&hosts.each_ref().map(|host| Arc::clone(&host.tap) as SharedDevice))?;
    let traffic = Traffic::Bulk { connections };
    let namespaces = hosts.each_ref().map(Host::namespace);
    let extent = Extent::new(time, &Default::default());
    let (received, ..) = transfer(namespaces, Side::Left.ipv4(), traffic, extent, || Ok(()))?;
    copying.stop()?;
    let gbps = received.bytes() as f64 * 8.0 / received.time.as_secs_f64() / 1e9;
    Ok(Unsegmented { connections, gbps })
}
