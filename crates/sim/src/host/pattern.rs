//! The payload of streams: a function of the offset, so that receivers can verify it.

/// The period; a prime, so that shifts by a power of two or by a segment are detected.
const PERIOD: usize = 251;
const LEN: usize = 17 * PERIOD;

static PATTERN: [u8; LEN] = pattern();

const fn pattern() -> [u8; LEN] {
    let mut bytes = [0; LEN];
    let mut at = 0;
    while at < LEN {
        bytes[at] = (at % PERIOD) as u8;
        at += 1;
    }
    bytes
}

/// Returns the pattern from `offset` on, at least 4000 bytes.
fn from(offset: u64) -> &'static [u8] {
    &PATTERN[(offset % PERIOD as u64) as usize..]
}

/// Fills `bytes` with the pattern from `offset` on.
pub(super) fn fill(mut offset: u64, mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        let source = from(offset);
        let (now, rest) = bytes.split_at_mut(source.len().min(bytes.len()));
        now.copy_from_slice(&source[..now.len()]);
        offset += now.len() as u64;
        bytes = rest;
    }
}

/// Returns true if `bytes` equal the pattern from `offset` on.
pub(super) fn matches(mut offset: u64, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let source = from(offset);
        let (now, rest) = bytes.split_at(source.len().min(bytes.len()));
        if now != &source[..now.len()] {
            return false;
        }
        offset += now.len() as u64;
        bytes = rest;
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_stream_is_the_same_in_whatever_pieces(
            offset in 0..u64::MAX / 2,
            pieces in prop::collection::vec(0..9000usize, 1..9),
        ) {
            let mut whole = vec![0; pieces.iter().sum()];
            fill(offset, &mut whole);
            let mut at = 0;
            for piece in pieces {
                prop_assert!(matches(offset + at as u64, &whole[at..at + piece]));
                at += piece;
            }
            if let Some(middle) = whole.get_mut(at / 2) {
                *middle ^= 1;
                prop_assert!(!matches(offset, &whole));
            }
            prop_assert!(at == 0 || !matches(offset + 1448, &whole));
        }
    }
}
