//! Arithmetic and bounds, over all values of small domains.

use nichrome_wire::{Ipv4Header, SeqNumber, TcpHeader, checksum};

/// Numbers around the points where 16-bit, signed and unsigned 32-bit arithmetic wraps.
fn edges() -> impl Iterator<Item = u32> {
    [0, 1 << 16, 1 << 31, u32::MAX]
        .into_iter()
        .flat_map(|edge: u32| (0..40).map(move |n| edge.wrapping_add(n).wrapping_sub(20)))
}

/// RFC 1982: the order of two numbers depends on their distance only, not on where they start.
#[test]
fn the_order_of_sequence_numbers_depends_on_their_distance_only() {
    for base in edges().map(SeqNumber) {
        for distance in edges().chain((0..=u32::MAX).step_by(65_521)) {
            let other = base + distance;
            assert_eq!(other - distance, base);
            assert_eq!(other.since(base), distance.cast_signed());
            let is_after = distance != 0 && distance < 1 << 31;
            assert_eq!(
                (other.after(base), other.before(base)),
                (is_after, distance >= 1 << 31),
                "{distance}"
            );
            let is_later = is_after || distance == 1 << 31;
            assert_eq!(other.later(base), if is_later { other } else { base });
            assert_eq!(base.later(other), if is_after { other } else { base });
        }
    }
}

/// RFC 1624, with sums modulo 65,535: when a word of the data changes, the complement of the checksum changes
/// by the same difference.
#[test]
fn an_updated_checksum_is_that_of_the_changed_data() {
    const FEW: [u16; 10] = [0, 1, 2, 0x00FF, 0x0100, 0x7FFF, 0x8000, 0xFF00, 0xFFFE, 0xFFFF];
    let agrees = |before: u16, old: u16, new: u16| {
        let after = checksum::update(before, old, new);
        let expected = u32::from(!before) + u32::from(!old) + u32::from(new);
        assert_eq!(u32::from(!after) % 0xFFFF, expected % 0xFFFF, "{before:#x} {old:#x} {new:#x}");
        // The sum of data with a word that is not 0 is not 0.
        assert!(new == 0 || after != 0xFFFF, "{before:#x} {old:#x} {new:#x}");
    };
    for any in 0..=u16::MAX {
        for one in FEW {
            for other in FEW {
                agrees(any, one, other);
                agrees(one, any, other);
                agrees(one, other, any);
            }
        }
    }
}

/// A slice and where it begins in `bytes`.
fn place(bytes: &[u8], slice: &[u8]) -> (usize, usize) {
    (slice.as_ptr() as usize - bytes.as_ptr() as usize, slice.len())
}

#[test]
fn no_length_of_an_ipv4_header_reads_out_of_bounds() {
    const LONGEST: usize = 70;
    let mut bytes = [0; LONGEST];
    for (header, total, len) in (0..16)
        .flat_map(|header| (0..=LONGEST + 2).map(move |total| (header, total)))
        .flat_map(|(header, total)| (0..=LONGEST).map(move |len| (header, total, len)))
    {
        bytes[0] = 0x40 | header as u8;
        bytes[2..4].copy_from_slice(&(total as u16).to_be_bytes());
        let packet = &bytes[..len];
        let Some(view) = Ipv4Header::new(packet) else {
            assert!(len < Ipv4Header::LEN);
            continue;
        };
        let start = header * 4;
        let options = (20..=len).contains(&start).then(|| (20, start - 20));
        assert_eq!(view.options().map(|options| place(packet, options)), options);
        let payload = (20 <= start && start <= total && total <= len).then(|| (start, total - start));
        assert_eq!(view.payload().map(|payload| place(packet, payload)), payload);
    }
}

#[test]
fn no_length_of_a_tcp_header_reads_out_of_bounds() {
    let mut bytes = [0; 70];
    for (header, len) in (0..16usize).flat_map(|header| (0..=70).map(move |len| (header, len))) {
        bytes[12] = (header as u8) << 4;
        let segment = &bytes[..len];
        let Some(view) = TcpHeader::new(segment) else {
            assert!(len < TcpHeader::LEN);
            continue;
        };
        let start = header * 4;
        let is_inside = (20..=len).contains(&start);
        assert_eq!(
            view.options().map(|options| place(segment, options)),
            is_inside.then(|| (20, start - 20))
        );
        assert_eq!(
            view.payload().map(|payload| place(segment, payload)),
            is_inside.then(|| (start, len - start))
        );
    }
}
