//! TCP options (RFC 9293 section 3.1, and the RFC at each option).

use thiserror::Error;

use crate::SeqNumber;
use crate::bytes::be32;
use crate::header_options::HeaderOptions;

const END_OF_LIST: u8 = 0;
const NO_OPERATION: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const MD5: u8 = 19;
const AO: u8 = 29;
const MPTCP: u8 = 30;
const FAST_OPEN: u8 = 34;
const ACC_ECN_0: u8 = 172;
const ACC_ECN_1: u8 = 174;

/// A malformed option, or an option that cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OptionError {
    /// The list ends within an option.
    #[error("the TCP options end within an option of kind {kind}")]
    Truncated {
        /// The option's kind.
        kind: u8,
    },
    /// An invalid length for this kind.
    #[error("a TCP option of kind {kind} cannot be {length} bytes long")]
    Length {
        /// The option's kind.
        kind: u8,
        /// Its length, including kind and length fields, in bytes.
        length: usize,
    },
    /// [`TcpOption::Unknown`], to be written, has a known kind.
    #[error("TCP option kind {kind} is known and cannot be written as unknown")]
    KnownKind {
        /// The option's kind.
        kind: u8,
    },
}

/// A TCP option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpOption<'a> {
    /// Kind 0: end of option list; the rest is padding.
    EndOfList,
    /// Kind 1: padding between options.
    NoOperation,
    /// Kind 2: maximum segment size, in bytes.
    Mss(u16),
    /// Kind 3: left shift of the window field, in bits (RFC 7323 section 2).
    WindowScale(u8),
    /// Kind 4: SACK permitted (RFC 2018 section 2).
    SackPermitted,
    /// Kind 5: selective acknowledgment (RFC 2018 section 3).
    Sack(SackBlocks<'a>),
    /// Kind 8: timestamps (RFC 7323 section 3).
    Timestamps {
        /// TSval: the sender's clock.
        value: u32,
        /// TSecr: the receiver's clock, echoed.
        echo: u32,
    },
    /// Kind 19: MD5 signature (RFC 2385).
    Md5(&'a [u8; 16]),
    /// Kind 29: authentication (RFC 5925 section 2.2).
    Ao {
        /// KeyID: the key of this segment.
        key_id: u8,
        /// RNextKeyID: the key that the sender expects next.
        next_key_id: u8,
        /// Message authentication code.
        mac: &'a [u8],
    },
    /// Kind 30: multipath TCP (RFC 8684), from the subtype on.
    Mptcp(&'a [u8]),
    /// Kind 34: Fast Open (RFC 7413 section 4.1.1): a cookie of 4 to 16 bytes, or empty to ask for one.
    FastOpen(&'a [u8]),
    /// Kind 172: accurate ECN in order 0 (RFC 9768 section 3.2.3): up to three counters of 3 bytes.
    AccEcn0(&'a [u8]),
    /// Kind 174: accurate ECN in order 1.
    AccEcn1(&'a [u8]),
    /// Any other kind.
    Unknown {
        /// The option's kind.
        kind: u8,
        /// The bytes behind the length.
        data: &'a [u8],
    },
}

/// A SACK block: received data in [left, right).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SackBlock {
    /// The first byte received.
    pub left: SeqNumber,
    /// The byte after the last received.
    pub right: SeqNumber,
}

impl SackBlock {
    /// Encodes the block.
    #[inline]
    pub fn to_bytes(self) -> [u8; 8] {
        (u64::from(self.left.0) << 32 | u64::from(self.right.0)).to_be_bytes()
    }

    #[inline]
    fn from_bytes(bytes: &[u8; 8]) -> Self {
        Self { left: SeqNumber(be32(bytes, 0)), right: SeqNumber(be32(bytes, 4)) }
    }
}

/// The one to four blocks of a SACK option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SackBlocks<'a>(&'a [[u8; 8]]);

impl<'a> SackBlocks<'a> {
    /// Creates an option from encoded blocks ([`SackBlock::to_bytes`]); `None` unless there are one to four.
    #[inline]
    pub fn new(blocks: &'a [[u8; 8]]) -> Option<Self> {
        matches!(blocks.len(), 1..=4).then_some(Self(blocks))
    }

    /// Iterates over the blocks, most recent first.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = SackBlock> + use<'a> {
        self.0.iter().map(SackBlock::from_bytes)
    }
}

impl<'a> TcpOption<'a> {
    /// Parses an option with a length field.
    fn parse(kind: u8, data: &'a [u8]) -> Result<Self, OptionError> {
        let malformed = OptionError::Length { kind, length: data.len() + 2 };
        let option = match kind {
            MSS => data.as_array().map(|&mss| Self::Mss(u16::from_be_bytes(mss))),
            WINDOW_SCALE => data.as_array().map(|&[shift]| Self::WindowScale(shift)),
            SACK_PERMITTED => data.is_empty().then_some(Self::SackPermitted),
            SACK => match data.as_chunks() {
                (blocks, []) => SackBlocks::new(blocks).map(Self::Sack),
                _ => None,
            },
            TIMESTAMPS => data.as_array().map(Self::timestamps),
            MD5 => data.as_array().map(Self::Md5),
            AO => match *data {
                [key_id, next_key_id, ref mac @ ..] => Some(Self::Ao { key_id, next_key_id, mac }),
                _ => None,
            },
            MPTCP => (!data.is_empty()).then_some(Self::Mptcp(data)),
            FAST_OPEN => matches!(data.len(), 0 | 4..=16).then_some(Self::FastOpen(data)),
            ACC_ECN_0 => matches!(data.len(), 0 | 3 | 6 | 9).then_some(Self::AccEcn0(data)),
            ACC_ECN_1 => matches!(data.len(), 0 | 3 | 6 | 9).then_some(Self::AccEcn1(data)),
            _ => Some(Self::Unknown { kind, data }),
        };
        option.ok_or(malformed)
    }

    /// Appends the option to `out`. Fails and appends nothing if it would not parse back as itself.
    pub fn emit(&self, out: &mut Vec<u8>) -> Result<(), OptionError> {
        match *self {
            Self::EndOfList => out.push(END_OF_LIST),
            Self::NoOperation => out.push(NO_OPERATION),
            Self::Mss(mss) => self.append(MSS, &[&mss.to_be_bytes()], out)?,
            Self::WindowScale(shift) => self.append(WINDOW_SCALE, &[&[shift]], out)?,
            Self::SackPermitted => self.append(SACK_PERMITTED, &[], out)?,
            Self::Sack(SackBlocks(blocks)) => self.append(SACK, &[blocks.as_flattened()], out)?,
            Self::Timestamps { value, echo } => {
                self.append(TIMESTAMPS, &[&value.to_be_bytes(), &echo.to_be_bytes()], out)?;
            }
            Self::Md5(signature) => self.append(MD5, &[signature], out)?,
            Self::Ao { key_id, next_key_id, mac } => self.append(AO, &[&[key_id, next_key_id], mac], out)?,
            Self::Mptcp(data) => self.append(MPTCP, &[data], out)?,
            Self::FastOpen(cookie) => self.append(FAST_OPEN, &[cookie], out)?,
            Self::AccEcn0(counters) => self.append(ACC_ECN_0, &[counters], out)?,
            Self::AccEcn1(counters) => self.append(ACC_ECN_1, &[counters], out)?,
            Self::Unknown { kind, data } => self.append(kind, &[data], out)?,
        }
        Ok(())
    }

    /// Appends kind, length and `data`, after checking that they parse as `self`.
    fn append(&self, kind: u8, data: &[&[u8]], out: &mut Vec<u8>) -> Result<(), OptionError> {
        let length = 2 + data.iter().map(|piece| piece.len()).sum::<usize>();
        let mut option = [0; HeaderOptions::MAX_LEN];
        let Some(option) = option.get_mut(..length) else {
            return Err(OptionError::Length { kind, length });
        };
        let mut at = 2;
        (option[0], option[1]) = (kind, length as u8);
        for piece in data {
            option[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        match TcpOptions::new(option).next() {
            Some(Ok(read)) if read == *self => out.extend(&*option),
            Some(Err(error)) => return Err(error),
            _ => return Err(OptionError::KnownKind { kind }),
        }
        Ok(())
    }

    #[inline]
    fn timestamps(data: &[u8; 8]) -> Self {
        Self::Timestamps { value: be32(data, 0), echo: be32(data, 4) }
    }
}

/// Iterates over the options of a segment. A malformed one yields an error and ends the iteration.
#[derive(Clone, Debug)]
pub struct TcpOptions<'a> {
    rest: &'a [u8],
    ended: bool,
}

impl<'a> TcpOptions<'a> {
    /// Iterates over `options`, the header behind its first 20 bytes.
    #[inline]
    pub fn new(options: &'a [u8]) -> Self {
        Self { rest: options, ended: false }
    }

    /// Returns the unparsed bytes; after the end-of-list option, the padding.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn read(&mut self, kind: u8, after_kind: &'a [u8]) -> Result<TcpOption<'a>, OptionError> {
        let (&length, after_length) = after_kind.split_first().ok_or(OptionError::Truncated { kind })?;
        let length = usize::from(length);
        let data_len = length.checked_sub(2).ok_or(OptionError::Length { kind, length })?;
        let (data, rest) = after_length.split_at_checked(data_len).ok_or(OptionError::Truncated { kind })?;
        self.rest = rest;
        TcpOption::parse(kind, data)
    }
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = Result<TcpOption<'a>, OptionError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let (&kind, rest) = self.rest.split_first()?;
        let option = match kind {
            END_OF_LIST => Ok(TcpOption::EndOfList),
            NO_OPERATION => Ok(TcpOption::NoOperation),
            _ => self.read(kind, rest),
        };
        match option {
            Ok(TcpOption::NoOperation) => self.rest = rest,
            Ok(TcpOption::EndOfList) => (self.rest, self.ended) = (rest, true),
            Ok(_) => {}
            Err(_) => self.ended = true,
        }
        Some(option)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(options: &[u8]) -> Vec<Result<TcpOption<'_>, OptionError>> {
        TcpOptions::new(options).collect()
    }

    #[test]
    fn the_options_of_a_syn_are_read() {
        let syn = [2, 4, 5, 0xB4, 4, 2, 8, 10, 0, 0, 0, 7, 0, 0, 0, 0, 1, 3, 3, 7];
        let want = [
            TcpOption::Mss(1460),
            TcpOption::SackPermitted,
            TcpOption::Timestamps { value: 7, echo: 0 },
            TcpOption::NoOperation,
            TcpOption::WindowScale(7),
        ];
        assert_eq!(read(&syn), want.map(Ok));
    }

    #[test]
    fn every_other_kind_is_read() {
        let signature: [u8; 18] = [[19, 18].as_slice(), &[7; 16]].concat().try_into().unwrap();
        assert_eq!(read(&signature), [Ok(TcpOption::Md5(&[7; 16]))]);
        let ao = TcpOption::Ao { key_id: 1, next_key_id: 2, mac: &[3, 4] };
        assert_eq!(read(&[29, 6, 1, 2, 3, 4]), [Ok(ao)]);
        assert_eq!(read(&[30, 4, 0x20, 1]), [Ok(TcpOption::Mptcp(&[0x20, 1]))]);
        assert_eq!(read(&[34, 2]), [Ok(TcpOption::FastOpen(&[]))]);
        assert_eq!(read(&[34, 6, 1, 2, 3, 4]), [Ok(TcpOption::FastOpen(&[1, 2, 3, 4]))]);
        assert_eq!(read(&[172, 5, 1, 2, 3]), [Ok(TcpOption::AccEcn0(&[1, 2, 3]))]);
        assert_eq!(read(&[174, 5, 1, 2, 3]), [Ok(TcpOption::AccEcn1(&[1, 2, 3]))]);
        assert_eq!(read(&[200, 3, 9]), [Ok(TcpOption::Unknown { kind: 200, data: &[9] })]);
    }

    #[test]
    fn sack_blocks_are_edges() {
        let option = [5, 18, 0, 0, 0, 1, 0, 0, 0, 2, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 9];
        let [Ok(TcpOption::Sack(blocks))] = read(&option)[..] else { panic!("one SACK option") };
        let edges: Vec<_> = blocks.iter().map(|block| (block.left.0, block.right.0)).collect();
        assert_eq!(edges, [(1, 2), (u32::MAX, 9)]);
        assert_eq!(blocks.iter().map(SackBlock::to_bytes).collect::<Vec<_>>().as_flattened(), &option[2..]);
        assert_eq!((SackBlocks::new(&[]), SackBlocks::new(&[[0; 8]; 5])), (None, None));
    }

    #[test]
    fn the_end_of_the_list_ends_it() {
        assert_eq!(read(&[1, 0, 8, 10]), [Ok(TcpOption::NoOperation), Ok(TcpOption::EndOfList)]);
    }

    #[test]
    fn a_malformed_option_is_an_error_once() {
        let length = |kind, length| Err(OptionError::Length { kind, length });
        let truncated = |kind| Err(OptionError::Truncated { kind });
        let cases: [(&[u8], _); 14] = [
            (&[8], truncated(8)),
            (&[8, 10, 0, 0], truncated(8)),
            (&[200, 0, 1, 1], length(200, 0)),
            (&[200, 1, 1, 1], length(200, 1)),
            (&[2, 3, 0, 1], length(2, 3)),
            (&[3, 4, 0, 0], length(3, 4)),
            (&[4, 3, 0, 1], length(4, 3)),
            (&[5, 2, 1, 1], length(5, 2)),
            (&[5, 9, 0, 0, 0, 0, 0, 0, 0], length(5, 9)),
            (&[8, 3, 0, 1], length(8, 3)),
            (&[19, 3, 0, 1], length(19, 3)),
            (&[29, 3, 0, 1], length(29, 3)),
            (&[34, 5, 0, 0, 0], length(34, 5)),
            (&[172, 4, 0, 0], length(172, 4)),
        ];
        for (options, error) in cases {
            assert_eq!(read(options), [error], "{options:?}");
        }
    }

    #[test]
    fn options_that_would_not_read_back_are_not_emitted() {
        let mut out = vec![1];
        let unknown = |kind, data| TcpOption::Unknown { kind, data };
        assert_eq!(unknown(2, &[0, 0]).emit(&mut out), Err(OptionError::KnownKind { kind: 2 }));
        assert_eq!(unknown(0, &[]).emit(&mut out), Err(OptionError::KnownKind { kind: 0 }));
        let too_long = OptionError::Length { kind: 200, length: 41 };
        assert_eq!(unknown(200, &[0; 39]).emit(&mut out), Err(too_long));
        let cookie = OptionError::Length { kind: 34, length: 5 };
        assert_eq!(TcpOption::FastOpen(&[0; 3]).emit(&mut out), Err(cookie));
        assert_eq!(out, [1]);
    }

    /// Bytes in which kinds, lengths and contents are likely to fit together.
    pub(crate) fn plausible_options() -> impl Strategy<Value = Vec<u8>> {
        let kinds = vec![0u8, 1, 1, 1, 2, 3, 4, 5, 8, 8, 8, 19, 29, 30, 34, 172, 174, 200];
        let option = (proptest::sample::select(kinds), any::<[u8; 38]>(), 0usize..12).prop_map(
            |(kind, data, any_length)| match kind {
                0 | 1 => vec![kind],
                _ => {
                    let usual = match kind {
                        2 => 4,
                        3 => 3,
                        4 => 2,
                        5 => 10 + any_length % 3 * 8,
                        8 => 10,
                        19 => 18,
                        _ => 2 + any_length,
                    };
                    [&[kind, usual as u8], &data[..usual - 2]].concat()
                }
            },
        );
        proptest::collection::vec(option, 0..6).prop_map(|options| options.concat())
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_and_what_is_read_is_emitted(
            options in prop_oneof![
                plausible_options(),
                proptest::collection::vec(any::<u8>(), 0..40),
            ],
        ) {
            let mut emitted = Vec::new();
            for option in TcpOptions::new(&options) {
                match option {
                    Ok(option) => option.emit(&mut emitted).unwrap(),
                    Err(_) => break,
                }
            }
            prop_assert_eq!(&options[..emitted.len()], &emitted);
        }
    }
}
