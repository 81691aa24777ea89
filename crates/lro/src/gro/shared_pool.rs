//! TCP and UDP flows share the aggregates: if none is free for a flow of one protocol, the engine flushes the
//! oldest flow of the other.

use nichrome_wire::Instant;

use super::Gro;
use crate::datagram::UdpPacket;
use crate::frame::Frame;
use crate::mask::Rule;
use crate::reason::FlushReason;
use crate::run::PooledRun;
use crate::segment::Segment;

impl<B: AsRef<[u8]>> Gro<B> {
    /// Consumes a datagram for which no aggregate was free: flushes the TCP flow held longest, and tries
    /// again.
    #[cold]
    pub(super) fn receive_datagram_again(&mut self, frame: Frame<B>, packet: &UdpPacket, now: Instant) {
        if let Some((oldest, _)) = self.oldest() {
            self.flush(oldest, FlushReason::Evicted);
        }
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.receive_again(frame, packet, now, &mut self.pool, &mut self.out);
        }
    }

    /// Starts a run for which no aggregate was free: flushes the UDP flow held longest, and tries again.
    /// Returns the frame if that frees none.
    #[cold]
    pub(super) fn start_in_place_of_datagrams(
        &mut self,
        frame: Frame<B>,
        segment: &Segment,
        now: Instant,
    ) -> Result<PooledRun<B>, Frame<B>> {
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.flush_oldest(1, FlushReason::Evicted, &mut self.pool, &mut self.out);
        }
        self.pool.start(frame, segment, Rule::Lossless, self.limits, now)
    }
}
