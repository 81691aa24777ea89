//! Per-flow results of coalescing.

use std::collections::HashMap;

use nichrome_lro::FlowKey;

/// Maximum number of flows that are counted separately.
const MAX_FLOWS: usize = 1 << 20;

/// Packet counts of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FlowCounts {
    pub(super) packets_in: u64,
    pub(super) packets_out: u64,
    /// TCP payload received, in bytes.
    pub(super) payload_bytes: u64,
    pub(super) aggregates: u64,
    pub(super) segments_aggregated: u64,
}

impl FlowCounts {
    /// Returns segments per aggregate; 0 without aggregates.
    pub(super) fn mean_segments_per_aggregate(&self) -> f64 {
        if self.aggregates == 0 { 0.0 } else { self.segments_aggregated as f64 / self.aggregates as f64 }
    }
}

/// The flows of a capture; each direction of a connection is a flow.
pub(super) struct Flows {
    flows: HashMap<FlowKey, FlowCounts>,
    /// Maximum number of flows that are counted.
    most: usize,
    /// True if there were more flows than are counted.
    pub(super) are_exceeded: bool,
}

impl Default for Flows {
    fn default() -> Self {
        Self { flows: HashMap::new(), most: MAX_FLOWS, are_exceeded: false }
    }
}

impl Flows {
    /// Returns the counts of a flow; `None` if there are too many flows.
    pub(super) fn of(&mut self, flow: FlowKey) -> Option<&mut FlowCounts> {
        if self.flows.len() < self.most {
            return Some(self.flows.entry(flow).or_default());
        }
        let counts = self.flows.get_mut(&flow);
        self.are_exceeded |= counts.is_none();
        counts
    }

    /// Returns how many flows were counted.
    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }

    /// Returns the flows with the most payload, on a tie those with the most packets.
    pub(super) fn top(&self, most: usize) -> Vec<(FlowKey, FlowCounts)> {
        let mut flows: Vec<_> = self.flows.iter().map(|(flow, counts)| (*flow, *counts)).collect();
        flows.sort_by_cached_key(|(flow, counts)| {
            (u64::MAX - counts.payload_bytes, u64::MAX - counts.packets_in, flow.to_string())
        });
        flows.truncate(most);
        flows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_flows_are_not_counted_and_known_ones_are() {
        let flow = |port| FlowKey::ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), port, 80);
        let mut flows = Flows { most: 2, ..Flows::default() };
        for (port, is_exceeded) in [(1, false), (2, false), (1, false), (3, true), (2, true)] {
            assert_eq!(flows.of(flow(port)).is_some(), port != 3);
            assert_eq!((flows.len() <= 2, flows.are_exceeded), (true, is_exceeded), "{port}");
        }
    }

    #[test]
    fn the_flows_with_the_most_payload_come_first() {
        let mut flows = Flows::default();
        for (port, payload_bytes) in [(1, 10), (2, 30), (3, 0), (4, 20), (5, 30)] {
            let flow = FlowKey::ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), port, 80);
            flows.of(flow).unwrap().payload_bytes = payload_bytes;
        }
        let ports: Vec<u16> = flows.top(4).iter().map(|(flow, _)| flow.source().port()).collect();
        assert_eq!(ports, [2, 5, 4, 1]);
        assert_eq!(flows.top(0).len(), 0);
        assert_eq!(flows.len(), 5);
    }
}
