//! PPP over Ethernet, session stage (RFC 2516 section 6), with an IP packet.

use crate::ethertype::EtherType;

/// The headers of PPPoE and PPP before an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PppoeHeader {
    ethertype: EtherType,
    end: usize,
}

impl PppoeHeader {
    /// Length of both headers, in bytes.
    pub const LEN: usize = 8;
    /// Leading bytes that the length field does not cover.
    pub const UNCOVERED: usize = 6;

    /// Reads the headers: version and type 1, code 0, session, length, PPP protocol. `None` if the data is of
    /// no session, or is no IP packet.
    #[inline]
    pub fn new(data: &[u8]) -> Option<Self> {
        let [0x11, 0, _, _, high, low, 0, protocol] = data.first_chunk()? else { return None };
        let ethertype = match protocol {
            0x21 => EtherType::IPV4,
            0x57 => EtherType::IPV6,
            _ => return None,
        };
        Some(Self { ethertype, end: Self::UNCOVERED + usize::from(u16::from_be_bytes([*high, *low])) })
    }

    /// Returns the EtherType of the packet: IPv4 or IPv6.
    #[inline]
    pub const fn ethertype(self) -> EtherType {
        self.ethertype
    }

    /// Returns the end of the packet by the length field, in bytes from the start of the headers.
    #[inline]
    pub const fn end(self) -> usize {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_data_is_read_if_it_is_ip() {
        let data = [0x11, 0, 0, 7, 1, 2, 0, 0x21, 0x45];
        let header = PppoeHeader::new(&data).unwrap();
        assert_eq!((header.ethertype(), header.end()), (EtherType::IPV4, 6 + 0x102));
        let with = |at: usize, byte: u8| {
            let mut other = data;
            other[at] = byte;
            PppoeHeader::new(&other).map(PppoeHeader::ethertype)
        };
        assert_eq!(with(7, 0x57), Some(EtherType::IPV6));
        // Another version, code or protocol.
        assert_eq!([with(0, 0x21), with(1, 9), with(6, 0xC0), with(7, 0x23)], [None; 4]);
        assert_eq!(PppoeHeader::new(&data[..7]), None);
    }
}
