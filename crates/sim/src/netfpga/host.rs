//! The host of the card: a receive ring, interrupts with a minimum interval, and one core that polls,
//! coalesces in software if the card does not, and runs the network stack.

use std::collections::VecDeque;

use nichrome_lro::{Config, ConfigError, Gro, Hold, Output, Packet};
use nichrome_wire::engine::{deliver, end_batch};
use nichrome_wire::{EthernetHeader, Instant, Ipv4Header, TcpHeader, UdpHeader};

use super::protocol::is_tcp_frame;
use crate::Server;

/// CPU costs of received packets, in nanoseconds and, per byte, in picoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// Per interrupt.
    pub(super) interrupt: u64,
    /// Per packet in the ring, for the driver.
    pub(super) driver: u64,
    /// Per packet in the ring, for software coalescing.
    pub(super) software_lro: u64,
    /// Per packet in the stack.
    pub(super) stack: u64,
    /// Per byte of payload, for software checksums.
    pub(super) checksum: u64,
    /// Per byte of payload, for the copy to the application.
    pub(super) copy: u64,
}

/// The configuration of the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostConfig {
    /// Size of the receive ring, in packets.
    pub(super) ring: usize,
    /// Maximum packets per poll.
    pub(super) poll_budget: usize,
    /// Minimum interval between interrupts, in nanoseconds.
    pub(super) interrupt_distance: u64,
    /// True if the core verifies the checksums of non-TCP packets from a card with LRO.
    pub(super) checks_other: bool,
    /// CPU costs.
    pub(super) costs: Costs,
}

/// The host.
pub(super) struct Host {
    config: HostConfig,
    ring: VecDeque<Packet<Vec<u8>>>,
    /// Packets of the ring that the core is processing.
    taken: usize,
    /// Software coalescing, if the card has none: the core then also verifies checksums in software, which a
    /// card with LRO does for it.
    software_lro: Option<Box<Gro<Vec<u8>>>>,
    core: Server,
    /// True if the core is busy, or an interrupt is scheduled.
    is_awake: bool,
    last_interrupt: Option<Instant>,
    counters: HostCounters,
}

/// The core's next step after a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Polls again; the poll ends at this time.
    Done(Instant),
    /// Takes an interrupt at this time.
    Interrupt(Instant),
    /// Sleeps until the next packet.
    Sleep,
}

/// Counters of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HostCounters {
    /// Received frames, single or in aggregates.
    pub(super) segments: u64,
    /// Packets passed to the stack.
    pub(super) packets: u64,
    /// Payload passed to the stack, in bytes.
    pub(super) payload: u64,
}

impl HostCounters {
    /// Returns the counters with their names.
    pub(super) fn named(&self) -> [(&'static str, u64); 3] {
        [("segments", self.segments), ("packets", self.packets), ("payload", self.payload)]
    }
}

impl Host {
    /// Creates a host that coalesces in software by the configuration `software_lro`, or not at all.
    ///
    /// # Errors
    /// A value of `software_lro` is out of range.
    pub(super) fn new(config: HostConfig, software_lro: Option<&Config>) -> Result<Self, ConfigError> {
        let software_lro = software_lro.map(|config| Gro::new(config, Hold::Batch)).transpose()?;
        Ok(Self {
            config,
            ring: VecDeque::with_capacity(config.ring),
            taken: 0,
            software_lro: software_lro.map(Box::new),
            core: Server::new(1),
            is_awake: false,
            last_interrupt: None,
            counters: HostCounters::default(),
        })
    }

    /// Returns true if the ring has room for a packet.
    pub(super) fn has_room(&self) -> bool {
        self.ring_packets() < self.config.ring
    }

    /// Returns the number of packets in the ring.
    pub(super) fn ring_packets(&self) -> usize {
        self.ring.len() + self.taken
    }

    /// Adds a packet to the ring. Returns when the core is interrupted, unless it is busy or an interrupt is
    /// scheduled.
    pub(super) fn received(&mut self, packet: Packet<Vec<u8>>, now: Instant) -> Option<Instant> {
        self.ring.push_back(packet);
        if self.is_awake { None } else { Some(self.next_interrupt(now)) }
    }

    /// Processes an interrupt: the core polls the ring. Returns when the poll is done.
    pub(super) fn interrupted(&mut self, now: Instant) -> Instant {
        self.last_interrupt = Some(now);
        self.poll(self.config.costs.interrupt, now)
    }

    /// Ends a poll. The core polls again if the poll used its whole budget; otherwise it waits for an
    /// interrupt.
    pub(super) fn done(&mut self, now: Instant) -> Next {
        let was_full = self.taken == self.config.poll_budget;
        self.taken = 0;
        if was_full {
            return Next::Done(self.poll(0, now));
        }
        self.is_awake = false;
        if self.ring.is_empty() { Next::Sleep } else { Next::Interrupt(self.next_interrupt(now)) }
    }

    /// Returns the counters.
    pub(super) fn counters(&self) -> HostCounters {
        self.counters
    }

    /// Returns the core's busy time, in nanoseconds.
    pub(super) fn busy_nanos(&self, now: Instant) -> u64 {
        self.core.busy_nanos(now)
    }

    /// Returns when the card may interrupt again.
    fn next_interrupt(&mut self, now: Instant) -> Instant {
        self.is_awake = true;
        let earliest = self.last_interrupt.map(|last| last.plus_nanos(self.config.interrupt_distance));
        earliest.map_or(now, |earliest| earliest.max(now))
    }

    /// Polls the ring; returns when the packets are processed, after `cost` and their own cost. Polls never
    /// overlap, so the core's queue is empty.
    fn poll(&mut self, cost: u64, now: Instant) -> Instant {
        let cost = cost + self.take(now);
        self.core.serve(cost, now).unwrap_or(now)
    }

    /// Processes packets of the ring through driver, coalescing and stack; returns the cost.
    fn take(&mut self, now: Instant) -> u64 {
        let before = self.counters;
        let mut unverified = 0;
        self.taken = self.ring.len().min(self.config.poll_budget);
        let packets = self.ring.drain(..self.taken);
        let in_ring = packets.len() as u64;
        let mut for_stack = Vec::with_capacity(packets.len());
        match &mut self.software_lro {
            None => for_stack.extend(packets),
            Some(gro) => {
                let mut sink = |_, output| match output {
                    Output::ToHost(packet) => for_stack.push(packet),
                    Output::ToWire(_) | Output::Dropped(..) => {}
                };
                for packet in packets {
                    if let Packet::Frame(frame) = packet {
                        deliver(gro.as_mut(), frame, now, &mut sink);
                    }
                }
                end_batch(gro.as_mut(), now, &mut sink);
            }
        }
        for packet in &for_stack {
            self.counters.packets += 1;
            self.counters.segments += packet.segments() as u64;
            self.counters.payload += payload_len(packet) as u64;
            if self.config.checks_other && !is_tcp(packet) {
                unverified += payload_len(packet) as u64;
            }
        }
        let checksums = unverified * self.config.costs.checksum / 1000;
        checksums
            + self.cost(
                in_ring,
                self.counters.packets - before.packets,
                self.counters.payload - before.payload,
            )
    }

    fn cost(&self, in_ring: u64, for_stack: u64, payload: u64) -> u64 {
        let costs = &self.config.costs;
        let (per_packet, per_byte) = match self.software_lro {
            Some(_) => (costs.driver + costs.software_lro, costs.checksum + costs.copy),
            None => (costs.driver, costs.copy),
        };
        in_ring * per_packet + for_stack * costs.stack + payload * per_byte / 1000
    }
}

/// Returns true for TCP over IPv4, which every aggregate is.
fn is_tcp(packet: &Packet<Vec<u8>>) -> bool {
    match packet {
        Packet::Frame(frame) => is_tcp_frame(frame.bytes()),
        Packet::Aggregate(_) => true,
    }
}

/// Returns the payload length of a TCP segment, an aggregate or a UDP datagram: the generator's frames have
/// no options.
fn payload_len(packet: &Packet<Vec<u8>>) -> usize {
    let transport = if is_tcp(packet) { TcpHeader::LEN } else { UdpHeader::LEN };
    packet.len().saturating_sub(EthernetHeader::LEN + Ipv4Header::LEN + transport)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use nichrome_lro::Frame;
    use nichrome_wire::{SeqNumber, TcpFrame};

    use super::*;
    use crate::generator::{Content, FlowConfig, FlowProtocol, Generator, GeneratorConfig};
    use crate::{HostId, Rate};

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn config() -> HostConfig {
        let costs =
            Costs { interrupt: 1000, driver: 100, software_lro: 10, stack: 500, checksum: 2000, copy: 1000 };
        HostConfig { ring: 4, poll_budget: 2, interrupt_distance: 50_000, checks_other: false, costs }
    }

    /// A frame of 1000 bytes of a stream.
    fn packet(nth: u32) -> Packet<Vec<u8>> {
        let frame = TcpFrame { seq: SeqNumber(nth * 946), payload: vec![0; 946], ..TcpFrame::default() };
        Packet::Frame(Frame::new(frame.build()))
    }

    /// A frame of UDP of this length.
    fn datagram(frame_len: usize) -> Packet<Vec<u8>> {
        let flow = FlowConfig {
            from: HostId(0),
            to: HostId(1),
            src_port: 5001,
            dst_port: 80,
            weight: NonZeroU32::MIN,
            protocol: FlowProtocol::Udp,
            other_ttl: 0,
            wrong_checksum: 0,
        };
        let flows = vec![flow];
        let config =
            GeneratorConfig { rate: Rate::GIGABIT, overhead: 0, frame_len, content: Content::Frames, flows };
        let mut generator = Generator::new(config, at(0)).unwrap();
        match generator.next().unwrap().packet {
            crate::Packet::Frame(frame) => Packet::Frame(Frame::new(frame)),
            crate::Packet::Outline(_) => panic!("an outline"),
        }
    }

    #[test]
    fn the_core_polls_while_it_finds_enough_and_then_waits_for_an_interrupt() {
        let mut host = Host::new(config(), None).unwrap();
        assert_eq!(host.received(packet(0), at(0)), Some(at(0)), "the first interrupts at once");
        assert_eq!(host.received(packet(1), at(0)), None, "it is interrupted anyway");
        assert_eq!(host.received(packet(2), at(0)), None);
        // An interrupt, and two packets in driver, stack and copy.
        assert_eq!(host.interrupted(at(0)), at(1000 + 2 * (100 + 500 + 946)));
        assert_eq!(host.done(at(4092)), Next::Done(at(4092 + 100 + 500 + 946)));
        assert_eq!(host.done(at(5638)), Next::Sleep);
        assert_eq!(host.received(packet(3), at(6000)), Some(at(50_000)), "not before the distance is over");
    }

    #[test]
    fn a_slot_of_the_ring_is_free_when_the_core_is_done_with_its_packet() {
        let mut host = Host::new(config(), None).unwrap();
        for nth in 0..4 {
            assert!(host.has_room());
            host.received(packet(nth), at(0));
        }
        assert!(!host.has_room());
        let done = host.interrupted(at(0));
        assert!(!host.has_room(), "two are taken, but not done with");
        host.done(done);
        assert!(host.has_room());
    }

    #[test]
    fn the_payload_of_a_datagram_begins_behind_its_own_header() {
        let mut host = Host::new(HostConfig { checks_other: true, ..config() }, None).unwrap();
        host.received(datagram(1042), at(0));
        let done = host.interrupted(at(0));
        assert_eq!(host.counters().payload, 1000);
        // Interrupt, driver, stack, then checksum and copy of each byte.
        assert_eq!(done, at(1000 + 100 + 500 + 1000 * (2 + 1)));
    }

    #[test]
    fn software_lro_pays_for_each_frame_and_spares_the_stack() {
        let mut host = Host::new(config(), Some(&Config::default())).unwrap();
        host.received(packet(0), at(0));
        host.received(packet(1), at(0));
        let done = host.interrupted(at(0));
        assert_eq!(done, at(1000 + 2 * (100 + 10) + 500 + 2 * 946 * 3));
        assert_eq!(host.counters(), HostCounters { segments: 2, packets: 1, payload: 2 * 946 });
        assert_eq!(host.busy_nanos(done), done.as_nanos());
    }
}
