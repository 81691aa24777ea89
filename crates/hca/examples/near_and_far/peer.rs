//! A client's connection to a server.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use nichrome_hca::cm::Connected;
use nichrome_hca::reach::{PathQuality, Policy, ProbeOptions, probe};
use nichrome_hca::{Adapter, CompletionQueue, Connection, Region, RemoteRegion, Transport};
use nichrome_rdma::{Access, Completion, Operation, QpCapacity, ReceiveRequest, SendRequest, Status};

use crate::messages::{ANSWER, Introduction, Outcome, outcome};
use crate::slots::{Found, SLOT, Value, decode, encode, home};
use crate::{PATIENCE, Result, open};

/// Identifiers of this end's work requests.
const GET: u64 = 1;
const PUT: u64 = 2;
const REPLY: u64 = 3;

/// Maximum READs of a slot that is being changed.
const MAX_READS: usize = 1000;

/// Offsets in the region: of bytes that a GET reads, of a PUT's message, and of its answer.
const READ_AT: usize = 0;
const SENT_AT: usize = SLOT;
const REPLY_AT: usize = 2 * SLOT;

/// The adapters of this end, each opened when the first peer needs it.
pub(crate) struct Adapters {
    from: IpAddr,
    opened: Vec<Adapter>,
}

impl Adapters {
    pub(crate) const fn new(from: IpAddr) -> Self {
        Self { from, opened: Vec::new() }
    }

    fn of(&mut self, transport: Transport) -> Result<Adapter> {
        if let Some(adapter) = self.opened.iter().find(|adapter| adapter.transport() == transport) {
            return Ok(adapter.clone());
        }
        let adapter = open(transport, self.from)?;
        self.opened.push(adapter.clone());
        Ok(adapter)
    }
}

/// A measured path, and the transport chosen for it.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    pub(crate) path: PathQuality,
    pub(crate) transport: Transport,
}

impl Route {
    /// Probes the path to a peer.
    pub(crate) fn find(from: IpAddr, peer: SocketAddr, policy: &Policy) -> Result<Self> {
        let path = probe(from, peer, &ProbeOptions { patience: PATIENCE, ..ProbeOptions::default() })?;
        Ok(Self { path, transport: policy.transport(&path) })
    }
}

/// A server that this end is connected to.
pub(crate) struct Peer {
    connected: Connected,
    completions: CompletionQueue,
    region: Region,
    slots: usize,
    table: RemoteRegion,
}

impl Peer {
    pub(crate) fn connect(
        adapters: &mut Adapters,
        transport: Transport,
        address: SocketAddr,
    ) -> Result<Self> {
        let adapter = adapters.of(transport)?;
        let region = adapter.region(REPLY_AT + ANSWER, Access::NONE)?;
        let completions = adapter.completion_queue(4)?;
        let capacity = QpCapacity { send_wrs: 1, receive_wrs: 1, send_sges: 1, receive_sges: 1, inline: 0 };
        let queue_pair = adapter.queue_pair(capacity, &completions, &completions)?;
        // The server detects a lost client by empty WRITEs, which need this right on the queue pair; no
        // region grants it.
        let connection = Connection { access: Access::REMOTE_WRITE, ..Connection::new(adapter.mtu()) };
        let connected = adapter.connect(address, queue_pair, b"", &connection)?;
        let (slots, table) = Introduction::parse(connected.private_data())?;
        Ok(Self { connected, completions, region, slots, table })
    }

    /// Returns the value of a key, by READs of the slots that may contain it.
    pub(crate) fn get(&self, key: u64) -> Result<Option<Value>> {
        let mut reads = 0;
        let mut at = home(key, self.slots);
        for _ in 0..self.slots {
            let found = loop {
                match self.read(at)? {
                    Found::Torn if reads < MAX_READS => reads += 1,
                    found => break found,
                }
            };
            match found {
                Found::Empty => return Ok(None),
                Found::Entry(found, value) if found == key => return Ok(Some(value)),
                Found::Entry(..) => at = (at + 1) % self.slots,
                Found::Torn => return Err(format!("slot {at} of the table has no valid content").into()),
            }
        }
        Ok(None)
    }

    fn read(&self, slot: usize) -> Result<Found> {
        let buffers = [self.region.slice(READ_AT, SLOT)];
        let from = Operation::Read(self.table.at(slot * SLOT));
        self.connected.queue_pair().post_send(&SendRequest::new(GET, from, &buffers))?;
        self.done(PATIENCE)?;
        Ok(self.region.with(|bytes| decode(&bytes[READ_AT..READ_AT + SLOT])))
    }

    /// Sends a PUT to the server's program and waits for the answer.
    pub(crate) fn put(&self, key: u64, value: &Value) -> Result<()> {
        let queue_pair = self.connected.queue_pair();
        let reply = [self.region.slice(REPLY_AT, ANSWER)];
        queue_pair.post_receive(&ReceiveRequest { wr_id: REPLY, buffers: &reply })?;
        self.region.with(|bytes| bytes[SENT_AT..REPLY_AT].copy_from_slice(&encode(key, value)));
        let buffers = [self.region.slice(SENT_AT, SLOT)];
        queue_pair.post_send(&SendRequest::new(PUT, Operation::Send, &buffers))?;
        // The answer may arrive before the completion of the SEND.
        let done = [self.done(PATIENCE)?, self.done(PATIENCE)?];
        let len = done.iter().find(|done| done.wr_id == REPLY).map_or(0, |done| done.len as usize);
        let reply = self.region.with(|bytes| bytes[REPLY_AT..REPLY_AT + len].to_vec());
        match outcome(&reply, key)? {
            Outcome::Stored => Ok(()),
            Outcome::Full => Err("the peer's table is full".into()),
        }
    }

    /// Waits for the next completion.
    fn done(&self, patience: Duration) -> Result<Completion> {
        let done = self.completions.wait(patience).ok_or_else(|| format!("no answer for {patience:?}"))?;
        match done.status {
            Status::Success => Ok(done),
            Status::RemoteAccess => {
                Err("remote access error: wrong address or key of the peer's table".into())
            }
            Status::RetryExceeded => Err("the peer has stopped answering".into()),
            Status::Flushed => Err("the connection has ended".into()),
            Status::LocalLength => Err("the peer's answer is too long".into()),
            status => Err(format!("the connection has failed: {status:?}").into()),
        }
    }
}
