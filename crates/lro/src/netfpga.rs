//! The `netfpga` profile: the stateless hardware module of lro-netfpga, one aggregate at a time.
//!
//! A received packet is parsed to an `LroStruct` (section 5, Figure 5), whose AGGR bit says whether it is eligible
//! (section 3) and whose CSUM bit says whether its checksums are right. Without CSUM it is dropped; without AGGR it
//! goes to the forward block, which passes it untouched; otherwise the store block (Figures 6 and 7) stitches it to
//! the stored aggregate, or closes that one and starts anew.
//!
//! | rule | the paper | here |
//! |---|---|---|
//! | eligible | no PSH, SYN, FIN, URG; no options but timestamps; not a pure ACK | also no RST, CWR, AE: those would be lost |
//! | a non-eligible packet of the stored flow | forwarded at once | the aggregate is closed first: control must not overtake data |
//! | match | the flow identifiers | also TOS with ECN, VLAN tags, flags and option layout: CE must not be lost |
//! | timestamps | the first packet's | the same; an older one than the last closes the aggregate, for PAWS |
//! | window | not said | of the packet with the latest ACK number |
//! | sequence | 32-bit comparison not described | serial arithmetic |
//! | checksums of an aggregate | left as they are, the driver does not look | TCP: the pseudo-header's sum, to be completed |

use std::slice;
use std::time::Duration;

use nichrome_wire::{Engine, Instant, TcpFlags};

use crate::config::{BadChecksum, Config, ConfigError};
use crate::flow::FlowKey;
use crate::frame::Frame;
use crate::mask::{Masks, Rule};
use crate::outbox::{Outbox, Output};
use crate::parse::{self, Parsed};
use crate::reason::{DropReason, FlushReason, PassReason};
use crate::run::{Limits, Run};
use crate::run_pool::RunPool;
use crate::segment::{self, Medium, Segment};
use crate::stats::Statistics;

/// What the parser leaves in the buffer for the blocks behind it (section 5, Figure 5).
struct LroStruct {
    segment: Segment,
    /// AGGR: why the packet is not eligible for aggregation; `None` where it is.
    not_eligible: Option<PassReason>,
    /// CSUM: what is wrong with the checksums; `None` where they are right.
    wrong_checksum: Option<DropReason>,
}

impl LroStruct {
    fn new<B: AsRef<[u8]>>(frame: &Frame<B>, segment: Segment) -> Self {
        let wrong_checksum = segment::verify(frame, segment.layout, segment.payload_len).err();
        Self { not_eligible: not_eligible(&segment), segment, wrong_checksum }
    }
}

/// The list of section 3; whether a packet is in order is for the store block to see.
fn not_eligible(segment: &Segment) -> Option<PassReason> {
    if let Some(reason) = segment.control() {
        Some(reason)
    } else if segment.flags.contains(TcpFlags::FIN) {
        Some(PassReason::Fin)
    } else if segment.flags.contains(TcpFlags::PSH) {
        Some(PassReason::Psh)
    } else if segment.other_options {
        Some(PassReason::TcpOptions)
    } else if segment.has_extension_headers() {
        Some(PassReason::IpOptions)
    } else {
        None
    }
}

/// The stateless engine of one aggregate: see the [module](self).
pub struct Netfpga<B: AsRef<[u8]>> {
    medium: Medium,
    bad_checksum: BadChecksum,
    timer: Duration,
    limits: Limits,
    stored: Option<Stored<B>>,
    pool: RunPool<B>,
    masks: Masks,
    out: Outbox<B>,
}

/// The aggregate in the store block.
struct Stored<B> {
    flow: FlowKey,
    run: Box<Run<B>>,
    /// When the timer that its first packet started runs out.
    deadline: Instant,
}

impl<B: AsRef<[u8]>> Netfpga<B> {
    /// A module whose timer closes an aggregate `timer` after its first packet.
    ///
    /// # Errors
    /// A value of `config` is out of its range.
    pub fn new(config: &Config, timer: Duration) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            medium: config.medium,
            bad_checksum: config.bad_checksum.unwrap_or(BadChecksum::Drop),
            timer,
            limits: config.limits(),
            stored: None,
            pool: RunPool::new(config.max_aggregates, config.max_segments),
            masks: Masks::new(Rule::Stream),
            out: Outbox::new(4),
        })
    }

    /// What the engine has done so far.
    pub fn statistics(&self) -> &Statistics {
        &self.out.stats
    }

    /// Flows that hold segments now.
    pub fn connections(&self) -> usize {
        usize::from(self.stored.is_some())
    }

    /// Hands on what is stored.
    pub fn drain(&mut self) {
        self.close(FlushReason::Drain);
    }

    /// Closes the stored aggregate, if there is one, and resets the store block.
    fn close(&mut self, reason: FlushReason) {
        if let Some(stored) = self.stored.take() {
            self.pool.finish(stored.run, reason, &mut self.out);
        }
    }

    /// Closes the stored aggregate if it is of this flow.
    fn close_flow(&mut self, flow: &FlowKey) {
        if self.stored.as_ref().is_some_and(|stored| stored.flow == *flow) {
            self.close(FlushReason::Barrier);
        }
    }

    /// The store block with an eligible packet (Figure 7).
    fn store(&mut self, frame: Frame<B>, segment: &Segment, now: Instant) {
        let Some(stored) = &mut self.stored else { return self.start(frame, segment, now) };
        if stored.flow != segment.flow {
            self.close(FlushReason::FlowMismatch);
            return self.start(frame, segment, now);
        }
        if segment.seq != stored.run.end {
            self.close(FlushReason::OutOfOrder);
            return self.out.pass(frame, segment.payload_len, PassReason::OutOfOrder);
        }
        let mask = self.masks.of(stored.run.layout);
        if let Some(reason) = stored.run.why_not_stream(mask, &frame, segment, self.limits) {
            self.close(reason);
            return self.start(frame, segment, now);
        }
        stored.run.follow_stream(frame, segment);
        if stored.run.is_full() {
            self.close(FlushReason::MaxLength);
        }
    }

    /// Invokes the stitcher for the first packet of an aggregate and starts the timer.
    fn start(&mut self, frame: Frame<B>, segment: &Segment, now: Instant) {
        match self.pool.start(frame, segment, Rule::Stream, self.limits, now) {
            Ok(run) => {
                let deadline = run.since + self.timer;
                self.stored = Some(Stored { flow: segment.flow, run, deadline });
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
        let lro = match parse::parse(frame.bytes(), self.medium) {
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
        self.stored.as_ref().map(|stored| stored.deadline)
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.stored.as_ref().is_some_and(|stored| stored.deadline <= now) {
            self.close(FlushReason::Timeout);
        }
    }
}
