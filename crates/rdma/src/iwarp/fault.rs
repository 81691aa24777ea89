//! Errors that end a connection by a TERMINATE.
//!
//! | error | layer, type, code | source |
//! |---|---|---|
//! | a WRITE or READ response to memory: key, bounds, owner, wrap | DDP tagged | RFC 5041 section 8; a missing right is an invalid STag, as in siw |
//! | a READ or atomic request to memory | RDMAP remote protection | RFC 5040 section 8 |
//! | message number, offset, queue, a message that is too long | DDP untagged | RFC 5041 section 8 |
//! | more requests than the IRD, no receive where that is an error | DDP untagged, no buffer | RFC 5041 section 8 |
//! | a key that cannot be invalidated | RDMAP remote protection | RFC 5040 section 8 |
//! | a response without request, messages that interleave, opcodes of RFC 7306 without agreement | RDMAP, unexpected opcode | RFC 5040 section 8 |
//! | CRC, markers, the ready-to-receive message | MPA | RFC 5044 section 8, RFC 6581 section 7 |
//! | local errors | catastrophic, of RDMAP for requests and of DDP for receives | as siw |

use nichrome_wire::iwarp::{
    FpduError, Opcode, ReadRequest, Segment, SegmentError, TerminateCause, TerminateCode, Terminated,
};

use crate::core::counters::Counters;
use crate::core::protection::Refusal;

/// An error in the peer's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) code: TerminateCode,
    pub(super) kind: FaultKind,
}

/// The kind of an error, which selects its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultKind {
    /// The CRC is wrong.
    Damage,
    /// Not a segment, or a wrong length or marker.
    Malformed,
    /// The peer accessed memory without right.
    Access,
    /// A segment that is not allowed at this position in the stream.
    Protocol,
}

impl From<TerminateCode> for Fault {
    fn from(code: TerminateCode) -> Self {
        Self { code, kind: FaultKind::Protocol }
    }
}

impl Fault {
    /// Returns the error of a tagged segment whose access to memory was refused.
    pub(super) fn tagged(refusal: Refusal) -> Self {
        let code = match refusal {
            Refusal::Key | Refusal::Right | Refusal::State => TerminateCode::TAGGED_STAG,
            Refusal::Owner => TerminateCode::TAGGED_STREAM,
            Refusal::Bounds => TerminateCode::TAGGED_BOUNDS,
        };
        Self { code, kind: FaultKind::Access }
    }

    /// Returns the error of a READ or atomic request whose access to memory was refused.
    pub(super) fn remote(refusal: Refusal) -> Self {
        let code = match refusal {
            Refusal::Key | Refusal::State => TerminateCode::STAG,
            Refusal::Owner => TerminateCode::STREAM,
            Refusal::Right => TerminateCode::RIGHTS,
            Refusal::Bounds => TerminateCode::BOUNDS,
        };
        Self { code, kind: FaultKind::Access }
    }

    /// Returns the error of a segment that cannot be parsed, so that the layout of its headers is unknown.
    pub(super) fn segment(error: SegmentError, ulpdu: &[u8]) -> Self {
        const TAGGED: u8 = 0x80;
        let is_tagged = ulpdu.first().is_some_and(|control| control & TAGGED != 0);
        let code = match error {
            SegmentError::Short(_) => TerminateCode::DDP_CATASTROPHIC,
            SegmentError::DdpVersion(_) if is_tagged => TerminateCode::TAGGED_VERSION,
            SegmentError::DdpVersion(_) => TerminateCode::UNTAGGED_VERSION,
            SegmentError::RdmapVersion(_) => TerminateCode::RDMAP_VERSION,
            SegmentError::Queue(_) => TerminateCode::QUEUE,
            SegmentError::Opcode(_) | SegmentError::Tagged(_) | SegmentError::Atomic(_) => {
                TerminateCode::OPCODE
            }
        };
        Self { code, kind: FaultKind::Malformed }
    }

    /// Returns the error of a damaged FPDU.
    pub(super) fn fpdu(error: FpduError) -> Self {
        let (code, kind) = match error {
            FpduError::Crc => (TerminateCode::CRC, FaultKind::Damage),
            FpduError::Marker => (TerminateCode::MARKER, FaultKind::Malformed),
        };
        Self { code, kind }
    }

    /// Counts the error.
    pub(super) fn count(&self, counters: &mut Counters) {
        let counter = match self.kind {
            FaultKind::Damage => &mut counters.dropped_icrc,
            FaultKind::Malformed => &mut counters.dropped_malformed,
            FaultKind::Access => &mut counters.refused,
            FaultKind::Protocol => &mut counters.dropped_state,
        };
        *counter += 1;
    }
}

/// The segment with an error.
#[derive(Clone, Copy)]
pub(super) struct Faulty<'a> {
    /// Its first bytes, at least the header.
    pub(super) front: &'a [u8],
    /// Bytes of the segment.
    pub(super) len: usize,
}

impl<'a> Faulty<'a> {
    pub(super) fn whole(ulpdu: &'a [u8]) -> Self {
        Self { front: ulpdu, len: ulpdu.len() }
    }
}

/// Returns the payload of a TERMINATE for this error in a segment. `faulty` is `None` for errors that no
/// segment caused.
pub(super) fn terminate(code: TerminateCode, faulty: Option<Faulty<'_>>) -> Vec<u8> {
    let mut payload = Vec::new();
    let segment = faulty.and_then(|faulty| Some((faulty, Segment::parse(faulty.front).ok()?.0)));
    let cause = segment.filter(|_| names_its_segment(code)).map(|(faulty, segment)| {
        let (ddp, rest) = faulty.front.split_at(segment.header_len());
        let of_request = segment.opcode == Opcode::ReadRequest && code.layer == 0;
        let rdmap = rest.get(..ReadRequest::LEN).filter(|_| of_request).unwrap_or_default();
        TerminateCause { segment_len: faulty.len as u16, ddp, rdmap }
    });
    Terminated::write(code, cause.as_ref(), &mut payload);
    payload
}

/// Returns true if a TERMINATE for this error carries the segment's headers (RFC 5040 section 4.8): not for
/// errors of MPA or of this end.
fn names_its_segment(code: TerminateCode) -> bool {
    code.layer < 2 && code != TerminateCode::CATASTROPHIC && code != TerminateCode::DDP_CATASTROPHIC
}
