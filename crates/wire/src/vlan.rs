//! VLAN tags (IEEE 802.1Q, 802.1ad).

use crate::ethertype::EtherType;

/// A VLAN tag (802.1Q).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VlanTag {
    /// Tag protocol identifier: [`EtherType::VLAN`] or [`EtherType::QINQ`].
    pub tpid: EtherType,
    /// Tag control information: priority, drop eligibility, VLAN identifier.
    pub tci: u16,
}

impl VlanTag {
    /// VLAN identifier, 0 to 4095.
    #[inline]
    pub const fn vid(self) -> u16 {
        self.tci & 0x0FFF
    }

    /// Priority code point, 0 to 7.
    #[inline]
    pub const fn pcp(self) -> u8 {
        (self.tci >> 13) as u8
    }

    /// Drop eligible indicator.
    #[inline]
    pub const fn dei(self) -> bool {
        self.tci & 0x1000 != 0
    }
}

/// The tags of a frame, outermost first: none; one of either type; or two, the inner one 802.1Q.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tags {
    tags: [VlanTag; 2],
    len: u8,
}

impl Tags {
    /// No tags.
    pub const NONE: Self = Self { tags: [VlanTag { tpid: EtherType(0), tci: 0 }; 2], len: 0 };

    /// Creates tags; `None` if there are more than two, or if the types are not allowed in this order.
    pub fn from_slice(tags: &[VlanTag]) -> Option<Self> {
        let mut all = Self::NONE;
        for &tag in tags {
            if !all.continue_with(tag.tpid) {
                return None;
            }
            all.push(tag);
        }
        Some(all)
    }

    /// The tags, outermost first.
    #[inline]
    pub fn as_slice(&self) -> &[VlanTag] {
        match self.len {
            0 => &[],
            1 => &self.tags[..1],
            _ => &self.tags,
        }
    }

    /// Returns the number of tags, 0 to 2.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if there is no tag.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if `ethertype` behind these tags announces another tag that can be read.
    #[inline]
    pub(crate) const fn continue_with(&self, ethertype: EtherType) -> bool {
        match self.len {
            0 => matches!(ethertype, EtherType::VLAN | EtherType::QINQ),
            1 => matches!(ethertype, EtherType::VLAN),
            _ => false,
        }
    }

    /// Adds an inner tag; requires [`Tags::continue_with`].
    #[inline]
    pub(crate) fn push(&mut self, tag: VlanTag) {
        if let Some(place) = self.tags.get_mut(usize::from(self.len)) {
            *place = tag;
            self.len += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(tpid: EtherType) -> VlanTag {
        VlanTag { tpid, tci: 1 }
    }

    #[test]
    fn a_tag_is_priority_eligibility_and_identifier() {
        let tag = VlanTag { tpid: EtherType::VLAN, tci: 0b1011_0000_0000_0011 };
        assert_eq!((tag.pcp(), tag.dei(), tag.vid()), (5, true, 3));
    }

    #[test]
    fn one_tag_of_either_kind_or_two_of_which_the_inner_is_802_1q() {
        let (vlan, qinq) = (tag(EtherType::VLAN), tag(EtherType::QINQ));
        for tags in [&[][..], &[vlan], &[qinq], &[vlan, vlan], &[qinq, vlan]] {
            let all = Tags::from_slice(tags).unwrap();
            assert_eq!((all.as_slice(), all.len(), all.is_empty()), (tags, tags.len(), tags.is_empty()));
        }
        for tags in [&[tag(EtherType::IPV4)][..], &[qinq, qinq], &[vlan, qinq], &[vlan, vlan, vlan]] {
            assert_eq!(Tags::from_slice(tags), None);
        }
    }
}
