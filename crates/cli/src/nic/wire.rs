//! The wire of a card: its interface and backend.

use std::num::NonZeroUsize;

use anyhow::ensure;
use clap::ValueEnum;
use nichrome_nic::{Card, CardConfig, CardError, Observer, Queue};
use nichrome_port::{
    ChunkSize, Fanout, Interface, InterfaceName, Netlink, Offloads, PacketRing, PacketRingConfig, TapWire,
    WireQueue, XdpChoice, XdpConfig, XdpError, XdpInterface, XdpMode, XdpQueue, strips_vlan_tags,
};
use nichrome_wire::MacAddr;

use super::host_interface::make_tap;
use crate::failure;
use crate::shared_device::SharedDevice;

/// Maximum link overhead of a frame, in bytes: Ethernet header and two VLAN tags.
const LINK_LEN: u32 = 14 + 8;

/// Bytes of a small AF_XDP chunk that the kernel leaves for the frame.
const SMALL_CHUNK: u32 = 1792;

/// Sizes of receive buffers in bytes: longer frames are rare, or come from local senders.
const BUFFER_SIZES: [u32; 2] = [2048, 9216];

/// How to exchange frames with the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Backend {
    /// xdp for real cards whose driver supports it and that leave VLAN tags in received frames, otherwise
    /// packet.
    Auto,
    /// AF_XDP, in the driver if supported, otherwise behind it; senders must complete checksums, and IFACE
    /// must leave VLAN tags in received frames ('ethtool -K IFACE rxvlan off').
    Xdp,
    /// AF_PACKET, for any interface; IFACE gets another MAC address while the card is up.
    Packet,
    /// Create IFACE as a TAP device; its kernel end is the wire.
    Tap,
}

/// An open wire.
pub(super) enum Wire {
    Packet(Vec<PacketRing>),
    Xdp(XdpInterface, Vec<XdpQueue>),
    Tap(Vec<TapWire>),
}

/// Looks up the interface `name` and checks that it can be a wire.
pub(super) fn find(netlink: &Netlink, name: InterfaceName) -> anyhow::Result<Interface> {
    let interface = netlink.interface(name)?;
    let is_ethernet = interface.mac.is_some_and(|mac| mac != MacAddr::default());
    ensure!(is_ethernet, "{name} is not an Ethernet interface");
    ensure!(interface.up, "{name} is down: 'ip link set {name} up' sets it up");
    Ok(interface)
}

/// Creates a TAP device as the wire, and sets it up.
pub(super) fn make(
    netlink: &Netlink,
    name: InterfaceName,
    queues: usize,
) -> anyhow::Result<(Interface, Wire)> {
    let taps = make_tap(netlink, name, Offloads::All, queues)?;
    let interface = netlink.interface(name)?;
    netlink.set_up(&interface)?;
    let mtu = interface.mtu;
    Ok((interface, Wire::Tap(taps.into_iter().map(|tap| TapWire::new(tap, mtu)).collect())))
}

impl Wire {
    /// Opens `queues` queues of `interface`; by default the required number.
    pub(super) fn open(backend: Backend, interface: &Interface, queues: Option<u16>) -> anyhow::Result<Self> {
        let name = interface.name;
        match backend {
            Backend::Xdp => {
                if loses_vlan_tags(interface) {
                    failure::warn(format_args!(
                        "{name} takes VLAN tags out of received frames, and AF_XDP loses them: 'ethtool -K {name} rxvlan off' \
                         keeps them"
                    ));
                }
                xdp(interface, queues, XdpChoice::Automatic)
            }
            Backend::Auto if !interface.is_virtual && loses_vlan_tags(interface) => {
                failure::notice(format_args!(
                    "nichrome: {name} takes VLAN tags out of received frames, and AF_XDP would lose them: AF_PACKET is used \
                     ('ethtool -K {name} rxvlan off' lets AF_XDP be tried)"
                ));
                packet(interface, queues)
            }
            // Not on virtual interfaces: local senders leave checksums unfinished, which AF_XDP does not
            // report. The host of a virtual machine may leave them unfinished, too, but then the machine's
            // driver accepts no XDP program.
            Backend::Auto if !interface.is_virtual => {
                match xdp(interface, queues, XdpChoice::Only(XdpMode::Native)) {
                    Err(error) if !is_gone(&error) => {
                        failure::notice(format_args!(
                            "nichrome: AF_PACKET is used instead of AF_XDP: {error}"
                        ));
                        packet(interface, queues)
                    }
                    opened => opened,
                }
            }
            Backend::Auto | Backend::Packet | Backend::Tap => packet(interface, queues),
        }
    }

    /// Returns the backend's name.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Packet(_) => "packet".into(),
            Self::Xdp(interface, _) => format!("xdp ({})", interface.mode()),
            Self::Tap(_) => "tap".into(),
        }
    }

    pub(super) fn queues(&self) -> usize {
        match self {
            Self::Packet(rings) => rings.len(),
            Self::Xdp(_, queues) => queues.len(),
            Self::Tap(taps) => taps.len(),
        }
    }

    /// Returns true if the kernel also receives the frames.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self, Self::Packet(_))
    }

    /// Starts a card. `observer` creates the observer of a queue. A returned interface must be kept for the
    /// card's lifetime.
    pub(super) fn start(
        self,
        hosts: &[SharedDevice],
        config: &CardConfig,
        observer: impl Fn() -> Option<Box<dyn Observer>>,
        ended: impl Fn() + Clone + Send + 'static,
    ) -> Result<(Card, Option<XdpInterface>), CardError> {
        Ok(match self {
            Self::Packet(rings) => (Card::start(observed(rings, observer), hosts, config, ended)?, None),
            Self::Xdp(interface, queues) => {
                (Card::start(observed(queues, observer), hosts, config, ended)?, Some(interface))
            }
            Self::Tap(taps) => (Card::start(observed(taps, observer), hosts, config, ended)?, None),
        })
    }
}

fn observed<W: WireQueue>(queues: Vec<W>, observer: impl Fn() -> Option<Box<dyn Observer>>) -> Vec<Queue<W>> {
    queues.into_iter().map(|wire| Queue { wire, observer: observer() }).collect()
}

fn packet(interface: &Interface, queues: Option<u16>) -> anyhow::Result<Wire> {
    let [least, most] = BUFFER_SIZES;
    let buffer_size = (interface.mtu + LINK_LEN).clamp(least, most) as usize;
    let config = PacketRingConfig { buffer_size, ..PacketRingConfig::default() };
    Ok(Wire::Packet(match NonZeroUsize::new(queues.map_or(1, usize::from)) {
        Some(queues) if queues.get() > 1 => PacketRing::open_group(interface, queues, Fanout::Hash, config)?,
        _ => vec![PacketRing::open(interface, config)?],
    }))
}

/// Returns true if AF_XDP would lose the VLAN tags of received frames.
fn loses_vlan_tags(interface: &Interface) -> bool {
    strips_vlan_tags(interface.name).unwrap_or(false)
}

fn xdp(interface: &Interface, queues: Option<u16>, choice: XdpChoice) -> anyhow::Result<Wire> {
    let attached = XdpInterface::attach(interface, choice)?;
    let count = attached.queues();
    if queues.is_some_and(|queues| u32::from(queues) != count) {
        let name = interface.name;
        return Err(failure::usage(format!(
            "--queues must be {count} with xdp, as many as {name} has ('ethtool -L {name} combined N' changes that)"
        )));
    }
    let fits = interface.mtu + LINK_LEN <= SMALL_CHUNK;
    let chunk_size = if fits { ChunkSize::Small } else { ChunkSize::Large };
    let config = XdpConfig { chunk_size, ..XdpConfig::default() };
    let open = |queue| XdpQueue::open(&attached, queue, config);
    let queues = (0..count).map(open).collect::<Result<_, XdpError>>()?;
    Ok(Wire::Xdp(attached, queues))
}

fn is_gone(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(XdpError::NoInterface(_)))
}
