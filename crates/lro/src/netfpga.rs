//! The `netfpga` profile: the stateless hardware module of lro-netfpga, and the specification of the RTL in
//! `hw/lro`.
//!
//! A received packet is parsed to an `LroStruct` (section 5, Figure 5), whose AGGR bit says whether it is
//! eligible (section 3) and whose CSUM bit says whether its checksums are right. Without CSUM it is dropped;
//! without AGGR it goes to the forward block, which passes it untouched; otherwise the store block (Figures 6
//! and 7) stitches it to the stored aggregate, or closes that aggregate and starts another.
//!
//! | rule | the paper | here |
//! |---|---|---|
//! | eligible | no PSH, SYN, FIN, URG; no options but timestamps; not a pure ACK | also no RST, CWR, AE: those would be lost |
//! | a non-eligible packet of the stored flow | forwarded at once | the aggregate is closed first: control segments must not overtake data |
//! | flows in the store | one | 1 to 16; if all are in use, a new flow closes the aggregate that started first |
//! | match | the flow identifiers | also TOS with ECN, TTL, VLAN tags, flags and option layout: CE must not be lost |
//! | checksums of packets that are not TCP over IP | verified before the packet is forwarded | not verified: the host does |
//! | first fragments, also with less than a TCP header | not said | not eligible: the aggregate of their flow is closed |
//! | IPv6 extension headers | not said | not read, as a home address among the options changes what the TCP checksum covers: not eligible, the aggregate of their flow is closed, also if the TCP header is malformed |
//! | bytes after the IP packet | not said | at most 8 B, Ethernet's padding; a longer trailer is passed |
//! | headers that end beyond the first 256 B | not said | the parser does not reach the flow: all aggregates are closed, the packet is passed |
//! | timestamps | the first packet's | the same; a timestamp older than the last closes the aggregate, for PAWS |
//! | window | not said | of the packet with the latest ACK number |
//! | sequence | 32-bit comparison not described | serial arithmetic |
//! | checksums of an aggregate | left as they are, the driver does not check them | TCP: the pseudo-header sum, to be completed |

use std::fmt;
use std::slice;
use std::time::Duration;

use nichrome_wire::{Engine, Instant, TcpFlags};

use crate::checksums;
use crate::config::{self, BadChecksum, Config, ConfigError};
use crate::flow::FlowKey;
use crate::frame::Frame;
use crate::mask::{Masks, Rule};
use crate::outbox::{Outbox, Output};
use crate::parse::{self, Parsed};
use crate::reach;
pub use crate::reach::REACH;
use crate::reason::{DropReason, FlushReason, PassReason};
use crate::run::{Limits, PooledRun};
use crate::run_pool::RunPool;
use crate::segment::{Medium, Segment};
use crate::stats::Statistics;

/// Bytes after an IP packet that are accepted as Ethernet padding.
pub const MAX_PADDING: usize = 8;

/// Configuration of the `netfpga` profile alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetfpgaConfig {
    /// Time from an aggregate's first packet to its closing.
    pub timer: Duration,
    /// Flows in the store block, 1 (the paper's) to 16.
    pub flows: usize,
}

impl NetfpgaConfig {
    /// The paper's module: one flow, with this timer.
    pub const fn with_timer(timer: Duration) -> Self {
        Self { timer, flows: 1 }
    }
}

/// The parser's result for the later blocks (section 5, Figure 5).
struct LroStruct {
    segment: Segment,
    /// AGGR: why the packet is not eligible for aggregation; `None` where it is.
    not_eligible: Option<PassReason>,
    /// CSUM: which checksum is wrong; `None` if all are right.
    wrong_checksum: Option<DropReason>,
}

impl LroStruct {
    fn new<B: AsRef<[u8]>>(frame: &Frame<B>, segment: Segment) -> Self {
        let wrong_checksum = checksums::verify(frame, segment.layout, segment.payload_len).err();
        let packet_end = usize::from(segment.layout.payload) + segment.payload_len as usize;
        let trailer = frame.bytes().len().saturating_sub(packet_end);
        let not_eligible =
            not_eligible(&segment).or_else(|| (trailer > MAX_PADDING).then_some(PassReason::Trailer));
        Self { not_eligible, segment, wrong_checksum }
    }
}

/// The eligibility rules of section 3; the store block checks the sequence number.
fn not_eligible(segment: &Segment) -> Option<PassReason> {
    if let Some(reason) = segment.control() {
        Some(reason)
    } else if segment.flags.contains(TcpFlags::FIN) {
        Some(PassReason::Fin)
    } else if segment.flags.contains(TcpFlags::PSH) {
        Some(PassReason::Psh)
    } else if segment.other_options {
        Some(PassReason::TcpOptions)
    } else {
        None
    }
}

/// The stateless engine: see the [module](self).
pub struct Netfpga<B: AsRef<[u8]>> {
    medium: Medium,
    bad_checksum: BadChecksum,
    timer: Duration,
    flows: usize,
    limits: Limits,
    /// The aggregates in the store block, in order of start and so of deadline.
    stored: Vec<Stored<B>>,
    pool: RunPool<B>,
    masks: Masks,
    out: Outbox<B>,
}

impl<B: AsRef<[u8]>> fmt::Debug for Netfpga<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Netfpga")
            .field("timer", &self.timer)
            .field("flows", &self.flows)
            .finish_non_exhaustive()
    }
}

/// An aggregate in the store block.
struct Stored<B> {
    flow: FlowKey,
    run: PooledRun<B>,
    /// When the timer started by its first packet fires.
    deadline: Instant,
}

impl<B: AsRef<[u8]>> Netfpga<B> {
    /// Creates a module with the timer and the number of flows of `netfpga`.
    ///
    /// # Errors
    /// A value of `config` or `netfpga` is out of its range.
    pub fn new(config: &Config, netfpga: &NetfpgaConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        config::check(&[("flows", netfpga.flows as u64, 1, 16)])?;
        Ok(Self {
            medium: config.medium,
            bad_checksum: config.bad_checksum.unwrap_or(BadChecksum::Drop),
            timer: netfpga.timer,
            flows: netfpga.flows,
            limits: config.limits(),
            stored: Vec::with_capacity(netfpga.flows),
            pool: RunPool::new(config.max_aggregates, config.max_segments),
            masks: Masks::new(Rule::StreamOfOneTtl),
            out: Outbox::new(netfpga.flows + 3),
        })
    }

    /// Returns the counters since the engine was created.
    pub fn statistics(&self) -> &Statistics {
        &self.out.stats
    }

    /// Returns the number of flows that hold segments now.
    pub fn connections(&self) -> usize {
        self.stored.len()
    }

    /// Flushes all aggregates, the oldest first.
    pub fn drain(&mut self) {
        self.close_all(FlushReason::Drain);
    }

    /// Flushes the oldest aggregates, until this number of frames has left.
    pub fn drain_oldest(&mut self, frames: usize) {
        let mut left = frames;
        while left > 0
            && let Some(oldest) = self.stored.first()
        {
            left = left.saturating_sub(oldest.run.segments());
            self.close(0, FlushReason::Drain);
        }
    }

    fn close_all(&mut self, reason: FlushReason) {
        for stored in self.stored.drain(..) {
            self.pool.finish(stored.run, reason, &mut self.out);
        }
    }

    /// Closes the aggregate at `place` and removes it from the store.
    fn close(&mut self, place: usize, reason: FlushReason) {
        let stored = self.stored.remove(place);
        self.pool.finish(stored.run, reason, &mut self.out);
    }

    /// Returns the place of a flow's aggregate.
    fn place_of(&self, flow: &FlowKey) -> Option<usize> {
        self.stored.iter().position(|stored| stored.flow == *flow)
    }

    /// Closes the aggregate of a flow, if there is one.
    fn close_flow(&mut self, flow: &FlowKey) {
        if let Some(place) = self.place_of(flow) {
            self.close(place, FlushReason::Barrier);
        }
    }

    /// Passes an eligible packet through the store block (Figure 7).
    fn store(&mut self, frame: Frame<B>, segment: &Segment, now: Instant) {
        let Some(place) = self.place_of(&segment.flow) else {
            if self.stored.len() >= self.flows {
                self.close(0, FlushReason::FlowMismatch);
            }
            return self.start(frame, segment, now);
        };
        let Some(Stored { run, .. }) = self.stored.get_mut(place) else { return };
        if segment.seq != run.end {
            self.close(place, FlushReason::OutOfOrder);
            return self.out.pass(frame, segment.payload_len, PassReason::OutOfOrder);
        }
        let mask = self.masks.of(run.layout);
        if let Some(reason) = run.why_not_stream(mask, &frame, segment, self.limits) {
            self.close(place, reason);
            return self.start(frame, segment, now);
        }
        run.follow_stream(frame, segment);
        if run.is_full() {
            let reason = run.full_reason();
            self.close(place, reason);
        }
    }

    /// Starts an aggregate with a packet (the stitcher), and its timer.
    fn start(&mut self, frame: Frame<B>, segment: &Segment, now: Instant) {
        match self.pool.start(frame, segment, Rule::StreamOfOneTtl, self.limits, now) {
            Ok(run) => {
                let deadline = run.since + self.timer;
                self.stored.push(Stored { flow: segment.flow, run, deadline });
            }
            Err(frame) => self.out.pass(frame, segment.payload_len, PassReason::PoolEmpty),
        }
    }
}

impl<B: AsRef<[u8]>> Engine for Netfpga<B> {
    type Input = Frame<B>;
    type Output = Output<B>;

    fn receive(&mut self, frame: Frame<B>, now: Instant) {
        self.out.received(slice::from_ref(&frame));
        if reach::exceeds_reach(frame.bytes(), self.medium) {
            self.close_all(FlushReason::Barrier);
            return self.out.pass(frame, 0, PassReason::IpOptions);
        }
        let lro = match parse::parse_without_extensions(frame.bytes(), self.medium) {
            Parsed::Tcp(segment) => LroStruct::new(&frame, segment),
            Parsed::Barrier { flow, reason, .. } => {
                self.close_flow(&flow);
                return self.out.pass(frame, 0, reason);
            }
            Parsed::Other(reason) => return self.out.pass(frame, 0, reason),
        };
        let LroStruct { segment, not_eligible, wrong_checksum } = lro;
        self.out.stats.tcp_payload_bytes_in += u64::from(segment.payload_len);
        match (wrong_checksum, not_eligible) {
            (Some(reason), _) if self.bad_checksum == BadChecksum::Drop => self.out.drop(frame, reason),
            (Some(_), _) => {
                self.close_flow(&segment.flow);
                self.out.pass(frame, segment.payload_len, PassReason::BadChecksum);
            }
            (None, Some(reason)) => {
                self.close_flow(&segment.flow);
                self.out.pass(frame, segment.payload_len, reason);
            }
            (None, None) => self.store(frame, &segment, now),
        }
    }

    fn poll(&mut self) -> Option<Output<B>> {
        self.out.pop()
    }

    fn poll_all(&mut self, outputs: &mut Vec<Output<B>>) {
        self.out.pop_all(outputs);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.stored.first().map(|stored| stored.deadline)
    }

    fn handle_timeout(&mut self, now: Instant) {
        while self.stored.first().is_some_and(|stored| stored.deadline <= now) {
            self.close(0, FlushReason::Timeout);
        }
    }
}
