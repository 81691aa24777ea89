//! Verifies the checksums of received frames: the IPv4 header checksum of every frame, as Linux's
//! `inet_gro_receive` does, and the transport checksum if its status is unknown.

use nichrome_wire::{AddressPair, Ipv4Header, Ipv6Header};

use crate::common;
use crate::frame::{ChecksumStatus, Frame};
use crate::reason::DropReason;
use crate::segment::Layout;
use crate::tunnel::Tunnel;

/// Verifies the checksums of a segment or datagram with `len` bytes of payload.
#[inline]
pub(crate) fn verify<B: AsRef<[u8]>>(frame: &Frame<B>, layout: Layout, len: u32) -> Result<(), DropReason> {
    if has_valid_ip_checksums(frame.bytes(), layout) {
        verify_transport(frame, layout, len)
    } else {
        Err(DropReason::IpChecksum)
    }
}

/// As [`verify`], for a [common frame](common).
#[inline(always)]
pub(crate) fn verify_common<B: AsRef<[u8]>>(
    frame: &Frame<B>,
    layout: Layout,
    len: u32,
) -> Result<(), DropReason> {
    if common::has_valid_ip_checksum(frame.bytes()) {
        verify_transport(frame, layout, len)
    } else {
        Err(DropReason::IpChecksum)
    }
}

/// Verifies the TCP or UDP checksum if its status is unknown.
#[inline(always)]
pub(crate) fn verify_transport<B: AsRef<[u8]>>(
    frame: &Frame<B>,
    layout: Layout,
    len: u32,
) -> Result<(), DropReason> {
    match frame.checksum {
        ChecksumStatus::Unknown => compute_transport(frame.bytes(), layout, len),
        ChecksumStatus::Verified | ChecksumStatus::Unfinished => Ok(()),
    }
}

/// Returns true if the checksums of the IPv4 header and of an IPv4 tunnel header are right, where present.
#[inline]
fn has_valid_ip_checksums(frame: &[u8], layout: Layout) -> bool {
    let is_valid = |ip: usize| {
        let header = frame.get(ip..).and_then(Ipv4Header::new);
        header.is_some_and(|header| header.has_valid_checksum())
    };
    (!layout.is_ipv4() || is_valid(usize::from(layout.network)))
        && (layout.tunnel != Tunnel::Ipv4 || is_valid(layout.outer()))
}

/// Computes and verifies the TCP or UDP checksum.
#[cold]
fn compute_transport(frame: &[u8], layout: Layout, len: u32) -> Result<(), DropReason> {
    let (network, transport) = (usize::from(layout.network), usize::from(layout.transport));
    let end = usize::from(layout.payload) + len as usize;
    let packet = &frame[network..];
    let addresses = if layout.is_ipv4() {
        let ip = Ipv4Header::new(packet).ok_or(DropReason::IpChecksum)?;
        AddressPair::V4 { src: ip.src(), dst: ip.dst() }
    } else {
        let ip = Ipv6Header::new(packet).ok_or(DropReason::IpChecksum)?;
        AddressPair::V6 { src: ip.src(), dst: ip.dst() }
    };
    let pseudo = addresses.pseudo_header(layout.protocol(), (end - transport) as u32);
    if pseudo.add_bytes(&frame[transport..end]).finish() == 0 {
        Ok(())
    } else if layout.is_udp() {
        Err(DropReason::UdpChecksum)
    } else {
        Err(DropReason::TcpChecksum)
    }
}
