//! Invariants for any message, and for any bytes.

use nichrome_wire::cm::{IpHeader, MAD_LEN, Mad, PrivateData};
use proptest::collection::vec;
use proptest::prelude::*;

use super::generated::{ip_header, mad};

proptest! {
    #[test]
    fn what_is_written_parses_to_the_same(mad in mad()) {
        prop_assert_eq!(Mad::parse(&mad.to_bytes()), Ok(mad));
    }

    #[test]
    fn any_mad_that_parses_is_written_and_parses_to_the_same(mut bytes in vec(any::<u8>(), MAD_LEN), kind in 0x0Fu8..0x1C) {
        bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
        bytes[16..18].copy_from_slice(&[0, kind]);
        if let Ok(mad) = Mad::parse(&bytes) {
            prop_assert_eq!(Mad::parse(&mad.to_bytes()), Ok(mad));
        }
    }

    #[test]
    fn any_bytes_parse_or_fail(bytes in vec(any::<u8>(), 0..300)) {
        prop_assert!(Mad::parse(&bytes).is_err() || bytes.len() == MAD_LEN);
    }

    #[test]
    fn private_data_is_behind_the_ip_header(header in ip_header(), data in vec(any::<u8>(), 0..60)) {
        let joined = header.join::<92>(&data);
        prop_assert_eq!(joined.is_ok(), data.len() <= 56);
        if let Ok(joined) = joined {
            let split = IpHeader::split(&joined).unwrap();
            prop_assert_eq!(split.header, header);
            prop_assert_eq!(&split.data[..data.len()], &data);
        }
    }

    #[test]
    fn any_private_data_splits_or_fails(data in any::<[u8; 32]>(), more in any::<[u8; 32]>(), is_right in any::<bool>()) {
        let mut bytes = [data, more].concat();
        if is_right {
            // Make the versions right, which random bytes seldom are.
            bytes[0] = 0;
            let ip_version = if data[0] < 0x80 { 4 } else { 6 };
            bytes[1] = ip_version << 4 | data[1] & 0x0F;
        }
        let has_versions = bytes[0] == 0 && matches!(bytes[1] >> 4, 4 | 6);
        let data = PrivateData::<64>(bytes.try_into().unwrap());
        let split = IpHeader::split(&data);
        prop_assert_eq!(split.is_ok(), has_versions);
        if let Ok(split) = split {
            let joined = split.header.join::<64>(split.data).unwrap();
            prop_assert_eq!(IpHeader::split(&joined), Ok(split));
        }
    }
}
