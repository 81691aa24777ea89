//! Interfaces, addresses and neighbours (rtnetlink(7)), in the network namespace of the thread that opens the socket.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::thread;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags,
    LinkInfo, LinkMessage, LinkXdp,
};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, neighbour::NeighbourAddress};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use nichrome_wire::MacAddr;
use thiserror::Error;

use crate::clock;
use crate::interface_name::InterfaceName;
use crate::namespace::NetworkNamespace;

/// Why the kernel did not do what it was asked for.
#[derive(Debug, Error)]
pub enum NetlinkError {
    /// There is no such interface here.
    #[error("there is no interface called {0} ('ip link' lists them)")]
    NoInterface(InterfaceName),
    /// The interface is up, and yet cannot send.
    #[error("{0} has no carrier: its other end is not connected, or down")]
    NoCarrier(InterfaceName),
    /// The kernel said no.
    #[error("cannot {what}: {error}")]
    Refused {
        /// What was asked for.
        what: String,
        /// What it said.
        error: io::Error,
    },
    /// It said what this program does not understand.
    #[error("cannot {what}: the kernel's answer is not understood")]
    Answer {
        /// What was asked for.
        what: String,
    },
}

/// An interface as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: InterfaceName,
    /// Its Ethernet address; `None` where it is no Ethernet interface.
    pub mac: Option<MacAddr>,
    /// The longest IP packet it takes, in bytes.
    pub mtu: u32,
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether it can send: it is up, there is a carrier, and the kernel has noticed that.
    pub running: bool,
    /// Whether it looks for neighbours and answers those who look for it (ARP).
    pub arp: bool,
    /// Whether it is made of software (veth, bridge, tun, …): frames may come from senders on this machine, who leave
    /// checksums unfinished.
    pub is_virtual: bool,
    /// The number of the interface that it is a port of: a bridge, a bond, ….
    pub controller: Option<u32>,
    /// The number of the XDP program that sees its frames.
    pub xdp_program: Option<u32>,
    /// Its counters.
    pub counters: Counters,
}

/// What an interface has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that the kernel received from it.
    pub received: u64,
    /// Packets that the kernel sent through it.
    pub sent: u64,
    /// Packets from it that the kernel dropped.
    pub receive_dropped: u64,
    /// Packets for it that the kernel dropped, full queues included.
    pub send_dropped: u64,
}

/// What a new interface is to be; what is `None` stays as the kernel has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Its Ethernet address.
    pub mac: Option<MacAddr>,
    /// The longest IP packet it takes, in bytes.
    pub mtu: Option<u32>,
    /// Packets that wait in its queue.
    pub queue_len: Option<u32>,
}

/// A socket to the kernel's routing tables.
pub struct Netlink(Socket);

impl fmt::Debug for Netlink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Netlink").finish_non_exhaustive()
    }
}

impl Netlink {
    /// Opens a socket in the network namespace of this thread.
    pub fn open() -> Result<Self, NetlinkError> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            Ok(Self(socket))
        };
        open().map_err(|error| NetlinkError::Refused { what: "open a netlink socket".into(), error })
    }

    /// The interface called `name`.
    pub fn interface(&self, name: InterfaceName) -> Result<Interface, NetlinkError> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_string()));
        let what = || format!("look up the interface {name}");
        match self.request(RouteNetlinkMessage::GetLink(message), 0, what) {
            Ok(Some(RouteNetlinkMessage::NewLink(link))) => Ok(interface(name, &link)),
            Ok(_) => Err(NetlinkError::Answer { what: what() }),
            Err(NetlinkError::Refused { error, .. }) if error.raw_os_error() == Some(libc::ENODEV) => {
                Err(NetlinkError::NoInterface(name))
            }
            Err(error) => Err(error),
        }
    }

    /// Gives an interface its address, MTU and queue.
    pub fn configure(&self, interface: &Interface, settings: Settings) -> Result<(), NetlinkError> {
        let mac = settings.mac.map(|mac| LinkAttribute::Address(mac.0.to_vec()));
        let mtu = settings.mtu.map(LinkAttribute::Mtu);
        let queue_len = settings.queue_len.map(LinkAttribute::TxQueueLen);
        let mut message = link(interface);
        message.attributes.extend([mac, mtu, queue_len].into_iter().flatten());
        self.set(interface, message)
    }

    /// Keeps the kernel from talking on an interface by itself: neighbours are not looked for ([`Self::add_neighbour`]
    /// names them), and there is no link-local address, which would be advertised and listened for.
    pub fn silence(&self, interface: &Interface) -> Result<(), NetlinkError> {
        let mut message = link(interface);
        let no_address = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        message.attributes.push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![no_address])]));
        match self.set(interface, message) {
            // A kernel without IPv6.
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

    /// Has an interface look for neighbours, and answer those who look for it.
    pub fn enable_arp(&self, interface: &Interface) -> Result<(), NetlinkError> {
        self.set_flags(interface, LinkFlags::empty(), LinkFlags::Noarp)
    }

    /// Undoes [`Self::enable_arp`].
    pub fn disable_arp(&self, interface: &Interface) -> Result<(), NetlinkError> {
        self.set_flags(interface, LinkFlags::Noarp, LinkFlags::Noarp)
    }

    /// Waits until an interface that is up can send, which the kernel notices a little later; at most a second.
    pub fn wait_until_running(&self, interface: &Interface) -> Result<(), NetlinkError> {
        let running = wait_until(|| Ok(self.interface(interface.name)?.running))?;
        if running { Ok(()) } else { Err(NetlinkError::NoCarrier(interface.name)) }
    }

    /// Gives an interface, which must be running, an address in a subnet of `prefix_len` bits, and waits until packets
    /// for it are accepted: with IPv6 the kernel takes a moment for that.
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
        wait_until(|| self.is_local(address))?
            .then_some(())
            .ok_or_else(|| NetlinkError::Answer { what: what() })
    }

    /// The addresses that an interface has, link-local ones left out: those come by themselves.
    pub fn addresses(&self, interface: &Interface) -> Result<Vec<IpAddr>, NetlinkError> {
        let what = || format!("list the addresses of {}", interface.name);
        let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let ours = |message: RouteNetlinkMessage| match message {
            RouteNetlinkMessage::NewAddress(of) if of.header.index == interface.index => {
                of.attributes.into_iter().find_map(|attribute| match attribute {
                    AddressAttribute::Address(IpAddr::V6(address)) if address.is_unicast_link_local() => None,
                    AddressAttribute::Address(address) => Some(address),
                    _ => None,
                })
            }
            _ => None,
        };
        Ok(self.list(request, what)?.into_iter().filter_map(ours).collect())
    }

    /// Whether packets for `address` are this host's.
    fn is_local(&self, address: IpAddr) -> Result<bool, NetlinkError> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(address);
        message.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
        message.attributes = vec![RouteAttribute::Destination(route_address(address))];
        let what = || format!("look up the route to {address}");
        match self.request(RouteNetlinkMessage::GetRoute(message), 0, what) {
            Ok(Some(RouteNetlinkMessage::NewRoute(route))) => Ok(route.header.kind == RouteType::Local),
            Ok(_) => Err(NetlinkError::Answer { what: what() }),
            Err(NetlinkError::Refused { error, .. }) if error.raw_os_error() == Some(libc::ENETUNREACH) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Tells an interface once and for all which Ethernet address `address` has.
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
            format!("tell {} the Ethernet address of {address}", interface.name)
        })
    }

    /// Sends everything that has no other route to `gateway`.
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
            format!("route by {gateway} through {}", interface.name)
        })
    }

    /// Makes a pair of Ethernet interfaces, each the other's wire (veth(4)): `name` here, `peer_name` in `there`.
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
            format!("make the interfaces {name} and {peer_name}")
        })
    }

    /// Deletes an interface.
    pub fn delete(&self, interface: &Interface) -> Result<(), NetlinkError> {
        self.command(RouteNetlinkMessage::DelLink(link(interface)), 0, || {
            format!("delete {}", interface.name)
        })
    }

    /// Makes those flags that `mask` has as they are in `flags`.
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

    /// Asks for something to be done, and waits until it is.
    fn command(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
        what: impl Fn() -> String,
    ) -> Result<(), NetlinkError> {
        self.request(message, NLM_F_ACK | flags, what).map(drop)
    }

    /// Asks for everything of a kind, which may come in several messages.
    fn list(
        &self,
        message: RouteNetlinkMessage,
        what: impl Fn() -> String,
    ) -> Result<Vec<RouteNetlinkMessage>, NetlinkError> {
        let refused = |error| NetlinkError::Refused { what: what(), error };
        let mut list = Vec::new();
        self.0.send(&serialize(message, NLM_F_DUMP), 0).map_err(refused)?;
        loop {
            let (answer, _) = self.0.recv_from_full().map_err(refused)?;
            let mut rest = &answer[..];
            while !rest.is_empty() {
                let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest);
                let message = message.map_err(|_| NetlinkError::Answer { what: what() })?;
                // Messages begin at multiples of 4 bytes (netlink(7)).
                let len = (message.header.length as usize).next_multiple_of(4);
                rest = rest.get(len..).unwrap_or(&[]);
                match message.payload {
                    NetlinkPayload::InnerMessage(message) => list.push(message),
                    NetlinkPayload::Error(error) => return Err(refused(error.to_io())),
                    NetlinkPayload::Done(_) => return Ok(list),
                    _ => {}
                }
            }
        }
    }

    /// Sends a request and returns the answer, `None` where that is just an acknowledgement.
    fn request(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
        what: impl Fn() -> String,
    ) -> Result<Option<RouteNetlinkMessage>, NetlinkError> {
        let exchange = || {
            self.0.send(&serialize(message, flags), 0)?;
            self.0.recv_from_full()
        };
        let (answer, _) = exchange().map_err(|error| NetlinkError::Refused { what: what(), error })?;
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)
            .map_err(|_| NetlinkError::Answer { what: what() })?;
        match answer.payload {
            NetlinkPayload::InnerMessage(message) => Ok(Some(message)),
            NetlinkPayload::Error(error) if error.code.is_some() => {
                Err(NetlinkError::Refused { what: what(), error: error.to_io() })
            }
            _ => Ok(None),
        }
    }
}

/// The bytes of a request.
fn serialize(message: RouteNetlinkMessage, flags: u16) -> Vec<u8> {
    let mut request = NetlinkMessage::from(message);
    request.header.flags = NLM_F_REQUEST | flags;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    bytes
}

/// A message about `interface` that changes nothing yet.
fn link(interface: &Interface) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = interface.index;
    message
}

fn interface(name: InterfaceName, link: &LinkMessage) -> Interface {
    let mut interface = Interface {
        index: link.header.index,
        name,
        mac: None,
        mtu: 0,
        up: link.header.flags.contains(LinkFlags::Up),
        running: link.header.flags.contains(LinkFlags::Running),
        arp: !link.header.flags.contains(LinkFlags::Noarp),
        is_virtual: false,
        controller: None,
        xdp_program: None,
        counters: Counters::default(),
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Address(bytes) => interface.mac = bytes.as_slice().try_into().ok().map(MacAddr),
            LinkAttribute::Mtu(mtu) => interface.mtu = *mtu,
            LinkAttribute::Controller(index) => {
                interface.controller = Some(*index).filter(|index| *index > 0);
            }
            LinkAttribute::LinkInfo(infos) => {
                interface.is_virtual = infos.iter().any(|info| matches!(info, LinkInfo::Kind(_)));
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

fn xdp_program(attributes: &[LinkXdp]) -> Option<u32> {
    attributes.iter().find_map(|attribute| match attribute {
        LinkXdp::ProgId(number) => Some(*number),
        _ => None,
    })
}

/// Waits at most a second until something is so; says whether it is.
fn wait_until(is_so: impl Fn() -> Result<bool, NetlinkError>) -> Result<bool, NetlinkError> {
    let until = clock::now() + Duration::from_secs(1);
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
