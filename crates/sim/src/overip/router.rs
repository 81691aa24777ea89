//! The router: a card per network with interrupt moderation, one processor, and degen.

use nichrome_wan::{ConfigError, Delay, Impairments, Loss, Output, Path, Probability};
use nichrome_wire::engine::{advance, deliver};
use nichrome_wire::{Ecn, Engine, Instant};

use super::config::{Moderation, RouterConfig};
use crate::{Packet, Server};

/// The card of a network: 0 for A, 1 for B.
pub(super) type Port = usize;

/// Frames waiting for a card's interrupt.
#[derive(Clone, Debug, Default)]
struct Waiting {
    frames: Vec<Packet>,
    /// Interrupt counter, which invalidates the timer of an interrupt that was raised early.
    interrupts: u64,
}

/// Events that the world schedules for the router.
#[derive(Debug)]
pub(super) enum Effect {
    /// Call [`Router::due`] at that time.
    Interrupt { at: Instant, port: Port, interrupts: u64 },
    /// A frame from the port leaves through the other one at that time.
    Forward { at: Instant, port: Port, frame: Packet },
}

/// A frame in degen.
struct Delayed {
    frame: Packet,
    /// When the processor has forwarded it.
    forwarded: Instant,
}

impl nichrome_wan::Packet for Delayed {
    fn wire_len(&self) -> usize {
        self.frame.wire_len()
    }

    fn flip_bit(&mut self, bit: usize) {
        self.frame.flip_bit(bit);
    }

    fn duplicate(&self) -> Option<Self> {
        Some(Self { frame: self.frame.duplicate()?, forwarded: self.forwarded })
    }

    fn ecn(&self) -> Ecn {
        self.frame.ecn()
    }

    fn mark_ce(&mut self) {
        self.frame.mark_ce();
    }
}

/// The router.
pub(super) struct Router {
    config: RouterConfig,
    waiting: [Waiting; 2],
    processor: Server,
    /// degen, by arrival port.
    paths: [Path<Delayed>; 2],
}

impl Router {
    pub(super) fn new(config: RouterConfig, seed: u64) -> Result<Self, ConfigError> {
        let loss = Probability::new(config.loss).filter(|_| config.loss > 0.0).map(Loss::Independent);
        let delay = Delay::new(std::time::Duration::from_nanos(config.delay)).unwrap_or_default();
        let impairments = Impairments { delay, loss, ..Impairments::default() };
        let path = |seed| Path::new(&impairments, seed);
        let paths = [path(seed.wrapping_mul(2))?, path(seed.wrapping_mul(2).wrapping_add(1))?];
        Ok(Self { config, waiting: Default::default(), processor: Server::new(usize::MAX), paths })
    }

    /// Receives a frame.
    pub(super) fn receive(&mut self, port: Port, frame: Packet, now: Instant, effects: &mut Vec<Effect>) {
        let Moderation { delay, frames } = self.config.moderation[port];
        let waiting = &mut self.waiting[port];
        waiting.frames.push(frame);
        if waiting.frames.len() >= frames || delay == 0 {
            self.interrupt(port, now, effects);
        } else if let [_] = waiting.frames[..] {
            let interrupts = waiting.interrupts;
            effects.push(Effect::Interrupt { at: now.plus_nanos(delay), port, interrupts });
        }
    }

    /// Raises a due interrupt, unless it was raised early.
    pub(super) fn due(&mut self, port: Port, interrupts: u64, now: Instant, effects: &mut Vec<Effect>) {
        if self.waiting[port].interrupts == interrupts {
            self.interrupt(port, now, effects);
        }
    }

    /// Passes the waiting frames to the processor and, stamped with the interrupt's time, to degen: the
    /// kernel stamps a packet when it reaches the router (rdma-over-ip 3).
    fn interrupt(&mut self, port: Port, now: Instant, effects: &mut Vec<Effect>) {
        let waiting = &mut self.waiting[port];
        waiting.interrupts += 1;
        let mut cost = self.config.interrupt;
        for frame in waiting.frames.drain(..) {
            cost += self.config.forward;
            // The queue is unbounded: no job is rejected.
            let forwarded = self.processor.serve(cost, now).unwrap_or(now);
            cost = 0;
            let (path, delayed) = (&mut self.paths[port], Delayed { frame, forwarded });
            deliver(path, delayed, now, &mut |_, output| forward(output, port, now, effects));
        }
    }

    /// Forwards the frames that degen releases at `now`.
    pub(super) fn release(&mut self, port: Port, now: Instant, effects: &mut Vec<Effect>) {
        advance(&mut self.paths[port], now, &mut |_, output| forward(output, port, now, effects));
    }

    /// Returns the number of frames that degen dropped.
    pub(super) fn lost(&self) -> u64 {
        self.paths.iter().map(|path| path.stats().drops.total()).sum()
    }

    /// Returns when degen releases the next frame.
    pub(super) fn poll_timeout(&self, port: Port) -> Option<Instant> {
        self.paths[port].poll_timeout()
    }
}

/// Forwards a frame that degen releases: at `now`, or later when the processor has forwarded it.
fn forward(output: Output<Delayed>, port: Port, now: Instant, effects: &mut Vec<Effect>) {
    if let Output::Released(departure) = output {
        let Delayed { frame, forwarded } = departure.packet;
        effects.push(Effect::Forward { at: forwarded.max(now), port, frame });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outline;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn router(delay: u64) -> Router {
        with_seed(1, delay)
    }

    fn with_seed(seed: u64, delay: u64) -> Router {
        let moderation = [(50_000, 3), (0, 80)].map(|(delay, frames)| Moderation { delay, frames });
        let config = RouterConfig { interrupt: 4000, forward: 5000, moderation, delay, loss: 0.0 };
        Router::new(config, seed).unwrap()
    }

    fn frame() -> Packet {
        Packet::from(Outline::default())
    }

    fn forwarded(effects: &[Effect]) -> Vec<u64> {
        let forwards = effects.iter().filter_map(|effect| match effect {
            Effect::Forward { at, .. } => Some(at.as_nanos()),
            Effect::Interrupt { .. } => None,
        });
        forwards.collect()
    }

    #[test]
    fn an_interrupt_waits_for_its_time_or_for_enough_frames() {
        let (mut router, mut effects) = (router(0), Vec::new());
        router.receive(0, frame(), at(0), &mut effects);
        assert!(matches!(effects[..], [Effect::Interrupt { at, .. }] if at.as_nanos() == 50_000));
        router.due(0, 0, at(50_000), &mut effects);
        assert_eq!(forwarded(&effects), [59_000]);
        effects.clear();
        for nanos in [100_000, 100_100, 100_200] {
            router.receive(0, frame(), at(nanos), &mut effects);
        }
        assert_eq!(forwarded(&effects), [109_200, 114_200, 119_200]);
        // The first frame's timer is superseded: the third frame raised the interrupt.
        effects.clear();
        router.due(0, 1, at(150_000), &mut effects);
        assert!(effects.is_empty());
        // The card to network B raises its interrupts at once.
        router.receive(1, frame(), at(200_000), &mut effects);
        assert_eq!(forwarded(&effects), [209_000]);
    }

    #[test]
    fn every_seed_has_a_router() {
        let (mut router, mut effects) = (with_seed(u64::MAX, 0), Vec::new());
        router.receive(1, frame(), at(0), &mut effects);
        assert_eq!(forwarded(&effects), [9000]);
    }

    /// Returns when degen releases the next frames, and when they leave.
    fn released(router: &mut Router) -> Option<(u64, Vec<u64>)> {
        let (due, mut effects) = (router.poll_timeout(1)?, Vec::new());
        router.release(1, due, &mut effects);
        Some((due.as_nanos(), forwarded(&effects)))
    }

    #[test]
    fn degen_delays_each_frame_from_its_interrupt() {
        let (mut router, mut effects) = (router(100_000), Vec::new());
        for nanos in [0, 400, 99_000] {
            router.receive(1, frame(), at(nanos), &mut effects);
        }
        assert!(effects.is_empty(), "{effects:?}");
        for due in [100_000, 100_400, 199_000] {
            assert_eq!(released(&mut router), Some((due, vec![due])));
        }
        assert_eq!(released(&mut router), None);
    }

    #[test]
    fn no_frame_leaves_before_the_processor_has_forwarded_it() {
        let (mut router, mut effects) = (router(10_000), Vec::new());
        for _ in 0..2 {
            router.receive(1, frame(), at(0), &mut effects);
        }
        assert!(effects.is_empty(), "{effects:?}");
        // The processor has forwarded the first frame after 9 us, and the second after 18 us.
        assert_eq!(released(&mut router), Some((10_000, vec![10_000, 18_000])));
    }
}
