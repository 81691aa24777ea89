//! Limits on the number and size of a device's objects.

/// Maximum number and size of a device's objects. Memory is allocated as objects are created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Protection domains.
    pub domains: usize,
    /// Memory regions and windows together, at most 2²³: half of the key space.
    pub keys: usize,
    /// Completion queues.
    pub cqs: usize,
    /// Completions in one queue.
    pub cqes: usize,
    /// Queue pairs.
    pub qps: usize,
    /// Requests in one send, receive or shared receive queue.
    pub wrs: usize,
    /// Buffers in one request, at most 255.
    pub sges: usize,
    /// Inline bytes in one request.
    pub inline: usize,
    /// Shared receive queues.
    pub srqs: usize,
    /// XRC domains.
    pub xrc_domains: usize,
    /// Address handles.
    pub addresses: usize,
    /// Multicast groups with members.
    pub groups: usize,
    /// Queue pairs attached to one multicast group.
    pub group_members: usize,
    /// READs and atomics outstanding on one queue pair, each way.
    pub rd_atomic: u8,
    /// Bytes in one message, at most 2³⁰: its packets must have distinct PSNs.
    pub message: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            domains: 1 << 20,
            keys: 1 << 20,
            cqs: 1 << 20,
            cqes: 1 << 20,
            qps: 1 << 20,
            wrs: 1 << 20,
            sges: 32,
            inline: 512,
            srqs: 1 << 20,
            xrc_domains: 1 << 16,
            addresses: 1 << 20,
            groups: 64,
            group_members: 64,
            rd_atomic: 128,
            message: 1 << 30,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limits of rxe in Linux 6.1 according to `ibv_devinfo -v`.
    #[test]
    fn limits_are_at_least_those_of_rxe() {
        let ours = Limits::default();
        for (name, ours, theirs) in [
            ("max_pd", ours.domains, 1_048_576),
            ("max_mr and max_mw", ours.keys, 524_287 + 524_287),
            ("max_cq", ours.cqs, 1_048_576),
            ("max_cqe", ours.cqes, 32_767),
            ("max_qp", ours.qps, 1_048_560),
            ("max_qp_wr and max_srq_wr", ours.wrs, 1_048_576),
            ("max_sge", ours.sges, 32),
            ("max_srq", ours.srqs, 917_503),
            ("max_ah", ours.addresses, 32_767),
            ("max_qp_rd_atom", ours.rd_atomic.into(), 128),
            ("max_msg_sz", ours.message as usize, 0x80_0000),
        ] {
            assert!(ours >= theirs, "{name}: {ours}");
        }
    }
}
