//! Revoked leases: those of closed connections, which are void before they end.
//!
//! The card keeps them until they have ended, in a table of [`CLOSED`] connections. When the table is full,
//! all leases that end no later than those of the connection that closed first are void, and clients of open
//! connections request new ones.
//!
//! If connections close faster than [`CLOSED`] a second, these void leases overtake the server's clock. The
//! clock of leases then jumps ahead, so that the next lease is not void, and still ends after [`SECONDS`].

use std::collections::VecDeque;

use nichrome_wire::Instant;
use nichrome_wire::rdma::QpNumber;
use nichrome_wire::star::Lease;

use crate::core::qp_map::QpMap;

/// Duration of a lease in seconds.
pub(super) const SECONDS: u32 = 60;

/// Closed connections whose leases the card keeps.
const CLOSED: usize = 256;

/// Returns the second of a clock at `now`.
fn second_of(now: Instant) -> u32 {
    (now.as_nanos() / 1_000_000_000) as u32
}

/// The leases that are void before they end.
#[derive(Clone, Debug)]
pub(crate) struct Revoked {
    /// The last lease of each closed connection, by the server's number.
    closed: QpMap<Lease>,
    /// The closed connections, the one that closed first at the front.
    order: VecDeque<QpNumber>,
    /// All leases up to this one are void.
    floor: Lease,
    /// Seconds that the clock of leases is ahead of the server's.
    ahead: u32,
}

impl Revoked {
    /// Bytes of the tables, without the hash table's overhead.
    pub(super) const BYTES: usize = CLOSED * (size_of::<(QpNumber, Lease)>() + size_of::<QpNumber>());

    pub(crate) fn new() -> Self {
        let closed = QpMap::with_capacity_and_hasher(CLOSED, Default::default());
        let order = VecDeque::with_capacity(CLOSED);
        Self { closed, order, floor: Lease(0), ahead: 0 }
    }

    /// All leases up to this one are void.
    pub(crate) const fn floor(&self) -> Lease {
        self.floor
    }

    /// Returns the second of the clock of leases at `now`.
    fn clock(&self, now: Instant) -> u32 {
        second_of(now) + self.ahead
    }

    /// Returns the lease of a connection that begins at `now`.
    pub(crate) fn begin(&self, server: QpNumber, now: Instant) -> Lease {
        let before = self.closed.get(&server).map_or(0, |lease| lease.0);
        Lease((self.clock(now) + SECONDS).max(before + 1))
    }

    /// Revokes the leases of a connection, the last of which is `last`.
    pub(crate) fn revoke(&mut self, server: QpNumber, last: Lease, now: Instant) {
        let clock = self.clock(now);
        self.closed.retain(|_, lease| lease.0 > clock);
        self.order.retain(|server| self.closed.contains_key(server));
        if let Some(known) = self.closed.get_mut(&server) {
            *known = last.max(*known);
            return;
        }
        if self.order.len() == CLOSED
            && let Some(oldest) = self.order.pop_front()
            && let Some(lease) = self.closed.remove(&oldest)
        {
            self.floor = self.floor.max(lease);
            self.ahead += (self.floor.0 + 1).saturating_sub(clock + SECONDS);
        }
        self.order.push_back(server);
        self.closed.insert(server, last);
    }

    /// Returns true if a packet under `lease` is accepted at `now`.
    #[inline]
    pub(crate) fn admits(&self, server: QpNumber, lease: Lease, now: Instant) -> bool {
        lease.0 > self.clock(now)
            && lease > self.floor
            && self.closed.get(&server).is_none_or(|last| lease > *last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::star::lease::Grantor;
    use crate::star::tag::{Ends, ServerSecret};

    fn number(number: u32) -> QpNumber {
        QpNumber::new(number).unwrap()
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_lease_ends_in_time() {
        let revoked = Revoked::new();
        let lease = revoked.begin(number(1), at(100));
        for (second, admitted) in [(100, true), (159, true), (160, false), (100_000, false)] {
            assert_eq!(revoked.admits(number(1), lease, at(second)), admitted, "{second}");
        }
    }

    #[test]
    fn closing_ends_the_leases_of_one_connection_and_a_new_one_may_have_its_number() {
        let mut revoked = Revoked::new();
        let [one, other] = [1, 2].map(|nth| (number(nth), revoked.begin(number(nth), at(100))));
        revoked.revoke(one.0, one.1, at(100));
        assert!(!revoked.admits(one.0, one.1, at(100)) && revoked.admits(other.0, other.1, at(100)));
        let again = revoked.begin(one.0, at(100));
        assert!(revoked.admits(one.0, again, at(100)) && !revoked.admits(one.0, one.1, at(101)));
        revoked.revoke(one.0, again, at(100));
        assert!(!revoked.admits(one.0, again, at(100)) && revoked.order.len() == 1);
    }

    #[test]
    fn ended_leases_leave_the_table() {
        let mut revoked = Revoked::new();
        revoked.revoke(number(1), revoked.begin(number(1), at(100)), at(100));
        revoked.revoke(number(2), revoked.begin(number(2), at(150)), at(150));
        revoked.revoke(number(3), revoked.begin(number(3), at(160)), at(160));
        assert_eq!(revoked.order, [2, 3].map(number));
        assert_eq!(revoked.closed.len(), 2);
    }

    #[test]
    fn a_full_table_makes_all_old_leases_void_and_open_connections_get_others() {
        let mut revoked = Revoked::new();
        let open = (number(9), revoked.begin(number(9), at(100)));
        let first = (number(1000), revoked.begin(number(1000), at(100)));
        for nth in 0..=CLOSED as u32 {
            revoked.revoke(number(1000 + nth), revoked.begin(number(1000 + nth), at(100)), at(100));
        }
        assert_eq!([revoked.closed.len(), revoked.order.len()], [CLOSED; 2]);
        assert!(!revoked.admits(first.0, first.1, at(100)) && !revoked.admits(open.0, open.1, at(100)));
        let ends = Ends { address: [10, 0, 0, 1].into(), client: number(1), server: open.0 };
        let mut grantor = Grantor::new(ServerSecret::new([1; 16]), ends, open.1, at(100));
        let next = grantor.renewed(&revoked, at(100)).unwrap();
        assert!(revoked.admits(open.0, next.lease, at(100)));
        assert!(grantor.renewed(&revoked, at(100)).is_none());
    }

    /// A connection that closes in the second in which it began.
    fn begin_and_close(revoked: &mut Revoked, server: QpNumber, second: u64) {
        let lease = revoked.begin(server, at(second));
        assert!(revoked.admits(server, lease, at(second)));
        revoked.revoke(server, lease, at(second));
        assert!(!revoked.admits(server, lease, at(second)));
    }

    #[test]
    fn leases_are_good_for_their_time_however_fast_connections_close() {
        let mut revoked = Revoked::new();
        let ends = Ends { address: [10, 0, 0, 1].into(), client: number(1), server: number(9) };
        let lease = revoked.begin(ends.server, at(100));
        let mut grantor = Grantor::new(ServerSecret::new([1; 16]), ends, lease, at(100));
        for nth in 0..40_000 {
            begin_and_close(&mut revoked, number(1000 + nth), 100);
            grantor.renewed(&revoked, at(100));
            assert!(revoked.admits(ends.server, grantor.lease, at(100)), "{nth}");
        }
        assert!(revoked.admits(ends.server, grantor.lease, at(159)));
        assert!(!revoked.admits(ends.server, grantor.lease, at(160)));
        assert!(grantor.renewed(&revoked, at(130)).is_some());
        assert!(revoked.admits(ends.server, grantor.lease, at(189)));
    }

    #[test]
    fn a_queue_pair_that_is_reset_often_gets_and_renews_leases() {
        let mut revoked = Revoked::new();
        let ends = Ends { address: [10, 0, 0, 1].into(), client: number(1), server: number(9) };
        for _ in 0..1000 {
            begin_and_close(&mut revoked, ends.server, 100);
        }
        let lease = revoked.begin(ends.server, at(100));
        let mut grantor = Grantor::new(ServerSecret::new([1; 16]), ends, lease, at(100));
        let next = grantor.renewed(&revoked, at(130)).unwrap();
        assert!(next.lease > lease && revoked.admits(ends.server, next.lease, at(130)));
    }
}
