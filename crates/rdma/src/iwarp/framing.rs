//! FPDUs in the driver's send buffer, and in the bytes of the peer's stream.
//!
//! The writer builds an FPDU in place in the send buffer: header, payload, padding and CRC. The reader parses
//! it in place in the driver's receive buffer. Markers, which only hardware requests, take a copy in each
//! direction.

use nichrome_wire::iwarp::{
    Crc, Fpdu, FpduError, MARKER_INTERVAL, MARKER_LEN, MAX_MARKED_ULPDU, MAX_ULPDU, Markers, Segment,
    fpdu_len,
};

use super::terms::Terms;

/// Minimum payload in bytes of a segment that is shortened to fit the rest of the send buffer.
const SHORTEST_CUT: usize = 4096;

/// Bytes of an FPDU that are not the segment, without padding.
const OVERHEAD: usize = fpdu_len(2) - 2;

/// The outgoing direction of a stream.
pub(super) struct FpduWriter {
    crc: Crc,
    max_ulpdu: usize,
    markers: Option<Markers>,
}

impl FpduWriter {
    pub(super) fn new(terms: &Terms) -> Self {
        let markers = terms.markers_out.then(Markers::default);
        let longest = if terms.markers_out { MAX_MARKED_ULPDU } else { MAX_ULPDU };
        Self { crc: terms.crc, max_ulpdu: longest.min(terms.max_ulpdu.into()), markers }
    }

    /// Returns how many of `wanted` bytes of payload the next segment carries behind `header` bytes, in a
    /// send buffer with `free` of `len` bytes; `None` if the buffer is too full.
    #[inline]
    pub(super) fn payload_len(&self, header: usize, wanted: usize, free: usize, len: usize) -> Option<usize> {
        let in_segment = self.max_ulpdu.saturating_sub(header) & !7;
        let wanted_now = wanted.min(in_segment.max(1));
        let unmarked = match &self.markers {
            None => free,
            Some(_) => free.saturating_sub((free / (MARKER_INTERVAL - MARKER_LEN) + 2) * MARKER_LEN),
        };
        let available = (unmarked & !3).checked_sub(OVERHEAD + header)?;
        if available >= wanted_now {
            Some(wanted_now)
        } else if available >= SHORTEST_CUT || free == len && available >= 8 {
            Some(available & !7)
        } else {
            None
        }
    }

    /// Builds the FPDU of a segment at the front of `buffer`; returns its length. `fill` copies the payload,
    /// `marked` is space for the FPDU with markers.
    ///
    /// # Errors
    /// Those of `fill`.
    #[inline]
    pub(super) fn write<E>(
        &mut self,
        segment: &Segment,
        payload_len: usize,
        buffer: &mut [u8],
        marked: &mut Vec<u8>,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<usize, E> {
        let len = segment.header_len() + payload_len;
        let ulpdu = Fpdu::ulpdu_mut(buffer, len);
        let Some(payload) = ulpdu.and_then(|ulpdu| segment.write(ulpdu)) else { return Ok(0) };
        fill(payload)?;
        let Some(markers) = &mut self.markers else { return Ok(Fpdu::finish(buffer, len, self.crc)) };
        let fpdu = Fpdu::finish(buffer, len, Crc::Unused);
        marked.clear();
        markers.insert(&buffer[..fpdu], self.crc, marked);
        buffer[..marked.len()].copy_from_slice(marked);
        Ok(marked.len())
    }
}

/// The incoming direction of a stream: its format and the position of its markers.
#[derive(Clone, Copy)]
pub(super) struct FpduReader {
    crc: Crc,
    markers: Option<Markers>,
}

/// A received FPDU.
pub(super) struct Received<'a> {
    /// The DDP segment.
    pub(super) ulpdu: &'a [u8],
    /// Bytes of the stream.
    pub(super) len: usize,
    /// The reader of the following bytes.
    pub(super) next: FpduReader,
}

impl FpduReader {
    pub(super) fn new(terms: &Terms) -> Self {
        Self { crc: terms.crc, markers: terms.markers_in.then(Markers::default) }
    }

    /// Returns true if FPDUs have neither CRC nor markers.
    pub(super) fn is_plain(&self) -> bool {
        self.crc == Crc::Unused && self.markers.is_none()
    }

    /// Reads the FPDU at the front of `stream`; `None` while it is incomplete. `unmarked` is space for the
    /// FPDU without markers.
    ///
    /// # Errors
    /// The CRC or a marker is wrong.
    #[inline]
    pub(super) fn peek<'a>(
        self,
        stream: &'a [u8],
        unmarked: &'a mut Vec<u8>,
    ) -> Result<Option<Received<'a>>, FpduError> {
        let Some(mut markers) = self.markers else {
            let fpdu = Fpdu::parse(stream, self.crc)?;
            return Ok(fpdu.map(|Fpdu { ulpdu, len }| Received { ulpdu, len, next: self }));
        };
        unmarked.clear();
        let Some(len) = markers.remove(stream, self.crc, unmarked)? else { return Ok(None) };
        let next = Self { markers: Some(markers), ..self };
        // The CRC was checked with the markers.
        let fpdu = Fpdu::parse(unmarked, Crc::Unused)?;
        Ok(fpdu.map(|Fpdu { ulpdu, .. }| Received { ulpdu, len, next }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::terms::Role;
    use super::*;
    use nichrome_wire::iwarp::{MessageNumber, Opcode, STag, SegmentDestination};

    #[test]
    fn markers_in_the_longest_segments_point_to_their_fpdu() {
        let terms = Terms {
            role: Role::Initiator,
            crc: Crc::Used,
            markers_out: true,
            markers_in: false,
            ird: 0,
            ord: 0,
            rtr: None,
            extended: false,
            max_ulpdu: Terms::LONGEST_ULPDU,
        };
        let (mut writer, mut buffer, mut marked) = (FpduWriter::new(&terms), vec![0; 1 << 20], Vec::new());
        let destination =
            SegmentDestination::Untagged { message: MessageNumber(1), offset: 0, invalidate: STag(0) };
        let segment = Segment { is_last: true, opcode: Opcode::Send, destination };
        let len = writer.payload_len(segment.header_len(), 1 << 20, buffer.len(), buffer.len()).unwrap();
        let written = writer.write(&segment, len, &mut buffer, &mut marked, |_| Ok::<_, ()>(())).unwrap();
        let last = (written - 1) / MARKER_INTERVAL * MARKER_INTERVAL;
        let distance = (last - MARKER_LEN) as u32;
        assert_eq!(buffer[last..last + MARKER_LEN], distance.to_be_bytes(), "{len} {written}");
        assert!((64_000..=usize::from(u16::MAX)).contains(&last));
    }
}
