//! Leases: limits how long a client may use its grants, without connection state in the card.
//!
//! A lease ends at a second of the server's clock. Its key is a function of that time and the connection. The
//! server's driver sends the next lease when it receives a packet of the client in the second half of a
//! lease; a client that only sends RDPs and GDs requests it by an EA. An idle connection has no lease and
//! costs nothing.

use nichrome_wire::Instant;
use nichrome_wire::rdma::RKey;
use nichrome_wire::star::{GrantCode, Lease, NextLease, Registration, Rights};

use super::memory_table::remote_rights;
use super::revoked::{Revoked, SECONDS};
use super::tag::{ConnectionKey, Ends, ServerSecret};
use crate::core::access::Access;
use crate::core::protection::Region;
use crate::core::queue_pair::Settings;

/// Nanoseconds after which a client requests the next lease.
const RENEWAL: u64 = SECONDS as u64 * 1_000_000_000 / 2;

/// Nanoseconds that a client subtracts from its lease's end: the element with the lease may have been in
/// flight for so long.
const MARGIN: u64 = 5_000_000_000;

/// Nanoseconds between two EAs that request a lease.
const INTERVAL: u64 = 50_000_000;

/// Shortest timeout of a request for a lease, as an exponent: 67 ms, longer than [`INTERVAL`].
const SHORTEST_TIMEOUT: u8 = 14;

/// Creates the grants and leases of one connection, in the server's driver.
#[derive(Clone, Debug)]
pub(crate) struct Grantor {
    pub(crate) secret: ServerSecret,
    pub(crate) ends: Ends,
    /// The last lease.
    pub(crate) lease: Lease,
    granted_at: Instant,
}

impl Grantor {
    pub(crate) fn new(secret: ServerSecret, ends: Ends, lease: Lease, now: Instant) -> Self {
        Self { secret, ends, lease, granted_at: now }
    }

    /// Returns the code of a grant to the connection.
    pub(crate) fn code(&self, key: u32, range: (u64, u64), rights: Rights) -> GrantCode {
        self.secret.grant_code(&self.ends, key, range, rights)
    }

    /// Returns the next lease, if the second half of the last one has begun or the last one is void.
    pub(crate) fn renewed(&mut self, revoked: &Revoked, now: Instant) -> Option<NextLease> {
        let is_old = now.nanos_since(self.granted_at) >= RENEWAL || self.lease <= revoked.floor();
        if !is_old {
            return None;
        }
        let next = revoked.begin(self.ends.server, now).max(Lease(self.lease.0 + 1));
        (self.lease, self.granted_at) = (next, now);
        let key = self.secret.lease_key(&self.ends, next);
        Some(self.secret.connection_key(&self.ends).next_lease(next, key))
    }
}

/// Returns the memory table's entry for a region through a queue pair of these rights; `None` if the client
/// may not reach it.
pub(super) fn registration(
    key: u32,
    region: &Region,
    qp: Access,
    grantor: Option<&Grantor>,
) -> Option<Registration> {
    let Region { access, io_address, len, .. } = *region;
    let rights = remote_rights(access, qp);
    let code = grantor.map_or(GrantCode::default(), |grantor| grantor.code(key, (io_address, len), rights));
    let given = [
        (Rights::STORE, Access::REMOTE_WRITE),
        (Rights::FETCH, Access::REMOTE_READ),
        (Rights::ATOMIC, Access::REMOTE_ATOMIC),
    ];
    let given = given.into_iter().filter(|(right, _)| rights.contains(*right));
    let rights = given.fold(Access::NONE, |given, (_, access)| given | access).star_bits();
    (rights != 0).then_some(Registration { key: RKey(key), address: io_address, len, rights, code })
}

/// Returns the timers of a queue pair while it requests a lease: each retry covers at least one EA.
pub(super) fn renewal_timers(settings: Settings) -> Settings {
    let timeout = if settings.timeout == 0 { 0 } else { settings.timeout.max(SHORTEST_TIMEOUT) };
    Settings { timeout, ..settings }
}

/// The leases of a client's connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldLease {
    /// The key of the connection.
    connection: ConnectionKey,
    pub(crate) lease: Lease,
    pub(crate) key: ConnectionKey,
    /// The previous key: answers to packets under it may be in flight.
    previous_key: ConnectionKey,
    since: Instant,
    /// True after the card refused a packet because of the lease.
    is_void: bool,
    requested_at: Option<Instant>,
}

impl HeldLease {
    /// Holds the lease that set-up delivered at `now`.
    pub(crate) fn new(connection: ConnectionKey, (lease, key): (Lease, ConnectionKey), now: Instant) -> Self {
        Self { connection, lease, key, previous_key: key, since: now, is_void: false, requested_at: None }
    }

    /// Replaces the lease by the next one, which arrived at `now`.
    pub(crate) fn renew(&mut self, next: &NextLease, now: Instant) {
        let key = self.connection.lease_key(next);
        *self = Self { previous_key: self.key, ..Self::new(self.connection, (next.lease, key), now) };
    }

    /// Returns the keys under which an answer may be authenticated.
    pub(crate) fn keys(&self) -> [ConnectionKey; 2] {
        [self.key, self.previous_key]
    }

    /// Records that the card has refused, because of its lease, a packet that left at `sent`. The refusal of
    /// a packet under an earlier lease says nothing about this one.
    pub(crate) fn refused(&mut self, sent: Instant) {
        self.is_void |= sent >= self.since;
    }

    /// Returns true if packets may leave under the lease at `now`.
    #[inline]
    pub(crate) fn is_valid(&self, now: Instant) -> bool {
        let age = now.nanos_since(self.since);
        !self.is_void && age < u64::from(SECONDS) * 1_000_000_000 - MARGIN
    }

    /// Returns true if an EA must request the next lease at `now`, and records the request.
    #[inline]
    pub(crate) fn request_if_due(&mut self, now: Instant) -> bool {
        let is_due = self.is_void || now.nanos_since(self.since) >= RENEWAL;
        let requests = is_due && self.requested_at.is_none_or(|at| now.nanos_since(at) >= INTERVAL);
        if requests {
            self.requested_at = Some(now);
        }
        requests
    }

    /// Returns the time of the next request while there is no valid lease; `None` if the request is due.
    pub(crate) fn next_request(&self, now: Instant) -> Option<Instant> {
        let requested_at = self.requested_at.filter(|_| !self.is_valid(now))?;
        Some(requested_at.plus_nanos(INTERVAL)).filter(|next| *next > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_client_asks_in_time_and_again_until_it_is_answered() {
        let mut held =
            HeldLease::new(ConnectionKey::new([1; 16]), (Lease(60), ConnectionKey::new([2; 16])), at(0));
        assert!(
            !held.request_if_due(at(29))
                && held.request_if_due(at(30))
                && !held.request_if_due(at(30))
                && held.request_if_due(at(31))
        );
        assert_eq!([held.is_valid(at(54)), held.is_valid(at(55))], [true, false]);
        held.renew(&ConnectionKey::new([1; 16]).next_lease(Lease(91), ConnectionKey::new([3; 16])), at(31));
        assert_eq!(held.keys(), [ConnectionKey::new([3; 16]), ConnectionKey::new([2; 16])]);
        assert!(held.is_valid(at(60)) && !held.request_if_due(at(60)));
        held.refused(at(30));
        assert!(held.is_valid(at(60)) && !held.request_if_due(at(60)), "a packet under the lease before");
        held.refused(at(31));
        assert!(
            !held.is_valid(at(60)) && held.request_if_due(at(60)) && held.next_request(at(60)) > Some(at(60))
        );
        assert_eq!(held.next_request(at(61)), None, "a deadline that has passed would be served without end");
    }
}
