//! A plain read of bytes: the lower bound of the time to verify a checksum.

use std::hint::black_box;

use nichrome_lro::{Frame, Output, Packet};
use nichrome_port::Buffer;
use nichrome_wire::{Engine, Instant};
use pulp::{Arch, Simd, WithSimd, bytemuck};

/// Reads the bytes with the vectors that a checksum is computed with; combines them by XOR, so that the reads
/// are not optimized away.
pub(super) fn read(bytes: &[u8]) -> u64 {
    Arch::new().dispatch(Read(bytes))
}

/// The computation of [`read`], dispatched to the CPU's vector instructions.
struct Read<'a>(&'a [u8]);

impl WithSimd for Read<'_> {
    type Output = u64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> u64 {
        let mut lanes = [simd.splat_u64s(0); 4];
        let blocks = self.0.chunks_exact(size_of_val(&lanes));
        let (words, rest) = blocks.remainder().as_chunks();
        for block in blocks {
            let vectors = block.chunks_exact(size_of::<S::u64s>()).map(bytemuck::pod_read_unaligned);
            for (lane, vector) in lanes.iter_mut().zip(vectors) {
                *lane = simd.xor_u64s(*lane, vector);
            }
        }
        let lanes = bytemuck::cast_slice::<_, u64>(&lanes).iter().copied();
        let words = words.iter().map(|word| u64::from_ne_bytes(*word));
        let rest = rest.iter().map(|byte| u64::from(*byte));
        lanes.chain(words).chain(rest).fold(0, |all, part| all ^ part)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_read() {
        for length in [1, 7, 8, 66, 127, 128, 129, 300, 1500] {
            let mut bytes = vec![0; length];
            for at in 0..length {
                bytes[at] = 1;
                assert_ne!(read(&bytes), 0, "byte {at} of {length}");
                bytes[at] = 0;
            }
        }
    }
}
