//! The classic pcap format (draft-ietf-opsawg-pcap): a file header of 24 bytes, then records with headers of
//! 16 bytes.

use super::source::{ByteOrder, Source};
use super::{LinkType, MAX_RECORD, ReadError, Record};
use nichrome_wire::Instant;
use std::io::Read;

/// Magic number, byte order, and nanoseconds per unit of the fractional timestamp field.
pub(super) const MAGICS: [([u8; 4], ByteOrder, u32); 4] = [
    ([0xA1, 0xB2, 0xC3, 0xD4], ByteOrder::Big, 1000),
    ([0xD4, 0xC3, 0xB2, 0xA1], ByteOrder::Little, 1000),
    ([0xA1, 0xB2, 0x3C, 0x4D], ByteOrder::Big, 1),
    ([0x4D, 0x3C, 0xB2, 0xA1], ByteOrder::Little, 1),
];

/// The values of the file header that the reader needs for records.
#[derive(Debug)]
pub(super) struct Pcap {
    order: ByteOrder,
    /// Nanoseconds per unit of the fractional timestamp: 1000 or 1.
    tick: u32,
    lengths: Lengths,
    link_type: LinkType,
}

/// The order of the two length fields of a record. Versions before 2.3, and some writers of 2.3, store the
/// original length first. Same rule as libpcap's sf-pcap.c.
#[derive(Clone, Copy, Debug)]
enum Lengths {
    InOrder,
    Swapped,
    /// The smaller of the two is the captured length.
    Either,
}

impl Lengths {
    /// Returns the captured and the original length.
    fn sort(self, [first, second]: [u32; 2]) -> [u32; 2] {
        match self {
            Self::Swapped => [second, first],
            Self::Either if first > second => [second, first],
            Self::Either | Self::InOrder => [first, second],
        }
    }
}

impl Pcap {
    /// Reads the rest of the file header, after the magic number.
    pub(super) fn start<R: Read>(
        source: &mut Source<R>,
        order: ByteOrder,
        tick: u32,
    ) -> Result<Self, ReadError> {
        let mut header = [[0; 4]; 5];
        source.fill(header.as_flattened_mut())?;
        let [[major0, major1, minor0, minor1], _zone, _accuracy, _snap_len, link_type] = header;
        let (major, minor) = (order.u16([major0, major1]), order.u16([minor0, minor1]));
        let lengths = match (major, minor) {
            (2, 0..=2) => Lengths::Swapped,
            (2, 3) => Lengths::Either,
            (2, 4) => Lengths::InOrder,
            _ => return Err(ReadError::UnsupportedVersion { major, minor }),
        };
        // The top bits hold the length of a frame check sequence (draft-ietf-opsawg-pcap, section 4), which
        // follows the packet like padding and is ignored.
        let code = order.u32(link_type) & 0x03FF_FFFF;
        let link_type = LinkType::from_code(code).ok_or(ReadError::UnsupportedLinkType { code })?;
        source.end_unit();
        Ok(Self { order, tick, lengths, link_type })
    }

    /// Reads the next record; `None` at the end of the file.
    pub(super) fn next<R: Read>(
        &self,
        source: &mut Source<R>,
        data: &mut Vec<u8>,
    ) -> Result<Option<Record>, ReadError> {
        let mut header = [[0; 4]; 4];
        if !source.begin(header.as_flattened_mut())? {
            return Ok(None);
        }
        let [seconds, fraction, first_len, second_len] = header.map(|word| self.order.u32(word));
        let [captured_len, original_len] = self.lengths.sort([first_len, second_len]);
        if captured_len > MAX_RECORD {
            return Err(source.corrupt(format!("a record of {captured_len} bytes, more than {MAX_RECORD}")));
        }
        source.fill_vec(data, captured_len)?;
        source.end_record();
        // At most 2³² × (10⁹ + 10³) < 2⁶⁴.
        let nanos = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * u64::from(self.tick);
        Ok(Some(Record {
            time: Instant::from_nanos(nanos),
            interface: 0,
            link_type: self.link_type,
            original_len,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{classic, message, read_all};
    use super::*;

    const FIRST: &[u8] = &[1, 2, 3, 4, 5];

    #[test]
    fn both_byte_orders_and_both_resolutions_are_read() {
        for (magic, order, tick) in MAGICS {
            let file = classic(magic, order, 1, &[(1_700_000_000, 999_999, 60, FIRST), (7, 8, 9, &[])]);
            let (records, error, _) = read_all(&file);
            assert!(error.is_none(), "{error:?}");
            let record = |nanos, original_len| Record {
                time: Instant::from_nanos(nanos),
                interface: 0,
                link_type: LinkType::Ethernet,
                original_len,
            };
            let first = 1_700_000_000_000_000_000 + 999_999 * u64::from(tick);
            let second = 7_000_000_000 + 8 * u64::from(tick);
            assert_eq!(records, [(record(first, 60), FIRST.to_vec()), (record(second, 9), vec![])]);
        }
    }

    #[test]
    fn the_largest_time_does_not_overflow() {
        let (magic, order, _) = MAGICS[0];
        let (records, ..) = read_all(&classic(magic, order, 1, &[(u32::MAX, u32::MAX, 0, &[])]));
        assert_eq!(records[0].0.time.as_nanos(), u64::from(u32::MAX) * 1_000_001_000);
    }

    #[test]
    fn the_bits_above_the_link_type_are_ignored() {
        let (magic, order, _) = MAGICS[1];
        let (records, error, _) = read_all(&classic(magic, order, 0x5400_0065, &[(0, 0, 5, FIRST)]));
        assert!(error.is_none(), "{error:?}");
        assert_eq!(records[0].0.link_type, LinkType::RawIp);
    }

    #[test]
    fn an_unsupported_link_type_is_named() {
        let (magic, order, _) = MAGICS[0];
        let (_, error, _) = read_all(&classic(magic, order, 105, &[]));
        assert!(matches!(error, Some(ReadError::UnsupportedLinkType { code: 105 })), "{error:?}");
    }

    #[test]
    fn old_versions_have_their_lengths_the_other_way_round() {
        let (magic, order, _) = MAGICS[0];
        let lens = |minor, swap: bool| {
            let mut file = classic(magic, order, 1, &[(0, 0, 60, FIRST)]);
            file[7] = minor;
            if swap {
                let (captured, original) = file[32..40].split_at_mut(4);
                captured.swap_with_slice(original);
            }
            let (records, error, _) = read_all(&file);
            assert!(error.is_none(), "{error:?}");
            records.iter().map(|(record, bytes)| (record.original_len, bytes.len())).collect::<Vec<_>>()
        };
        for (minor, swap) in [(0, true), (1, true), (2, true), (3, true), (3, false), (4, false)] {
            assert_eq!(lens(minor, swap), [(60, 5)], "2.{minor}");
        }
    }

    #[test]
    fn another_version_is_refused_by_its_number() {
        let (magic, order, _) = MAGICS[0];
        let mut file = classic(magic, order, 1, &[]);
        file[7] = 5;
        assert_eq!(message(&file), "pcap version 2.5 is not supported: use 2.0 to 2.4");
    }

    #[test]
    fn a_record_of_more_than_the_maximum_is_corrupt() {
        let (magic, order, _) = MAGICS[1];
        let most = vec![7; MAX_RECORD as usize];
        let (records, error, _) = read_all(&classic(magic, order, 1, &[(0, 0, 0, &most)]));
        assert!(error.is_none() && records[0].1 == most);
        let more = vec![7; MAX_RECORD as usize + 1];
        let (records, error, progress) =
            read_all(&classic(magic, order, 1, &[(0, 0, 5, FIRST), (0, 0, 0, &more)]));
        assert_eq!((records.len(), progress.records, progress.bytes), (1, 1, 24 + 16 + 5));
        assert!(matches!(error, Some(ReadError::Corrupt { offset: 45, .. })), "{error:?}");
    }
}
