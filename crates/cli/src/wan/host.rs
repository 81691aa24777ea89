//! A host at one end of the path: a network namespace with one interface, whose wire is this program.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::side::Side;
use anyhow::Context;
use nichrome_port::{Counters, InterfaceName, Netlink, NetworkNamespace, NoIpv6, Offloads, Settings, Tap};
use nichrome_wire::MacAddr;

/// Transmit queue of the interface in packets; the kernel drops packets beyond.
const QUEUE_LEN: u32 = 20_000;

/// Name of the hosts' interface.
const INTERFACE: &str = "wan";

/// Environment variables and their values.
pub(crate) type Variables = BTreeMap<&'static str, String>;

/// A host; removed after it is dropped and its programs have ended.
pub(crate) struct Host {
    namespace: NetworkNamespace,
    interface: InterfaceName,
    /// The wire end of its interface.
    pub(crate) tap: Arc<Tap>,
    /// Whether it has an IPv6 address besides the IPv4 address.
    pub(crate) ipv6: Result<(), NoIpv6>,
    side: Side,
}

impl Host {
    /// Creates the host on `side` of the path, with an interface MTU of `mtu` bytes. Without IPv6 if the kernel has
    /// none.
    pub(crate) fn new(side: Side, mtu: u32, offloads: Offloads) -> anyhow::Result<Self> {
        let namespace = NetworkNamespace::new()?;
        let interface = INTERFACE.parse()?;
        let (tap, ipv6) = namespace.run(|| connect(side, interface, mtu, offloads))??;
        Ok(Self { namespace, interface, tap: Arc::new(tap), ipv6, side })
    }

    /// Returns its end of the path.
    pub(crate) const fn side(&self) -> Side {
        self.side
    }

    /// Returns its network namespace.
    pub(crate) const fn namespace(&self) -> &NetworkNamespace {
        &self.namespace
    }

    /// Runs `work` on a thread in its network namespace.
    pub(crate) fn run<T>(&self, work: impl FnOnce() -> T) -> anyhow::Result<T> {
        Ok(self.namespace.run(work)?)
    }

    /// Returns the environment variables for programs on the host; those for IPv6 are empty without IPv6.
    pub(crate) fn variables(&self) -> Variables {
        variables(self.side, self.ipv6.is_ok())
    }

    /// Returns the kernel's counters of the interface.
    pub(crate) fn counters(&self) -> anyhow::Result<Counters> {
        self.run(|| Ok(Netlink::open()?.interface(self.interface)?.counters))?
    }
}

/// Returns the environment variables for programs on the host on `side`; those for IPv6 are empty without IPv6.
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

/// Returns the IPv4 address of the host on `side`.
pub(crate) const fn ipv4(side: Side) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, side.number())
}

/// Returns the IPv6 address of the host on `side`.
pub(crate) const fn ipv6(side: Side) -> Ipv6Addr {
    Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, side.number() as u16)
}

const fn mac(side: Side) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, side.number()])
}

/// Configures the interface in this thread's namespace. Neighbours are static: only packets of programs pass the path,
/// and connections do not wait for address resolution.
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
