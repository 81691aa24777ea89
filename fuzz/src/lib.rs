//! Code that the engines' targets share.

#[path = "../../crates/lro/tests/common/generated/mod.rs"]
mod generated;

use arbitrary::Unstructured;

use generated::Choose;

/// Choices from a fuzzer's input.
struct Input<'a>(Unstructured<'a>);

impl Choose for Input<'_> {
    fn below(&mut self, bound: u32) -> u32 {
        self.0.int_in_range(0..=bound.max(1) - 1).unwrap_or_default()
    }

    fn is_exhausted(&self) -> bool {
        self.0.is_empty()
    }
}

/// Decodes operations from `data`, and runs them on an engine of the `nth` profile (`gro`, `netfpga`, `npu`).
///
/// # Panics
/// The engine violates an invariant.
pub fn run_operations(data: &[u8], nth: u32) {
    let mut input = Input(Unstructured::new(data));
    if let Err(broken) = generated::run(&mut input, nth, u64::MAX) {
        panic!("{broken}");
    }
}
