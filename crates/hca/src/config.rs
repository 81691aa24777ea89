//! What an adapter is opened with.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use crate::star::StarOptions;
use nichrome_port::capture::WriteError;
use nichrome_port::udp::{PacketReceiverError, SharedPort, Steering, UdpError, UdpSocket};
use nichrome_rdma::{Config, ConfigError, Limits, ObjectError, PathMtu};
use nichrome_wan::Impairments;
use nichrome_wire::rdma::ROCE_PORT;
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};
use thiserror::Error;

/// What an adapter speaks with its peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// RoCEv2 over UDP.
    #[default]
    Roce,
    /// StaR for reliable connections of which one side is to be stateless, RoCEv2 for everything else.
    Star,
}

impl Transport {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Roce, Self::Star];

    /// What users call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Roce => "roce",
            Self::Star => "star",
        }
    }
}

/// A text names no transport.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the transports are: {}", Transport::ALL.map(Transport::name).join(", "))]
pub struct TransportError;

impl FromStr for Transport {
    type Err = TransportError;

    fn from_str(text: &str) -> Result<Self, TransportError> {
        Self::ALL.into_iter().find(|transport| transport.name() == text).ok_or(TransportError)
    }
}

/// What an adapter is opened with.
#[derive(Clone, Debug, Default)]
pub struct AdapterConfig {
    /// What it speaks.
    pub transport: Transport,
    /// How it takes part in StaR, where it speaks that.
    pub star: StarOptions,
    /// Where it is.
    pub place: Place,
    /// The largest path MTU; by default the largest that fits the interface of the address.
    pub mtu: Option<PathMtu>,
    /// Where datagrams are received.
    pub reception: Reception,
    /// What happens to datagrams on their way out and in.
    pub faults: Option<Faults>,
    /// Where to write a capture of what goes over the wire (pcapng).
    pub capture: Option<PathBuf>,
    /// What memory keys, queue pair numbers and packet numbers follow from, so that they repeat: whoever knows it can compute
    /// them. `None` for the kernel's random numbers.
    pub seed: Option<u64>,
}

/// Where an adapter is: an adapter is an IP address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// At an address of 127.0.0.0/8 that no one else uses.
    #[default]
    Loopback,
    /// At this address of the machine, with up to 32 processes of the same user.
    Address(IpAddr),
}

/// Where datagrams are received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reception {
    /// From a UDP socket, in batches. It does not tell the identification of IPv4, which the ICRC covers: one that is to
    /// be expected from the peer is taken for right.
    #[default]
    Socket,
    /// From the interfaces (AF_PACKET), one by one, with the identification. IPv4 only; needs CAP_NET_RAW.
    Packets,
}

/// What happens to datagrams, in each direction on its own.
#[derive(Clone, Debug)]
pub struct Faults {
    /// The impairments.
    pub impairments: Impairments,
    /// Choices follow from it.
    pub seed: u64,
}

/// Why there is no adapter.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The address cannot be had.
    #[error(transparent)]
    Udp(#[from] UdpError),
    /// StaR and [`Reception::Packets`] were asked for.
    #[error("StaR's packets are received from sockets only, not from the interfaces")]
    StarFromPackets,
    /// The kernel has no random numbers, which memory keys, queue pair numbers, and StaR's epoch and secret come from.
    #[error("no random numbers can be had: {0}")]
    Random(Errno),
    /// Packets cannot be received.
    #[error(transparent)]
    Packets(#[from] PacketReceiverError),
    /// The impairments contradict each other.
    #[error(transparent)]
    Faults(#[from] nichrome_wan::ConfigError),
    /// The capture cannot be written.
    #[error(transparent)]
    Capture(#[from] WriteError),
    /// The device cannot be made.
    #[error(transparent)]
    Device(#[from] ConfigError),
    /// The device has no room for a protection domain.
    #[error(transparent)]
    Object(ObjectError),
    /// The thread that makes progress cannot be started.
    #[error("cannot start the thread that makes progress: {0}")]
    Thread(Errno),
}

/// A socket, to itself or shared.
#[derive(Debug)]
pub(crate) enum Port {
    Own(UdpSocket),
    Shared(SharedPort),
}

/// The top bits of the destination queue pair, in byte 5 of the base transport header, name the process.
const STEERING: Steering = Steering { byte: 5, bits: 5 };

/// Numbers of queue pairs that a slot has.
const QPS_OF_A_SLOT: u32 = 1 << (24 - STEERING.bits);

/// Numbers that are left out at the start of each slot: 0 and 1 are special.
const RESERVED_QPS: u32 = 0x11;

impl Port {
    pub(crate) fn open(place: Place) -> Result<Self, UdpError> {
        match place {
            Place::Loopback => UdpSocket::open_loopback(ROCE_PORT).map(Self::Own),
            Place::Address(ip) => {
                SharedPort::join(SocketAddr::new(ip, ROCE_PORT), STEERING).map(Self::Shared)
            }
        }
    }

    pub(crate) fn socket(&self) -> &UdpSocket {
        match self {
            Self::Own(socket) => socket,
            Self::Shared(port) => port.socket(),
        }
    }

    /// The device at this port.
    pub(crate) fn device(&self, config: &AdapterConfig) -> Result<Config, OpenError> {
        let socket = self.socket();
        let mut device = Config::new(vec![socket.local().ip()]);
        if let Self::Shared(port) = self {
            device.first_qp = port.slot() as u32 * QPS_OF_A_SLOT + RESERVED_QPS;
            let qps = (QPS_OF_A_SLOT - 2 * RESERVED_QPS) as usize;
            device.limits = Limits { qps, ..device.limits };
        }
        device.mtu = config.mtu.unwrap_or_else(|| largest_mtu(socket));
        device.seed = config.seed.map_or_else(random_seed, |seed| Ok(seed.into()))?;
        device.roce.sees_identifications = config.reception == Reception::Packets;
        device.roce.acknowledgement_delay = ACKNOWLEDGEMENT_DELAY;
        let packets = (socket.room() / ROOM_OF_A_PACKET) as u32;
        device.window.max = packets.clamp(device.window.initial, MOST_PACKETS);
        if config.transport == Transport::Star {
            device.star = config.star.device().map_err(OpenError::Random)?;
        }
        Ok(device)
    }
}

/// A seed that no one can guess.
fn random_seed() -> Result<u128, OpenError> {
    let mut bytes = [0; 16];
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(OpenError::Random)?;
    Ok(u128::from_ne_bytes(bytes))
}

/// How long an acknowledgement waits for a program that answers, in nanoseconds: what such a program takes, and no more
/// than a wake-up of the driver's thread.
const ACKNOWLEDGEMENT_DELAY: u64 = 60_000;

/// Bytes that the kernel counts for a full packet that waits to be received.
const ROOM_OF_A_PACKET: usize = 2 * 4096;

/// Packets outstanding at most: what a peer takes in while its thread waits for a busy processor.
const MOST_PACKETS: u32 = 1024;

/// Bytes around the payload of a packet at most: IPv6, UDP, base header, RETH, immediate data, ICRC.
const AROUND_PAYLOAD: usize = 40 + 8 + 12 + 16 + 4 + 4;

/// The largest path MTU that fits the socket's interface.
fn largest_mtu(socket: &UdpSocket) -> PathMtu {
    let payload = socket.interface_mtu().saturating_sub(AROUND_PAYLOAD);
    PathMtu::fitting(payload).unwrap_or(PathMtu::B256)
}
