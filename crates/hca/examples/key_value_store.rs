//! A key-value store whose readers use READ only: the server's program does nothing for a lookup.
//!
//!     cargo run --release -p nichrome-hca --example key_value_store
//!
//! The table is an array of slots in registered memory. A key's slot follows from its hash; if it is taken, the next
//! free one is used. A reader READs the slot and the ones after it until it finds the key or an empty slot. Each slot
//! carries a checksum of its content, so that a reader detects a slot that is being changed and reads it again.

use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::thread;
use std::time::{Duration, Instant};

use nichrome_hca::{
    Adapter, AdapterConfig, CompletionQueue, Connection, Endpoint, QueuePair, Region, RemoteRegion,
};
use nichrome_rdma::{Access, Operation, PathMtu, QpCapacity, SendRequest, Status};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const SLOTS: usize = 1 << 12;
const KEYS: u64 = 3000;
const LOOKUPS: u64 = 20_000;

/// A slot: key, value and checksum. An empty one is all zeros.
const SLOT: usize = 64;
const KEY_LEN: usize = 8;
const SUM_LEN: usize = 8;
const VALUE_LEN: usize = SLOT - KEY_LEN - SUM_LEN;

type Value = [u8; VALUE_LEN];

fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn home(key: u64) -> usize {
    hash(key) as usize % SLOTS
}

fn encode(key: u64, value: &Value) -> [u8; SLOT] {
    let mut slot = [0; SLOT];
    slot[..KEY_LEN].copy_from_slice(&key.to_be_bytes());
    slot[KEY_LEN..SLOT - SUM_LEN].copy_from_slice(value);
    let sum = hash(&slot[..SLOT - SUM_LEN]);
    slot[SLOT - SUM_LEN..].copy_from_slice(&sum.to_be_bytes());
    slot
}

/// The content of a slot that a reader READs.
enum Found {
    Empty,
    Entry(u64, Value),
    /// The slot is being changed.
    Torn,
}

fn decode(slot: &[u8]) -> Result<Found> {
    if slot.iter().all(|byte| *byte == 0) {
        return Ok(Found::Empty);
    }
    let (content, sum) = slot.split_at(SLOT - SUM_LEN);
    if u64::from_be_bytes(sum.try_into()?) != hash(content) {
        return Ok(Found::Torn);
    }
    let (key, value) = content.split_at(KEY_LEN);
    Ok(Found::Entry(u64::from_be_bytes(key.try_into()?), value.try_into()?))
}

/// The owner of the table.
struct Store {
    adapter: Adapter,
    table: Region,
}

impl Store {
    fn open() -> Result<Self> {
        let adapter = Adapter::open(&AdapterConfig::default())?;
        let table = adapter.region(SLOTS * SLOT, Access::REMOTE_READ)?;
        Ok(Self { adapter, table })
    }

    fn put(&self, key: u64, value: &Value) -> Result<()> {
        for nth in 0..SLOTS {
            let at = (home(key) + nth) % SLOTS * SLOT;
            let is_free = self.table.with(|bytes| match decode(&bytes[at..at + SLOT]) {
                Ok(Found::Entry(other, _)) => other == key,
                _ => true,
            });
            if is_free {
                self.table.with(|bytes| bytes[at..at + SLOT].copy_from_slice(&encode(key, value)));
                return Ok(());
            }
        }
        Err("the table is full".into())
    }
}

/// A reader, which knows the table's address, key and size.
struct Reader {
    cq: CompletionQueue,
    qp: QueuePair,
    buffer: Region,
    table: RemoteRegion,
}

impl Reader {
    /// Connects to a store. `introduce` gives the store this end's endpoint and returns its own.
    fn connect(table: RemoteRegion, introduce: impl FnOnce(Endpoint) -> Result<Endpoint>) -> Result<Self> {
        let adapter = Adapter::open(&AdapterConfig::default())?;
        let buffer = adapter.region(SLOT, Access::NONE)?;
        let cq = adapter.completion_queue(1)?;
        let qp = adapter.queue_pair(capacity(), &cq, &cq)?;
        qp.connect(&introduce(qp.endpoint())?, &Connection::new(PathMtu::B4096))?;
        Ok(Self { cq, qp, buffer, table })
    }

    fn get(&self, key: u64) -> Result<Option<Value>> {
        let mut at = home(key);
        loop {
            match self.read(at)? {
                Found::Empty => return Ok(None),
                Found::Entry(found, value) if found == key => return Ok(Some(value)),
                Found::Entry(..) => at = (at + 1) % SLOTS,
                Found::Torn => {}
            }
        }
    }

    fn read(&self, slot: usize) -> Result<Found> {
        let buffers = [self.buffer.slice(0, SLOT)];
        let from = Operation::Read(self.table.at(slot * SLOT));
        self.qp.post_send(&SendRequest::new(0, from, &buffers))?;
        let done = self.cq.wait(Duration::from_secs(5)).ok_or("the store does not answer")?;
        if done.status != Status::Success {
            return Err(format!("a READ ended with {:?}", done.status).into());
        }
        self.buffer.with(|slot| decode(slot))
    }
}

fn capacity() -> QpCapacity {
    QpCapacity { send_wrs: 1, receive_wrs: 0, send_sges: 1, receive_sges: 0, inline: 0 }
}

fn value_of(key: u64) -> Value {
    let mut value = [0; VALUE_LEN];
    value[..8].copy_from_slice(&hash(key).to_be_bytes());
    value
}

fn main() -> Result<()> {
    let store = Store::open()?;
    for key in 0..KEYS {
        store.put(key, &value_of(key))?;
    }
    let cq = store.adapter.completion_queue(1)?;
    let server = store.adapter.queue_pair(capacity(), &cq, &cq)?;
    let reader = Reader::connect(store.table.remote(), |theirs| {
        server.connect(&theirs, &Connection::new(PathMtu::B4096))?;
        Ok(server.endpoint())
    })?;

    let start = Instant::now();
    thread::scope(|scope| {
        let lookups = scope.spawn(|| -> std::result::Result<u64, String> {
            let mut found = 0;
            for nth in 0..LOOKUPS {
                let key = hash(nth) % (2 * KEYS);
                let value = reader.get(key).map_err(|error| error.to_string())?;
                if value != (key < KEYS).then(|| value_of(key)) {
                    return Err(format!("key {key} has a wrong value"));
                }
                found += u64::from(value.is_some());
            }
            Ok(found)
        });
        let found = lookups.join().map_err(|_| "the reader has failed")??;
        let each = start.elapsed() / LOOKUPS as u32;
        println!("{LOOKUPS} lookups, {found} found, {each:?} each, none by the server's program");
        Ok(())
    })
}
