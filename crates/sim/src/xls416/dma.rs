//! The DMA engine (lro-npu V.B): shared by all threads, one transfer at a time, with a start-up cost each.

use nichrome_wire::Instant;

use crate::{Pcie, PcieConfig};

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// Received packets, to host memory.
    ToHost,
    /// Packets of the host, from host memory.
    FromHost,
}

/// Direction and length of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// The direction.
    pub(super) direction: Direction,
    /// The length in bytes.
    pub(super) bytes: u64,
    /// Segments in the card's memory that hold the bytes, at least 1.
    pub(super) pieces: u64,
}

/// The configuration of the DMA engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DmaConfig {
    /// Start-up time of a transfer, in nanoseconds.
    pub(super) start: u64,
    /// Nanoseconds per piece after the first.
    pub(super) piece: u64,
    /// The bus to the host's memory.
    pub(super) pcie: PcieConfig,
}

/// The DMA engine with a stack of requests: the most recent one is served first (lro-npu V.B).
#[derive(Clone, Debug)]
pub(super) struct Dma<T> {
    config: DmaConfig,
    pcie: Pcie,
    stack: Vec<(Extent, T)>,
    current: Option<(Extent, T)>,
    /// Total time of all started transfers in nanoseconds, and the end of the last.
    work: u64,
    idle_from: Instant,
}

impl<T> Dma<T> {
    /// Creates an idle engine.
    pub(super) fn new(config: DmaConfig) -> Self {
        let pcie = Pcie::new(config.pcie);
        Self { config, pcie, stack: Vec::new(), current: None, work: 0, idle_from: Instant::ZERO }
    }

    /// Accepts a request; returns its completion time if the engine is idle.
    pub(super) fn request(&mut self, extent: Extent, transfer: T, now: Instant) -> Option<Instant> {
        self.stack.push((extent, transfer));
        if self.current.is_some() {
            return None;
        }
        self.start_next(now)
    }

    /// Ends the current transfer; returns the completion time of the next.
    pub(super) fn finish(&mut self, now: Instant) -> (Option<T>, Option<Instant>) {
        let finished = self.current.take().map(|(_, transfer)| transfer);
        (finished, self.start_next(now))
    }

    /// Returns the busy time until `now`, in nanoseconds.
    pub(super) fn busy_nanos(&self, now: Instant) -> u64 {
        self.work.saturating_sub(self.idle_from.nanos_since(now))
    }

    /// Returns the number of requests on the stack.
    pub(super) fn waiting(&self) -> usize {
        self.stack.len()
    }

    fn start_next(&mut self, now: Instant) -> Option<Instant> {
        let (extent, transfer) = self.stack.pop()?;
        let pieces = self.config.piece * extent.pieces.saturating_sub(1);
        let moves = now.plus_nanos(self.config.start + pieces);
        let done = match extent.direction {
            Direction::ToHost => self.pcie.write(extent.bytes, moves),
            Direction::FromHost => self.pcie.read(extent.bytes, moves),
        };
        self.work += done.nanos_since(now);
        self.idle_from = done;
        self.current = Some((extent, transfer));
        Some(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rate;

    fn dma() -> Dma<u32> {
        let pcie = PcieConfig {
            rate: Rate::new(8_000_000_000).unwrap(),
            latency: 0,
            max_payload: u32::MAX.try_into().unwrap(),
            overhead: 0,
            max_read: u32::MAX.try_into().unwrap(),
            outstanding_reads: 1.try_into().unwrap(),
        };
        Dma::new(DmaConfig { start: 1000, piece: 10, pcie })
    }

    const SMALL: Extent = Extent { direction: Direction::ToHost, bytes: 100, pieces: 1 };

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn a_transfer_takes_its_start_and_its_bytes() {
        let large = Extent { bytes: 64_000, ..SMALL };
        assert_eq!(dma().request(SMALL, 1, at(0)), Some(at(1100)));
        assert_eq!(dma().request(large, 1, at(0)), Some(at(1000 + 64_000)));
        let sent = Extent { direction: Direction::FromHost, ..SMALL };
        assert_eq!(dma().request(sent, 1, at(0)), Some(at(1100)));
        let scattered = Extent { pieces: 44, ..large };
        assert_eq!(dma().request(scattered, 1, at(0)), Some(at(1000 + 64_000 + 43 * 10)));
    }

    #[test]
    fn queued_requests_are_not_counted_as_work() {
        let mut dma = dma();
        let done = dma.request(SMALL, 0, at(500));
        assert_eq!([400, 500, 900, 2000].map(|now| dma.busy_nanos(at(now))), [0, 0, 400, 1100]);
        dma.request(SMALL, 1, at(700));
        dma.finish(done.unwrap());
        assert_eq!([1600, 2100, 9000].map(|now| dma.busy_nanos(at(now))), [1100, 1600, 2200]);
    }

    #[test]
    fn the_last_request_is_served_first_and_the_first_starves() {
        let mut dma = dma();
        let mut done = dma.request(SMALL, 0, at(0)).unwrap();
        dma.request(SMALL, 1, at(0));
        for later in 2..100 {
            assert_eq!(dma.request(SMALL, later, done), None);
            let (finished, next) = dma.finish(done);
            assert_ne!(finished, Some(1));
            done = next.unwrap();
        }
        let (_, next) = dma.finish(done);
        assert_eq!(dma.finish(next.unwrap()), (Some(1), None));
    }
}
