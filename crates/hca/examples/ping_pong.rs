//! One message in each direction between two adapters.
//!
//!     cargo run -p nichrome-hca --example ping_pong

use std::error::Error;
use std::time::Duration;

use nichrome_hca::{Adapter, AdapterConfig, CompletionQueue, Connection, QueuePair, Region};
use nichrome_rdma::{Access, Operation, QpCapacity, ReceiveRequest, SendRequest, Status};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const SIZE: usize = 64;

/// One end of the connection.
struct End {
    region: Region,
    sends: CompletionQueue,
    receives: CompletionQueue,
    qp: QueuePair,
}

impl End {
    /// Opens an adapter at a free address of 127.0.0.0/8.
    fn open() -> Result<Self> {
        let adapter = Adapter::open(&AdapterConfig::default())?;
        let region = adapter.region(SIZE, Access::NONE)?;
        let (sends, receives) = (adapter.completion_queue(16)?, adapter.completion_queue(16)?);
        let capacity = QpCapacity { send_wrs: 16, receive_wrs: 16, send_sges: 1, receive_sges: 1, inline: 0 };
        let qp = adapter.queue_pair(capacity, &sends, &receives)?;
        Ok(Self { region, sends, receives, qp })
    }

    fn post_receive(&self) -> Result<()> {
        let buffers = [self.region.slice(0, SIZE)];
        Ok(self.qp.post_receive(&ReceiveRequest { wr_id: 0, buffers: &buffers })?)
    }

    fn send(&self, text: &str) -> Result<()> {
        self.region.with(|bytes| bytes[..text.len()].copy_from_slice(text.as_bytes()));
        let buffers = [self.region.slice(0, text.len())];
        self.qp.post_send(&SendRequest::new(0, Operation::Send, &buffers))?;
        let done = self.sends.wait(Duration::from_secs(1)).ok_or("nothing was sent")?;
        if done.status == Status::Success { Ok(()) } else { Err(format!("{:?}", done.status).into()) }
    }

    fn received(&self) -> Result<String> {
        let done = self.receives.wait(Duration::from_secs(1)).ok_or("nothing was received")?;
        let text = self.region.with(|bytes| bytes[..done.len as usize].to_vec());
        Ok(String::from_utf8(text)?)
    }
}

fn main() -> Result<()> {
    let [left, right] = [End::open()?, End::open()?];
    // Two programs exchange their endpoints over TCP: see `nichrome_hca::exchange`.
    let (here, there) = (left.qp.endpoint(), right.qp.endpoint());
    let connection = Connection::new(nichrome_rdma::PathMtu::B4096);
    left.qp.connect(&there, &connection)?;
    right.qp.connect(&here, &connection)?;

    right.post_receive()?;
    left.send("ping")?;
    println!("{} -> {}: {}", here.address, there.address, right.received()?);
    left.post_receive()?;
    right.send("pong")?;
    println!("{} -> {}: {}", there.address, here.address, left.received()?);
    Ok(())
}
