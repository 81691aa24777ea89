//! Why a frame cannot be cut, or its checksum not completed.

use std::num::NonZeroU16;

use nichrome_wire::{
    EtherType, EthernetError, ExtensionError, GsoType, IpProtocol, Ipv4Error, Ipv6Error, TcpError, UdpError,
};
use thiserror::Error;

/// Why a frame and its virtio header do not make packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SegmentError {
    /// The frame ends within its Ethernet header.
    #[error(transparent)]
    Ethernet(#[from] EthernetError),
    /// The IPv4 header is broken, or longer than the frame.
    #[error(transparent)]
    Ipv4(#[from] Ipv4Error),
    /// The IPv6 header is broken, longer than the frame, or a jumbogram's.
    #[error(transparent)]
    Ipv6(#[from] Ipv6Error),
    /// The IPv6 extension headers are broken.
    #[error(transparent)]
    Extension(#[from] ExtensionError),
    /// The TCP header is broken.
    #[error(transparent)]
    Tcp(#[from] TcpError),
    /// The UDP header is broken.
    #[error(transparent)]
    Udp(#[from] UdpError),
    /// The UDP length is not what the IP packet carries.
    #[error("the UDP length is {length} in an IP packet that carries {carried} bytes")]
    UdpLength {
        /// The UDP length, in bytes.
        length: u16,
        /// What the IP packet carries, in bytes.
        carried: usize,
    },
    /// To be segmented, but neither IPv4 nor IPv6.
    #[error("a frame with EtherType {0} cannot be segmented: it is not IP")]
    NotIp(EtherType),
    /// The frame is not what the virtio header says.
    #[error("the virtio header says {}, the frame is {protocol} over IPv{version}", name(*.gso_type))]
    Mismatch {
        /// What the virtio header says.
        gso_type: GsoType,
        /// The frame's IP version, 4 or 6.
        version: u8,
        /// What the frame's IP packet carries.
        protocol: IpProtocol,
    },
    /// To be segmented, but a fragment already.
    #[error("an IP fragment cannot be segmented")]
    Fragment,
    /// An authentication header, which covers all that segmentation changes.
    #[error("a packet with an authentication header cannot be segmented")]
    Authenticated,
    /// A routing header with segments left: the checksum covers a destination that is not in the IPv6 header.
    #[error("a packet with a routing header that is not at its end cannot be segmented")]
    Routed,
    /// Neither TCP nor UDP, without a virtio header that says how to cut it.
    #[error("a packet of {0} cannot be segmented: it is neither TCP nor UDP")]
    OtherProtocol(IpProtocol),
    /// The headers alone reach the limit.
    #[error("headers of {headers} bytes leave no room for payload in packets of {limit}")]
    NoRoom {
        /// Bytes of the IP and transport headers.
        headers: usize,
        /// The longest IP packet, in bytes.
        limit: u16,
    },
    /// IP fragmentation over IPv6.
    #[error("UDP over IPv6 cannot be fragmented: the fragments' identification is not known")]
    Ipv6Fragmentation,
    /// Fragments of less than 8 bytes.
    #[error("fragments of {0} bytes are shorter than 8")]
    FragmentSize(NonZeroU16),
    /// The checksum that is to be completed is not where the frame has one.
    #[error("the virtio checksum is at {start} + {offset}, the frame's at {transport} + {field}")]
    NotTheChecksum {
        /// Where checksumming starts, in bytes.
        start: u16,
        /// Where the checksum stands, in bytes from there.
        offset: u16,
        /// Where the frame's transport header starts, in bytes.
        transport: usize,
        /// Where the transport header has its checksum, in bytes.
        field: u16,
    },
    /// The checksum that is to be completed lies beyond the frame.
    #[error("the virtio checksum is at {start} + {offset} in a frame of {frame_len} bytes")]
    ChecksumBeyondFrame {
        /// Where checksumming starts, in bytes.
        start: u16,
        /// Where the checksum stands, in bytes from there.
        offset: u16,
        /// The frame's length, in bytes.
        frame_len: usize,
    },
    /// One packet is expected, and the frame is to be segmented.
    #[error("a frame to be segmented ({}) is not one packet", name(*.0))]
    NotOnePacket(GsoType),
}

/// What a type of segmentation is for, in words.
fn name(gso_type: GsoType) -> &'static str {
    match gso_type {
        GsoType::TcpV4(_) => "TCP over IPv4",
        GsoType::TcpV6(_) => "TCP over IPv6",
        GsoType::Udp => "UDP to be fragmented",
        GsoType::UdpL4 => "UDP",
    }
}
