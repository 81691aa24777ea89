//! MPA Request and Reply frames (RFC 5044 section 7.1, RFC 6581 section 4).

use super::error::MpaError;
use crate::bytes::{be16, put};

const REQUEST_KEY: &[u8; 16] = b"MPA ID Req Frame";
const REPLY_KEY: &[u8; 16] = b"MPA ID Rep Frame";

/// Bytes before the private data.
const HEADER_LEN: usize = 20;

/// Most bytes of private data; in an enhanced frame IRD and ORD are the first four of them.
pub const MAX_PRIVATE_DATA: usize = 512;

/// IRD and ORD of 14 bits: the value that means "not negotiated" (RFC 6581 section 4.4).
const NOT_NEGOTIATED: u16 = 0x3FFF;

/// Which of the two frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MpaFrameKind {
    /// The initiator's.
    Request,
    /// The responder's.
    Reply,
}

/// Flags of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MpaFlags {
    /// M: the sender of this frame requests markers in the stream that it receives.
    pub markers: bool,
    /// C: the sender wants CRCs. They are used if either side does.
    pub crc: bool,
    /// R: the responder rejects the connection. In Replies only.
    pub reject: bool,
}

/// The ready-to-receive messages that a peer-to-peer initiator offers, or the one that the responder chose
/// (RFC 6581 section 4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rtr {
    /// A SEND of no bytes.
    pub send: bool,
    /// A WRITE of no bytes.
    pub write: bool,
    /// A READ of no bytes.
    pub read: bool,
}

/// The enhanced connection data of revision 2 (RFC 6581 section 4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Enhanced {
    /// Inbound READ requests that the sender of the frame takes at once, up to 0x3FFE; `None` if not
    /// negotiated.
    pub ird: Option<u16>,
    /// Outbound READ requests that the sender of the frame issues at once, up to 0x3FFE; `None` if not
    /// negotiated.
    pub ord: Option<u16>,
    /// A: the initiator sends the first FPDU, one of `rtr`.
    pub peer_to_peer: bool,
    /// B, C, D.
    pub rtr: Rtr,
}

/// A Request or Reply frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpaFrame<'a> {
    /// Request or Reply.
    pub kind: MpaFrameKind,
    /// Its flags.
    pub flags: MpaFlags,
    /// 1, or 2 for enhanced connections.
    pub revision: u8,
    /// IRD, ORD and RTR, in frames of revision 2 only.
    pub enhanced: Option<Enhanced>,
    /// The program's private data.
    pub private_data: &'a [u8],
}

const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECT: u8 = 0x20;
const ENHANCED: u8 = 0x10;

/// Flags A and B in the IRD's word, C and D in the ORD's word.
const HIGH: u16 = 0x8000;
const LOW: u16 = 0x4000;

impl<'a> MpaFrame<'a> {
    /// Reads the frame at the front of a stream; returns it and its bytes, or `None` while it is incomplete.
    /// Fails as soon as the bytes so far cannot begin a frame. Ignores reserved flags.
    ///
    /// # Errors
    /// [`MpaError`].
    pub fn parse(stream: &'a [u8]) -> Result<Option<(Self, usize)>, MpaError> {
        let begun = stream.len().min(REQUEST_KEY.len());
        let kind = match &stream[..begun] {
            key if *key == REQUEST_KEY[..begun] => MpaFrameKind::Request,
            key if *key == REPLY_KEY[..begun] => MpaFrameKind::Reply,
            _ => return Err(MpaError::Key),
        };
        if let Some(revision) = stream.get(17).filter(|revision| !(1..=2).contains(*revision)) {
            return Err(MpaError::Revision(*revision));
        }
        let Some(header) = stream.first_chunk::<HEADER_LEN>() else { return Ok(None) };
        let (bits, revision, len) = (header[16], header[17], be16(header, 18));
        if usize::from(len) > MAX_PRIVATE_DATA {
            return Err(MpaError::PrivateData(len));
        }
        let is_enhanced = revision == 2 && bits & ENHANCED != 0;
        if is_enhanced && usize::from(len) < Enhanced::LEN {
            return Err(MpaError::NotEnhanced);
        }
        let end = HEADER_LEN + usize::from(len);
        let Some(data) = stream.get(HEADER_LEN..end) else { return Ok(None) };
        let (enhanced, private_data) = match data.split_first_chunk() {
            Some((words, rest)) if is_enhanced => (Some(Enhanced::from_bytes(words)), rest),
            _ => (None, data),
        };
        let flags = MpaFlags {
            markers: bits & MARKERS != 0,
            crc: bits & CRC != 0,
            reject: kind == MpaFrameKind::Reply && bits & REJECT != 0,
        };
        Ok(Some((Self { kind, flags, revision, enhanced, private_data }, end)))
    }

    /// Appends the frame to `output`. Private data that does not fit a frame is truncated.
    pub fn write(&self, output: &mut Vec<u8>) {
        let enhanced = self.enhanced.filter(|_| self.revision == 2);
        let room = MAX_PRIVATE_DATA - enhanced.map_or(0, |_| Enhanced::LEN);
        let private_data = &self.private_data[..self.private_data.len().min(room)];
        let len = private_data.len() + MAX_PRIVATE_DATA - room;
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        let MpaFlags { markers, crc, reject } = self.flags;
        let bits =
            bit(markers, MARKERS) | bit(crc, CRC) | bit(reject, REJECT) | bit(enhanced.is_some(), ENHANCED);
        output.extend(match self.kind {
            MpaFrameKind::Request => REQUEST_KEY,
            MpaFrameKind::Reply => REPLY_KEY,
        });
        output.extend([bits, self.revision]);
        output.extend((len as u16).to_be_bytes());
        output.extend(enhanced.iter().flat_map(|enhanced| enhanced.to_bytes()));
        output.extend(private_data);
    }
}

impl Enhanced {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        let [ird, ord] = [be16(bytes, 0), be16(bytes, 2)];
        let depth = |word: u16| Some(word & NOT_NEGOTIATED).filter(|depth| *depth != NOT_NEGOTIATED);
        let rtr = Rtr { send: ird & LOW != 0, write: ord & HIGH != 0, read: ord & LOW != 0 };
        Self { ird: depth(ird), ord: depth(ord), peer_to_peer: ird & HIGH != 0, rtr }
    }

    fn to_bytes(self) -> [u8; Self::LEN] {
        let depth = |depth: Option<u16>| depth.map_or(NOT_NEGOTIATED, |depth| depth.min(NOT_NEGOTIATED - 1));
        let bit = |set: bool, bit: u16| if set { bit } else { 0 };
        let Self { peer_to_peer, rtr: Rtr { send, write, read }, .. } = self;
        let mut bytes = [0; Self::LEN];
        put(&mut bytes, 0, (depth(self.ird) | bit(peer_to_peer, HIGH) | bit(send, LOW)).to_be_bytes());
        put(&mut bytes, 2, (depth(self.ord) | bit(write, HIGH) | bit(read, LOW)).to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_of_siw_has_the_bytes_of_its_capture() {
        let enhanced = Enhanced { ird: Some(1), ord: Some(1), peer_to_peer: false, rtr: Rtr::default() };
        let frame = MpaFrame {
            kind: MpaFrameKind::Request,
            flags: MpaFlags::default(),
            revision: 2,
            enhanced: Some(enhanced),
            private_data: &[],
        };
        let mut bytes = Vec::new();
        frame.write(&mut bytes);
        assert_eq!(bytes, [&b"MPA ID Req Frame"[..], &[0x10, 2, 0, 4, 0, 1, 0, 1]].concat());
        assert_eq!(MpaFrame::parse(&bytes), Ok(Some((frame, 24))));
    }

    #[test]
    fn garbage_fails_at_its_first_byte() {
        assert_eq!(MpaFrame::parse(b""), Ok(None));
        assert_eq!(MpaFrame::parse(b"MPA ID Re"), Ok(None));
        assert_eq!(MpaFrame::parse(b"G"), Err(MpaError::Key));
        assert_eq!(MpaFrame::parse(b"MPA ID Rex"), Err(MpaError::Key));
        assert_eq!(MpaFrame::parse(b"MPA ID Req Frame\0\x03"), Err(MpaError::Revision(3)));
        assert_eq!(MpaFrame::parse(b"MPA ID Req Frame\0\x01\x02\x01"), Err(MpaError::PrivateData(513)));
        assert_eq!(MpaFrame::parse(b"MPA ID Rep Frame\x10\x02\0\x03"), Err(MpaError::NotEnhanced));
    }

    #[test]
    fn a_reject_is_in_replies_only() {
        let (frame, _) = MpaFrame::parse(b"MPA ID Req Frame\x20\x01\0\0").unwrap().unwrap();
        assert!(!frame.flags.reject);
        let (frame, _) = MpaFrame::parse(b"MPA ID Rep Frame\x20\x01\0\0").unwrap().unwrap();
        assert!(frame.flags.reject);
    }

    /// RFC 5044 section 7.1: up to 512 bytes. RFC 6581 section 4.1: bit S means enhanced data in revision 2
    /// only.
    #[test]
    fn private_data_excludes_enhanced_data_and_has_at_most_512_bytes() {
        let parsed = |flags: u8, revision: u8, len: u16| {
            let head = [&b"MPA ID Rep Frame"[..], &[flags, revision], &len.to_be_bytes()].concat();
            let bytes = [head, vec![0x12; len.into()]].concat();
            let (frame, end) = MpaFrame::parse(&bytes).unwrap().unwrap();
            assert_eq!(end, bytes.len());
            (frame.enhanced.is_some(), frame.private_data.len())
        };
        assert_eq!(parsed(0, 1, 512), (false, 512));
        assert_eq!(parsed(ENHANCED, 1, 512), (false, 512));
        assert_eq!(parsed(0, 2, 512), (false, 512));
        assert_eq!(parsed(ENHANCED, 2, 512), (true, 508));
    }

    /// RFC 6581 section 4.4: 0x3FFF is not a depth, but "not negotiated".
    #[test]
    fn a_depth_above_the_highest_is_written_as_the_highest() {
        for (ird, written) in [(0x3FFD, 0x3FFD), (0x3FFE, 0x3FFE), (0x3FFF, 0x3FFE), (u16::MAX, 0x3FFE)] {
            let enhanced = Enhanced { ird: Some(ird), ..Enhanced::default() };
            assert_eq!(Enhanced::from_bytes(&enhanced.to_bytes()).ird, Some(written));
        }
    }
}
