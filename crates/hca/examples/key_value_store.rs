//! A key-value store whose readers use READ only: the server's program takes no part in a lookup.
//!
//!     cargo run --release -p nichrome-hca --example key_value_store
//!
//! The table is an array of slots in registered memory. A reader READs the slot of a key and the following
//! ones until it finds the key or an empty slot. If a slot is being changed, it READs the slot again.

#[path = "common/slots.rs"]
mod slots;

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use nichrome_hca::{
    Adapter, AdapterConfig, CompletionQueue, Connection, Endpoint, QueuePair, Region, RemoteRegion,
};
use nichrome_rdma::{Access, Operation, PathMtu, QpCapacity, SendRequest, Status};

use self::slots::{Found, SLOT, Value, decode, hash, home, insert, value_of};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const SLOTS: usize = 1 << 12;
const KEYS: u64 = 3000;
const LOOKUPS: u64 = 20_000;

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
        let is_stored = self.table.with(|table| insert(table, key, value));
        if is_stored { Ok(()) } else { Err("the table is full".into()) }
    }
}

/// A reader with the table's address, key and size.
struct Reader {
    cq: CompletionQueue,
    qp: QueuePair,
    buffer: Region,
    table: RemoteRegion,
}

impl Reader {
    /// Connects to a store. `introduce` passes this end's endpoint to the store and returns the store's.
    fn connect(table: RemoteRegion, introduce: impl FnOnce(Endpoint) -> Result<Endpoint>) -> Result<Self> {
        let adapter = Adapter::open(&AdapterConfig::default())?;
        let buffer = adapter.region(SLOT, Access::NONE)?;
        let cq = adapter.completion_queue(1)?;
        let qp = adapter.queue_pair(capacity(), &cq, &cq)?;
        qp.connect(&introduce(qp.endpoint())?, &Connection::new(PathMtu::B4096))?;
        Ok(Self { cq, qp, buffer, table })
    }

    fn get(&self, key: u64) -> Result<Option<Value>> {
        let mut at = home(key, SLOTS);
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
        Ok(self.buffer.with(|slot| decode(slot)))
    }
}

fn capacity() -> QpCapacity {
    QpCapacity { send_wrs: 1, receive_wrs: 0, send_sges: 1, receive_sges: 0, inline: 0 }
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
                let key = hash(&nth.to_be_bytes()) % (2 * KEYS);
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
