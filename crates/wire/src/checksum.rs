//! The Internet checksum (RFC 1071): whole, partial and incremental (RFC 1624).

use std::net::{Ipv4Addr, Ipv6Addr};

use pulp::{Arch, Simd, WithSimd, bytemuck};

/// A one's complement sum under construction. Pieces are added in order, as if they were one buffer; each may
/// have an odd length.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// The unfolded sum of the 16-bit words so far.
    total: u64,
    /// True after an odd number of bytes.
    odd: bool,
}

impl Sum {
    /// Returns the sum of no bytes.
    #[inline]
    pub const fn new() -> Self {
        Self { total: 0, odd: false }
    }

    /// Returns the sum of a TCP or UDP pseudo-header over IPv4 (RFC 9293 section 3.1); `length` counts header
    /// and payload.
    #[inline]
    pub fn pseudo_ipv4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, length: u32) -> Self {
        let [src, dst] = [src, dst].map(|a| u64::from(u32::from(a)));
        Self { total: src + dst + u64::from(protocol) + u64::from(length), odd: false }
    }

    /// Returns the sum of a pseudo-header over IPv6 (RFC 8200 section 8.1); `length` counts header and
    /// payload.
    #[inline]
    pub fn pseudo_ipv6(src: Ipv6Addr, dst: Ipv6Addr, protocol: u8, length: u32) -> Self {
        Self::new()
            .add_bytes(&src.octets())
            .add_bytes(&dst.octets())
            .add_u32(u32::from(protocol))
            .add_u32(length)
    }

    /// Adds bytes.
    #[inline]
    #[must_use]
    pub fn add_bytes(self, bytes: &[u8]) -> Self {
        let sum = sum_words(bytes);
        let aligned = if self.odd { sum.swap_bytes() } else { sum };
        Self { total: self.total + u64::from(aligned), odd: self.odd ^ (bytes.len() % 2 == 1) }
    }

    /// Adds a 32-bit number at an even offset.
    #[inline]
    #[must_use]
    pub const fn add_u32(self, number: u32) -> Self {
        Self { total: self.total + number as u64, odd: self.odd }
    }

    /// Returns the one's complement sum without inversion: the partial checksum for checksum offload.
    #[inline]
    pub const fn fold(self) -> u16 {
        fold(self.total)
    }

    /// Returns the checksum, the inverted sum: 0 if the data contains a correct checksum field.
    #[inline]
    pub const fn finish(self) -> u16 {
        !self.fold()
    }
}

/// Returns the checksum of a buffer: 0 if it contains a correct checksum field.
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    !sum_words(bytes)
}

/// Returns the checksum after a 16-bit word of the data changed from `old` to `new` (RFC 1624, equation 3).
#[inline]
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !fold_u32(!checksum as u32 + !old as u32 + new as u32)
}

/// Returns the one's complement sum of the 16-bit words of `total`. Adds the number to itself with its halves
/// exchanged: the upper half of the result is the one's complement sum of the halves, since the lower half's
/// carry goes into it.
#[inline]
const fn fold(total: u64) -> u16 {
    fold_u32((total.wrapping_add(total.rotate_left(32)) >> 32) as u32)
}

/// As [`fold`], for a sum of 32 bits.
#[inline]
const fn fold_u32(total: u32) -> u16 {
    (total.wrapping_add(total.rotate_left(16)) >> 16) as u16
}

/// Returns true if the checksum of an IPv4 header without options is correct: the sum of its 16-bit words is
/// a multiple of 0xFFFF. Adds 64-bit words instead, which gives the same remainder, since every power of
/// 0x10000 is 1 modulo 0xFFFF. The sum is never 0 in a header whose version is not 0.
#[inline(always)]
pub const fn is_valid_ipv4(header: &[u8; 20]) -> bool {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = *header;
    let first = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
    let second = u64::from_ne_bytes([i, j, k, l, m, n, o, p]);
    let (sum, carry) = first.overflowing_add(second);
    let (sum, last_carry) = sum.overflowing_add(u32::from_ne_bytes([q, r, s, t]) as u64 + carry as u64);
    // Cannot overflow: after a carry, the sum is below 0x1_0000_0001.
    (sum + last_carry as u64).is_multiple_of(0xFFFF)
}

/// Length in bytes from which vector instructions pay for the run-time check that the CPU has them.
const LONG: usize = 96;

/// Returns the folded sum of the big-endian 16-bit words of `bytes`; a last odd byte is padded with zero.
/// Adds the words as little-endian and swaps the bytes of the result, since the sum does not depend on byte
/// order otherwise (RFC 1071 section 2).
#[inline]
fn sum_words(bytes: &[u8]) -> u16 {
    folded(if bytes.len() < LONG { sum(bytes, bytes) } else { sum_long(bytes) })
}

/// Converts a sum of little-endian words to the one's complement sum of the big-endian 16-bit words.
#[inline]
const fn folded(total: u64) -> u16 {
    fold(total).swap_bytes()
}

/// Returns the sum of the little-endian 32-bit words of `rest`, the end of `bytes`.
#[inline]
fn sum(bytes: &[u8], rest: &[u8]) -> u64 {
    let (words, tail) = rest.as_chunks();
    let sum: u64 = words.iter().map(|word| halves(u64::from_le_bytes(*word))).sum();
    sum + halves(last_word(bytes, tail.len()))
}

/// As [`sum`] of all bytes, with the CPU's vector instructions.
#[inline(never)]
fn sum_long(bytes: &[u8]) -> u64 {
    Arch::new().dispatch(SumLong(bytes))
}

/// [`sum_long`], in explicit vectors of 32-bit words: whether the compiler vectorizes the scalar loop well
/// depends on the code around it.
struct SumLong<'a>(&'a [u8]);

impl SumLong<'_> {
    /// Bytes that are summed at once: the sum of their 16-bit words has at most 31 bits, so a 32-bit lane
    /// cannot overflow.
    const MAX_BYTES: usize = 1 << 16;
}

impl WithSimd for SumLong<'_> {
    type Output = u64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> u64 {
        if size_of::<S::u32s>() == size_of::<u32>() || cfg!(target_endian = "big") {
            return sum_without_vectors(self.0);
        }
        self.0.chunks(Self::MAX_BYTES).map(|part| sum_vectors(simd, part)).sum()
    }
}

/// As [`sum`] of all bytes; compiled once for all instances of [`SumLong`].
#[inline(never)]
fn sum_without_vectors(bytes: &[u8]) -> u64 {
    sum(bytes, bytes)
}

/// As [`sum`] of all bytes, in lanes of 32 bits. Each lane adds whole words, modulo 2³², and their upper
/// halves; the sum of the lower halves is the difference.
#[inline(always)]
fn sum_vectors<S: Simd>(simd: S, bytes: &[u8]) -> u64 {
    let (zero, half) = (simd.splat_u32s(0), simd.splat_u32s(16));
    let mut sums = [(zero, zero); 4];
    let add = |(whole, upper): &mut (S::u32s, S::u32s), vector: &[u8]| {
        let words = bytemuck::pod_read_unaligned(vector);
        *whole = simd.add_u32s(*whole, words);
        *upper = simd.add_u32s(*upper, simd.wrapping_dyn_shr_u32s(words, half));
    };
    let blocks = bytes.chunks_exact(4 * size_of::<S::u32s>());
    let vectors = blocks.remainder().chunks_exact(size_of::<S::u32s>());
    let rest = vectors.remainder();
    for block in blocks {
        let vectors = block.chunks_exact(size_of::<S::u32s>());
        sums.iter_mut().zip(vectors).for_each(|(lanes, vector)| add(lanes, vector));
    }
    let [mut all, others @ ..] = sums;
    vectors.for_each(|vector| add(&mut all, vector));
    let (whole, upper) = others
        .into_iter()
        .fold(all, |(whole, upper), other| (simd.add_u32s(whole, other.0), simd.add_u32s(upper, other.1)));
    let lower = simd.sub_u32s(whole, simd.wrapping_dyn_shl_u32s(upper, half));
    let lanes = [simd.add_u32s(lower, upper)];
    u64::from(bytemuck::cast_slice::<_, u32>(&lanes).iter().sum::<u32>()) + sum(bytes, rest)
}

/// Returns the sum of a word's two 32-bit halves.
#[inline(always)]
const fn halves(word: u64) -> u64 {
    (word >> 32) + (word & 0xFFFF_FFFF)
}

/// Returns the last `count` bytes, at most 7, as a little-endian word. Loads them with the bytes before them,
/// because a copy of a variable number of bytes compiles to a call.
#[inline(always)]
fn last_word(bytes: &[u8], count: usize) -> u64 {
    match bytes.last_chunk() {
        Some(last) => (u64::from_le_bytes(*last) >> 8) >> (u8::BITS as usize * (7 - count)),
        None => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 as written: one 16-bit word at a time.
    fn reference(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xFFFF) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(checksum(&bytes), !0xddf2);
    }

    /// The sum of the 32-bit words is 0x1_0000_FFFF_FFFF: the fold to 16 bits carries three times. That takes
    /// 256 KiB.
    #[test]
    fn the_third_carry_of_a_long_sum_is_added() {
        let mut bytes = vec![0xFF; 4 * 0x1_0001];
        bytes.extend(0x1_0000u32.to_ne_bytes());
        assert_eq!(checksum(&bytes), reference(&bytes));
    }

    #[test]
    fn parts_of_a_long_buffer_add_up() {
        let bytes: Vec<u8> =
            (0..2 * SumLong::MAX_BYTES as u32 + 100).map(|nth| (nth ^ (nth >> 8)) as u8 | 0xE0).collect();
        for len in [SumLong::MAX_BYTES, 2 * SumLong::MAX_BYTES].into_iter().flat_map(|len| len - 70..len + 70)
        {
            assert_eq!(checksum(&bytes[..len]), reference(&bytes[..len]), "{len} bytes");
        }
    }

    proptest! {
        #[test]
        fn equals_the_reference(bytes in proptest::collection::vec(any::<u8>(), 0..1600)) {
            let expected = reference(&bytes);
            prop_assert_eq!(checksum(&bytes), expected);
            prop_assert_eq!(!folded(sum_without_vectors(&bytes)), expected);
        }

        #[test]
        fn pieces_add_up_to_the_whole(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            cuts in proptest::collection::vec(0usize..300, 0..5),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let sum = cuts.windows(2).fold(Sum::new(), |sum, cut| sum.add_bytes(&bytes[cut[0]..cut[1]]));
            prop_assert_eq!(sum.finish(), reference(&bytes));
        }

        #[test]
        fn an_ipv4_header_is_valid_if_its_sum_is(
            words: [u64; 2],
            last: u32,
            masks in proptest::sample::select(vec![[u64::MAX, u64::MAX], [0, 0], [u64::MAX, 0], [1 << 63, 1 << 63]]),
            (at, bit) in (0usize..10, 0u32..17),
        ) {
            let mut header = [0; 20];
            header[..8].copy_from_slice(&(words[0] | masks[0]).to_ne_bytes());
            header[8..16].copy_from_slice(&(words[1] | masks[1]).to_ne_bytes());
            header[16..].copy_from_slice(&last.to_ne_bytes());
            header[10..12].fill(0);
            let sum = reference(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            prop_assert!(is_valid_ipv4(&header));
            // One bit flipped, or none.
            if bit < 16 {
                header[2 * at + bit as usize / 8] ^= 1 << (bit % 8);
            }
            prop_assert_eq!(is_valid_ipv4(&header), bit == 16);
        }

        #[test]
        fn a_fold_equals_adding_the_carries_one_by_one(total: u64) {
            for total in [total, total | 0xFFFF_FFFF, total & 0xFFFF_FFFF, total >> 44, total << 16, !(total >> 60)] {
                let mut sum = total;
                while sum > 0xFFFF {
                    sum = (sum >> 16) + (sum & 0xFFFF);
                }
                prop_assert_eq!(u64::from(fold(total)), sum, "{:#x}", total);
            }
        }

        #[test]
        fn an_update_equals_computing_anew(
            mut bytes in proptest::collection::vec(any::<u8>(), 2..100),
            at in 0usize..50,
            new: u16,
        ) {
            // A sum of 0 has two representations, 0 and 0xFFFF, and only then may the two checksums differ:
            // appends a word that is not 0.
            bytes.extend([0, 1]);
            let at = at * 2 % (bytes.len() & !1);
            let before = checksum(&bytes);
            let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
            let (got, want) = (update(before, old, new), checksum(&bytes));
            prop_assert!(got == want || (got ^ want) == 0xFFFF && (got == 0 || want == 0));
        }
    }
}
