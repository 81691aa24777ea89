//! The load: one operation at a time per connection.

use std::time::Duration;

use nichrome_wire::Instant;
use rand_pcg::rand_core::RngCore;

use super::config::Grouping;
use super::network::{Event, Network};
use super::side::Side;
use crate::EventQueue;

impl Network {
    /// Schedules the first operations.
    pub(super) fn start(&mut self, queue: &mut EventQueue<Event>) {
        if self.only == Some(Side::Server) {
            return;
        }
        if self.config.offered.is_some() {
            return self.schedule_arrival(queue);
        }
        for connection in 0..self.connections.len() as u32 {
            let at = self.below(self.config.start.max(1));
            self.begin(connection, Instant::from_nanos(at), queue);
        }
    }

    /// Starts an operation that arrived for a random connection.
    pub(super) fn operation_arrives(&mut self, queue: &mut EventQueue<Event>) {
        let now = queue.now();
        let connection = self.below(self.connections.len() as u64) as u32;
        let this = &mut self.connections[connection as usize];
        if this.is_busy {
            this.waiting.push_back(now);
        } else {
            self.begin(connection, now, queue);
        }
        self.schedule_arrival(queue);
    }

    /// Schedules the next Poisson arrival.
    fn schedule_arrival(&mut self, queue: &mut EventQueue<Event>) {
        let Some(offered) = self.config.offered else { return };
        let unit = ((self.random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        // The sum of the intervals, since truncating each to nanoseconds would raise the rate.
        self.next_arrival += exponential(unit) * 1e9 / offered;
        queue.schedule(Instant::from_nanos(self.next_arrival as u64), Event::Arrives);
    }

    /// Starts an operation that arrived at `came`: it reaches the card when its group has had its turn and
    /// the host has posted it.
    fn begin(&mut self, connection: u32, came: Instant, queue: &mut EventQueue<Event>) {
        let this = &mut self.connections[connection as usize];
        (this.is_busy, this.started) = (true, came);
        let now = came.max(queue.now());
        let groups = self.connections.len();
        let turn =
            self.config.grouping.map_or(now, |grouping| grouping.turn(connection as usize, groups, now));
        queue.schedule(turn.plus_nanos(self.config.post), Event::Posted { connection, side: Side::Client });
    }

    /// Completes the operation of a connection; starts the next.
    pub(super) fn complete(&mut self, connection: u32, queue: &mut EventQueue<Event>) {
        let now = queue.now();
        let this = &mut self.connections[connection as usize];
        this.is_busy = false;
        let latency = now.nanos_since(this.started);
        let next = if self.config.offered.is_some() { this.waiting.pop_front() } else { Some(now) };
        self.latencies.record(Duration::from_nanos(latency));
        self.counters.operations += 1;
        if let Some(came) = next {
            self.begin(connection, came, queue);
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.random.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

/// Returns the exponential variate of mean 1 for a uniform one in (0, 1]. f64::ln is the C library's, whose
/// last bit differs from machine to machine.
fn exponential(unit: f64) -> f64 {
    -libm::log(unit)
}

impl Grouping {
    /// Returns when a connection may start an operation, from `now` on.
    fn turn(self, connection: usize, connections: usize, now: Instant) -> Instant {
        let groups = connections.div_ceil(self.size) as u64;
        let begins = (connection / self.size) as u64 * self.slice;
        let round = groups * self.slice;
        let into = now.as_nanos() % round;
        if (begins..begins + self.slice).contains(&into) {
            now
        } else {
            now.plus_nanos((begins + round - into) % round)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_has_no_part_in_an_interval() {
        // glibc's logarithm of the first differs in the last bit.
        let bits = [0.001_32, 0.5, 1.0].map(|unit| exponential(unit).to_bits());
        assert_eq!(bits, [0x401A_853F_1B1B_E9D2, std::f64::consts::LN_2.to_bits(), 1 << 63]);
    }

    #[test]
    fn groups_take_turns() {
        let grouping = Grouping { size: 2, slice: 100 };
        let turn = |connection, now| grouping.turn(connection, 5, Instant::from_nanos(now)).as_nanos();
        assert_eq!(
            [turn(0, 50), turn(1, 99), turn(0, 100), turn(1, 299), turn(1, 300)],
            [50, 99, 300, 300, 300]
        );
        assert_eq!([turn(2, 50), turn(4, 50), turn(4, 250), turn(3, 250)], [100, 200, 250, 400]);
    }
}
