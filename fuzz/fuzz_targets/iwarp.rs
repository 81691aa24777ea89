//! Operations on a queue pair on iWARP, and any bytes from its peer.
#![no_main]

#[path = "../../crates/rdma/tests/common/mod.rs"]
mod common;

use arbitrary::Unstructured;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut input = Unstructured::new(data);
    let mut choose = |bound: u32| {
        if input.is_empty() { None } else { input.int_in_range(0..=bound.max(1) - 1).ok() }
    };
    common::hostile_stream::run(&mut choose);
});
