//! Active ACK (lro-npu V.C): ACK frames that the card generates.

use nichrome_wire::checksum::{self, Sum};
use nichrome_wire::{SeqNumber, TcpFlags};

use crate::ack_frame::AckBytes;
use crate::segment::{Layout, Segment};

/// When the card generates ACK frames (lro-npu V.C).
///
/// | rule | `paper` | `safe` |
/// |---|---|---|
/// | when | for every data packet | when data was delivered to the host |
/// | ACK number | nextseq: buffered bytes count | the end of the bytes delivered without a gap, if the host has not acknowledged them yet |
/// | window | 0xFFFF | up to the right edge that the host has advertised; no ACK without the host's window scale |
/// | data beyond the right edge | acknowledged | does not count as delivered: the host discards it |
/// | timestamps | the values of the packet, exchanged | the host's latest value, as seen on the transmit path |
/// | suspended | never | on a gap, SACK or other options, ECN echo or CE, a zero window, a host whose ACKs were not seen; on data that the host may discard: with an older timestamp (PAWS), with an ACK number beyond what the host has sent, or in a control segment; after RST, or a packet that the host refused, until the host transmits again; after FIN or eviction, until the next SYNs: the engine has forgotten what it acknowledged, and an ACK number must not go back |
/// | segments that are not parsed (fragments, IPv6 routing header or home address) | not said | left to the host |
///
/// The paper's rule acknowledges bytes that the host may never receive (it drops an aggregate, it stops
/// reading). That breaks the connection: the sender has released them. `safe` acknowledges only delivered
/// bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ActiveAck {
    /// Never.
    #[default]
    Off,
    /// As in lro-npu V.C. Can break connections.
    Paper,
    /// Only bytes delivered to the host, within the window that the host has advertised.
    Safe,
}

/// The fields of an ACK frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acknowledgement {
    pub(crate) seq: SeqNumber,
    pub(crate) ack: SeqNumber,
    /// The header field, scaled.
    pub(crate) window: u16,
    /// Value and echo of the timestamps option.
    pub(crate) timestamps: Option<(u32, u32)>,
}

impl Acknowledgement {
    /// Returns the paper's ACK for a data packet: nextseq, and the largest window field.
    pub(crate) fn paper(segment: &Segment, nextseq: SeqNumber) -> Self {
        Self {
            seq: segment.ack,
            ack: nextseq,
            window: 0xFFFF,
            timestamps: segment.timestamps.map(|timestamps| (timestamps.echo, timestamps.value)),
        }
    }

    /// Writes an ACK frame with these fields to `out`, addressed to the sender of the frame with the header
    /// `received`.
    pub(crate) fn write(&self, received: &[u8], layout: Layout, out: &mut AckBytes) -> Option<()> {
        let network = usize::from(layout.network);
        let transport = usize::from(layout.transport);
        let ip_len = if layout.is_ipv4() { 20 } else { 40 };
        let tcp_len = if self.timestamps.is_some() { 32 } else { 20 };
        let (link, rest) = out.resize(network + ip_len + tcp_len)?.split_at_mut(network);
        let (ip, tcp) = rest.split_at_mut(ip_len);
        link.copy_from_slice(received.get(..network)?);
        if let Some(addresses) = link.first_chunk_mut::<12>() {
            addresses.rotate_left(6);
        }
        write_ip(received.get(network..)?, ip, tcp_len)?;
        tcp.fill(0);
        tcp[..2].copy_from_slice(received.get(transport + 2..transport + 4)?);
        tcp[2..4].copy_from_slice(received.get(transport..transport + 2)?);
        tcp[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        tcp[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        tcp[12] = (tcp_len as u8 / 4) << 4;
        tcp[13] = TcpFlags::ACK.bits() as u8;
        tcp[14..16].copy_from_slice(&self.window.to_be_bytes());
        if let Some((value, echo)) = self.timestamps {
            tcp[20..24].copy_from_slice(&[1, 1, 8, 10]);
            tcp[24..28].copy_from_slice(&value.to_be_bytes());
            tcp[28..32].copy_from_slice(&echo.to_be_bytes());
        }
        let addresses = &ip[ip_len - if ip_len == 20 { 8 } else { 32 }..];
        let sum = Sum::new().add_bytes(addresses).add_u32(6).add_u32(tcp_len as u32).add_bytes(tcp).finish();
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        Some(())
    }
}

/// Writes an IP header with the addresses of `received` exchanged, for `payload` bytes.
fn write_ip(received: &[u8], ip: &mut [u8], payload: usize) -> Option<()> {
    const HOPS: u8 = 64;
    const TCP: u8 = 6;
    ip.fill(0);
    if let Ok(ip) = <&mut [u8; 20]>::try_from(&mut *ip) {
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&(20 + payload as u16).to_be_bytes());
        ip[6] = 0x40; // do not fragment
        ip[8] = HOPS;
        ip[9] = TCP;
        ip[12..16].copy_from_slice(received.get(16..20)?);
        ip[16..20].copy_from_slice(received.get(12..16)?);
        let sum = checksum::checksum(ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    } else {
        ip[0] = 0x60;
        ip[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
        ip[6] = TCP;
        ip[7] = HOPS;
        ip[8..24].copy_from_slice(received.get(24..40)?);
        ip[24..40].copy_from_slice(received.get(8..24)?);
    }
    Some(())
}
