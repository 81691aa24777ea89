//! The results of a run. `--json` prints them: names are stable.

use std::time::Duration;

use nichrome_lro::verify::Verified;
use nichrome_lro::{Hold, NetfpgaConfig, ProfileConfig};
use serde::Serialize;

use super::card::RunResult;
use super::counters::NonZeroCounts;
use crate::capture_files::Ended;

/// The summary.
#[derive(Serialize)]
pub(super) struct Summary {
    pub(super) profile: &'static str,
    /// Maximum time that segments are held, in microseconds; `None` if they are held until the batch ends.
    pub(super) hold_us: Option<f64>,
    /// Maximum time that segments behind a gap are held, in microseconds; `None` if the profile does not
    /// reorder.
    pub(super) reorder_hold_us: Option<f64>,
    pub(super) packets_in: u64,
    pub(super) packets_out: u64,
    /// Packets that `--filter` excluded; not in any other count.
    pub(super) filtered: u64,
    /// Packets whose link type is not supported; not in any other count.
    pub(super) skipped: u64,
    /// Packets that the capture's snap length cut.
    pub(super) snapped: u64,
    /// Engines that were flushed and replaced: there were more interfaces than engines.
    pub(super) replaced_engines: u64,
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) tcp_payload_bytes_in: u64,
    pub(super) tcp_payload_bytes_out: u64,
    pub(super) aggregates: u64,
    pub(super) mean_segments_per_aggregate: f64,
    pub(super) segments_histogram: Vec<Size>,
    pub(super) packets_out_without_payload: u64,
    pub(super) flush_reasons: NonZeroCounts,
    pub(super) passes: NonZeroCounts,
    pub(super) drops: NonZeroCounts,
    pub(super) acks_sent: u64,
    pub(super) flow_count: usize,
    /// True if there were more flows than `flow_count`. `flows` leaves out the excess flows.
    pub(super) flow_count_exceeded: bool,
    /// The flows with the most payload.
    pub(super) flows: Vec<Flow>,
    /// True if the input ended early.
    pub(super) truncated: bool,
    pub(super) verified: Option<Verification>,
}

/// Number of packets to the host with this many segments.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Size {
    pub(super) segments: usize,
    pub(super) packets: u64,
}

/// One direction of a connection.
#[derive(Serialize)]
pub(super) struct Flow {
    pub(super) flow: String,
    pub(super) packets_in: u64,
    pub(super) packets_out: u64,
    pub(super) payload_bytes: u64,
    pub(super) mean_segments_per_aggregate: f64,
}

/// The quantities that verification compared.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Verification {
    pub(super) frames: u64,
    pub(super) flows: u64,
    pub(super) bytes: u64,
}

impl From<Verified> for Verification {
    fn from(Verified { frames, flows, bytes }: Verified) -> Self {
        Self { frames, flows, bytes }
    }
}

impl Summary {
    pub(super) fn new(
        done: &RunResult,
        profile: &ProfileConfig,
        top: usize,
        ended: &Ended,
        verified: Option<&Verified>,
    ) -> Self {
        let (sums, tally) = (&done.counters.sums, &done.tally);
        let (hold, reorder_hold) = match profile {
            ProfileConfig::Gro(Hold::Batch) => (None, None),
            ProfileConfig::Gro(Hold::For(hold))
            | ProfileConfig::Netfpga(NetfpgaConfig { timer: hold, .. }) => (Some(*hold), None),
            ProfileConfig::Npu(npu) => (Some(npu.ceiling), Some(npu.reorder_hold)),
        };
        let flow = |(key, counts): &(nichrome_lro::FlowKey, super::flows::FlowCounts)| Flow {
            flow: key.to_string(),
            packets_in: counts.packets_in,
            packets_out: counts.packets_out,
            payload_bytes: counts.payload_bytes,
            mean_segments_per_aggregate: counts.mean_segments_per_aggregate(),
        };
        Self {
            profile: profile.profile().name(),
            hold_us: hold.map(micros),
            reorder_hold_us: reorder_hold.map(micros),
            packets_in: sums.packets_in,
            packets_out: sums.packets_out,
            filtered: done.counters.filtered,
            skipped: ended.skipped_packets(),
            snapped: done.counters.snapped,
            replaced_engines: done.counters.replaced_engines,
            bytes_in: sums.bytes_in,
            bytes_out: sums.bytes_out,
            tcp_payload_bytes_in: sums.tcp_payload_bytes_in,
            tcp_payload_bytes_out: sums.tcp_payload_bytes_out,
            aggregates: sums.aggregates,
            mean_segments_per_aggregate: sums.mean_segments_per_aggregate(),
            segments_histogram: tally
                .sizes
                .iter()
                .map(|(&segments, &packets)| Size { segments, packets })
                .collect(),
            packets_out_without_payload: tally.without_payload,
            flush_reasons: done.counters.flushes.clone(),
            passes: done.counters.passes.clone(),
            drops: done.counters.drops.clone(),
            acks_sent: sums.acks_sent,
            flow_count: tally.flows.len(),
            flow_count_exceeded: tally.flows.are_exceeded,
            flows: tally.flows.top(top).iter().map(flow).collect(),
            truncated: ended.is_early(),
            verified: verified.copied().map(Verification::from),
        }
    }
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}
