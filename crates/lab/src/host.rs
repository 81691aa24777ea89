//! A host at one end of the path: a network namespace with one interface, whose wire is this program.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use nichrome_port::{Counters, InterfaceName, Netlink, NetworkNamespace, NoIpv6, Offloads, Settings, Tap};
use nichrome_wire::MacAddr;

use crate::error::LabError;
use crate::side::Side;

/// Transmit queue of the interface in packets; the kernel drops packets beyond.
const QUEUE_LEN: u32 = 20_000;

/// Name of the hosts' interface.
const INTERFACE: &str = "wan";

/// Pairs of environment variable and value.
pub type Variables = BTreeMap<&'static str, String>;

/// A host. The kernel removes it after the drop, when its programs have ended.
pub struct Host {
    namespace: NetworkNamespace,
    interface: InterfaceName,
    /// The wire end of its interface.
    pub tap: Arc<Tap>,
    /// `Ok` if the interface has an IPv6 address besides the IPv4 address, else the reason why not.
    pub ipv6: Result<(), NoIpv6>,
    side: Side,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("side", &self.side).finish_non_exhaustive()
    }
}

impl Host {
    /// Creates the host on `side` of the path, with an interface MTU of `mtu` bytes; without IPv6 if the
    /// kernel has none.
    ///
    /// # Errors
    /// The kernel refuses the namespace or the interface.
    pub fn new(side: Side, mtu: u32, offloads: Offloads) -> Result<Self, LabError> {
        let namespace = NetworkNamespace::new()?;
        let interface = INTERFACE.parse::<InterfaceName>()?;
        let (tap, ipv6) = namespace.run(|| connect(side, interface, mtu, offloads))??;
        Ok(Self { namespace, interface, tap: Arc::new(tap), ipv6, side })
    }

    /// Returns the host's end of the path.
    pub const fn side(&self) -> Side {
        self.side
    }

    /// Returns the host's network namespace.
    pub const fn namespace(&self) -> &NetworkNamespace {
        &self.namespace
    }

    /// Runs `work` on a thread in the host's network namespace. Its sockets, threads and child processes
    /// belong to the host.
    ///
    /// # Errors
    /// The thread cannot enter the namespace.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> Result<T, LabError> {
        Ok(self.namespace.run(work)?)
    }

    /// Returns the environment variables for programs on the host; those for IPv6 are empty without IPv6.
    pub fn variables(&self) -> Variables {
        variables(self.side, self.ipv6.is_ok())
    }

    /// Returns the kernel's counters of the interface.
    ///
    /// # Errors
    /// Netlink fails.
    pub fn counters(&self) -> Result<Counters, LabError> {
        self.run(|| Ok(Netlink::open()?.interface(self.interface)?.counters))?
    }
}

/// Returns the environment variables for programs on the host on `side`; those for IPv6 are empty without
/// IPv6.
pub fn variables(side: Side, has_ipv6: bool) -> Variables {
    let (here, peer) = (side, side.other());
    let ipv6 = |side: Side| if has_ipv6 { side.ipv6().to_string() } else { String::new() };
    [
        ("PEER", peer.ipv4().to_string()),
        ("PEER6", ipv6(peer)),
        ("SELF", here.ipv4().to_string()),
        ("SELF6", ipv6(here)),
    ]
    .into()
}

const fn mac(side: Side) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, side.number()])
}

/// Configures the interface, in this thread's namespace. Neighbours are static: only packets of programs
/// cross the path, and connections need no address resolution.
fn connect(
    side: Side,
    name: InterfaceName,
    mtu: u32,
    offloads: Offloads,
) -> Result<(Tap, Result<(), NoIpv6>), LabError> {
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
    let v4 = (IpAddr::V4(side.ipv4()), IpAddr::V4(peer.ipv4()), 24);
    let v6 = (IpAddr::V6(side.ipv6()), IpAddr::V6(peer.ipv6()), 64);
    for (ours, theirs, prefix_len) in [Some(v4), with_ipv6.is_ok().then_some(v6)].into_iter().flatten() {
        let add = || {
            netlink.add_address(&interface, ours, prefix_len)?;
            netlink.add_neighbour(&interface, theirs, mac(peer))
        };
        add().map_err(|error| LabError::Address { side: side.name(), error })?;
    }
    Ok((tap, with_ipv6))
}
