//! The two hosts, with an emulated path or a veth pair between them.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use nichrome_port::{NetworkNamespace, Offloads};
use nichrome_wan::{Delay, Impairments};

use super::processors::{Processors, Role};
use crate::shared_device::SharedDevice;
use crate::side::Side;
use crate::wan::{Host, LivePath, Remote, Setup, veth_hosts};

/// The longest IP packet, in bytes.
const MTU: u32 = 1500;

/// The two hosts.
pub(super) enum Hosts {
    /// Two hosts with an emulated path between them.
    Wan(Box<Wan>),
    /// Two hosts on one wire: the kernel's veth pair.
    Lan([NetworkNamespace; 2]),
}

/// Two hosts with an emulated path between them.
pub(super) struct Wan {
    hosts: [Host; 2],
    path: LivePath,
    remote: Remote,
    impairments: [Impairments; 2],
}

impl Hosts {
    /// Creates hosts with a path between them that has these impairments besides its delay.
    pub(super) fn wan(
        impairments: &[Impairments; 2],
        seed: u64,
        processors: &Processors,
    ) -> anyhow::Result<Self> {
        let [left, right] = Side::BOTH;
        let hosts = [Host::new(left, MTU, Offloads::All)?, Host::new(right, MTU, Offloads::All)?];
        let setup = Setup {
            devices: hosts.each_ref().map(|host| Arc::clone(&host.tap) as SharedDevice),
            impairments,
            seed,
            recording: None,
        };
        let path = processors.on(Role::Path, || LivePath::start(&setup, || {}))?;
        let remote = path.remote();
        Ok(Self::Wan(Box::new(Wan { hosts, path, remote, impairments: impairments.clone() })))
    }

    /// Creates hosts on one wire.
    pub(super) fn lan() -> anyhow::Result<Self> {
        veth_hosts(MTU).map(Self::Lan)
    }

    /// Returns the namespace of a host's programs.
    pub(super) fn namespace(&self, side: Side) -> &NetworkNamespace {
        match self {
            Self::Wan(wan) => side.of(&wan.hosts).namespace(),
            Self::Lan(namespaces) => side.of(namespaces),
        }
    }

    /// Returns the address of a host.
    pub(super) const fn address(side: Side) -> Ipv4Addr {
        side.ipv4()
    }

    /// Sets the delay of packets that enter the path from now on; no effect on a wire.
    pub(super) fn set_delay(&self, delay: Duration) -> anyhow::Result<()> {
        let Self::Wan(wan) = self else { return Ok(()) };
        let delay = Delay::new(delay).context("the delay is too long")?;
        wan.impair(&wan.impairments.clone().map(|of| Impairments { delay, ..of }))
    }

    /// Stops the path and deletes the hosts.
    pub(super) fn close(self) -> anyhow::Result<()> {
        match self {
            Self::Wan(wan) => wan.path.stop().map(drop),
            Self::Lan(_) => Ok(()),
        }
    }
}

impl Wan {
    fn impair(&self, impairments: &[Impairments; 2]) -> anyhow::Result<()> {
        self.remote.impair(impairments)
    }
}
