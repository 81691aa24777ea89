//! Connects by address and port, as programs of rdma_cm do: the server sends each client a greeting.
//!
//!     cargo run -p nichrome-hca --example by_address                             both in one process
//!     cargo run -p nichrome-hca --example by_address server 10.0.0.1 7174        which rdma_cm programs can connect to
//!     cargo run -p nichrome-hca --example by_address client 10.0.0.2 10.0.0.1:7174

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use nichrome_hca::cm::Listener;
use nichrome_hca::{Adapter, AdapterConfig, CompletionQueue, Connection, Place, QueuePair, Region};
use nichrome_rdma::{Access, Operation, QpCapacity, ReceiveRequest, SendRequest, Status};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const SIZE: usize = 64;

const PATIENCE: Duration = Duration::from_secs(10);

/// An adapter with the objects for a connection.
struct End {
    adapter: Adapter,
    region: Region,
    completions: CompletionQueue,
}

impl End {
    fn open(place: Place) -> Result<Self> {
        let adapter = Adapter::open(&AdapterConfig { place, ..AdapterConfig::default() })?;
        let region = adapter.region(SIZE, Access::NONE)?;
        let completions = adapter.completion_queue(16)?;
        Ok(Self { adapter, region, completions })
    }

    fn queue_pair(&self) -> Result<QueuePair> {
        let capacity = QpCapacity { send_wrs: 4, receive_wrs: 4, send_sges: 1, receive_sges: 1, inline: 0 };
        Ok(self.adapter.queue_pair(capacity, &self.completions, &self.completions)?)
    }

    fn connection(&self) -> Connection {
        Connection::new(self.adapter.mtu())
    }

    /// Waits for a request to succeed; returns its length.
    fn completed(&self) -> Result<usize> {
        let done = self.completions.wait(PATIENCE).ok_or("nothing completed")?;
        if done.status == Status::Success {
            Ok(done.len as usize)
        } else {
            Err(format!("{:?}", done.status).into())
        }
    }
}

/// Accepts one connection, whose private data begins with the client's name, and sends a greeting.
fn serve(end: &End, listener: &Listener) -> Result<()> {
    let request = listener.accept(PATIENCE)?.ok_or("no client came")?;
    // A request's private data has 56 bytes: zeros follow the name.
    let name: Vec<u8> = request.private_data().iter().copied().take_while(|byte| *byte != 0).collect();
    let greeting = format!("hello, {}", String::from_utf8(name)?);
    let connected = request.accept(end.queue_pair()?, b"", &end.connection())?;
    end.region.with(|bytes| bytes[..greeting.len()].copy_from_slice(greeting.as_bytes()));
    let buffers = [end.region.slice(0, greeting.len())];
    connected.queue_pair().post_send(&SendRequest::new(1, Operation::Send, &buffers))?;
    end.completed()?;
    println!("server: greeted {}", connected.peer().ip());
    connected.wait_disconnected(PATIENCE)?;
    Ok(())
}

fn greet(end: &End, server: SocketAddr) -> Result<()> {
    let queue_pair = end.queue_pair()?;
    // Receives are posted before the server can send.
    queue_pair.prepare()?;
    let buffers = [end.region.slice(0, SIZE)];
    queue_pair.post_receive(&ReceiveRequest { wr_id: 1, buffers: &buffers })?;
    let connected = end.adapter.connect(server, queue_pair, b"world", &end.connection())?;
    let len = end.completed()?;
    let greeting = end.region.with(|bytes| bytes[..len].to_vec());
    println!("client: {}", String::from_utf8(greeting)?);
    connected.disconnect();
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let place =
        |address: &String| Ok::<_, std::net::AddrParseError>(Place::Address(address.parse::<IpAddr>()?));
    match &arguments[..] {
        [] => {
            let (server, client) = (End::open(Place::Loopback)?, End::open(Place::Loopback)?);
            let listener = server.adapter.listen(0, 0)?;
            thread::scope(|scope| {
                let served = scope.spawn(|| serve(&server, &listener));
                greet(&client, listener.address())?;
                served.join().map_err(|_| "the server panicked")?
            })
        }
        [role, address, port] if role == "server" => {
            let end = End::open(place(address)?)?;
            let listener = end.adapter.listen(port.parse()?, 0)?;
            serve(&end, &listener)
        }
        [role, address, server] if role == "client" => greet(&End::open(place(address)?)?, server.parse()?),
        _ => Err("usage: by_address [server ADDRESS PORT | client ADDRESS SERVER:PORT]".into()),
    }
}
