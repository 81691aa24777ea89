//! Trains under the lossless rule: the leading frames of a burst that are a run's expected next segments. One
//! masked comparison with the header of the run's first frame recognizes each.

use std::vec::IntoIter;

use nichrome_wire::TcpFlags;
use pulp::{Arch, NullaryFnOnce};

use super::Run;
use crate::checksums;
use crate::frame::Frame;
use crate::mask::{Expected, Mask, Masks};
use crate::template::COMMON_LEN;

impl<B: AsRef<[u8]>> Run<B> {
    /// Adds the leading frames that are the expected next segments, until the run is full or a segment ends
    /// it. Returns the payload in bytes, and the flags of the segment that ends the run.
    #[inline]
    pub(crate) fn add_train(
        &mut self,
        masks: &mut Masks,
        frames: &mut IntoIter<Frame<B>>,
    ) -> (u32, TcpFlags) {
        let (arch, mask) = (masks.arch, masks.of(self.layout));
        let (count, ends) = if self.is_common {
            self.predicts::<true>(arch, mask, frames.as_slice())
        } else {
            self.predicts::<false>(arch, mask, frames.as_slice())
        };
        self.flags = self.flags | ends;
        self.extend(frames, count);
        (count * self.first_len, ends)
    }

    /// Counts the leading frames that are the expected next segments, and returns the flags of the last if it
    /// ends the run. Not inlined, so that the compiler keeps the first header and the mask in registers
    /// across frames.
    #[inline(never)]
    fn predicts<const IS_COMMON: bool>(
        &self,
        arch: Arch,
        mask: &Mask,
        frames: &[Frame<B>],
    ) -> (u32, TcpFlags) {
        arch.dispatch(Predicts::<_, IS_COMMON> { run: self, mask, frames })
    }

    #[inline(always)]
    fn count_expected(&self, expected: Option<Expected<'_>>, frames: &[Frame<B>]) -> (u32, TcpFlags) {
        let len = self.frame_len as usize;
        let Some(expected) = expected.filter(|_| len >= COMMON_LEN) else { return (0, TcpFlags::NONE) };
        let (mut seq, mut ip_fields) = (self.end, expected.after(self.ident_steps()));
        let mut count = 0;
        for frame in self.fitting(frames) {
            if frame.bytes().len() != len {
                break;
            }
            let Some(flags) = expected.flags_of(frame.bytes(), seq, ip_fields) else { break };
            if checksums::verify_transport(frame, self.layout, self.first_len).is_err() {
                break;
            }
            count += 1;
            if flags.intersects(TcpFlags::PSH | TcpFlags::FIN) {
                return (count, flags);
            }
            seq += self.first_len;
            ip_fields = ip_fields.after(self.ident_step());
        }
        (count, TcpFlags::NONE)
    }
}

/// [`Run::predicts`], compiled once for AVX2 and once without.
struct Predicts<'a, B, const IS_COMMON: bool> {
    run: &'a Run<B>,
    mask: &'a Mask,
    frames: &'a [Frame<B>],
}

impl<B: AsRef<[u8]>, const IS_COMMON: bool> NullaryFnOnce for Predicts<'_, B, IS_COMMON> {
    type Output = (u32, TcpFlags);

    #[inline(always)]
    fn call(self) -> (u32, TcpFlags) {
        let Self { run, mask, frames } = self;
        let expected = run.first().first_chunk().and_then(|first| match IS_COMMON {
            true => mask.expected_common(first),
            false => mask.expected(first),
        });
        run.count_expected(expected, frames)
    }
}
