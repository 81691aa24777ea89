//! The interface that a card has on its host: a TAP device with a queue for each worker, or one.

use std::sync::Arc;

use anyhow::bail;
use nichrome_port::{
    Interface, InterfaceName, Netlink, NetlinkError, Offloads, Reception, Settings, Tap, TapError,
};
use nichrome_wire::MacAddr;

use crate::engine_options::UdpByDefault;

/// The longest IP packet that a TAP device takes, in bytes.
const MAX_MTU: u32 = 65_521;

/// The MTU of a host's interface behind a wire of this one.
pub(super) fn mtu(of_wire: u32) -> u32 {
    of_wire.min(MAX_MTU)
}

/// A host's interface. It goes when all its queues are dropped.
pub(super) struct HostInterface {
    pub(super) interface: Interface,
    pub(super) queues: Vec<Arc<Tap>>,
}

impl HostInterface {
    /// Makes the interface, which is down.
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

    /// Whether UDP datagrams are coalesced where no option says so.
    pub(super) fn udp_by_default(&self) -> UdpByDefault {
        let accepted = self.queues.iter().all(|queue| queue.takes_merged_udp());
        if accepted { UdpByDefault::On } else { UdpByDefault::Off }
    }
}

/// Makes a TAP device, the name of which must be free.
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
    let taps: Result<_, TapError> = Tap::with_queues(name, offloads, Reception::Direct, queues);
    Ok(taps?)
}
