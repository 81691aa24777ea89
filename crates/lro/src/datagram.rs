//! Header fields of a received UDP datagram, read in one pass.

use nichrome_wire::{IpProtocol, UdpHeader};

use crate::flow::FlowKey;
use crate::network;
use crate::reason::PassReason;
use crate::segment::{Idents, Layout, Medium};
use crate::template::MAX_HEADER;

/// A UDP datagram that may be merged with others of its flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram {
    pub(crate) layout: Layout,
    pub(crate) payload_len: u32,
    pub(crate) idents: Idents,
}

/// A frame whose transport header is UDP's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UdpPacket {
    pub(crate) flow: FlowKey,
    /// The datagram; or why it cannot be coalesced, in which case its flow is flushed before it passes.
    pub(crate) datagram: Result<Datagram, PassReason>,
}

/// Reads the headers of a frame; `None` if there is no UDP header.
pub(crate) fn read(frame: &[u8], medium: Medium) -> Option<UdpPacket> {
    let ip = network::read(frame, medium, IpProtocol::UDP).ok()?;
    let carried = frame.get(ip.transport..ip.end)?;
    let udp = UdpHeader::new(carried)?;
    let payload = ip.transport + UdpHeader::LEN;
    let layout = Layout {
        network: ip.start as u8,
        tunnel: ip.tunnel,
        transport: ip.transport as u16,
        payload: payload as u16,
        version: ip.version,
        timestamps: 0,
    };
    let payload_len = (carried.len() - UdpHeader::LEN) as u32;
    let datagram = Datagram { layout, payload_len, idents: Idents::read(frame, layout) };
    let barrier = if ip.barrier.is_some() {
        ip.barrier
    } else if usize::from(udp.length()) != carried.len() {
        Some(PassReason::Malformed)
    } else if datagram.payload_len == 0 {
        Some(PassReason::EmptyDatagram)
    } else if ip.options || payload > MAX_HEADER {
        Some(PassReason::IpOptions)
    } else if ip.end < frame.len() {
        Some(PassReason::Trailer)
    } else if udp.checksum() == 0 {
        Some(PassReason::NoChecksum)
    } else {
        (!ip.usual_ip_checksum).then_some(PassReason::UnusualChecksum)
    };
    Some(UdpPacket {
        flow: ip.addresses.with_ports(udp.src_port(), udp.dst_port()).over_udp(),
        datagram: barrier.map_or(Ok(datagram), Err),
    })
}
