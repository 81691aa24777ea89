//! The virtio_net_hdr in front of each frame of a virtio network card or a TAP device with `IFF_VNET_HDR`
//! (virtio 1.2 section 5.1.6, `linux/virtio_net.h`): pending checksum and segmentation offloads.

use std::num::NonZeroU16;

use thiserror::Error;

use crate::bytes::{array, put};

/// A raw `struct virtio_net_hdr`; little-endian, as in virtio 1.0 and on TAP devices of little-endian
/// machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VirtioNetHeader {
    /// [`VirtioNetHeader::NEEDS_CSUM`] and [`VirtioNetHeader::DATA_VALID`].
    pub flags: u8,
    /// One of the `GSO_` constants, optionally with [`VirtioNetHeader::GSO_ECN`].
    pub gso_type: u8,
    /// Length of all headers of the frame, in bytes: a hint.
    pub hdr_len: u16,
    /// Payload of each segment but the last, in bytes.
    pub gso_size: u16,
    /// Where checksumming starts, in bytes from the start of the frame.
    pub csum_start: u16,
    /// Checksum field, in bytes from `csum_start`.
    pub csum_offset: u16,
}

impl VirtioNetHeader {
    /// Bytes of the header.
    pub const LEN: usize = 10;
    /// Length with the number of buffers: virtio 1.0, or mergeable receive buffers.
    pub const LEN_WITH_NUM_BUFFERS: usize = 12;

    /// Flag: partial checksum; the field holds the pseudo-header's sum.
    pub const NEEDS_CSUM: u8 = 1;
    /// Flag: the checksum has been verified.
    pub const DATA_VALID: u8 = 2;

    /// No segmentation.
    pub const GSO_NONE: u8 = 0;
    /// TCP over IPv4.
    pub const GSO_TCPV4: u8 = 1;
    /// UDP, by IP fragmentation.
    pub const GSO_UDP: u8 = 3;
    /// TCP over IPv6.
    pub const GSO_TCPV6: u8 = 4;
    /// UDP, into datagrams.
    pub const GSO_UDP_L4: u8 = 5;
    /// Bit in the type: TCP with CWR set in the first segment only (RFC 3168).
    pub const GSO_ECN: u8 = 0x80;

    /// Decodes a header.
    #[inline]
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let number = |at| u16::from_le_bytes(array(bytes, at));
        Self {
            flags: bytes[0],
            gso_type: bytes[1],
            hdr_len: number(2),
            gso_size: number(4),
            csum_start: number(6),
            csum_offset: number(8),
        }
    }

    /// Encodes the header.
    #[inline]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self.flags;
        bytes[1] = self.gso_type;
        put(&mut bytes, 2, self.hdr_len.to_le_bytes());
        put(&mut bytes, 4, self.gso_size.to_le_bytes());
        put(&mut bytes, 6, self.csum_start.to_le_bytes());
        put(&mut bytes, 8, self.csum_offset.to_le_bytes());
        bytes
    }

    /// Decodes a header with the number of buffers that hold the frame.
    #[inline]
    pub fn from_bytes_with_num_buffers(bytes: &[u8; Self::LEN_WITH_NUM_BUFFERS]) -> (Self, u16) {
        (Self::from_bytes(&array(bytes, 0)), u16::from_le_bytes(array(bytes, Self::LEN)))
    }

    /// Encodes the header with the number of buffers.
    #[inline]
    pub fn to_bytes_with_num_buffers(self, num_buffers: u16) -> [u8; Self::LEN_WITH_NUM_BUFFERS] {
        let mut bytes = [0; Self::LEN_WITH_NUM_BUFFERS];
        put(&mut bytes, 0, self.to_bytes());
        put(&mut bytes, Self::LEN, num_buffers.to_le_bytes());
        bytes
    }
}

/// A header that contradicts its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VirtioNetError {
    /// An unknown segmentation type, or the ECN bit on a type other than TCP.
    #[error("unknown virtio segmentation type {0:#04x}")]
    GsoType(u8),
    /// A segment size of 0.
    #[error("virtio segmentation of type {0:#04x} with a segment size of 0")]
    GsoSize(u8),
    /// The headers are longer than the frame.
    #[error("virtio header length {hdr_len} in a frame of {frame_len} bytes")]
    HeaderLength {
        /// The headers' length, in bytes.
        hdr_len: u16,
        /// The frame's length, in bytes.
        frame_len: usize,
    },
    /// The checksum field lies beyond the frame.
    #[error("virtio checksum at {csum_start} + {csum_offset} in a frame of {frame_len} bytes")]
    ChecksumPlace {
        /// Where checksumming starts, in bytes.
        csum_start: u16,
        /// Checksum field, in bytes from `csum_start`.
        csum_offset: u16,
        /// The frame's length, in bytes.
        frame_len: usize,
    },
}

/// The state of a frame's transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ChecksumState {
    /// Unverified: the field may be right or wrong.
    #[default]
    Unchecked,
    /// Verified as correct.
    Valid,
    /// Partial: the field holds the pseudo-header's sum; the sum of all bytes from `start` on is to be added
    /// and inverted.
    Partial {
        /// Where checksumming starts, in bytes from the start of the frame.
        start: u16,
        /// Checksum field, in bytes from `start`.
        offset: u16,
    },
}

/// Segmentation type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GsoType {
    /// TCP over IPv4.
    TcpV4(TcpGsoEcn),
    /// TCP over IPv6.
    TcpV6(TcpGsoEcn),
    /// IP fragments of a UDP datagram.
    Udp,
    /// UDP datagrams.
    UdpL4,
}

/// CWR during segmentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TcpGsoEcn {
    /// CWR is not set.
    #[default]
    NoCwr,
    /// CWR is set on the first segment only.
    CwrOnFirst,
}

/// A pending segmentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gso {
    /// The type.
    pub gso_type: GsoType,
    /// Payload of each segment but the last, in bytes.
    pub size: NonZeroU16,
    /// Length of all headers of the frame, in bytes: a hint.
    pub hdr_len: u16,
}

/// A valid header.
///
/// Allows segmentation without a partial checksum, which virtio 1.2 section 5.1.6.2 forbids but Linux
/// accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct VirtioNetRepr {
    /// State of the checksum.
    pub checksum: ChecksumState,
    /// Pending segmentation, if any.
    pub gso: Option<Gso>,
}

impl VirtioNetRepr {
    /// Parses the header of a frame of `frame_len` bytes. Ignores unknown flags.
    pub fn parse(header: &VirtioNetHeader, frame_len: usize) -> Result<Self, VirtioNetError> {
        let &VirtioNetHeader { flags, hdr_len, csum_start, csum_offset, .. } = header;
        if usize::from(hdr_len) > frame_len {
            return Err(VirtioNetError::HeaderLength { hdr_len, frame_len });
        }
        let checksum = if flags & VirtioNetHeader::NEEDS_CSUM != 0 {
            if usize::from(csum_start) + usize::from(csum_offset) + 2 > frame_len {
                return Err(VirtioNetError::ChecksumPlace { csum_start, csum_offset, frame_len });
            }
            ChecksumState::Partial { start: csum_start, offset: csum_offset }
        } else if flags & VirtioNetHeader::DATA_VALID != 0 {
            ChecksumState::Valid
        } else {
            ChecksumState::Unchecked
        };
        Ok(Self { checksum, gso: Gso::parse(header)? })
    }

    /// Encodes the header.
    pub fn emit(&self) -> VirtioNetHeader {
        let (flags, csum_start, csum_offset) = match self.checksum {
            ChecksumState::Unchecked => (0, 0, 0),
            ChecksumState::Valid => (VirtioNetHeader::DATA_VALID, 0, 0),
            ChecksumState::Partial { start, offset } => (VirtioNetHeader::NEEDS_CSUM, start, offset),
        };
        let (gso_type, gso_size, hdr_len) = match self.gso {
            None => (VirtioNetHeader::GSO_NONE, 0, 0),
            Some(gso) => (gso.gso_type.to_byte(), gso.size.get(), gso.hdr_len),
        };
        VirtioNetHeader { flags, gso_type, hdr_len, gso_size, csum_start, csum_offset }
    }
}

impl Gso {
    fn parse(header: &VirtioNetHeader) -> Result<Option<Self>, VirtioNetError> {
        let &VirtioNetHeader { gso_type: byte, gso_size, hdr_len, .. } = header;
        if byte == VirtioNetHeader::GSO_NONE {
            return Ok(None);
        }
        let gso_type = GsoType::from_byte(byte).ok_or(VirtioNetError::GsoType(byte))?;
        let size = NonZeroU16::new(gso_size).ok_or(VirtioNetError::GsoSize(byte))?;
        Ok(Some(Self { gso_type, size, hdr_len }))
    }
}

impl GsoType {
    const ALL: [Self; 6] = [
        Self::TcpV4(TcpGsoEcn::NoCwr),
        Self::TcpV4(TcpGsoEcn::CwrOnFirst),
        Self::TcpV6(TcpGsoEcn::NoCwr),
        Self::TcpV6(TcpGsoEcn::CwrOnFirst),
        Self::Udp,
        Self::UdpL4,
    ];

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|gso_type| gso_type.to_byte() == byte)
    }

    const fn to_byte(self) -> u8 {
        match self {
            Self::TcpV4(TcpGsoEcn::NoCwr) => VirtioNetHeader::GSO_TCPV4,
            Self::TcpV4(TcpGsoEcn::CwrOnFirst) => VirtioNetHeader::GSO_TCPV4 | VirtioNetHeader::GSO_ECN,
            Self::TcpV6(TcpGsoEcn::NoCwr) => VirtioNetHeader::GSO_TCPV6,
            Self::TcpV6(TcpGsoEcn::CwrOnFirst) => VirtioNetHeader::GSO_TCPV6 | VirtioNetHeader::GSO_ECN,
            Self::Udp => VirtioNetHeader::GSO_UDP,
            Self::UdpL4 => VirtioNetHeader::GSO_UDP_L4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A frame of 1,514 bytes, cut into segments of 1,448: Ethernet, IPv4, TCP with timestamps.
    const SEGMENTED: VirtioNetHeader = VirtioNetHeader {
        flags: VirtioNetHeader::NEEDS_CSUM,
        gso_type: VirtioNetHeader::GSO_TCPV4,
        hdr_len: 66,
        gso_size: 1448,
        csum_start: 34,
        csum_offset: 16,
    };

    #[test]
    fn numbers_are_little_endian() {
        let bytes = [1, 1, 66, 0, 0xA8, 5, 34, 0, 16, 0];
        assert_eq!(SEGMENTED.to_bytes(), bytes);
        assert_eq!(VirtioNetHeader::from_bytes(&bytes), SEGMENTED);
        let with_buffers = [1, 1, 66, 0, 0xA8, 5, 34, 0, 16, 0, 2, 1];
        assert_eq!(SEGMENTED.to_bytes_with_num_buffers(0x0102), with_buffers);
        assert_eq!(VirtioNetHeader::from_bytes_with_num_buffers(&with_buffers), (SEGMENTED, 0x0102));
    }

    #[test]
    fn a_header_tells_checksum_and_segmentation() {
        let size = NonZeroU16::new(1448).unwrap();
        let gso = Gso { gso_type: GsoType::TcpV4(TcpGsoEcn::NoCwr), size, hdr_len: 66 };
        let partial = ChecksumState::Partial { start: 34, offset: 16 };
        assert_eq!(
            VirtioNetRepr::parse(&SEGMENTED, 9000),
            Ok(VirtioNetRepr { checksum: partial, gso: Some(gso) })
        );
        let valid = VirtioNetHeader { flags: VirtioNetHeader::DATA_VALID, ..VirtioNetHeader::default() };
        assert_eq!(
            VirtioNetRepr::parse(&valid, 60),
            Ok(VirtioNetRepr { checksum: ChecksumState::Valid, gso: None })
        );
    }

    #[test]
    fn every_broken_rule_has_its_error() {
        let cases = [
            (VirtioNetHeader { gso_size: 0, ..SEGMENTED }, VirtioNetError::GsoSize(1)),
            (VirtioNetHeader { gso_type: 2, ..SEGMENTED }, VirtioNetError::GsoType(2)),
            (VirtioNetHeader { gso_type: 0x80, ..SEGMENTED }, VirtioNetError::GsoType(0x80)),
            (VirtioNetHeader { gso_type: 0x83, ..SEGMENTED }, VirtioNetError::GsoType(0x83)),
            (
                VirtioNetHeader { hdr_len: 101, ..SEGMENTED },
                VirtioNetError::HeaderLength { hdr_len: 101, frame_len: 100 },
            ),
            (
                VirtioNetHeader { csum_start: 83, ..SEGMENTED },
                VirtioNetError::ChecksumPlace { csum_start: 83, csum_offset: 16, frame_len: 100 },
            ),
        ];
        for (header, error) in cases {
            assert_eq!(VirtioNetRepr::parse(&header, 100), Err(error));
        }
        assert!(VirtioNetRepr::parse(&VirtioNetHeader { csum_start: 82, ..SEGMENTED }, 100).is_ok());
        assert!(VirtioNetRepr::parse(&VirtioNetHeader { hdr_len: 100, ..SEGMENTED }, 100).is_ok());
    }

    #[test]
    fn a_place_without_the_flag_means_nothing() {
        let header = VirtioNetHeader { csum_start: 9000, ..VirtioNetHeader::default() };
        assert_eq!(VirtioNetRepr::parse(&header, 60), Ok(VirtioNetRepr::default()));
    }

    #[test]
    fn a_size_without_a_type_means_nothing() {
        let header = VirtioNetHeader { gso_size: 1448, ..VirtioNetHeader::default() };
        assert_eq!(VirtioNetRepr::parse(&header, 60), Ok(VirtioNetRepr::default()));
    }

    fn any_repr() -> impl Strategy<Value = VirtioNetRepr> {
        let checksum = prop_oneof![
            Just(ChecksumState::Unchecked),
            Just(ChecksumState::Valid),
            any::<(u16, u16)>().prop_map(|(start, offset)| ChecksumState::Partial { start, offset }),
        ];
        let gso = (proptest::sample::select(GsoType::ALL.to_vec()), any::<NonZeroU16>(), any::<u16>())
            .prop_map(|(gso_type, size, hdr_len)| Gso { gso_type, size, hdr_len });
        (checksum, proptest::option::of(gso)).prop_map(|(checksum, gso)| VirtioNetRepr { checksum, gso })
    }

    proptest! {
        #[test]
        fn bytes_and_header_are_the_same(bytes: [u8; VirtioNetHeader::LEN_WITH_NUM_BUFFERS], frame_len in 0usize..70_000) {
            let (header, num_buffers) = VirtioNetHeader::from_bytes_with_num_buffers(&bytes);
            prop_assert_eq!(header.to_bytes_with_num_buffers(num_buffers), bytes);
            let _ = VirtioNetRepr::parse(&header, frame_len);
        }

        #[test]
        fn what_is_emitted_parses_to_the_same(repr in any_repr()) {
            prop_assert_eq!(VirtioNetRepr::parse(&repr.emit(), 200_000), Ok(repr));
        }
    }
}
