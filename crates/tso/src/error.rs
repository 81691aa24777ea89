//! Errors of segmentation and checksum completion.

use std::num::NonZeroU16;

use nichrome_wire::{
    EtherType, EthernetError, ExtensionError, GsoType, IpProtocol, Ipv4Error, Ipv6Error, TcpError, UdpError,
};
use thiserror::Error;

/// The reason why a frame and its virtio header cannot be turned into packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The frame ends within its Ethernet header.
    #[error(transparent)]
    Ethernet(#[from] EthernetError),
    /// The IPv4 header is malformed, or longer than the frame.
    #[error(transparent)]
    Ipv4(#[from] Ipv4Error),
    /// The IPv6 header is malformed, longer than the frame, or a jumbogram's.
    #[error(transparent)]
    Ipv6(#[from] Ipv6Error),
    /// The IPv6 extension headers are malformed.
    #[error(transparent)]
    Extension(#[from] ExtensionError),
    /// The TCP header is malformed.
    #[error(transparent)]
    Tcp(#[from] TcpError),
    /// The UDP header is malformed.
    #[error(transparent)]
    Udp(#[from] UdpError),
    /// The UDP length differs from the payload length of the IP packet.
    #[error("the UDP length is {length} in an IP packet that carries {carried} bytes")]
    UdpLength {
        /// The UDP length, in bytes.
        length: u16,
        /// Payload of the IP packet, in bytes.
        carried: usize,
    },
    /// The frame needs segmentation, but is neither IPv4 nor IPv6.
    #[error("a frame with EtherType {0} cannot be segmented: it is not IP")]
    NotIp(EtherType),
    /// The frame's protocol differs from that of the virtio header.
    #[error("the virtio header says {}, the frame is {protocol} over IPv{version}", name(*.gso_type))]
    Mismatch {
        /// Segmentation type of the virtio header.
        gso_type: GsoType,
        /// The frame's IP version, 4 or 6.
        version: u8,
        /// Protocol of the frame's IP packet.
        protocol: IpProtocol,
    },
    /// The frame is an IP fragment.
    #[error("an IP fragment cannot be segmented")]
    Fragment,
    /// The packet has an authentication header, which covers fields that segmentation changes.
    #[error("a packet with an authentication header cannot be segmented")]
    Authenticated,
    /// The packet has a routing header with segments left: the checksum covers a destination that is not in
    /// the IPv6 header.
    #[error("a packet with a routing header that is not at its end cannot be segmented")]
    Routed,
    /// The packet has a home address option (RFC 6275 section 6.3): the checksum covers a source that is not
    /// in the IPv6 header.
    #[error("a packet with a home address option cannot be segmented")]
    HomeAddress,
    /// Bytes follow the packet in a tunnel, as in datagrams of the tunnel that were merged.
    #[error("{0} bytes follow the packet in a tunnel")]
    BehindTunneled(usize),
    /// The protocol is neither TCP nor UDP, and no virtio header describes the segmentation.
    #[error("a packet of {0} cannot be segmented: it is neither TCP nor UDP")]
    OtherProtocol(IpProtocol),
    /// The headers reach the maximum packet length.
    #[error("headers of {headers} bytes leave no room for payload in packets of {limit}")]
    NoRoom {
        /// Length of the IP and transport headers, in bytes.
        headers: usize,
        /// The maximum IP packet length, in bytes.
        limit: u16,
    },
    /// IP fragmentation over IPv6 is requested.
    #[error("UDP over IPv6 cannot be fragmented: the fragments' identification is not known")]
    Ipv6Fragmentation,
    /// Fragments of less than 8 bytes are requested.
    #[error("fragments of {0} bytes are shorter than 8")]
    FragmentSize(NonZeroU16),
    /// The virtio header's checksum field is not the transport header's.
    #[error("the virtio checksum is at {start} + {offset}, the frame's at {transport} + {field}")]
    NotTheChecksum {
        /// Start of the checksummed bytes, in bytes from the start of the frame.
        start: u16,
        /// Checksum field, in bytes from `start`.
        offset: u16,
        /// Start of the frame's transport header, in bytes.
        transport: usize,
        /// Checksum field in the transport header, in bytes.
        field: u16,
    },
    /// The virtio header's checksum field lies beyond the frame.
    #[error("the virtio checksum is at {start} + {offset} in a frame of {frame_len} bytes")]
    ChecksumBeyondFrame {
        /// Start of the checksummed bytes, in bytes from the start of the frame.
        start: u16,
        /// Checksum field, in bytes from `start`.
        offset: u16,
        /// The frame's length, in bytes.
        frame_len: usize,
    },
    /// A frame that needs segmentation where a single packet is required.
    #[error("a frame to be segmented ({}) is not one packet", name(*.0))]
    NotOnePacket(GsoType),
}

/// Returns a description of a segmentation type.
fn name(gso_type: GsoType) -> &'static str {
    match gso_type {
        GsoType::TcpV4(_) => "TCP over IPv4",
        GsoType::TcpV6(_) => "TCP over IPv6",
        GsoType::Udp => "UDP to be fragmented",
        GsoType::UdpL4 => "UDP",
    }
}
