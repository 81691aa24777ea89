//! Counts beyond those of the engines: sizes, flows, packets over time.

use std::collections::BTreeMap;

use nichrome_lro::{Medium, Packet};
use nichrome_wire::Instant;

use super::flows::Flows;
use crate::bins::Bins;
use crate::headers::Headers;

/// Counts of received and delivered packets.
pub(super) struct Tally {
    /// Packets to the host by number of segments.
    pub(super) sizes: BTreeMap<usize, u64>,
    /// Packets of one segment without TCP payload, which cannot be merged.
    pub(super) without_payload: u64,
    pub(super) flows: Flows,
    pub(super) bins: Bins,
    /// True if segments in tunnels are counted by flow.
    tunnels: bool,
}

impl Tally {
    /// Creates an empty tally; `tunnels` is true if segments in tunnels are counted by flow.
    pub(super) fn new(tunnels: bool) -> Self {
        let (sizes, flows, bins) = (BTreeMap::new(), Flows::default(), Bins::default());
        Self { sizes, without_payload: 0, flows, bins, tunnels }
    }

    /// Counts a received frame.
    pub(super) fn received(&mut self, frame: &[u8], medium: Medium, time: Instant) {
        self.bins.at(time).before += 1;
        if let Some(headers) = self.headers(frame, frame.len(), medium)
            && let Some(flow) = self.flows.of(headers.flow)
        {
            flow.packets_in += 1;
            flow.payload_bytes += headers.payload_len() as u64;
        }
    }

    /// Counts a packet delivered to the host.
    pub(super) fn delivered<B: AsRef<[u8]>>(&mut self, packet: &Packet<B>, medium: Medium, time: Instant) {
        let (segments, start) = match packet {
            Packet::Frame(frame) => (1, frame.bytes()),
            Packet::Aggregate(aggregate) => (aggregate.segments(), aggregate.header()),
        };
        *self.sizes.entry(segments).or_default() += 1;
        self.bins.at(time).after += 1;
        let headers = self.headers(start, packet.len(), medium);
        if segments == 1 && headers.is_none_or(|headers| headers.payload_len() == 0) {
            self.without_payload += 1;
        }
        if let Some(headers) = headers
            && let Some(flow) = self.flows.of(headers.flow)
        {
            flow.packets_out += 1;
            if segments > 1 {
                flow.aggregates += 1;
                flow.segments_aggregated += segments as u64;
            }
        }
    }

    fn headers(&self, bytes: &[u8], len: usize, medium: Medium) -> Option<Headers> {
        let tunneled = || self.tunnels.then(|| Headers::read_tunneled(bytes, len, medium)).flatten();
        Headers::read(bytes, len, medium).or_else(tunneled)
    }
}
