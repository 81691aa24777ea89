//! Transmit segmentation and checksum offload: segments frames of up to 64 KB that a kernel passes on
//! unsegmented (generic segmentation offload, GSO), and completes partial checksums.
//!
//! [`Segments`] turns one frame, with its virtio header (from a TAP or an AF_PACKET socket), into packets for
//! the wire. It borrows the frame, allocates nothing, and never reads beyond the IP packet. The rules are
//! those of Linux's `tcp_gso_segment`, `__udp_gso_segment` and `inet_gso_segment`:
//!
//! | case | what happens |
//! |---|---|
//! | no segmentation, complete checksum | the frame is sent unchanged, whatever it contains |
//! | no segmentation, partial checksum (`NEEDS_CSUM`) | the bytes from `csum_start` on are summed; with the checksum at offset 6, as in UDP, 0 becomes 0xFFFF |
//! | TCP | payload cut to `gso_size`, sequence number advanced; FIN and PSH on the last segment only, CWR on the first only (RFC 3168 section 6.1.2), with or without `GSO_ECN`, or on all ([`Segments::repeat_cwr`]); all other fields and options unchanged |
//! | UDP (`GSO_UDP_L4`) | payload cut to `gso_size`; each piece is a datagram with its own length |
//! | UDP fragments (`GSO_UDP`) over IPv4 | the datagram, its checksum completed, is cut to fragments of `gso_size` rounded down to 8 bytes; DF cleared, identification and options equal in all |
//! | UDP fragments over IPv6 | rejected if the datagram is longer than `gso_size`: the fragments have no identification |
//! | IPv4 | own total length and header checksum; the identification increases by one per packet, with or without DF (Linux's default; the virtio header cannot express fixed identifications, `SKB_GSO_TCP_FIXEDID`) |
//! | IPv6 | own payload length; extension headers unchanged; fragments, authentication headers, routing headers with segments left, home addresses and jumbograms are rejected |
//! | partial checksum behind the frame's own transport header | the frame is segmented within its tunnel: IPIP, IP in IPv6, GRE (without sequence numbers), or at any port VXLAN or Geneve, whose header gets its own lengths, identification and checksums |
//! | checksum | complete; for TCP, [`Segments::leave_tcp_checksums`] leaves it partial |
//! | payload no longer than `gso_size`, or empty | one packet, by the same rules |
//! | bytes behind the IP packet | omitted if the frame needs segmentation |
//! | `hdr_len` | ignored: the frame's headers are parsed |
//! | no virtio header, as in a capture ([`Segments::within`]) | TCP or UDP as above, with a given MTU or payload size; in IPIP, IP in IPv6 and PPP over Ethernet, too, with the tunnel header's length, checksum and identification (increased by one, or fixed); also in VXLAN and Geneve at their ports ([`Segments::within_any_tunnel`]) |
//! | the frame's own checksum | ignored if the frame needs segmentation: recomputed from the addresses in the IP header |
//!
//! Frames that cannot be segmented give a [`SegmentError`]. Every packet carries at least one byte of
//! payload, so there are fewer than 65,535, however small `gso_size` is; [`Segments::remaining`] returns the
//! number in advance.
//!
//! ```
//! use nichrome_tso::Segments;
//! use nichrome_wire::{TcpFrame, VirtioNetHeader, VirtioNetRepr};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let frame = TcpFrame { payload: vec![7; 4000], ..TcpFrame::default() }.build();
//! let header = VirtioNetHeader {
//!     flags: VirtioNetHeader::NEEDS_CSUM,
//!     gso_type: VirtioNetHeader::GSO_TCPV4,
//!     hdr_len: 54,
//!     gso_size: 1460,
//!     csum_start: 34,
//!     csum_offset: 16,
//! };
//! let mut segments = Segments::new(&frame, &VirtioNetRepr::parse(&header, frame.len())?)?;
//! assert_eq!((segments.remaining(), segments.bytes_remaining()), (3, 4000 + 3 * 54));
//! let (mut packet, mut lengths) = (Vec::new(), Vec::new());
//! while segments.append_next(&mut packet) {
//!     lengths.push(packet.len());
//!     packet.clear();
//! }
//! assert_eq!(lengths, [1514, 1514, 1134]);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod checksum;
mod error;
mod fragment;
mod in_place;
mod ip;
mod place;
mod plan;
mod segments;
mod tcp;
mod tunnel;
mod udp;

pub use checksum::complete_checksum;
pub use error::SegmentError;
pub use in_place::{InPlace, Placed};
pub use nichrome_wire::{VirtioNetHeader, VirtioNetRepr};
pub use segments::{Limit, Segments};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
