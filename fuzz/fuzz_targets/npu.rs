//! Operations on the `npu` engine.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nichrome_fuzz::run_operations(data, 2));
