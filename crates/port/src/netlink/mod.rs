//! Interfaces, addresses and neighbours via rtnetlink(7), in the network namespace of the thread that opens
//! the socket.

mod error;
mod exchange;

use std::fmt;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::thread;
use std::time::Duration;

use netlink_packet_core::{DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoPortKind, InfoVeth, LinkAttribute,
    LinkFlags, LinkInfo, LinkMessage, LinkXdp, Prop,
};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, neighbour::NeighbourAddress};
use nichrome_wire::MacAddr;

pub use self::error::NetlinkError;
use self::exchange::Exchange;
use crate::clock;
use crate::interface_name::InterfaceName;
use crate::namespace::NetworkNamespace;

/// How long an interface that is up may take to get IFF_RUNNING. The kernel updates the flag once per second
/// at most, under a lock that the removal of network namespaces holds, too.
const CARRIER_LIMIT: Duration = Duration::from_secs(10);

/// The attribute of an alternative name (linux/if_link.h), which the crate netlink-packet-route has in
/// property lists only.
const IFLA_ALT_IFNAME: u16 = 53;

/// How long the kernel may take to accept packets for a new address. With IPv6 a kernel thread does it under
/// a lock that the removal of network namespaces holds, too.
const ADDRESS_LIMIT: Duration = Duration::from_secs(10);

/// A snapshot of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The interface index.
    pub index: u32,
    /// The name.
    pub name: InterfaceName,
    /// The link type (an `ARPHRD_` number, linux/if_arp.h).
    pub link_type: u16,
    /// The MAC address; `None` for other link types than Ethernet.
    pub mac: Option<MacAddr>,
    /// The MTU, in bytes.
    pub mtu: u32,
    /// True if administratively up (IFF_UP).
    pub up: bool,
    /// True if up and with carrier, as far as the kernel has noticed (IFF_RUNNING).
    pub running: bool,
    /// True if the interface uses ARP.
    pub arp: bool,
    /// True for interfaces without hardware (veth, bridge, tun, …), whose frames may come from local senders
    /// with unfinished checksums.
    pub is_virtual: bool,
    /// Index of the bridge, bond, … that the interface is a port of.
    pub controller: Option<u32>,
    /// True for a port of a bridge (bridge, Open vSwitch), which forwards received frames.
    pub is_bridged: bool,
    /// ID of the attached XDP program.
    pub xdp_program: Option<u32>,
    /// Traffic counters.
    pub counters: Counters,
}

/// Traffic counters of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets received.
    pub received: u64,
    /// Packets sent.
    pub sent: u64,
    /// Received packets dropped.
    pub receive_dropped: u64,
    /// Sent packets dropped, including those that found the queue full.
    pub send_dropped: u64,
}

/// Settings of a new interface; `None` keeps the kernel's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The MAC address.
    pub mac: Option<MacAddr>,
    /// The MTU, in bytes.
    pub mtu: Option<u32>,
    /// Length of the transmit queue, in packets.
    pub queue_len: Option<u32>,
}

/// An rtnetlink socket.
pub struct Netlink(Exchange);

impl fmt::Debug for Netlink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Netlink").finish_non_exhaustive()
    }
}

impl Netlink {
    /// Opens a socket in the network namespace of this thread.
    pub fn open() -> Result<Self, NetlinkError> {
        Exchange::open().map(Self)
    }

    /// Looks up an interface by its name or an alternative name (altname, `ip link property`). The result has
    /// the interface's own name.
    pub fn interface(&self, name: InterfaceName) -> Result<Interface, NetlinkError> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_string()));
        self.look_up(message, name)?.ok_or(NetlinkError::NoInterface(name))
    }

    /// Returns the name of the interface that has this alternative name, which may be longer than an
    /// interface name; `None` if there is none.
    ///
    /// # Errors
    /// The kernel's: before Linux 5.5 there are no alternative names.
    pub fn name_of_alternative(&self, alternative: &str) -> Result<Option<InterfaceName>, NetlinkError> {
        let mut message = LinkMessage::default();
        let value = [alternative.as_bytes(), &[0]].concat();
        message.attributes.push(LinkAttribute::Other(DefaultNla::new(IFLA_ALT_IFNAME, value)));
        let Some(link) = self.look_up_link(message, alternative)? else { return Ok(None) };
        let name = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => name.parse().ok(),
            _ => None,
        });
        Ok(name)
    }

    /// Gives an interface an alternative name of up to 127 bytes, which exists as long as the interface.
    /// Returns false if an interface has that name already.
    ///
    /// # Errors
    /// As [`Self::name_of_alternative`].
    pub fn add_alternative_name(
        &self,
        interface: &Interface,
        alternative: &str,
    ) -> Result<bool, NetlinkError> {
        let mut message = link(interface);
        message.attributes.push(LinkAttribute::PropList(vec![Prop::AltIfName(alternative.into())]));
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        let what = || format!("give {} the alternative name {alternative}", interface.name);
        match self.command(RouteNetlinkMessage::NewLinkProp(message), flags, what) {
            Ok(()) => Ok(true),
            Err(NetlinkError::Refused { error, .. }) if error.raw_os_error() == Some(libc::EEXIST) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Looks up an interface again, by its index: its name may have changed. `None` if it is gone.
    pub fn refresh(&self, known: &Interface) -> Result<Option<Interface>, NetlinkError> {
        self.look_up(link(known), known.name)
    }

    /// Looks up the interface that `message` describes, which was called `name`; `None` if there is none.
    fn look_up(&self, message: LinkMessage, name: InterfaceName) -> Result<Option<Interface>, NetlinkError> {
        let link = self.look_up_link(message, name.as_str())?;
        Ok(link.map(|link| interface(name, &link)))
    }

    fn look_up_link(&self, message: LinkMessage, name: &str) -> Result<Option<LinkMessage>, NetlinkError> {
        let what = || format!("look up the interface {name}");
        match self.0.request(RouteNetlinkMessage::GetLink(message), 0, what) {
            Ok(Some(RouteNetlinkMessage::NewLink(link))) => Ok(Some(link)),
            Ok(_) => Err(NetlinkError::Answer { what: what() }),
            Err(NetlinkError::Refused { error, .. }) if error.raw_os_error() == Some(libc::ENODEV) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Sets the MAC address, MTU and transmit queue length of an interface.
    pub fn configure(&self, interface: &Interface, settings: Settings) -> Result<(), NetlinkError> {
        let mac = settings.mac.map(|mac| LinkAttribute::Address(mac.0.to_vec()));
        let mtu = settings.mtu.map(LinkAttribute::Mtu);
        let queue_len = settings.queue_len.map(LinkAttribute::TxQueueLen);
        let mut message = link(interface);
        message.attributes.extend([mac, mtu, queue_len].into_iter().flatten());
        self.set(interface, message)
    }

    /// Stops the kernel from sending packets of its own on an interface: disables ARP (see
    /// [`Self::add_neighbour`]) and IPv6 link-local addresses, which would cause multicast and neighbour
    /// discovery.
    pub fn silence(&self, interface: &Interface) -> Result<(), NetlinkError> {
        let mut message = link(interface);
        let no_address = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        message.attributes.push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![no_address])]));
        match self.set(interface, message) {
            // The kernel has no IPv6.
            Err(NetlinkError::Refused { error, .. }) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {}
            done => done?,
        }
        self.disable_arp(interface)
    }

    /// Sets an interface up.
    pub fn set_up(&self, interface: &Interface) -> Result<(), NetlinkError> {
        self.set_flags(interface, LinkFlags::Up, LinkFlags::Up)
    }

    /// Sets an interface down.
    pub fn set_down(&self, interface: &Interface) -> Result<(), NetlinkError> {
        self.set_flags(interface, LinkFlags::empty(), LinkFlags::Up)
    }

    /// Enables ARP on an interface.
    pub fn enable_arp(&self, interface: &Interface) -> Result<(), NetlinkError> {
        self.set_flags(interface, LinkFlags::empty(), LinkFlags::Noarp)
    }

    /// Undoes [`Self::enable_arp`].
    pub fn disable_arp(&self, interface: &Interface) -> Result<(), NetlinkError> {
        self.set_flags(interface, LinkFlags::Noarp, LinkFlags::Noarp)
    }

    /// Waits up to 10 s until an interface that is up also has IFF_RUNNING.
    pub fn wait_until_running(&self, interface: &Interface) -> Result<(), NetlinkError> {
        let running = wait_until(CARRIER_LIMIT, || Ok(self.interface(interface.name)?.running))?;
        if running { Ok(()) } else { Err(NetlinkError::NoCarrier(interface.name)) }
    }

    /// Adds an address with a prefix of `prefix_len` bits to a running interface. Waits up to 10 s until the
    /// kernel accepts packets for the address, which takes a moment with IPv6.
    pub fn add_address(
        &self,
        interface: &Interface,
        address: IpAddr,
        prefix_len: u8,
    ) -> Result<(), NetlinkError> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix_len;
        message.header.index = interface.index;
        message.header.flags = AddressHeaderFlags::Nodad;
        message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        let what = || format!("give {} the address {address}/{prefix_len}", interface.name);
        self.command(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL, what)?;
        wait_until(ADDRESS_LIMIT, || self.is_local(address))?
            .then_some(())
            .ok_or_else(|| NetlinkError::Answer { what: what() })
    }

    /// Returns the addresses of an interface without link-local ones.
    pub fn addresses(&self, interface: &Interface) -> Result<Vec<IpAddr>, NetlinkError> {
        let what = || format!("list the addresses of {}", interface.name);
        let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let ours = |message: RouteNetlinkMessage| match message {
            RouteNetlinkMessage::NewAddress(of) if of.header.index == interface.index => {
                own_address(&of.attributes).filter(|address| !is_link_local(address))
            }
            _ => None,
        };
        Ok(self.0.list(&request, what)?.into_iter().filter_map(ours).collect())
    }

    /// Returns true if the routing table delivers packets for `address` locally.
    fn is_local(&self, address: IpAddr) -> Result<bool, NetlinkError> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(address);
        message.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
        message.attributes = vec![RouteAttribute::Destination(route_address(address))];
        let what = || format!("look up the route to {address}");
        match self.0.request(RouteNetlinkMessage::GetRoute(message), 0, what) {
            Ok(Some(RouteNetlinkMessage::NewRoute(route))) => Ok(route.header.kind == RouteType::Local),
            Ok(_) => Err(NetlinkError::Answer { what: what() }),
            Err(NetlinkError::Refused { error, .. }) if error.raw_os_error() == Some(libc::ENETUNREACH) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Adds a permanent neighbour entry: the MAC address of `address`.
    pub fn add_neighbour(
        &self,
        interface: &Interface,
        address: IpAddr,
        mac: MacAddr,
    ) -> Result<(), NetlinkError> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = interface.index;
        message.header.state = NeighbourState::Permanent;
        message.header.kind = RouteType::Unicast;
        let destination = match address {
            IpAddr::V4(address) => NeighbourAddress::Inet(address),
            IpAddr::V6(address) => NeighbourAddress::Inet6(address),
        };
        message.attributes = vec![
            NeighbourAttribute::Destination(destination),
            NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()),
        ];
        self.command(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE, || {
            format!("add a neighbour entry on {} for {address}", interface.name)
        })
    }

    /// Adds a default route via `gateway`.
    pub fn add_default_route(&self, interface: &Interface, gateway: IpAddr) -> Result<(), NetlinkError> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(gateway);
        message.header.table = libc::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = RouteScope::Universe;
        message.header.kind = RouteType::Unicast;
        message.attributes =
            vec![RouteAttribute::Oif(interface.index), RouteAttribute::Gateway(route_address(gateway))];
        self.command(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL, || {
            format!("add a default route via {gateway} on {}", interface.name)
        })
    }

    /// Creates a veth(4) pair: `name` in this namespace, `peer_name` in `there`.
    pub fn add_veth(
        &self,
        name: InterfaceName,
        peer_name: InterfaceName,
        there: &NetworkNamespace,
    ) -> Result<(), NetlinkError> {
        let mut peer = LinkMessage::default();
        peer.attributes = vec![
            LinkAttribute::IfName(peer_name.to_string()),
            LinkAttribute::NetNsFd(there.as_fd().as_raw_fd()),
        ];
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(name.to_string()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
            ]),
        ];
        self.command(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL, || {
            format!("create the interfaces {name} and {peer_name}")
        })
    }

    /// Deletes an interface.
    pub fn delete(&self, interface: &Interface) -> Result<(), NetlinkError> {
        self.command(RouteNetlinkMessage::DelLink(link(interface)), 0, || {
            format!("delete {}", interface.name)
        })
    }

    /// Sets the interface flags in `mask` to their values in `flags`.
    fn set_flags(
        &self,
        interface: &Interface,
        flags: LinkFlags,
        mask: LinkFlags,
    ) -> Result<(), NetlinkError> {
        let mut message = link(interface);
        message.header.flags = flags;
        message.header.change_mask = mask;
        self.set(interface, message)
    }

    fn set(&self, interface: &Interface, message: LinkMessage) -> Result<(), NetlinkError> {
        self.command(RouteNetlinkMessage::SetLink(message), 0, || format!("configure {}", interface.name))
    }

    /// Sends a request and waits for its acknowledgement.
    fn command(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
        what: impl Fn() -> String,
    ) -> Result<(), NetlinkError> {
        self.0.request(message, NLM_F_ACK | flags, what).map(drop)
    }
}

/// Returns the local address: `IFA_LOCAL`, or `IFA_ADDRESS` for an IPv6 address without a peer, which has no
/// `IFA_LOCAL`. On a point-to-point interface, `IFA_ADDRESS` is the peer's address.
fn own_address(attributes: &[AddressAttribute]) -> Option<IpAddr> {
    let local = attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    local.or_else(|| {
        attributes.iter().find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
    })
}

pub(crate) fn is_link_local(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Returns a link message for `interface` without any change.
fn link(interface: &Interface) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = interface.index;
    message
}

fn interface(name: InterfaceName, link: &LinkMessage) -> Interface {
    let mut interface = Interface {
        index: link.header.index,
        name,
        link_type: link.header.link_layer_type.into(),
        mac: None,
        mtu: 0,
        up: link.header.flags.contains(LinkFlags::Up),
        running: link.header.flags.contains(LinkFlags::Running),
        arp: !link.header.flags.contains(LinkFlags::Noarp),
        is_virtual: false,
        controller: None,
        is_bridged: false,
        xdp_program: None,
        counters: Counters::default(),
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(own) => interface.name = own.parse().unwrap_or(name),
            LinkAttribute::Address(bytes) => interface.mac = bytes.as_slice().try_into().ok().map(MacAddr),
            LinkAttribute::Mtu(mtu) => interface.mtu = *mtu,
            LinkAttribute::Controller(index) => {
                interface.controller = Some(*index).filter(|index| *index > 0);
            }
            LinkAttribute::LinkInfo(infos) => {
                interface.is_virtual = infos.iter().any(|info| matches!(info, LinkInfo::Kind(_)));
                interface.is_bridged = infos.iter().any(is_bridge_port);
            }
            LinkAttribute::Xdp(attributes) => interface.xdp_program = xdp_program(attributes),
            LinkAttribute::Stats64(stats) => {
                interface.counters = Counters {
                    received: stats.rx_packets,
                    sent: stats.tx_packets,
                    receive_dropped: stats.rx_dropped,
                    send_dropped: stats.tx_dropped,
                }
            }
            _ => {}
        }
    }
    interface
}

/// Returns true for the kind of a bridge's port (`IFLA_INFO_SLAVE_KIND`).
fn is_bridge_port(info: &LinkInfo) -> bool {
    match info {
        LinkInfo::PortKind(InfoPortKind::Bridge) => true,
        LinkInfo::PortKind(InfoPortKind::Other(kind)) => kind == "openvswitch",
        _ => false,
    }
}

fn xdp_program(attributes: &[LinkXdp]) -> Option<u32> {
    attributes.iter().find_map(|attribute| match attribute {
        LinkXdp::ProgId(number) => Some(*number),
        _ => None,
    })
}

/// Polls `is_so` for up to `limit`; returns its last value.
fn wait_until(limit: Duration, is_so: impl Fn() -> Result<bool, NetlinkError>) -> Result<bool, NetlinkError> {
    let until = clock::now() + limit;
    while !is_so()? {
        if clock::now() > until {
            return Ok(false);
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(true)
}

const fn route_address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    }
}

const fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::NLM_F_DUMP;

    use super::*;

    /// An answer that was not read, as after an error of the request.
    #[test]
    fn the_rest_of_an_earlier_answer_is_no_answer() {
        let netlink = Netlink::open().unwrap();
        let lo = netlink.interface("lo".parse().unwrap()).unwrap();
        netlink.0.send(RouteNetlinkMessage::GetAddress(AddressMessage::default()), NLM_F_DUMP).unwrap();
        netlink.0.send(RouteNetlinkMessage::GetLink(link(&lo)), 0).unwrap();
        let error = netlink.interface("nowhere0".parse().unwrap()).unwrap_err();
        assert!(matches!(error, NetlinkError::NoInterface(_)), "{error}");
        assert_eq!(netlink.interface("lo".parse().unwrap()).unwrap().index, lo.index);
    }
}
