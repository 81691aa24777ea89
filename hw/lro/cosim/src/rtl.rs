//! The module behind its ports: frames in, packets out, registers.

use std::collections::VecDeque;
use std::time::Duration;

use nichrome_lro::{BadChecksum, Config};
use nichrome_wire::{Engine, Instant};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};

use crate::model::{Inputs, Model, Outputs, Simulation};
use crate::package::{REGISTERS, TOTALS};

/// Percentage of cycles in which the source offers no word, and the sink takes none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// The source's.
    pub source: u32,
    /// The sink's, and that of the AXI-Lite master, which takes the answers of the registers.
    pub sink: u32,
}

/// The module's parameters, the values of its registers, and the stalls of its neighbours.
#[derive(Clone, Copy, Debug)]
pub struct RtlConfig {
    /// Parameters of the module.
    pub model: Model,
    /// Time from an aggregate's first segment to its closing.
    pub timer: Duration,
    /// Treatment of wrong checksums.
    pub bad_checksum: BadChecksum,
    /// Maximum bytes of an aggregate's IP packet.
    pub max_bytes: u32,
    /// Maximum number of segments of an aggregate.
    pub max_segments: usize,
    /// Stalls on either side.
    pub stalls: Stalls,
}

impl RtlConfig {
    /// Creates the configuration that corresponds to the engine's.
    pub fn new(model: Model, config: &Config, timer: Duration) -> Self {
        Self {
            model,
            timer,
            bad_checksum: config.bad_checksum.unwrap_or(BadChecksum::Drop),
            max_bytes: config.max_bytes,
            max_segments: config.max_segments,
            stalls: Stalls::default(),
        }
    }
}

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A frame as received, which was not held.
    Passed,
    /// A frame as received, which was held.
    Single,
    /// Merged segments.
    Aggregate,
}

/// A packet for the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// All its bytes.
    pub bytes: Vec<u8>,
    /// Its kind.
    pub kind: Kind,
    /// The index of the pass reason or the flush reason.
    pub reason: usize,
    /// Segments in it.
    pub segments: usize,
    /// The largest payload of a segment.
    pub mss: u16,
    /// Arrival of the first segment.
    pub arrival: Instant,
    /// Offsets of IP header, TCP header and payload; only of packets that were held.
    pub offsets: [u8; 3],
}

/// The metadata of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Metadata {
    arrival: u64,
    kind: u8,
    reason: u8,
    segments: u16,
    mss: u16,
    offsets: [u8; 3],
}

impl Metadata {
    fn of(outputs: &Outputs) -> Self {
        Self {
            arrival: outputs.arrival,
            kind: outputs.kind,
            reason: outputs.reason,
            segments: outputs.segments,
            mss: outputs.mss,
            offsets: [outputs.network, outputs.transport, outputs.payload],
        }
    }
}

/// The totals, by the indices of [`TOTALS`].
pub type Totals = [u64; TOTALS.len()];

/// Maximum number of cycles of any wait: a longer one is a bug.
const PATIENCE: u64 = 4_000_000;

/// The module in simulation.
pub struct Rtl {
    simulation: Simulation,
    config: RtlConfig,
    inputs: Inputs,
    random: Pcg64Mcg,
    cycles: u64,
    /// The bytes so far of the packet that leaves, and the metadata of its first word.
    partial: Vec<u8>,
    metadata: Option<Metadata>,
    packets: VecDeque<Packet>,
    deadline: Option<Instant>,
    /// Cycles in which the source had a word and the module did not take it.
    refused: u64,
    /// The value that the last read of a register returned.
    answer: Option<u32>,
    /// The first cycle in which the source offers a frame of one word; `None` once it is taken.
    word_at: Option<u64>,
    /// A cycle, and the value of `now` from that cycle on.
    time_at: Option<(u64, Instant)>,
}

impl Rtl {
    /// Creates a module, resets it, and sets its registers.
    pub fn new(config: RtlConfig) -> Self {
        let mut rtl = Self {
            simulation: Simulation::new(config.model),
            config,
            inputs: Inputs::default(),
            random: Pcg64Mcg::seed_from_u64(7),
            cycles: 0,
            partial: Vec::new(),
            metadata: None,
            packets: VecDeque::new(),
            deadline: None,
            refused: 0,
            answer: None,
            word_at: None,
            time_at: None,
        };
        rtl.inputs.rst = true;
        (0..4).for_each(|_| _ = rtl.cycle());
        rtl.inputs.rst = false;
        while rtl.read(address("status")) & 2 == 0 {}
        rtl.write(address("timer_ns"), u32::try_from(config.timer.as_nanos()).unwrap_or(u32::MAX));
        rtl.write(address("max_bytes"), config.max_bytes);
        rtl.write(address("max_segments"), config.max_segments as u32);
        rtl.write(address("control"), rtl.control());
        rtl
    }

    fn control(&self) -> u32 {
        1 | u32::from(self.config.bad_checksum == BadChecksum::Pass) << 1
    }

    /// Returns the number of cycles since the start.
    pub fn cycles(&self) -> u64 {
        self.cycles
    }

    /// Returns the number of cycles in which the module did not take an offered word.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn stalls(&mut self, percent: u32) -> bool {
        percent > 0 && self.random.next_u32() % 100 < percent
    }

    /// Runs one cycle; collects the word that leaves.
    fn cycle(&mut self) -> Outputs {
        self.inputs.ready = !self.stalls(self.config.stalls.sink);
        self.inputs.axil_ready = !self.stalls(self.config.stalls.sink);
        if let Some((_, now)) = self.time_at.take_if(|(at, _)| *at <= self.cycles) {
            self.inputs.now = now.as_nanos();
        }
        let offers_word = self.word_at.is_some_and(|at| at <= self.cycles);
        if offers_word {
            (self.inputs.valid, self.inputs.last, self.inputs.bad) = (true, true, false);
            self.inputs.keep = u32::MAX >> (32 - self.config.model.width.bytes());
        }
        let outputs = self.simulation.cycle(&self.inputs);
        self.cycles += 1;
        if offers_word {
            self.inputs.valid = false;
            self.word_at = self.word_at.filter(|_| !outputs.ready);
        }
        self.deadline = outputs.deadline_valid.then(|| Instant::from_nanos(outputs.deadline));
        if outputs.valid && self.inputs.ready {
            self.collect(&outputs);
        }
        // The address of a read is taken in the first cycle.
        self.inputs.axil_read = false;
        if outputs.axil_read && self.inputs.axil_ready {
            self.answer = Some(outputs.axil_data);
        }
        outputs
    }

    fn collect(&mut self, outputs: &Outputs) {
        let count = outputs.keep.trailing_ones() as usize;
        assert_eq!(outputs.keep.count_ones() as usize, count, "tkeep has gaps");
        assert!(count > 0 && (outputs.last || count == self.config.model.width.bytes()), "tkeep is short");
        self.partial.extend_from_slice(&outputs.data[..count]);
        let metadata = Metadata::of(outputs);
        let first = *self.metadata.get_or_insert(metadata);
        assert_eq!(metadata, first, "the metadata change within a packet");
        if outputs.last {
            self.metadata = None;
            let kind = match metadata.kind {
                0 => Kind::Passed,
                1 => Kind::Single,
                _ => Kind::Aggregate,
            };
            self.packets.push_back(Packet {
                bytes: std::mem::take(&mut self.partial),
                kind,
                reason: metadata.reason.into(),
                segments: metadata.segments.into(),
                mss: metadata.mss,
                arrival: Instant::from_nanos(metadata.arrival),
                offsets: metadata.offsets,
            });
        }
    }

    /// Writes a register.
    pub fn write(&mut self, address: u32, value: u32) {
        self.write_bytes(address, value, 0xf);
    }

    /// Writes those bytes of a register whose bits are set in `strobe`, 0 to 15.
    pub fn write_bytes(&mut self, address: u32, value: u32, strobe: u8) {
        (self.inputs.axil_address, self.inputs.axil_data, self.inputs.axil_write) = (address, value, true);
        self.inputs.axil_strobe = strobe;
        let started = self.cycles;
        loop {
            let outputs = self.cycle();
            // AXI: the response comes after both handshakes.
            assert!(
                !(outputs.axil_written && self.inputs.axil_write),
                "a write is answered before it is taken"
            );
            if outputs.axil_taken {
                self.inputs.axil_write = false;
            }
            if outputs.axil_written && self.inputs.axil_ready {
                return;
            }
            assert!(self.cycles - started < PATIENCE, "a write is not answered");
        }
    }

    /// Reads a register.
    pub fn read(&mut self, address: u32) -> u32 {
        self.start_read(address);
        let started = self.cycles;
        loop {
            if let Some(value) = self.take_answer() {
                return value;
            }
            self.cycle();
            assert!(self.cycles - started < PATIENCE, "a read is not answered");
        }
    }

    /// Starts to read a register; no other read may be outstanding. Frames may be sent until
    /// [`take_answer`](Self::take_answer) has the value.
    pub fn start_read(&mut self, address: u32) {
        (self.inputs.axil_address, self.inputs.axil_read) = (address, true);
    }

    /// Takes the value of the read; `None` until it is answered.
    pub fn take_answer(&mut self) -> Option<u32> {
        self.answer.take()
    }

    /// Reads a counter of 64 bits.
    pub fn read64(&mut self, address: u32) -> u64 {
        let low = u64::from(self.read(address));
        low | u64::from(self.read(address + 4)) << 32
    }

    /// Reads the totals.
    pub fn totals(&mut self) -> Totals {
        std::array::from_fn(|index| self.read64(address("totals") + 8 * index as u32))
    }

    /// Reads the counter of a reason.
    pub fn counter(&mut self, index: usize) -> u64 {
        self.read64(address("reasons") + 8 * index as u32)
    }

    /// Gives a frame to the module, which may still be processing earlier ones. The frame must not be empty.
    pub fn send(&mut self, frame: &[u8], now: Instant, bad: bool) {
        let width = self.config.model.width.bytes();
        self.inputs.now = now.as_nanos();
        self.inputs.arrival = now.as_nanos();
        let words = frame.len().div_ceil(width);
        for (index, word) in frame.chunks(width).enumerate() {
            let last = index + 1 == words;
            self.inputs.data[..word.len()].copy_from_slice(word);
            self.inputs.keep = u32::MAX >> (32 - word.len());
            (self.inputs.last, self.inputs.bad) = (last, last && bad);
            self.send_word();
        }
        self.inputs.valid = false;
    }

    /// Offers a frame of one word after this many cycles, while registers are read and written.
    pub fn offer_word(&mut self, cycles: u64) {
        self.word_at = Some(self.cycles + cycles);
    }

    /// Sets `now` after this many cycles, while frames are sent.
    pub fn advance_after(&mut self, cycles: u64, now: Instant) {
        self.time_at = Some((self.cycles + cycles, now));
    }

    fn send_word(&mut self) {
        let started = self.cycles;
        // A word that is offered stays until it is taken.
        while self.stalls(self.config.stalls.source) {
            self.inputs.valid = false;
            self.cycle();
        }
        self.inputs.valid = true;
        while !self.cycle().ready {
            self.refused += 1;
            assert!(self.cycles - started < PATIENCE, "a word is not taken");
        }
    }

    /// Runs until the pipeline is empty.
    pub fn settle(&mut self) {
        let started = self.cycles;
        self.inputs.valid = false;
        let mut quiet = 0;
        // The status ports are registered a few times.
        while quiet < 12 {
            quiet = if self.cycle().busy { 0 } else { quiet + 1 };
            assert!(self.cycles - started < PATIENCE, "the module does not come to rest");
        }
    }

    /// Sets `now`, and runs until the pipeline is empty.
    pub fn advance(&mut self, now: Instant) {
        self.settle();
        self.inputs.now = now.as_nanos();
        self.settle();
    }

    /// Closes all stored aggregates, and runs until their packets have left.
    pub fn drain(&mut self) {
        let control = self.control();
        self.settle();
        self.write(address("control"), control | 4);
        // The status is read at any cycle of a close.
        for _ in 0..self.random.next_u32() % 8 {
            self.cycle();
        }
        let started = self.cycles;
        while self.read(address("status")) & 1 == 0 {
            assert!(self.cycles - started < PATIENCE, "the module is not drained");
        }
        let packets = self.packets.len();
        self.write(address("control"), control);
        self.settle();
        assert_eq!(self.packets.len(), packets, "the module was idle with a packet on its way");
    }

    /// Takes the next packet that left.
    pub fn packet(&mut self) -> Option<Packet> {
        self.packets.pop_front()
    }
}

impl Engine for Rtl {
    type Input = Vec<u8>;
    type Output = Packet;

    fn receive(&mut self, frame: Vec<u8>, now: Instant) {
        if !frame.is_empty() {
            self.send(&frame, now, false);
        }
        self.settle();
    }

    fn poll(&mut self) -> Option<Packet> {
        self.packet()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
    }
}

/// Returns the address of a register.
fn address(name: &str) -> u32 {
    REGISTERS.iter().find(|register| register.name == name).map_or(0, |register| register.address)
}
