//! Bytes as a virtio header and the frame after it.
#![no_main]

#[path = "../../crates/tso/tests/common/invariants.rs"]
mod invariants;

use nichrome_wire::VirtioNetHeader;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some((header, frame)) = data.split_first_chunk() {
        invariants::check_invariants(frame, &VirtioNetHeader::from_bytes(header));
        invariants::check_invariants_within(frame, 576);
    }
});
