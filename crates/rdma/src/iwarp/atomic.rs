//! Atomic operations on 8 bytes (RFC 7306 section 5).

use nichrome_wire::iwarp::AtomicOperation;

/// Returns the value after an operation.
pub(super) fn applied(operation: AtomicOperation, value: u64) -> u64 {
    match operation {
        AtomicOperation::FetchAdd { add, mask: 0 } => value.wrapping_add(add),
        AtomicOperation::FetchAdd { add, mask } => add_in_fields(value, add, mask),
        AtomicOperation::Swap { swap, mask } => swapped(value, swap, mask),
        AtomicOperation::CompareSwap { swap, swap_mask, compare, compare_mask } => {
            if (value ^ compare) & compare_mask == 0 { swapped(value, swap, swap_mask) } else { value }
        }
    }
}

fn swapped(value: u64, swap: u64, mask: u64) -> u64 {
    value & !mask | swap & mask
}

/// Adds field by field, without carries between fields: each bit of `mask` is the highest of its field.
fn add_in_fields(value: u64, add: u64, mask: u64) -> u64 {
    // Without the highest bits no field carries; these are added last, without carry.
    let below = (value & !mask).wrapping_add(add & !mask);
    below ^ (value ^ add) & mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_bound_fields_and_bits() {
        let add = |value, add, mask| applied(AtomicOperation::FetchAdd { add, mask }, value);
        assert_eq!(add(u64::MAX, 2, 0), 1);
        // Two fields of 32 bits: the lower one wraps without touching the upper one.
        assert_eq!(add(0xFFFF_FFFF, 0x1_0000_0002, 0x8000_0000), 0x1_0000_0001);
        assert_eq!(applied(AtomicOperation::Swap { swap: 0xAB, mask: 0x0F }, 0x70), 0x7B);
        let compare = |compare, value| {
            let (swap, swap_mask, compare_mask) = (5, u64::MAX, 0xFF);
            applied(AtomicOperation::CompareSwap { swap, swap_mask, compare, compare_mask }, value)
        };
        assert_eq!((compare(0x34, 0x1234), compare(0x35, 0x1234)), (5, 0x1234));
    }
}
