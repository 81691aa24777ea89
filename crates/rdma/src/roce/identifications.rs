//! The IPv4 identifications with which a peer's ICRC is accepted.
//!
//! The ICRC covers the identification, which a UDP socket does not report: an ICRC that is correct for any
//! identification proves 16 bits less than one for the real identification. So the identification must be a
//! likely one: that of a socket like this driver's (0, or the place among datagrams sent in one call), or one
//! near the last (Linux counts per destination). While no identification of the peer is known, only the next
//! packet in sequence is accepted, and sets the known identification.

use nichrome_wire::Instant;
use nichrome_wire::rdma::IcrcCheck;

/// Maximum number of datagrams that a socket sends in one call.
const SEGMENTS: u16 = 128;

/// How far the next identification may be ahead of the last, and behind it.
const AHEAD: i16 = 256;
const BEHIND: i16 = -64;

/// Nanoseconds after which the last identification is no longer used: Linux's counter advances while a
/// destination is idle, up to once per tick.
const MEMORY: u64 = 1_000_000_000;

/// The identifications of a peer's last packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Identifications {
    last: Option<(u16, Instant)>,
    /// An identification that was not near the last. A second one near it replaces the last.
    candidate: Option<u16>,
}

impl Identifications {
    /// Returns true if a packet with this ICRC verdict is accepted. `in_sequence` returns true if the packet
    /// is the next in sequence.
    #[inline]
    pub(super) fn accept(&mut self, check: IcrcCheck, in_sequence: impl Fn() -> bool, now: Instant) -> bool {
        match check {
            IcrcCheck::Valid => true,
            IcrcCheck::Wrong => false,
            IcrcCheck::ValidForIdent(ident) => ident < SEGMENTS || self.is_plausible(ident, in_sequence, now),
        }
    }

    fn is_plausible(&mut self, ident: u16, in_sequence: impl Fn() -> bool, now: Instant) -> bool {
        let near = |seen: u16| (BEHIND..=AHEAD).contains(&ident.wrapping_sub(seen).cast_signed());
        let known = self.last.filter(|(_, at)| now.nanos_since(*at) < MEMORY);
        let plausible =
            known.map_or_else(in_sequence, |(seen, _)| near(seen)) || self.candidate.is_some_and(near);
        if plausible {
            (self.last, self.candidate) = (Some((ident, now)), None);
        } else {
            self.candidate = Some(ident);
        }
        plausible
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::ZERO;

    fn accept(known: &mut Identifications, ident: u16) -> bool {
        known.accept(IcrcCheck::ValidForIdent(ident), || false, NOW)
    }

    #[test]
    fn sockets_like_ours_are_taken_at_once() {
        let mut known = Identifications::default();
        assert!(known.accept(IcrcCheck::Valid, || false, NOW));
        assert!(accept(&mut known, 127) && !accept(&mut known, 128));
        assert!(!known.accept(IcrcCheck::Wrong, || true, NOW));
    }

    #[test]
    fn the_packet_in_sequence_makes_a_counter_known() {
        let mut known = Identifications::default();
        assert!(known.accept(IcrcCheck::ValidForIdent(0xFFF0), || true, NOW));
        assert!(accept(&mut known, 0xFFF1) && accept(&mut known, 0x0090));
        // A jump is accepted when a second one follows; until then, being in sequence is not enough.
        assert!(!known.accept(IcrcCheck::ValidForIdent(0x5000), || true, NOW));
        assert!(accept(&mut known, 0x5001));
        let later = Instant::from_nanos(MEMORY);
        assert!(known.accept(IcrcCheck::ValidForIdent(0x9000), || true, later));
    }
}
