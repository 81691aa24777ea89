//! Bytes as a virtio header and the frame after it.
#![no_main]

#[path = "../../crates/tso/tests/common/promises.rs"]
mod promises;

use nichrome_wire::VirtioNetHeader;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some((header, frame)) = data.split_first_chunk() {
        promises::keep_promises(frame, &VirtioNetHeader::from_bytes(header));
        promises::keep_promises_within(frame, 576);
    }
});
