//! DCQCN: a rate per queue pair, reduced by CNPs and increased by a timer and a byte counter (Zhu et al.,
//! "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015, section 3.1 and figure 7).

use nichrome_wire::{Instant, SeqNumber};

use super::controller::{Acknowledged, Controller, Mark, SendWindow};
use super::window::LossWindow;

/// Minimum interval in nanoseconds between ECN echoes that count as a CNP (section 5.1).
const NOTIFICATION_INTERVAL: u64 = 50_000;

/// Parameters of DCQCN; rates in bits per second, times in nanoseconds. The defaults are the paper's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dcqcn {
    /// Rate without congestion, at least 1; packets are not paced at this rate.
    pub line_rate: u64,
    /// Minimum rate, at least 1.
    pub min_rate: u64,
    /// Gain g of the congestion estimate alpha, 0 to 1.
    pub gain: f64,
    /// Interval at which alpha decreases without CNPs, at least 1.
    pub alpha_time: u64,
    /// Interval of the rate increase timer, at least 1 µs.
    pub increase_time: u64,
    /// Bytes per step of the rate increase byte counter, at least 1.
    pub increase_bytes: u64,
    /// Number of fast recovery steps.
    pub recovery_steps: u32,
    /// Increment of the target rate per additive increase step, at least 2⁻²⁰ of the line rate.
    pub additive: u64,
    /// Increment of the target rate per hyper increase step, at least 2⁻²⁰ of the line rate.
    pub hyper: u64,
}

impl Default for Dcqcn {
    fn default() -> Self {
        Self {
            line_rate: 40_000_000_000,
            min_rate: 40_000_000,
            gain: 1.0 / 256.0,
            alpha_time: 55_000,
            increase_time: 55_000,
            increase_bytes: 10 << 20,
            recovery_steps: 5,
            additive: 40_000_000,
            hyper: 200_000_000,
        }
    }
}

impl Dcqcn {
    /// Parameters with their values and minima. With lower values a rate would not recover, or only in so
    /// many steps that the driver's lock would be held for long while an idle queue pair catches up.
    pub(crate) fn minima(&self) -> [(&'static str, u64, u64); 7] {
        let min_increment = (self.line_rate >> 20).max(1);
        [
            ("dcqcn.line_rate", self.line_rate, 1),
            ("dcqcn.min_rate", self.min_rate, 1),
            ("dcqcn.alpha_time", self.alpha_time, 1),
            ("dcqcn.increase_time", self.increase_time, 1000),
            ("dcqcn.increase_bytes", self.increase_bytes, 1),
            ("dcqcn.additive", self.additive, min_increment),
            ("dcqcn.hyper", self.hyper, min_increment),
        ]
    }
}

/// The controller: a rate that CNPs reduce, and a window that losses halve.
#[derive(Clone, Debug)]
pub(crate) struct DcqcnRate {
    config: Dcqcn,
    window: LossWindow,
    /// `None` at the line rate.
    point: Option<ReactionPoint>,
    last_echo: Option<Instant>,
}

impl DcqcnRate {
    pub(crate) fn new(config: Dcqcn, window: &SendWindow) -> Self {
        Self { config, window: LossWindow::new(window), point: None, last_echo: None }
    }
}

impl Controller for DcqcnRate {
    fn window(&self) -> u32 {
        self.window.window()
    }

    fn acknowledged(&mut self, ack: &Acknowledged) {
        self.window.acknowledged(ack);
        let is_new = self.last_echo.is_none_or(|last| ack.now.nanos_since(last) >= NOTIFICATION_INTERVAL);
        if ack.mark == Mark::Marked && is_new {
            self.last_echo = Some(ack.now);
            self.notified(ack.sequence, ack.next, ack.now);
        }
    }

    fn lost(&mut self, sequence: SeqNumber, next: SeqNumber) {
        self.window.lost(sequence, next);
    }

    fn timed_out(&mut self) {
        self.window.timed_out();
    }

    fn notified(&mut self, _: SeqNumber, _: SeqNumber, now: Instant) {
        self.advance(now);
        let Self { config, point, .. } = self;
        point.get_or_insert_with(|| ReactionPoint::new(config, now)).notified(config, now);
    }

    fn departure(&self) -> Option<Instant> {
        self.point.as_ref().map(|point| point.free_at)
    }

    fn sent(&mut self, bytes: usize, now: Instant) {
        if let Some(point) = &mut self.point {
            point.sent(bytes, &self.config, now);
        }
    }

    fn advance(&mut self, now: Instant) {
        if let Some(point) = &mut self.point
            && !point.advance(&self.config, now)
        {
            self.point = None;
        }
    }
}

/// The reaction point: the rate of a queue pair below the line rate.
#[derive(Clone, Debug)]
struct ReactionPoint {
    current: f64,
    target: f64,
    /// Congestion estimate.
    alpha: f64,
    next_alpha: Instant,
    next_increase: Instant,
    /// Increase steps of the timer and of the byte counter since the last CNP.
    time_steps: u32,
    byte_steps: u32,
    bytes: u64,
    /// Earliest time of the next packet.
    free_at: Instant,
}

impl ReactionPoint {
    /// Creates the state before the first CNP.
    fn new(config: &Dcqcn, now: Instant) -> Self {
        let line_rate = config.line_rate as f64;
        Self {
            current: line_rate,
            target: line_rate,
            alpha: 1.0,
            next_alpha: now,
            next_increase: now,
            time_steps: 0,
            byte_steps: 0,
            bytes: 0,
            free_at: now,
        }
    }

    /// Reduces the rate on a CNP.
    fn notified(&mut self, config: &Dcqcn, now: Instant) {
        self.target = self.current;
        self.current = (self.current * (1.0 - self.alpha / 2.0)).max(config.min_rate as f64);
        self.alpha = (1.0 - config.gain) * self.alpha + config.gain;
        self.next_alpha = now.plus_nanos(config.alpha_time);
        self.next_increase = now.plus_nanos(config.increase_time);
        (self.time_steps, self.byte_steps, self.bytes) = (0, 0, 0);
    }

    /// Runs the timers up to `now`. Returns false when the rate is back at the line rate.
    fn advance(&mut self, config: &Dcqcn, now: Instant) -> bool {
        while self.next_increase <= now && self.is_paced(config) {
            self.time_steps += 1;
            self.increase(config);
            self.next_increase = self.next_increase.plus_nanos(config.increase_time);
        }
        if !self.is_paced(config) {
            return false;
        }
        if self.next_alpha <= now {
            let steps = now.nanos_since(self.next_alpha) / config.alpha_time + 1;
            self.alpha *= (1.0 - config.gain).powi(steps.try_into().unwrap_or(i32::MAX));
            self.next_alpha = self.next_alpha.plus_nanos(steps.saturating_mul(config.alpha_time));
        }
        true
    }

    fn is_paced(&self, config: &Dcqcn) -> bool {
        self.current < config.line_rate as f64 * 0.999
    }

    /// Fast recovery, then additive increase, then hyper increase (figure 7).
    fn increase(&mut self, config: &Dcqcn) {
        let (time, bytes) = (self.time_steps, self.byte_steps);
        if time.min(bytes) > config.recovery_steps {
            self.target += config.hyper as f64;
        } else if time.max(bytes) > config.recovery_steps {
            self.target += config.additive as f64;
        }
        self.target = self.target.min(config.line_rate as f64);
        self.current = (self.target + self.current) / 2.0;
    }

    /// Accounts for a packet of `bytes` bytes.
    fn sent(&mut self, bytes: usize, config: &Dcqcn, now: Instant) {
        let nanos = bytes as f64 * 8e9 / self.current;
        self.free_at = self.free_at.max(now).plus_nanos(nanos as u64);
        self.bytes += bytes as u64;
        while self.bytes >= config.increase_bytes {
            self.bytes -= config.increase_bytes;
            self.byte_steps += 1;
            self.increase(config);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cnp_halves_the_rate_and_time_restores_it() {
        let config = Dcqcn::default();
        let mut point = ReactionPoint::new(&config, Instant::ZERO);
        point.notified(&config, Instant::ZERO);
        assert_eq!(point.current, 20e9);
        point.sent(2500, &config, Instant::ZERO);
        assert_eq!(point.free_at, Instant::from_nanos(1000));
        // Five steps of fast recovery, each halving the distance to the target.
        assert!(point.advance(&config, Instant::from_nanos(5 * 55_000)));
        assert_eq!(point.current, 40e9 - 20e9 / 32.0);
        assert!(!point.advance(&config, Instant::from_nanos(1_000_000_000)));
    }

    #[test]
    fn repeated_cnps_reduce_the_rate_to_the_minimum() {
        let config = Dcqcn::default();
        let mut point = ReactionPoint::new(&config, Instant::ZERO);
        (0..50).for_each(|_| point.notified(&config, Instant::ZERO));
        assert_eq!(point.current, config.min_rate as f64);
    }

    /// With a step for each interval of a day, the driver's lock would be held for minutes.
    #[test]
    fn an_idle_queue_pair_takes_no_step_after_its_rate_is_back() {
        let config = Dcqcn::default();
        let mut point = ReactionPoint::new(&config, Instant::ZERO);
        point.notified(&config, Instant::ZERO);
        let first = point.next_alpha;
        assert!(!point.advance(&config, Instant::from_nanos(86_400_000_000_000)));
        assert_eq!(point.next_alpha, first);
    }
}
