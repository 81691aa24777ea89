//! Operations on two paths that are the same but for their drivers.
#![no_main]

#[path = "../../crates/wan/tests/common/generated.rs"]
mod generated;

use arbitrary::Unstructured;
use generated::Choose;

/// Choices from the fuzzer's input.
struct Input<'a>(Unstructured<'a>);

impl Choose for Input<'_> {
    fn below(&mut self, bound: u32) -> u32 {
        self.0.int_in_range(0..=bound.max(1) - 1).unwrap_or_default()
    }

    fn is_exhausted(&self) -> bool {
        self.0.is_empty()
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Err(broken) = generated::run(&mut Input(Unstructured::new(data))) {
        panic!("{broken}");
    }
});
