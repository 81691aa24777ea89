//! A plain read of bytes: the lower bound of the time to verify a checksum.

use std::hint::black_box;

use nichrome_lro::{Frame, Output, Packet};
use nichrome_port::Buffer;
use nichrome_wire::{Engine, Instant};

/// Reads the bytes with the widest vectors of this processor; combines them by XOR, so that the reads are not optimized
/// away.
pub(super) fn read(bytes: &[u8]) -> u64 {
    pulp::Arch::new().dispatch(|| {
        let mut lanes = [0; 16];
        for block in bytes.as_chunks::<128>().0 {
            for (lane, word) in lanes.iter_mut().zip(block.as_chunks().0) {
                *lane ^= u64::from_ne_bytes(*word);
            }
        }
        lanes.iter().fold(0, |all, lane| all ^ lane)
    })
}

/// An engine that reads its frames and passes them on unchanged.
#[derive(Default)]
pub(super) struct Reader {
    outputs: Vec<Output<Buffer>>,
}

impl Engine for Reader {
    type Input = Frame<Buffer>;
    type Output = Output<Buffer>;

    fn receive(&mut self, frame: Frame<Buffer>, _now: Instant) {
        black_box(read(frame.bytes()));
        self.outputs.push(Output::ToHost(Packet::Frame(frame)));
    }

    fn poll(&mut self) -> Option<Output<Buffer>> {
        (!self.outputs.is_empty()).then(|| self.outputs.remove(0))
    }

    fn poll_all(&mut self, outputs: &mut Vec<Output<Buffer>>) {
        outputs.append(&mut self.outputs);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _now: Instant) {}
}
