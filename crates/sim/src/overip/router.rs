//! The router: a card per network with interrupt moderation, one processor, and degen.

use nichrome_wan::{ConfigError, Delay, Impairments, Loss, Output, Path, Probability};
use nichrome_wire::engine::{advance, deliver};
use nichrome_wire::{Engine, Instant};

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
    /// Call [`Router::forward`] at that time with a frame from the port.
    Forward { at: Instant, port: Port, frame: Packet },
}

/// The router.
pub(super) struct Router {
    config: RouterConfig,
    waiting: [Waiting; 2],
    processor: Server,
    /// degen, by arrival port.
    paths: [Path<Packet>; 2],
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

    fn interrupt(&mut self, port: Port, now: Instant, effects: &mut Vec<Effect>) {
        let waiting = &mut self.waiting[port];
        waiting.interrupts += 1;
        let mut cost = self.config.interrupt;
        for frame in waiting.frames.drain(..) {
            cost += self.config.forward;
            // The queue is unbounded: no job is rejected.
            let at = self.processor.serve(cost, now).unwrap_or(now);
            cost = 0;
            effects.push(Effect::Forward { at, port, frame });
        }
    }

    /// Passes a frame to degen; returns the frames that degen releases.
    pub(super) fn forward(&mut self, port: Port, frame: Packet, now: Instant) -> Vec<Packet> {
        let mut released = Vec::new();
        deliver(&mut self.paths[port], frame, now, &mut |_, output| keep(output, &mut released));
        released
    }

    /// Returns the frames that degen releases at `now`.
    pub(super) fn release(&mut self, port: Port, now: Instant) -> Vec<Packet> {
        let mut released = Vec::new();
        advance(&mut self.paths[port], now, &mut |_, output| keep(output, &mut released));
        released
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

fn keep(output: Output<Packet>, released: &mut Vec<Packet>) {
    if let Output::Released(departure) = output {
        released.push(departure.packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outline;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn router() -> Router {
        with_seed(1)
    }

    fn with_seed(seed: u64) -> Router {
        let moderation = [(50_000, 3), (0, 80)].map(|(delay, frames)| Moderation { delay, frames });
        let config = RouterConfig { interrupt: 4000, forward: 5000, moderation, delay: 1000, loss: 0.0 };
        Router::new(config, seed).unwrap()
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
        let (mut router, mut effects) = (router(), Vec::new());
        let frame = || Packet::from(Outline::default());
        router.receive(0, frame(), at(0), &mut effects);
        assert!(matches!(effects[..], [Effect::Interrupt { at, .. }] if at.as_nanos() == 50_000));
        router.due(0, 0, at(50_000), &mut effects);
        assert_eq!(forwarded(&effects), [59_000]);
        effects.clear();
        for nanos in [100_000, 100_100, 100_200] {
            router.receive(0, frame(), at(nanos), &mut effects);
        }
        assert_eq!(forwarded(&effects), [109_200, 114_200, 119_200]);
        // The timer of the first comes too late.
        effects.clear();
        router.due(0, 1, at(150_000), &mut effects);
        assert!(effects.is_empty());
        // The other card does not wait.
        router.receive(1, frame(), at(200_000), &mut effects);
        assert_eq!(forwarded(&effects), [209_000]);
    }

    #[test]
    fn every_seed_has_a_router() {
        let mut router = with_seed(u64::MAX);
        assert!(router.forward(0, Packet::from(Outline::default()), at(0)).is_empty());
        assert_eq!(router.release(0, at(1000)).len(), 1);
    }

    #[test]
    fn degen_delays_each_frame_by_itself() {
        let mut router = router();
        for nanos in [0, 400] {
            assert!(router.forward(0, Packet::from(Outline::default()), at(nanos)).is_empty());
        }
        for due in [1000, 1400] {
            assert_eq!(router.poll_timeout(0), Some(at(due)));
            assert_eq!(router.release(0, at(due)).len(), 1);
        }
    }
}
