//! The host interface of a card: a TAP device with one queue per worker, or one.

use std::sync::Arc;

use anyhow::bail;
use nichrome_port::{Interface, InterfaceName, Netlink, NetlinkError, Offloads, Settings, Tap, TapError};
use nichrome_wire::MacAddr;

use crate::engine_options::UdpByDefault;

/// Maximum MTU of a TAP device, in bytes.
const MAX_MTU: u32 = 65_521;

/// Returns the MTU of the host interface for a wire with this MTU.
pub(super) fn mtu(of_wire: u32) -> u32 {
    of_wire.min(MAX_MTU)
}

/// A host interface; deleted when all its queues are dropped.
pub(super) struct HostInterface {
    pub(super) interface: Interface,
    pub(super) queues: Vec<Arc<Tap>>,
}

impl HostInterface {
    /// Creates the interface, which is down.
    pub(super) fn new(
        netlink: &Netlink,
        name: InterfaceName,
        queues: usize,
        mac: Option<MacAddr>,
        mtu: u32,
    ) -> anyhow::Result<Self> {
        let queues = make_tap(netlink, name, Offloads::All, queues)?;
        let interface = netlink.interface(name)?;
        netlink.configure(&interface, Settings { mac, mtu: Some(self::mtu(mtu)), ..Settings::default() })?;
        Ok(Self { interface, queues: queues.into_iter().map(Arc::new).collect() })
    }

    /// Sets whether the interface has a carrier. Does nothing if it is gone, which ends the card.
    pub(super) fn set_carrier(&self, carrier: bool) {
        let _ = self.queues.first().map(|queue| queue.set_carrier(carrier));
    }

    /// Returns true if the kernel accepts coalesced UDP datagrams.
    pub(super) fn udp_by_default(&self) -> UdpByDefault {
        let accepted = self.queues.iter().all(|queue| queue.takes_merged_udp());
        if accepted { UdpByDefault::On } else { UdpByDefault::Off }
    }
}

/// Creates a TAP device; its name must be unused.
pub(super) fn make_tap(
    netlink: &Netlink,
    name: InterfaceName,
    offloads: Offloads,
    queues: usize,
) -> anyhow::Result<Vec<Tap>> {
    match netlink.interface(name) {
        Ok(_) => {
            bail!("there is an interface called {name} already: choose another name ('ip link' lists them)")
        }
        Err(NetlinkError::NoInterface(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let taps: Result<_, TapError> = Tap::with_queues(name, offloads, queues);
    Ok(taps?)
}
