//! The configuration of an adapter; the device's configuration and the sockets derived from it.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::str::FromStr;

use nichrome_port::capture::WriteError;
use nichrome_port::close_in_child;
use nichrome_port::udp::{PacketReceiverError, ServicePorts, SharedPort, UdpError, UdpSocket};
use nichrome_rdma::{Config, ConfigError, Limits, MulticastError, Native, ObjectError, PathMtu};
use nichrome_wan::Impairments;
use nichrome_wire::rdma::ROCE_PORT;
use nichrome_wire::star::STAR_PORT;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use thiserror::Error;

use crate::cm::{CmOptions, Unavailable};
use crate::iwarp::{IWARP_PORT, IwarpOptions};
use crate::management_steering::STEERING;
use crate::star::{self, StarAddressError, StarOptions};

/// The transport protocol of reliable connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// RoCEv2 over UDP.
    #[default]
    Roce,
    /// StaR for reliable connections with a stateless side, RoCEv2 for everything else.
    Star,
    /// iWARP over TCP, for reliable connections only.
    Iwarp,
}

impl Transport {
    /// Every transport.
    pub const ALL: [Self; 3] = [Self::Roce, Self::Star, Self::Iwarp];

    /// The name in options and configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Roce => "roce",
            Self::Star => "star",
            Self::Iwarp => "iwarp",
        }
    }
}

/// The text is not the name of a transport.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the transport must be one of: {}", Transport::ALL.map(Transport::name).join(", "))]
pub struct TransportError;

impl FromStr for Transport {
    type Err = TransportError;

    fn from_str(text: &str) -> Result<Self, TransportError> {
        Self::ALL.into_iter().find(|transport| transport.name() == text).ok_or(TransportError)
    }
}

/// The configuration of an adapter.
#[derive(Clone, Debug, Default)]
pub struct AdapterConfig {
    /// The transport of reliable connections.
    pub transport: Transport,
    /// Options of StaR; ignored by other transports.
    pub star: StarOptions,
    /// Options of iWARP; ignored by other transports.
    pub iwarp: IwarpOptions,
    /// Options of the connection manager over RoCE and StaR.
    pub cm: CmOptions,
    /// The address.
    pub place: Place,
    /// The largest path MTU; `None` for the largest that fits the interface of the address.
    pub mtu: Option<PathMtu>,
    /// Where datagrams are received from.
    pub reception: Reception,
    /// How datagrams reach other processes of this machine.
    pub local: LocalPath,
    /// Impairments of datagrams sent and received.
    pub faults: Option<Faults>,
    /// File for a capture of all datagrams (pcapng).
    pub capture: Option<PathBuf>,
    /// Seed of memory keys, queue pair numbers and packet numbers, for repeatable runs; anyone who knows it
    /// can compute them. `None` uses the kernel's random numbers.
    pub seed: Option<u64>,
}

/// The address of an adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// A free address of 127.0.0.0/8.
    #[default]
    Loopback,
    /// An address of this machine, shared by up to 32 processes of one user.
    Address(IpAddr),
}

/// Where datagrams are received from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reception {
    /// A UDP socket, in batches. It hides the IPv4 identification, which the ICRC covers: a datagram is
    /// accepted if its ICRC is right for an identification that the peer may have used.
    #[default]
    Socket,
    /// The interfaces (AF_PACKET), one packet at a time, with the identification. IPv4 only; needs
    /// CAP_NET_RAW.
    Packets,
}

/// How RoCE's datagrams reach other processes of this user on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalPath {
    /// Through the kernel's network, where other tools see and impair them.
    #[default]
    Sockets,
    /// Through memory that the two processes share, if both have chosen this; else through the kernel's
    /// network.
    Memory,
}

impl LocalPath {
    /// Every path.
    pub const ALL: [Self; 2] = [Self::Sockets, Self::Memory];

    /// The name in options and configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sockets => "sockets",
            Self::Memory => "memory",
        }
    }
}

/// The text is not the name of a path.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the path must be one of: {}", LocalPath::ALL.map(LocalPath::name).join(", "))]
pub struct LocalPathError;

impl FromStr for LocalPath {
    type Err = LocalPathError;

    fn from_str(text: &str) -> Result<Self, LocalPathError> {
        Self::ALL.into_iter().find(|path| path.name() == text).ok_or(LocalPathError)
    }
}

/// Impairments of datagrams, applied to each direction independently.
#[derive(Clone, Debug)]
pub struct Faults {
    /// The impairments.
    pub impairments: Impairments,
    /// Seed of random choices.
    pub seed: u64,
}

/// Why an adapter cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The address is in use, not local, or not usable.
    #[error(transparent)]
    Udp(#[from] UdpError),
    /// StaR with [`Reception::Packets`].
    #[error("StaR's packets are received from sockets only, not from the interfaces")]
    StarFromPackets,
    /// iWARP with [`Reception::Packets`].
    #[error("iWARP's bytes are received from TCP sockets only, not from the interfaces")]
    IwarpFromPackets,
    /// StaR is not safe at the address.
    #[error(transparent)]
    Star(#[from] StarAddressError),
    /// The kernel gives no random numbers, which memory keys, queue pair numbers, and StaR's epoch and secret
    /// come from.
    #[error("no random numbers from the kernel: {0}")]
    Random(Errno),
    /// The connection manager's options are out of range.
    #[error(transparent)]
    ConnectionManager(#[from] Unavailable),
    /// Packets cannot be received from the interfaces.
    #[error(transparent)]
    Packets(#[from] PacketReceiverError),
    /// The impairments contradict each other.
    #[error(transparent)]
    Faults(#[from] nichrome_wan::ConfigError),
    /// The impairments do not apply to iWARP's streams.
    #[error(transparent)]
    StreamFaults(#[from] StreamFaultsError),
    /// The capture file cannot be written.
    #[error(transparent)]
    Capture(#[from] WriteError),
    /// The device's configuration is out of range.
    #[error(transparent)]
    Device(#[from] ConfigError),
    /// The device cannot create a protection domain.
    #[error(transparent)]
    Object(ObjectError),
    /// [`LocalPath::Memory`] with another transport than RoCE, with [`Reception::Packets`], or with
    /// [`Faults`].
    #[error("{0} go through sockets only, not through memory")]
    NotThroughMemory(&'static str),
    /// The driver cannot listen for the links of other processes ([`LocalPath::Memory`]).
    #[error("cannot listen for links of other processes: {0}")]
    Links(Errno),
    /// No descriptor or thread is left for the driver.
    #[error("cannot start the driver's thread: {0}")]
    Thread(Errno),
}

/// Impairments that do not apply to iWARP's streams.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StreamFaultsError {
    /// TCP would repair the impairment below this adapter.
    #[error("{0} does not affect iWARP's byte streams, because TCP repairs it: use 'nichrome wan' for it")]
    Repaired(&'static str),
    /// The impairments contradict each other.
    #[error(transparent)]
    Config(nichrome_wan::ConfigError),
}

/// A queue pair cannot be attached to a multicast group.
#[derive(Debug, Error)]
pub enum JoinError {
    /// The device refuses the queue pair or the group.
    #[error(transparent)]
    Multicast(#[from] MulticastError),
    /// The kernel refuses the group.
    #[error(transparent)]
    Udp(#[from] UdpError),
}

/// The UDP socket of RoCE: exclusive, or one of several that share an address. An iWARP adapter has one at
/// its own port, which only reserves its slot at the address: where the kernel has RoCE's port (`rdma_rxe`),
/// iWARP works nevertheless.
#[derive(Debug)]
pub(crate) enum RoceSocket {
    Own(UdpSocket),
    Shared(SharedPort),
}

/// QP numbers of a slot.
const QPS_OF_A_SLOT: u32 = 1 << (24 - STEERING.bits);

/// QP numbers at the start of each slot that are not used: QP 0 and QP 1 are special.
const RESERVED_QPS: u32 = 0x11;

impl RoceSocket {
    /// Opens the socket of an adapter at `place`.
    ///
    /// # Errors
    /// The address is taken, or not one of this machine.
    pub(crate) fn open(place: Place, transport: Transport) -> Result<Self, UdpError> {
        let port = match transport {
            Transport::Roce | Transport::Star => ROCE_PORT,
            Transport::Iwarp => IWARP_PORT,
        };
        match place {
            Place::Loopback => UdpSocket::open_loopback(port).map(Self::Own),
            Place::Address(ip) => SharedPort::join(SocketAddr::new(ip, port), STEERING).map(Self::Shared),
        }
    }

    /// The socket of StaR at the same address, in the same slot.
    ///
    /// # Errors
    /// The port is taken.
    pub(crate) fn star(&self) -> Result<Self, UdpError> {
        let address = SocketAddr::new(self.udp().local().ip(), STAR_PORT);
        match self.slot() {
            None => UdpSocket::open(address).map(Self::Own),
            Some(slot) => SharedPort::join_slot(address, star::STEERING, slot).map(Self::Shared),
        }
    }

    /// The slot at a shared address.
    pub(crate) fn slot(&self) -> Option<usize> {
        match self {
            Self::Own(_) => None,
            Self::Shared(port) => Some(port.slot()),
        }
    }

    /// The service ports of the slot, and the socket that receives requests for ports at which no process
    /// listens; `None` if the address is not shared.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn open_services(&self) -> Result<Option<(ServicePorts, UdpSocket)>, UdpError> {
        match self {
            Self::Own(_) => Ok(None),
            Self::Shared(port) => port.open_services().map(Some),
        }
    }

    /// Gives up the address in a forked child: the parent keeps it, and other processes may use it once the
    /// parent has ended.
    pub(crate) fn close_in_child(&self) {
        match self {
            Self::Own(socket) => close_in_child([socket.as_fd()]),
            Self::Shared(port) => port.close_in_child(),
        }
    }

    /// The socket itself.
    #[inline]
    pub(crate) fn udp(&self) -> &UdpSocket {
        match self {
            Self::Own(socket) => socket,
            Self::Shared(port) => port.socket(),
        }
    }

    /// The configuration of the device at this socket.
    ///
    /// # Errors
    /// The kernel gives no random numbers.
    pub(crate) fn device(&self, config: &AdapterConfig) -> Result<Config, OpenError> {
        let socket = self.udp();
        let mut device = Config::new(vec![socket.local().ip()]);
        let slot = match self {
            Self::Shared(port) => Some(port.slot() as u32),
            // iWARP's TCP port follows from the slot.
            Self::Own(_) if config.transport == Transport::Iwarp => Some(0),
            Self::Own(_) => None,
        };
        if let Some(slot) = slot {
            device.first_qp = slot * QPS_OF_A_SLOT + RESERVED_QPS;
            let qps = (QPS_OF_A_SLOT - 2 * RESERVED_QPS) as usize;
            device.limits = Limits { qps, ..device.limits };
        }
        device.mtu = config.mtu.unwrap_or_else(|| largest_mtu(socket));
        device.seed = seed(config.seed)?;
        device.roce.sees_identifications = config.reception == Reception::Packets;
        device.roce.acknowledgement_delay = ACKNOWLEDGEMENT_DELAY;
        let packets = (socket.room() / ROOM_OF_A_PACKET) as u32;
        device.window.max = packets.clamp(device.window.initial, MAX_WINDOW);
        if config.transport == Transport::Iwarp {
            device.native = Native::Iwarp;
        }
        if config.transport == Transport::Star {
            device.star = config.star.device().map_err(OpenError::Random)?;
        }
        Ok(device)
    }
}

/// Returns the given seed, or a random one of the kernel.
///
/// # Errors
/// The kernel gives no random numbers.
pub(crate) fn seed(given: Option<u64>) -> Result<u128, OpenError> {
    if let Some(seed) = given {
        return Ok(seed.into());
    }
    let mut bytes = [0; 16];
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(OpenError::Random)?;
    Ok(u128::from_ne_bytes(bytes))
}

/// Nanoseconds by which an ACK is delayed, so that it leaves together with a response: enough for a program
/// that responds at once, and at most the time of a wake-up of the driver's thread.
const ACKNOWLEDGEMENT_DELAY: u64 = 60_000;

/// Bytes of the socket's receive buffer that the kernel charges for a full packet.
const ROOM_OF_A_PACKET: usize = 2 * 4096;

/// Largest send window, in packets: the number that the peer's socket buffers while its thread waits for a
/// busy processor.
const MAX_WINDOW: u32 = 1024;

/// Bytes of headers and trailer of a packet at most: IPv6, UDP, BTH, RETH, immediate data, ICRC.
const AROUND_PAYLOAD: usize = 40 + 8 + 12 + 16 + 4 + 4;

/// The largest path MTU that fits the socket's interface.
fn largest_mtu(socket: &UdpSocket) -> PathMtu {
    let payload = socket.interface_mtu().saturating_sub(AROUND_PAYLOAD);
    PathMtu::fitting(payload).unwrap_or(PathMtu::B256)
}
