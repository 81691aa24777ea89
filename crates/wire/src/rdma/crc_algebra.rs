//! Arithmetic on CRC-32 remainders: polynomials over GF(2) modulo the generator; the top bit is the
//! coefficient of x⁰, as in the reflected CRC.

const GENERATOR: u32 = 0xEDB8_8320;

const ONE: u32 = 1 << 31;

/// The order of x: the generator is primitive.
const ORDER: u32 = u32::MAX;

const fn times_x(a: u32) -> u32 {
    if a & 1 == 0 { a >> 1 } else { a >> 1 ^ GENERATOR }
}

/// Multiplies two remainders.
pub(super) const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut rest = a;
    let mut product = 0;
    while rest != 0 {
        if rest & ONE != 0 {
            product ^= b;
        }
        rest <<= 1;
        b = times_x(b);
    }
    product
}

/// x to the powers 1, 2, 4, 8, ….
const SQUARES: [u32; 32] = {
    let mut squares = [times_x(ONE); 32];
    let mut nth = 1;
    while nth < squares.len() {
        squares[nth] = multiply(squares[nth - 1], squares[nth - 1]);
        nth += 1;
    }
    squares
};

/// Returns xⁿ: the factor of a remainder for `n` appended zero bits.
pub(super) fn x_to_the(n: u32) -> u32 {
    (0..32).filter(|bit| n >> bit & 1 != 0).fold(ONE, |power, bit| multiply(SQUARES[bit as usize], power))
}

/// Returns x⁻ⁿ: the factor that undoes `n` zero bits.
pub(super) fn x_to_the_minus(n: u32) -> u32 {
    x_to_the(ORDER - n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_power_and_its_inverse_cancel(a in any::<u32>(), n in any::<u32>()) {
            prop_assert_eq!(multiply(multiply(a, x_to_the(n)), x_to_the_minus(n)), a);
        }

        #[test]
        fn a_power_appends_zeros(bytes in proptest::collection::vec(any::<u8>(), 1..40), zeros in 0u32..600) {
            let zeroed = |bytes: &[u8]| {
                let mut with_zeros = bytes.to_vec();
                with_zeros.resize(bytes.len() + zeros as usize, 0);
                crc32fast::hash(&with_zeros)
            };
            let other = vec![0; bytes.len()];
            // In the difference between two CRCs of messages of equal length, the CRC's initial value and
            // final inversion cancel.
            let difference = crc32fast::hash(&bytes) ^ crc32fast::hash(&other);
            prop_assert_eq!(multiply(difference, x_to_the(8 * zeros)), zeroed(&bytes) ^ zeroed(&other));
        }
    }
}
