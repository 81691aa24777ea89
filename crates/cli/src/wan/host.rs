//! A host at one end of the path: a network namespace with one interface, the wire of which is this program.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::side::Side;
use anyhow::Context;
use nichrome_port::{Counters, InterfaceName, Netlink, NetworkNamespace, NoIpv6, Offloads, Settings, Tap};
use nichrome_wire::MacAddr;

/// Frames that wait for us: the kernel drops what comes while there are as many.
const QUEUE_LEN: u32 = 20_000;

/// What the interface of each host is called.
const INTERFACE: &str = "wan";

/// Environment variables and their values.
pub(crate) type Variables = BTreeMap<&'static str, String>;

/// A host. It goes when this and the programs in it are gone.
pub(crate) struct Host {
    namespace: NetworkNamespace,
    interface: InterfaceName,
    /// The other end of its interface.
    pub(crate) tap: Arc<Tap>,
    /// Whether it has an IPv6 address beside that of IPv4.
    pub(crate) ipv6: Result<(), NoIpv6>,
    side: Side,
}

impl Host {
    /// Makes the host on `side` of the path. Its interface takes IP packets of up to `mtu` bytes. It has no IPv6 where
    /// the kernel has none.
    pub(crate) fn new(side: Side, mtu: u32, offloads: Offloads) -> anyhow::Result<Self> {
        let namespace = NetworkNamespace::new()?;
        let interface = INTERFACE.parse()?;
        let (tap, ipv6) = namespace.run(|| connect(side, interface, mtu, offloads))??;
        Ok(Self { namespace, interface, tap: Arc::new(tap), ipv6, side })
    }

    /// Which end of the path it is at.
    pub(crate) const fn side(&self) -> Side {
        self.side
    }

    /// Where its programs run.
    pub(crate) const fn namespace(&self) -> &NetworkNamespace {
        &self.namespace
    }

    /// Runs `work` on a thread that is on this host.
    pub(crate) fn run<T>(&self, work: impl FnOnce() -> T) -> anyhow::Result<T> {
        Ok(self.namespace.run(work)?)
    }

    /// What programs on the host are told: nothing where there is no IPv6.
    pub(crate) fn variables(&self) -> Variables {
        variables(self.side, self.ipv6.is_ok())
    }

    /// What the kernel has counted at the host's interface.
    pub(crate) fn counters(&self) -> anyhow::Result<Counters> {
        self.run(|| Ok(Netlink::open()?.interface(self.interface)?.counters))?
    }
}

/// The environment variables of programs on the host on `side`. Those of IPv6 are empty where the machine has none.
pub(super) fn variables(side: Side, has_ipv6: bool) -> Variables {
    let (here, peer) = (side, side.other());
    let ipv6 = |side| if has_ipv6 { ipv6(side).to_string() } else { String::new() };
    [
        ("PEER", ipv4(peer).to_string()),
        ("PEER6", ipv6(peer)),
        ("SELF", ipv4(here).to_string()),
        ("SELF6", ipv6(here)),
    ]
    .into()
}

/// The IPv4 address of the host on `side`.
pub(crate) const fn ipv4(side: Side) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, side.number())
}

/// The IPv6 address of the host on `side`.
pub(crate) const fn ipv6(side: Side) -> Ipv6Addr {
    Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, side.number() as u16)
}

const fn mac(side: Side) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, side.number()])
}

/// Gives the namespace of this thread its interface. Everybody knows everybody: what crosses the path is only what
/// programs send, and no connection waits for its neighbour to be found over the whole path.
fn connect(
    side: Side,
    name: InterfaceName,
    mtu: u32,
    offloads: Offloads,
) -> anyhow::Result<(Tap, Result<(), NoIpv6>)> {
    let tap = Tap::new(name, offloads)?;
    let netlink = Netlink::open()?;
    let loopback = netlink.interface("lo".parse()?)?;
    netlink.set_up(&loopback)?;
    let interface = netlink.interface(name)?;
    let settings = Settings { mac: Some(mac(side)), mtu: Some(mtu), queue_len: Some(QUEUE_LEN) };
    netlink.configure(&interface, settings)?;
    netlink.silence(&interface)?;
    netlink.set_up(&interface)?;
    netlink.wait_until_running(&interface)?;
    let with_ipv6 = netlink.interface(name)?.check_ipv6();
    let peer = side.other();
    let v4 = (IpAddr::V4(ipv4(side)), IpAddr::V4(ipv4(peer)), 24);
    let v6 = (IpAddr::V6(ipv6(side)), IpAddr::V6(ipv6(peer)), 64);
    for (ours, theirs, prefix_len) in [Some(v4), with_ipv6.is_ok().then_some(v6)].into_iter().flatten() {
        let add = || {
            netlink.add_address(&interface, ours, prefix_len)?;
            netlink.add_neighbour(&interface, theirs, mac(peer))
        };
        add().with_context(|| format!("the host on the {}", side.name()))?;
    }
    Ok((tap, with_ipv6))
}
