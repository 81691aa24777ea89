//! Any bytes as a capture file.
#![no_main]

use nichrome_port::capture::{MAX_RECORD, Reader};

libfuzzer_sys::fuzz_target!(|file: &[u8]| {
    let Ok(mut reader) = Reader::new(file) else { return };
    let (mut data, mut records) = (Vec::new(), 0);
    while let Ok(Some(_)) = reader.next(&mut data) {
        assert!(data.len() <= MAX_RECORD as usize);
        records += 1;
        let progress = reader.position();
        assert!(progress.records == records && progress.bytes <= file.len() as u64);
    }
    assert!(matches!(reader.next(&mut data), Ok(None)), "after the end or an error there is nothing");
});
