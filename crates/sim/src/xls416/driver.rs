//! The server's driver with LRO in software, as inet_lro: an interrupt, then a poll of all packets that have
//! arrived.

use nichrome_lro::{Config, ConfigError, Frame, Gro, Hold, Output, Packet};
use nichrome_wire::Instant;
use nichrome_wire::engine::{deliver, end_batch};

use crate::packet::in_one_piece;
use crate::{CpuCosts, Work};

/// The configuration of the driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct DriverConfig {
    /// CPU time of a received packet in driver and LRO, in nanoseconds.
    pub(super) per_packet: u64,
    /// Minimum interval between interrupts, in nanoseconds.
    pub(super) distance: u64,
}

/// The driver.
pub(super) struct Driver {
    config: DriverConfig,
    lro: Box<Gro<Vec<u8>>>,
    arrived: Vec<Packet<Vec<u8>>>,
    /// The receiving threads whose descriptors the packets have used.
    places: Vec<usize>,
    earliest: Instant,
    is_scheduled: bool,
}

/// The results of a poll.
pub(super) struct PollResult {
    /// Packets for the network stack.
    pub(super) packets: Vec<Packet<Vec<u8>>>,
    /// The receiving threads whose descriptors are free again, one entry per descriptor.
    pub(super) places: Vec<usize>,
    /// CPU time of interrupt, driver, LRO and stack, in nanoseconds.
    pub(super) nanos: u64,
}

impl Driver {
    /// Creates an idle driver.
    ///
    /// # Errors
    /// A value of `lro` is out of range.
    pub(super) fn new(config: DriverConfig, lro: &Config) -> Result<Self, ConfigError> {
        Ok(Self {
            config,
            lro: Box::new(Gro::new(lro, Hold::Batch)?),
            arrived: Vec::new(),
            places: Vec::new(),
            earliest: Instant::ZERO,
            is_scheduled: false,
        })
    }

    /// Accepts a packet in the host's memory. Returns when the CPU, which is idle from `idle_from` on, is
    /// interrupted, unless an interrupt is scheduled.
    pub(super) fn receive(
        &mut self,
        place: usize,
        packet: Packet<Vec<u8>>,
        now: Instant,
        idle_from: Instant,
    ) -> Option<Instant> {
        self.arrived.push(packet);
        self.places.push(place);
        let was_scheduled = std::mem::replace(&mut self.is_scheduled, true);
        (!was_scheduled).then(|| now.max(idle_from).max(self.earliest))
    }

    /// Processes an interrupt: coalesces the packets that have arrived.
    pub(super) fn interrupt(&mut self, costs: &CpuCosts, now: Instant) -> PollResult {
        self.is_scheduled = false;
        self.earliest = now.plus_nanos(self.config.distance);
        let taken = self.arrived.len() as u64;
        let mut packets = Vec::with_capacity(self.arrived.len());
        let mut sink = |_, output| match output {
            Output::ToHost(packet) => packets.push(packet),
            Output::ToWire(_) | Output::Dropped(..) => {}
        };
        for packet in self.arrived.drain(..) {
            let frame = Frame::verified(in_one_piece(&packet).into_owned());
            deliver(self.lro.as_mut(), frame, now, &mut sink);
        }
        end_batch(self.lro.as_mut(), now, &mut sink);
        let bytes = packets.iter().map(|packet| packet.len() as u64).sum();
        let work = Work { interrupts: 1, packets: packets.len() as u64, bytes };
        let nanos = costs.of(work) + taken * self.config.per_packet;
        PollResult { packets, places: std::mem::take(&mut self.places), nanos }
    }
}

#[cfg(test)]
mod tests {
    use nichrome_wire::{SeqNumber, TcpFrame};

    use super::*;

    fn segment(number: u32) -> Packet<Vec<u8>> {
        let seq = SeqNumber(number * 1000);
        Packet::Frame(Frame::new(TcpFrame { seq, payload: vec![7; 1000], ..TcpFrame::default() }.build()))
    }

    #[test]
    fn what_arrives_until_the_interrupt_is_one_packet_of_the_stack() {
        let at = Instant::from_nanos;
        let config = DriverConfig { per_packet: 400, distance: 50_000 };
        let mut driver = Driver::new(config, &Config::default()).unwrap();
        let costs = CpuCosts { per_interrupt: 1000, per_packet: 2000, picos_per_byte: 0 };
        assert_eq!(driver.receive(3, segment(0), at(10), at(0)), Some(at(10)));
        assert_eq!(driver.receive(4, segment(1), at(10), at(0)), None);
        let polled = driver.interrupt(&costs, at(10));
        assert_eq!(
            (polled.packets.len(), polled.places, polled.nanos),
            (1, vec![3, 4], 1000 + 2000 + 2 * 400)
        );
        // The next interrupt keeps its distance, and waits for the CPU.
        assert_eq!(driver.receive(3, segment(2), at(20), at(3810)), Some(at(50_010)));
        assert_eq!(driver.interrupt(&costs, at(60_000)).packets.len(), 1);
        assert_eq!(driver.receive(3, segment(3), at(60_010), at(200_000)), Some(at(200_000)));
    }
}
