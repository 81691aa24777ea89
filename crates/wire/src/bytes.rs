//! Reads and writes big-endian fields at constant offsets.
//!
//! Every caller passes a constant `at`, so that bounds checks are resolved at compile time and a read is one
//! load.

/// Returns the `LEN` bytes at offset `at`.
#[inline(always)]
pub(crate) fn array<const LEN: usize, const N: usize>(bytes: &[u8; N], at: usize) -> [u8; LEN] {
    let mut field = [0; LEN];
    field.copy_from_slice(&bytes[at..at + LEN]);
    field
}

/// Returns the 16-bit number at offset `at`.
#[inline(always)]
pub(crate) fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes(array(bytes, at))
}

/// Returns the 32-bit number at offset `at`.
#[inline(always)]
pub(crate) fn be32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes(array(bytes, at))
}

/// Writes a field at offset `at`.
#[inline(always)]
pub(crate) fn put<const LEN: usize, const N: usize>(bytes: &mut [u8; N], at: usize, field: [u8; LEN]) {
    bytes[at..at + LEN].copy_from_slice(&field);
}
