//! VLAN tags stripped by the kernel, which passes the outermost tag beside the frame.

use nichrome_wire::{EtherType, VirtioNetHeader, VlanTag};

/// Length of a VLAN tag, in bytes.
pub(crate) const TAG_LEN: usize = 4;

/// Offset of a VLAN tag in a frame: behind the two MAC addresses.
pub(crate) const ADDRESSES_LEN: usize = 12;

/// Decodes the stripped tag from `tp_status`, `tp_vlan_tci` and `tp_vlan_tpid` (packet(7)).
#[inline]
pub(crate) fn stripped_tag(status: u32, tci: u16, tpid: u16) -> Option<VlanTag> {
    let says = |flag| status & flag != 0;
    let tpid = if says(libc::TP_STATUS_VLAN_TPID_VALID) { EtherType(tpid) } else { EtherType::VLAN };
    says(libc::TP_STATUS_VLAN_VALID).then_some(VlanTag { tpid, tci })
}

/// Encodes a tag.
#[inline]
pub(crate) fn tag_bytes(VlanTag { tpid, tci }: VlanTag) -> [u8; TAG_LEN] {
    let ([a, b], [c, d]) = (tpid.0.to_be_bytes(), tci.to_be_bytes());
    [a, b, c, d]
}

/// Adjusts the offsets of a virtio_net_hdr for an inserted tag.
#[inline]
pub(crate) fn behind_a_tag(mut virtio: VirtioNetHeader) -> VirtioNetHeader {
    if virtio.flags & VirtioNetHeader::NEEDS_CSUM != 0 {
        virtio.csum_start = virtio.csum_start.saturating_add(TAG_LEN as u16);
    }
    if virtio.gso_type != VirtioNetHeader::GSO_NONE {
        virtio.hdr_len = virtio.hdr_len.saturating_add(TAG_LEN as u16);
    }
    virtio
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_without_a_tpid_is_an_802_1q_tag() {
        let (valid, with_tpid) = (libc::TP_STATUS_VLAN_VALID, libc::TP_STATUS_VLAN_TPID_VALID);
        assert_eq!(stripped_tag(with_tpid, 7, 0x88A8), None);
        assert_eq!(stripped_tag(valid, 7, 0), Some(VlanTag { tpid: EtherType::VLAN, tci: 7 }));
        let outer = stripped_tag(valid | with_tpid, 0x2007, 0x88A8).unwrap();
        assert_eq!(tag_bytes(outer), [0x88, 0xA8, 0x20, 7]);
    }

    #[test]
    fn only_valid_offsets_move_behind_a_tag() {
        let none = VirtioNetHeader::default();
        assert_eq!(behind_a_tag(none), none);
        let full = VirtioNetHeader {
            flags: VirtioNetHeader::NEEDS_CSUM,
            gso_type: VirtioNetHeader::GSO_TCPV4,
            hdr_len: 54,
            csum_start: 34,
            ..none
        };
        assert_eq!(behind_a_tag(full), VirtioNetHeader { hdr_len: 58, csum_start: 38, ..full });
    }
}
