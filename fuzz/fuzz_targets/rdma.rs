//! Operations on two RDMA devices, and on the network between them.
#![no_main]

#[path = "../../crates/rdma/tests/common/mod.rs"]
mod common;

use arbitrary::Unstructured;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut input = Unstructured::new(data);
    let mut choose = |bound: u32| {
        if input.is_empty() { None } else { input.int_in_range(0..=bound.max(1) - 1).ok() }
    };
    common::generated::run(&mut choose);
});
