//! A lane: one engine under measurement, with its traffic and receive buffers.
//!
//! The lane copies bursts of 32 frames into receive buffers before the clock starts. It passes each burst to
//! the engine as a batch, polls the outputs after the batch, and drops them after the clock stops. The
//! benchmarks of the peers (`bench/peers`) work in the same way.

use std::time::Instant as Clock;

use anyhow::anyhow;
use nichrome_lro::{ChecksumStatus, Config, Frame, Gro, Hold, Netfpga, Npu, Output, Profile, ProfileConfig};
use nichrome_port::{Buffer, BufferPool};
use nichrome_wire::{Engine, Instant, engine};
use stats_alloc::Region;

use super::figures::median;
use super::plain_read::Reader;
use super::traffic::{File, Flows};
use crate::allocator::ALLOCATOR;
use crate::engine_options::default_profile_config;

/// Frames per burst.
pub(super) const BURST: usize = 32;
/// Number of receive buffers allocated at a time by default: few, so that those in use stay in the cache, as
/// with DPDK's per-core buffer cache.
pub(super) const BUFFERS: usize = 64;
/// Size of a receive buffer in bytes.
const BUFFER: usize = 2048;
/// Capacity for the outputs of one burst: nothing may be allocated while the clock runs.
const OUTPUTS: usize = 65_536;

/// The extent of a measurement.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    /// Measured runs, after one to warm up.
    pub(super) runs: usize,
    /// Packets of a run, rounded down to whole passes over the traffic; at least one pass.
    pub(super) packets: usize,
}

/// The results of the runs.
pub(super) struct Measured {
    /// Median over the runs.
    pub(super) ns_per_packet: f64,
    pub(super) bytes_per_packet: f64,
    pub(super) allocations_per_packet: f64,
    /// Packets of one pass over the traffic.
    pub(super) packets_in: u64,
    pub(super) packets_out: u64,
}

/// The source of frames.
pub(super) enum Traffic<'f> {
    /// A file's frames, and frames that close its flows after each pass ([`File::endings`]), so that the next
    /// pass does not look like retransmissions.
    File(&'f File, &'f [[Vec<u8>; 2]]),
    Flows(Flows),
}

impl Traffic<'_> {
    fn len(&self) -> usize {
        match self {
            Self::File(file, _) => file.frames.len(),
            Self::Flows(flows) => flows.len(),
        }
    }

    fn begin_pass(&mut self) {
        if let Self::Flows(flows) = self {
            flows.shuffle();
        }
    }

    fn write(&mut self, packet: usize, bytes: &mut Vec<u8>) {
        match self {
            Self::File(file, _) => {
                bytes.clear();
                bytes.extend_from_slice(&file.frames[packet]);
            }
            Self::Flows(flows) => flows.write(packet, bytes),
        }
    }
}

/// An engine with its inputs and outputs.
struct Lane<'f, E> {
    engine: E,
    traffic: Traffic<'f>,
    checksum: ChecksumStatus,
    buffers: Buffers,
    burst: Vec<Frame<Buffer>>,
    outputs: Vec<Output<Buffer>>,
    now: Instant,
    totals: Totals,
    /// Nanoseconds per packet of each run; the first one warms up.
    runs: Vec<f64>,
}

/// Counters of all passes since the start.
#[derive(Clone, Copy, Default)]
struct Totals {
    passes: u64,
    packets_in: u64,
    bytes_in: u64,
    packets_out: u64,
    allocations: u64,
}

/// A lane for an engine of any type.
trait Run {
    /// Runs once: passes `packets` packets to the engine, rounded down to whole passes; at least one pass.
    fn run(&mut self, packets: usize);

    /// Returns the median of the runs after the warm-up, and the counters of these runs.
    fn measured(&self) -> Measured;
}

impl<E: Engine<Input = Frame<Buffer>, Output = Output<Buffer>>> Run for Lane<'_, E> {
    fn run(&mut self, packets: usize) {
        if self.runs.len() == 1 {
            // Excludes the counters of the warm-up run.
            self.totals = Totals::default();
        }
        let passes = (packets / self.traffic.len()).max(1);
        let ns: u64 = (0..passes).map(|_| self.pass()).sum();
        self.runs.push(ns as f64 / (passes * self.traffic.len()) as f64);
    }

    fn measured(&self) -> Measured {
        let Totals { passes, packets_in, bytes_in, packets_out, allocations } = self.totals;
        Measured {
            ns_per_packet: median(self.runs.iter().skip(usize::from(self.runs.len() > 1)).copied().collect()),
            bytes_per_packet: bytes_in as f64 / packets_in as f64,
            allocations_per_packet: allocations as f64 / packets_in as f64,
            packets_in: packets_in / passes.max(1),
            packets_out: packets_out / passes.max(1),
        }
    }
}

impl<'f, E: Engine<Input = Frame<Buffer>, Output = Output<Buffer>>> Lane<'f, E> {
    fn new(engine: E, traffic: Traffic<'f>, checksum: ChecksumStatus, buffers: usize) -> Self {
        Self {
            engine,
            traffic,
            checksum,
            buffers: Buffers { pools: Vec::new(), at_a_time: buffers },
            burst: Vec::with_capacity(BURST),
            outputs: Vec::with_capacity(OUTPUTS),
            now: Instant::ZERO,
            totals: Totals::default(),
            runs: Vec::new(),
        }
    }

    /// Makes one pass over the traffic; returns the engine's time in nanoseconds.
    fn pass(&mut self) -> u64 {
        self.traffic.begin_pass();
        let mut ns = 0;
        let mut packet = 0;
        while packet < self.traffic.len() {
            let count = BURST.min(self.traffic.len() - packet);
            for nth in packet..packet + count {
                let mut buffer = self.buffers.take();
                buffer.fill(|bytes| self.traffic.write(nth, bytes));
                let len = buffer.len() as u64;
                self.totals.bytes_in += len;
                // Arrival times at 10 Gb/s.
                self.now = self.now.plus_nanos(len * 8 / 10);
                self.burst.push(Frame { buffer, checksum: self.checksum });
            }
            ns += self.timed_burst();
            packet += count;
            self.drop_outputs();
        }
        self.totals.passes += 1;
        self.totals.packets_in += self.traffic.len() as u64;
        self.end_flows();
        ns
    }

    /// Processes one burst as a driver does. Not inlined: callgrind counts this function.
    #[inline(never)]
    fn timed_burst(&mut self) -> u64 {
        let Self { engine, burst, outputs, now, .. } = self;
        let allocations = Region::new(ALLOCATOR);
        let start = Clock::now();
        engine::deliver_batch_into(engine, burst, *now, outputs);
        let elapsed = start.elapsed();
        let change = allocations.change();
        self.totals.allocations += (change.allocations + change.reallocations) as u64;
        elapsed.as_nanos() as u64
    }

    fn drop_outputs(&mut self) {
        let to_host = |output: &&Output<Buffer>| matches!(output, Output::ToHost(_));
        self.totals.packets_out += self.outputs.iter().filter(to_host).count() as u64;
        self.outputs.clear();
    }

    /// Passes the frames that close a file's flows, and takes the packets that the engine still holds. The
    /// next pass opens the flows again.
    fn end_flows(&mut self) {
        let Traffic::File(_, endings) = self.traffic else { return };
        for ending in endings.iter().flatten() {
            let mut buffer = self.buffers.take();
            buffer.fill(|bytes| bytes.extend_from_slice(ending));
            self.engine.receive(Frame::verified(buffer), self.now);
            while let Some(output) = self.engine.poll() {
                self.outputs.push(output);
            }
        }
        self.drop_outputs();
        self.totals.packets_out = self.totals.packets_out.saturating_sub(2 * endings.len() as u64);
    }
}

/// The operation under measurement.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// Coalesces frames that arrive with this checksum status.
    Coalesce(ChecksumStatus),
    /// Reads every byte, for comparison.
    Read,
}

impl Work {
    /// Coalescing with checksums already verified, coalescing with verification, and reading the same bytes.
    pub(super) const BESIDE_READ: [Self; 3] =
        [Self::Coalesce(ChecksumStatus::Verified), Self::Coalesce(ChecksumStatus::Unknown), Self::Read];
}

/// An engine to measure.
#[derive(Clone, Copy)]
pub(super) struct Subject {
    pub(super) profile: Profile,
    pub(super) config: Config,
    /// Size of `npu`'s connection table: only `npu` keeps flows without held segments.
    pub(super) connections: usize,
    /// Receive buffers allocated at a time, and used in turn.
    pub(super) buffers: usize,
}

impl Subject {
    /// Measures each operation in a lane of its own. The lanes take turns, so that noise affects all alike.
    pub(super) fn measure<'f, const N: usize>(
        &self,
        plan: Plan,
        works: [Work; N],
        traffic: impl Fn() -> anyhow::Result<Traffic<'f>>,
    ) -> anyhow::Result<[Measured; N]> {
        let mut lanes = Vec::with_capacity(N);
        for work in works {
            lanes.push(self.lane(work, traffic()?)?);
        }
        for _ in 0..=plan.runs {
            lanes.iter_mut().for_each(|lane| lane.run(plan.packets));
        }
        let measured = lanes.iter().map(|lane| lane.measured()).collect::<Vec<_>>();
        measured.try_into().map_err(|_| anyhow!("a lane is missing"))
    }

    fn lane<'f>(&self, work: Work, traffic: Traffic<'f>) -> anyhow::Result<Box<dyn Run + 'f>> {
        let Self { config, buffers, .. } = self;
        let Work::Coalesce(checksum) = work else {
            return Ok(Box::new(Lane::new(Reader::default(), traffic, ChecksumStatus::Verified, *buffers)));
        };
        Ok(match default_profile_config(self.profile) {
            ProfileConfig::Gro(_) => {
                Box::new(Lane::new(Gro::new(config, Hold::Batch)?, traffic, checksum, *buffers))
            }
            ProfileConfig::Netfpga(netfpga) => {
                Box::new(Lane::new(Netfpga::new(config, &netfpga)?, traffic, checksum, *buffers))
            }
            ProfileConfig::Npu(npu) => {
                let config = Config { max_connections: self.connections, ..*config };
                Box::new(Lane::new(Npu::new(&config, &npu)?, traffic, checksum, *buffers))
            }
        })
    }
}

/// The receive buffers: grows to the number that the engine holds at a time.
struct Buffers {
    pools: Vec<BufferPool>,
    at_a_time: usize,
}

impl Buffers {
    fn take(&mut self) -> Buffer {
        loop {
            if let Some(buffer) = self.pools.iter_mut().find_map(BufferPool::take) {
                return buffer;
            }
            self.pools.push(BufferPool::new(self.at_a_time, BUFFER));
        }
    }
}
