//! The card: receive queues, input arbiter, user data path with or without the LRO module, and the queue
//! towards the host (lro-netfpga, section 4 and Figure 2).

use std::collections::VecDeque;

use nichrome_lro::{Config, ConfigError, Frame, Netfpga, NetfpgaConfig, Output, Packet};
use nichrome_wire::engine::{advance, deliver};
use nichrome_wire::{Engine, Instant};

use super::clock::Clock;
use super::protocol::is_wrong_udp;

/// Receive queues: one per port and one per port's host queue, for four ports.
const QUEUES: usize = 8;

/// A frame in the card's memory.
type Buffer = Vec<u8>;

/// The configuration of the card.
#[derive(Clone, Copy, Debug)]
pub(super) struct CardConfig {
    /// The clock of the data path.
    pub(super) clock: Clock,
    /// Width of the data path, in bytes per cycle.
    pub(super) width: usize,
    /// Overhead cycles of a frame on the data path.
    pub(super) frame_overhead: u64,
    /// Minimum cycles of a frame on the data path.
    pub(super) min_cycles: u64,
    /// Size of each queue, in bytes.
    pub(super) queue_bytes: usize,
    /// True if the LRO module also verifies UDP checksums (section 5: before a packet is forwarded).
    pub(super) checks_other: bool,
}

/// The module in the data path, between input arbiter and host queue.
enum Module {
    /// The reference NIC: forwards frames.
    Forward,
    /// The LRO module of section 5.
    Lro(Box<Netfpga<Buffer>>),
}

/// The card.
pub(super) struct Card {
    config: CardConfig,
    receive: [Queue<Buffer>; QUEUES],
    /// The next queue of the input arbiter.
    turn: usize,
    /// The frame on the data path.
    passing: Option<Buffer>,
    /// When the store block's output has left the data path.
    free_from: Instant,
    module: Module,
    to_host: Queue<Packet<Buffer>>,
    counters: CardCounters,
}

/// Counters of the card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CardCounters {
    /// Frames received.
    pub(super) arrived: u64,
    /// Frames dropped because the port's receive queue was full.
    pub(super) dropped_at_port: u64,
    /// Frames dropped because the host queue was full, single or in an aggregate.
    pub(super) dropped_to_host: u64,
    /// Datagrams dropped because of a wrong checksum.
    pub(super) wrong: u64,
}

impl CardCounters {
    /// Returns the number of frames dropped because a queue was full.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped_at_port + self.dropped_to_host
    }

    /// Returns the counters with their names.
    pub(super) fn named(&self) -> [(&'static str, u64); 4] {
        [
            ("arrived", self.arrived),
            ("dropped_at_port", self.dropped_at_port),
            ("dropped_to_host", self.dropped_to_host),
            ("wrong", self.wrong),
        ]
    }
}

/// A queue limited in bytes.
struct Queue<T> {
    entries: VecDeque<T>,
    bytes: usize,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), bytes: 0 }
    }
}

impl<T> Queue<T> {
    /// Appends an entry; returns it if it exceeds `limit` bytes.
    fn push(&mut self, entry: T, len: usize, limit: usize) -> Result<(), T> {
        if self.bytes + len > limit {
            return Err(entry);
        }
        self.bytes += len;
        self.entries.push_back(entry);
        Ok(())
    }

    fn pop(&mut self, len: impl Fn(&T) -> usize) -> Option<T> {
        let entry = self.entries.pop_front()?;
        self.bytes -= len(&entry);
        Some(entry)
    }
}

impl Card {
    /// Creates the reference NIC.
    pub(super) fn reference(config: CardConfig) -> Self {
        Self::new(config, Module::Forward)
    }

    /// Creates the LRO-enabled NIC.
    ///
    /// # Errors
    /// A value of `lro` is out of range.
    pub(super) fn with_lro(
        config: CardConfig,
        lro: &Config,
        netfpga: &NetfpgaConfig,
    ) -> Result<Self, ConfigError> {
        Ok(Self::new(config, Module::Lro(Box::new(Netfpga::new(lro, netfpga)?))))
    }

    fn new(config: CardConfig, module: Module) -> Self {
        Self {
            config,
            receive: Default::default(),
            turn: 0,
            passing: None,
            free_from: Instant::ZERO,
            module,
            to_host: Queue::default(),
            counters: CardCounters::default(),
        }
    }

    /// Receives a frame from a port.
    pub(super) fn arrive(&mut self, port: usize, frame: Buffer) {
        self.counters.arrived += 1;
        let len = frame.len();
        if self.receive[port].push(frame, len, self.config.queue_bytes).is_err() {
            self.counters.dropped_at_port += 1;
        }
    }

    /// Moves the first frame of the next non-empty queue onto the data path, if that is free; returns when
    /// the frame has passed it.
    pub(super) fn arbitrate(&mut self, now: Instant) -> Option<Instant> {
        if self.passing.is_some() {
            return None;
        }
        let mut queues = (0..QUEUES).map(|offset| (self.turn + offset) % QUEUES);
        let turn = queues.find(|queue| !self.receive[*queue].entries.is_empty())?;
        self.turn = (turn + 1) % QUEUES;
        let frame = self.receive[turn].pop(Vec::len)?;
        let cycles = (self.words(frame.len()) + self.config.frame_overhead).max(self.config.min_cycles);
        self.passing = Some(frame);
        Some(now.max(self.free_from).plus_nanos(self.config.clock.nanos(cycles)))
    }

    /// Passes the frame on the data path to the module.
    pub(super) fn passed(&mut self, now: Instant) {
        let Some(frame) = self.passing.take().map(Frame::new) else { return };
        match &mut self.module {
            Module::Forward => self.queue_for_host(Packet::Frame(frame)),
            Module::Lro(_) if self.config.checks_other && is_wrong_udp(frame.bytes()) => {
                self.counters.wrong += 1;
            }
            Module::Lro(lro) => {
                let mut packets = Vec::new();
                deliver(lro.as_mut(), frame, now, &mut |_, output| packets.extend(to_host(output)));
                self.send(packets, now);
            }
        }
    }

    /// Returns when the store block's timer expires.
    pub(super) fn timeout(&self) -> Option<Instant> {
        match &self.module {
            Module::Forward => None,
            Module::Lro(lro) => lro.poll_timeout(),
        }
    }

    /// Processes an expired timer of the store block.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if let Module::Lro(lro) = &mut self.module {
            let mut packets = Vec::new();
            advance(lro.as_mut(), now, &mut |_, output| packets.extend(to_host(output)));
            self.send(packets, now);
        }
    }

    /// Takes the first packet of the host queue.
    pub(super) fn next_for_host(&mut self) -> Option<Packet<Buffer>> {
        self.to_host.pop(Packet::len)
    }

    /// Returns a packet's length as the card moves it: padded to whole words (Figure 8).
    pub(super) fn padded(&self, len: usize) -> usize {
        len.next_multiple_of(self.config.width)
    }

    /// Returns the bytes in the receive queues.
    pub(super) fn receive_queue_bytes(&self) -> usize {
        self.receive.iter().map(|queue| queue.bytes).sum()
    }

    /// Returns the bytes in the host queue.
    pub(super) fn host_queue_bytes(&self) -> usize {
        self.to_host.bytes
    }

    /// Returns the counters.
    pub(super) fn counters(&self) -> CardCounters {
        self.counters
    }

    fn words(&self, len: usize) -> u64 {
        len.div_ceil(self.config.width) as u64
    }

    /// Queues the LRO module's output for the host. An aggregate is read from the store block word by word,
    /// during which the data path accepts no frame.
    fn send(&mut self, packets: Vec<Packet<Buffer>>, now: Instant) {
        for packet in packets {
            if let Packet::Aggregate(aggregate) = &packet {
                let nanos = self.config.clock.nanos(self.words(aggregate.len()));
                self.free_from = self.free_from.max(now).plus_nanos(nanos);
            }
            self.queue_for_host(packet);
        }
    }

    fn queue_for_host(&mut self, packet: Packet<Buffer>) {
        let len = packet.len();
        if let Err(packet) = self.to_host.push(packet, len, self.config.queue_bytes) {
            self.counters.dropped_to_host += packet.segments() as u64;
        }
    }
}

/// Returns the packet for the host; `None` for frames dropped because of a wrong checksum.
fn to_host(output: Output<Buffer>) -> Option<Packet<Buffer>> {
    match output {
        Output::ToHost(packet) => Some(packet),
        Output::ToWire(_) | Output::Dropped(..) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nichrome_wire::{SeqNumber, TcpFrame};

    use super::*;

    fn config() -> CardConfig {
        let clock = Clock::new(125_000_000).unwrap();
        CardConfig {
            clock,
            width: 8,
            frame_overhead: 1,
            min_cycles: 10,
            queue_bytes: 4000,
            checks_other: true,
        }
    }

    /// A frame of 1054 bytes of a stream.
    fn segment(nth: u32) -> Buffer {
        TcpFrame { seq: SeqNumber(nth * 1000), payload: vec![0; 1000], ..TcpFrame::default() }.build()
    }

    /// Moves all frames through the data path; returns when the last has passed it.
    fn pass_all(card: &mut Card, mut now: Instant) -> Instant {
        while let Some(passed) = card.arbitrate(now) {
            now = passed;
            card.passed(now);
        }
        now
    }

    #[test]
    fn the_arbiter_serves_the_queues_in_turn() {
        let mut card = Card::reference(config());
        for (port, bytes) in [(0, 100), (0, 101), (3, 200), (5, 300)] {
            card.arrive(port, vec![0; bytes]);
        }
        pass_all(&mut card, Instant::ZERO);
        let lens: Vec<usize> =
            std::iter::from_fn(|| card.next_for_host()).map(|packet| packet.len()).collect();
        assert_eq!(lens, [100, 200, 300, 101]);
    }

    #[test]
    fn a_frame_takes_a_cycle_a_word_and_its_overhead() {
        let mut card = Card::reference(config());
        card.arrive(0, vec![0; 73]);
        // Ten words and one overhead cycle, at 8 ns.
        assert_eq!(card.arbitrate(Instant::ZERO), Some(Instant::from_nanos(88)));
        assert_eq!(card.arbitrate(Instant::ZERO), None, "one frame at a time");
    }

    #[test]
    fn a_short_frame_takes_the_least_cycles() {
        let mut card = Card::reference(config());
        card.arrive(0, vec![0; 60]);
        assert_eq!(card.arbitrate(Instant::ZERO), Some(Instant::from_nanos(80)));
    }

    #[test]
    fn what_finds_no_room_is_counted_segment_by_segment() {
        let mut card = Card::reference(config());
        for nth in 0..5 {
            card.arrive(0, segment(nth));
        }
        assert_eq!(
            card.counters(),
            CardCounters { arrived: 5, dropped_at_port: 2, dropped_to_host: 0, wrong: 0 }
        );
        pass_all(&mut card, Instant::ZERO);
        card.arrive(0, segment(5));
        pass_all(&mut card, Instant::ZERO);
        assert_eq!(
            card.counters(),
            CardCounters { arrived: 6, dropped_at_port: 2, dropped_to_host: 1, wrong: 0 }
        );
        assert_eq!(card.counters().dropped(), 3);
    }

    #[test]
    fn the_store_block_sends_an_aggregate_when_its_timer_runs_out_and_takes_no_frame_meanwhile() {
        let netfpga = NetfpgaConfig::with_timer(Duration::from_micros(10));
        let mut card = Card::with_lro(config(), &Config::default(), &netfpga).unwrap();
        for nth in 0..3 {
            card.arrive(0, segment(nth));
        }
        pass_all(&mut card, Instant::ZERO);
        assert!(card.next_for_host().is_none());
        let due = card.timeout().unwrap();
        card.handle_timeout(due);
        let aggregate = card.next_for_host().unwrap();
        assert_eq!((aggregate.len(), aggregate.segments()), (3054, 3));
        card.arrive(0, vec![0; 8]);
        // 382 words of the aggregate, then the minimum cycles of a frame.
        assert_eq!(card.arbitrate(due), Some(due.plus_nanos((382 + 10) * 8)));
    }
}
