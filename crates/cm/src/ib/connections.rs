//! The connections of an adapter, their lookup, and their transmitted messages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use nichrome_rdma::RandomNumbers;
use nichrome_wire::Instant;
use nichrome_wire::cm::{CommId, CommIds, Guid, MAD_LEN, Mad, Message, TransactionId};
use nichrome_wire::rdma::{PathMtu, QpNumber};

use super::connection::{Connection, LingerRank, Sent, State};
use crate::config::{CommIdPrefix, Config};
use crate::counters::Counters;
use crate::deadlines::Deadlines;

/// A datagram from queue pair 1 to queue pair 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The address to send from.
    pub source: IpAddr,
    /// The address to send to.
    pub destination: IpAddr,
    /// The MAD.
    pub payload: [u8; MAD_LEN],
}

/// Every connection by its local identifier, which is random.
pub(crate) struct Connections {
    pub(crate) config: Config,
    /// The GUID in messages. Not the adapter's, which others know: a REQ that names a peer's GUID and queue
    /// pair ends the connection of that queue pair, as stale (IBA 12.9.8.3.1).
    pub(super) guid: Guid,
    table: BTreeMap<CommId, Connection>,
    /// By the peer's address and identifier.
    by_remote: BTreeMap<(IpAddr, CommId), CommId>,
    /// By the peer's address and queue pair, until the connection ends.
    by_qp: BTreeMap<(IpAddr, QpNumber), CommId>,
    /// Requests of datagram services, by the peer's address and name of the request.
    by_sidr: BTreeMap<(IpAddr, u32), CommId>,
    half_open: BTreeMap<IpAddr, usize>,
    half_open_total: usize,
    /// Connections without owner, in the order in which they give way.
    lingering: BTreeSet<LingerRank>,
    lingered: u64,
    deadlines: Deadlines<CommId>,
    random: RandomNumbers,
    outbox: VecDeque<Transmit>,
    pub(crate) counters: Counters,
}

impl Connections {
    pub(crate) fn new(config: Config) -> Self {
        let random = RandomNumbers::new(config.identity_seed, "communication identifiers");
        let mut halves = RandomNumbers::new(config.identity_seed, "GUID in messages");
        let guid = Guid(u64::from(halves.next_u32()) << 32 | u64::from(halves.next_u32()));
        Self {
            config,
            guid,
            table: BTreeMap::new(),
            by_remote: BTreeMap::new(),
            by_qp: BTreeMap::new(),
            by_sidr: BTreeMap::new(),
            half_open: BTreeMap::new(),
            half_open_total: 0,
            lingering: BTreeSet::new(),
            lingered: 0,
            deadlines: Deadlines::new(),
            random,
            outbox: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Sets the values that depend on the adapter.
    pub(crate) fn set_adapter(&mut self, comm_ids: CommIdPrefix, max_path_mtu: PathMtu) {
        (self.config.comm_ids, self.config.max_path_mtu) = (comm_ids, max_path_mtu);
    }

    /// Number of connections, those without owner included.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn get(&self, id: CommId) -> Option<&Connection> {
        self.table.get(&id)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Connection> {
        self.table.values()
    }

    pub(super) fn get_mut(&mut self, id: CommId) -> Option<&mut Connection> {
        self.table.get_mut(&id)
    }

    /// The connection that a message from `peer` to `own` names by both identifiers.
    pub(super) fn named(&self, ids: CommIds, own: IpAddr, peer: IpAddr) -> Option<&Connection> {
        self.of_peer(ids.remote, own, peer).filter(|connection| connection.remote == ids.local)
    }

    /// The connection of this local identifier, if it is between these addresses.
    pub(super) fn of_peer(&self, id: CommId, own: IpAddr, peer: IpAddr) -> Option<&Connection> {
        let connection = self.table.get(&id)?;
        (connection.own_address == own && connection.peer_address == peer).then_some(connection)
    }

    pub(super) fn of_remote(&self, peer: IpAddr, remote: CommId) -> Option<&Connection> {
        self.table.get(self.by_remote.get(&(peer, remote))?)
    }

    pub(super) fn of_qp(&self, peer: IpAddr, qp: QpNumber) -> Option<&Connection> {
        self.table.get(self.by_qp.get(&(peer, qp))?)
    }

    pub(super) fn of_sidr(&self, peer: IpAddr, request: u32) -> Option<&Connection> {
        self.table.get(self.by_sidr.get(&(peer, request))?)
    }

    /// Adds a connection under a new random identifier. The identifier's top bits are those of the
    /// configuration, which steer messages between processes that share an address.
    pub(super) fn insert(&mut self, mut connection: Connection) -> CommId {
        let id = loop {
            let random = self.random.next_u32();
            let id = CommId(self.config.comm_ids.apply(random));
            if id != CommId::NONE && !self.table.contains_key(&id) {
                break id;
            }
        };
        connection.local = id;
        if connection.transaction == TransactionId::default() {
            let upper = u64::from(self.random.next_u32());
            connection.transaction = TransactionId(upper << 32 | u64::from(id.0));
        }
        if connection.sidr_request != 0 {
            self.by_sidr.insert((connection.peer_address, connection.sidr_request), id);
        }
        self.table.insert(id, connection);
        id
    }

    /// Records the peer's names of the connection and of its queue pair.
    pub(super) fn name_remote(&mut self, id: CommId, remote: CommId, qp: QpNumber) {
        let Some(connection) = self.table.get_mut(&id) else { return };
        connection.remote = remote;
        connection.remote_qp = qp;
        self.by_remote.insert((connection.peer_address, remote), id);
        self.by_qp.insert((connection.peer_address, qp), id);
    }

    /// Forgets the peer's queue pair: the peer may use it for another connection.
    pub(super) fn release_qp(&mut self, id: CommId) {
        let Some(connection) = self.table.get(&id) else { return };
        let key = (connection.peer_address, connection.remote_qp);
        if self.by_qp.get(&key) == Some(&id) {
            self.by_qp.remove(&key);
        }
    }

    /// Removes a connection without sending a message.
    pub(crate) fn remove(&mut self, id: CommId) {
        self.set_deadline(id, None);
        self.end_half_open(id);
        self.release_qp(id);
        let Some(connection) = self.table.remove(&id) else { return };
        let key = (connection.peer_address, connection.remote);
        if self.by_remote.get(&key) == Some(&id) {
            self.by_remote.remove(&key);
        }
        let key = (connection.peer_address, connection.sidr_request);
        if self.by_sidr.get(&key) == Some(&id) {
            self.by_sidr.remove(&key);
        }
        if let Some(rank) = connection.linger_rank() {
            self.lingering.remove(&rank);
        }
    }

    /// Removes the connection's owner. The connection stays for its last messages. Beyond
    /// [`Config::max_lingering`] such connections, removes the first by [`Connection::linger_rank`].
    pub(super) fn disown(&mut self, id: CommId) {
        let since = self.lingered;
        let Some(connection) = self.table.get_mut(&id).filter(|connection| connection.owner.is_some()) else {
            return;
        };
        connection.owner = None;
        connection.lingers_since = Some(since);
        self.lingering.extend(connection.linger_rank());
        self.lingered += 1;
        self.end_half_open(id);
        let is_full = self.lingering.len() > self.config.max_lingering;
        if let Some((.., first)) = self.lingering.first().copied().filter(|_| is_full) {
            self.counters.lingering_evicted += 1;
            self.remove(first);
        }
    }

    /// Returns true if another request from `peer` may be admitted.
    pub(super) fn has_room_for(&self, peer: IpAddr) -> bool {
        let of_peer = self.half_open.get(&peer).copied().unwrap_or_default();
        of_peer < self.config.max_half_open_per_source && self.half_open_total < self.config.max_half_open
    }

    /// Counts the connection as half-open.
    pub(super) fn begin_half_open(&mut self, id: CommId) {
        let Some(connection) = self.table.get_mut(&id) else { return };
        connection.is_half_open = true;
        *self.half_open.entry(connection.peer_address).or_default() += 1;
        self.half_open_total += 1;
    }

    /// Stops counting the connection as half-open.
    pub(super) fn end_half_open(&mut self, id: CommId) {
        let Some(connection) = self.table.get_mut(&id).filter(|connection| connection.is_half_open) else {
            return;
        };
        connection.is_half_open = false;
        let peer = connection.peer_address;
        self.half_open_total -= 1;
        if let Some(count) = self.half_open.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                self.half_open.remove(&peer);
            }
        }
    }

    /// Number of half-open connections.
    pub(crate) fn half_open(&self) -> usize {
        self.half_open_total
    }

    pub(super) fn set_deadline(&mut self, id: CommId, deadline: Option<Instant>) {
        if let Some(connection) = self.table.get_mut(&id) {
            self.deadlines.change(id, connection.deadline, deadline);
            connection.deadline = deadline;
        }
    }

    /// The earliest deadline.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    pub(super) fn due(&self, now: Instant) -> Option<CommId> {
        self.deadlines.due(now)
    }

    /// Sends a message that is retransmitted until it is answered.
    pub(super) fn send_repeated(&mut self, id: CommId, message: Message, now: Instant) {
        let (retries, timeout) = (self.config.max_retries, self.config.response_timeout.nanos());
        let Some(connection) = self.table.get_mut(&id) else { return };
        let mad = Mad { transaction: connection.transaction, message };
        connection.sent = Some(Box::new(Sent { mad, retries, is_acknowledged: false }));
        let (own, peer) = (connection.own_address, connection.peer_address);
        self.transmit(own, peer, &mad);
        self.set_deadline(id, Some(now.plus_nanos(timeout)));
    }

    /// Sends a message of the connection's transaction once.
    pub(super) fn send(&mut self, id: CommId, message: Message) {
        let Some(connection) = self.table.get(&id) else { return };
        let mad = Mad { transaction: connection.transaction, message };
        let (own, peer) = (connection.own_address, connection.peer_address);
        self.transmit(own, peer, &mad);
    }

    /// Retransmits the last message, or the stored answer.
    pub(super) fn send_again(&mut self, id: CommId) {
        let Some(connection) = self.table.get(&id) else { return };
        let Some(mad) = connection.sent.as_ref().map(|sent| sent.mad) else { return };
        let (own, peer) = (connection.own_address, connection.peer_address);
        self.counters.retransmitted += 1;
        self.transmit(own, peer, &mad);
    }

    pub(super) fn transmit(&mut self, source: IpAddr, destination: IpAddr, mad: &Mad) {
        self.counters.sent += 1;
        self.outbox.push_back(Transmit { source, destination, payload: mad.to_bytes() });
    }

    /// The next datagram to send.
    pub(crate) fn poll_transmit(&mut self) -> Option<Transmit> {
        self.outbox.pop_front()
    }

    /// Changes the state.
    pub(super) fn set_state(&mut self, id: CommId, state: State) {
        if let Some(connection) = self.table.get_mut(&id) {
            connection.state = state;
        }
    }

    /// Ends the connection: its answers to retransmitted messages are kept while packets of the peer may be
    /// in flight.
    pub(super) fn enter_time_wait(&mut self, id: CommId, now: Instant) {
        let Some(connection) = self.table.get_mut(&id) else { return };
        let before = connection.linger_rank();
        connection.state = State::TimeWait;
        connection.sent = None;
        if let Some(before) = before {
            self.lingering.remove(&before);
            self.lingering.extend(connection.linger_rank());
        }
        let wait = connection.ack_timeout.nanos().max(self.config.min_time_wait);
        self.release_qp(id);
        self.end_half_open(id);
        self.set_deadline(id, Some(now.plus_nanos(wait)));
    }
}
