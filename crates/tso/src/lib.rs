//! Transmit segmentation and checksum: what a card does with the frames of up to 64 KB that a kernel leaves to be cut
//! (generic segmentation offload, GSO), and with the checksums that it leaves to be completed.
//!
//! [`Segments`] turns one frame, with the virtio header that came before it (from a TAP or an AF_PACKET socket), into the
//! packets for the wire. It borrows the frame, allocates nothing, and never looks beyond the IP packet. The rules are
//! those of Linux's own `tcp_gso_segment`, `__udp_gso_segment` and `inet_gso_segment`:
//!
//! | case | what happens |
//! |---|---|
//! | no segmentation, no unfinished checksum | the frame goes out as it is, whatever it holds |
//! | no segmentation, unfinished checksum (`NEEDS_CSUM`) | everything from `csum_start` is summed; with the checksum at 6 bytes from there, UDP's place, 0 becomes 0xFFFF |
//! | TCP | payload cut to `gso_size`, sequence number advanced; FIN and PSH on the last segment only, CWR on the first only (RFC 3168 section 6.1.2), with or without `GSO_ECN`; all other fields and options as they are |
//! | UDP (`GSO_UDP_L4`) | payload cut to `gso_size`, each piece a datagram with a length of its own |
//! | UDP fragments (`GSO_UDP`) over IPv4 | the datagram, its checksum completed, cut to fragments of `gso_size` rounded down to 8 bytes; DF cleared, identification and options the same in all |
//! | UDP fragments over IPv6 | refused, where the datagram is longer than `gso_size`: nobody gave the fragments an identification |
//! | IPv4 | total length and header checksum of its own; the identification goes up by one from packet to packet, with DF as without (Linux's default; fixed identifications, `SKB_GSO_TCP_FIXEDID`, have no place in the virtio header) |
//! | IPv6 | payload length of its own; extension headers as they are; refused are fragments, an authentication header, a routing header with segments left, and jumbograms |
//! | payload no longer than `gso_size`, or none | one packet, by the same rules |
//! | bytes after the IP packet | of a frame to be cut, left out |
//! | `hdr_len` | ignored: the frame's own headers are read |
//! | no virtio header, as in a capture ([`Segments::within`]) | TCP or UDP as above, the size from an MTU or given |
//! | a checksum in the frame | of a frame to be cut, ignored: it is computed anew, from the addresses in the IP header |
//!
//! What cannot be cut has a [`SegmentError`]. Every packet of a frame to be cut holds at least one byte of the IP
//! packet's 65,535, so there are fewer than 65,535 however small `gso_size` is; a caller who wants fewer asks
//! [`Segments::remaining`] first.
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
mod ip;
mod place;
mod segments;
mod tcp;
mod udp;

pub use checksum::complete_checksum;
pub use error::SegmentError;
pub use segments::{Limit, Segments};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
