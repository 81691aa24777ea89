//! Selective repeat between two ends of this crate.
//!
//! The responder keeps a request that arrives ahead of a lost one, and sends a NAK for each packet that is
//! missing before it. The NAK is flagged as selective: it acknowledges nothing, and the requester retransmits
//! that packet alone. When the packet arrives, the responder executes the kept packets behind it in order, so
//! that the effects are those of a path without loss. If a retransmission is lost too and a later one
//! arrives, the responder sends the NAK again; otherwise the requester's timer retransmits everything, as it
//! does with other peers.

use nichrome_wire::rdma::{Psn, RcMessage};

use super::super::held::{HeldRequest, HeldRequests};
use super::super::held_pool::HeldPool;
use super::super::packet::Incoming;

/// A packet is kept if it is fewer than this many packets ahead of the expected one.
const REACH: usize = 1024;

/// The packets that one queue pair has kept. While none is kept, the queues for their order are in
/// [`HeldPool`].
#[derive(Debug, Default)]
pub(super) struct Reorder {
    held: HeldRequests,
}

impl Reorder {
    /// Keeps a request that is ahead of `expected`. Returns false if there is no room for it.
    pub(super) fn keep(
        &mut self,
        expected: Psn,
        message: RcMessage,
        request: &Incoming<'_>,
        limit: usize,
        held_pool: &mut HeldPool,
    ) -> bool {
        let index = request.psn.since(expected).max(0).unsigned_abs() as usize;
        if index >= REACH {
            return false;
        }
        if self.held.requests.get(index).is_some_and(Option::is_some) {
            return true;
        }
        let Some(payload) = held_pool.take(request.payload, limit) else { return false };
        if self.held.requests.is_empty() {
            self.held = held_pool.take_queue();
        }
        let known = self.held.requests.len();
        let overtaken = index < known && !self.held.missing.contains(&expected);
        if overtaken {
            // A later retransmission arrived before that of the expected packet, which was lost again.
            self.held.missing.push_back(expected);
        }
        self.held.missing.extend((known..index).map(|gap| expected + gap as u32));
        if self.held.requests.len() <= index {
            self.held.requests.resize_with(index + 1, || None);
        }
        self.held.requests[index] = Some(HeldRequest::new(message, request, payload));
        true
    }

    /// Advances by the `packets` PSNs of an executed request; drops the kept packets among these.
    pub(super) fn advance(&mut self, packets: u32, held_pool: &mut HeldPool) {
        if self.held.requests.is_empty() {
            return;
        }
        let passed = self.held.requests.len().min(packets as usize);
        self.held
            .requests
            .drain(..passed)
            .flatten()
            .for_each(|held| held_pool.give_back(held.into_payload()));
        if self.held.requests.is_empty() {
            // All missing packets have arrived.
            self.held.missing.clear();
            held_pool.return_queue(std::mem::take(&mut self.held));
        }
    }

    /// Drops selective NAKs of packets that have arrived in the meantime.
    #[inline]
    pub(super) fn prune(&mut self, expected: Psn) {
        while let Some(psn) = self.held.missing.front() {
            let index = psn.since(expected);
            let waited_for = self.held.requests.get(index.max(0).unsigned_abs() as usize);
            if index >= 0 && waited_for.is_some_and(Option::is_none) {
                return;
            }
            self.held.missing.pop_front();
        }
    }

    /// Returns true if selective NAKs are to be sent.
    #[inline]
    pub(super) fn has_missing(&self) -> bool {
        !self.held.missing.is_empty()
    }

    /// Returns the PSN that the next selective NAK names.
    #[inline]
    pub(super) fn next_missing(&self) -> Option<Psn> {
        self.held.missing.front().copied()
    }

    /// Records that the next selective NAK was sent.
    pub(super) fn missing_sent(&mut self) {
        self.held.missing.pop_front();
    }

    /// Takes the kept request with the expected PSN.
    pub(super) fn take_expected(&mut self) -> Option<HeldRequest> {
        self.held.requests.front_mut()?.take()
    }

    /// Drops all kept requests.
    pub(super) fn clear(&mut self, held_pool: &mut HeldPool) {
        if self.held.requests.is_empty() {
            return;
        }
        self.held.requests.drain(..).flatten().for_each(|held| held_pool.give_back(held.into_payload()));
        self.held.missing.clear();
        held_pool.return_queue(std::mem::take(&mut self.held));
    }
}

#[cfg(test)]
mod tests {
    use nichrome_wire::rdma::{Part, SendEnd, SrqNumber};
    use nichrome_wire::{AddressPair, TrafficClass};

    use super::*;

    const EXPECTED: Psn = Psn::new(100);

    struct Kept {
        reorder: Reorder,
        held_pool: HeldPool,
    }

    impl Kept {
        fn new() -> Self {
            Self { reorder: Reorder::default(), held_pool: HeldPool::default() }
        }

        fn keep(&mut self, ahead: u32, limit: usize) -> bool {
            let (src, dst) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
            let request = Incoming {
                psn: EXPECTED + ahead,
                srq: SrqNumber::default(),
                ack_request: false,
                solicited: false,
                selective: true,
                ecn_echo: false,
                payload: &[1, 2, 3],
                addresses: AddressPair::V4 { src, dst },
                traffic_class: TrafficClass(0),
            };
            let message = RcMessage::Send(Part::Only((), SendEnd::Plain));
            self.reorder.keep(EXPECTED, message, &request, limit, &mut self.held_pool)
        }

        /// The packets that selective NAKs name, in order.
        fn missing(&mut self) -> Vec<u32> {
            let next = || {
                self.reorder.prune(EXPECTED);
                Some(self.reorder.held.missing.pop_front()?.since(EXPECTED).unsigned_abs())
            };
            std::iter::from_fn(next).collect()
        }
    }

    #[test]
    fn each_missing_packet_gets_one_selective_nak_in_order() {
        let mut kept = Kept::new();
        assert!(kept.keep(2, 9) && kept.keep(5, 9));
        assert_eq!(kept.missing(), [0, 1, 3, 4]);
        assert!(kept.keep(6, 9));
        assert_eq!(kept.missing(), []);
    }

    #[test]
    fn a_packet_that_arrives_before_its_nak_leaves_is_not_missing() {
        let mut kept = Kept::new();
        assert!(kept.keep(2, 9) && kept.keep(1, 9));
        assert_eq!(kept.missing(), [0]);
    }

    #[test]
    fn a_repetition_that_overtakes_another_has_that_one_named_again() {
        let mut kept = Kept::new();
        assert!(kept.keep(3, 9));
        assert_eq!(kept.missing(), [0, 1, 2]);
        assert!(kept.keep(1, 9));
        assert_eq!(kept.missing(), [0]);
    }

    #[test]
    fn a_queue_pair_that_keeps_nothing_takes_no_memory() {
        let memory =
            |kept: &Kept| [kept.reorder.held.requests.capacity(), kept.reorder.held.missing.capacity()];
        let mut kept = Kept::new();
        assert!(kept.keep(REACH as u32 - 1, 9));
        assert!(memory(&kept).iter().all(|capacity| *capacity >= REACH - 1));
        kept.reorder.advance(REACH as u32, &mut kept.held_pool);
        assert_eq!(memory(&kept), [0; 2], "all were passed");
        assert!(kept.keep(REACH as u32 - 1, 9));
        kept.reorder.clear(&mut kept.held_pool);
        assert_eq!(memory(&kept), [0; 2], "all were dropped");
        let mut other = Kept::new();
        std::mem::swap(&mut other.held_pool, &mut kept.held_pool);
        assert!(other.keep(1, 9));
        assert!(memory(&other).iter().all(|capacity| *capacity >= REACH - 1), "another's memory");
    }

    #[test]
    fn kept_packets_are_bounded_and_their_buffers_are_returned() {
        let mut kept = Kept::new();
        assert!(kept.keep(1, 2) && kept.keep(2, 2) && !kept.keep(3, 2));
        assert!(!kept.keep(REACH as u32, 9));
        kept.reorder.advance(1, &mut kept.held_pool);
        let held = kept.reorder.take_expected().unwrap();
        assert_eq!((held.psn, held.incoming().payload), (EXPECTED + 1, &[1, 2, 3][..]));
        kept.held_pool.give_back(held.into_payload());
        kept.reorder.clear(&mut kept.held_pool);
        assert!(kept.keep(1, 2) && kept.keep(2, 2) && !kept.keep(3, 2));
    }
}
