//! Operations on the `netfpga` engine.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nichrome_fuzz::run_operations(data, 1));
