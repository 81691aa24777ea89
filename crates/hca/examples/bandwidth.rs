//! Measures the throughput of a reliable connection between two processes: WRITEs of 64 KB, 128 outstanding.
//!
//!     cargo run --release -p nichrome-hca --example bandwidth server
//!     cargo run --release -p nichrome-hca --example bandwidth client 127.0.0.1

use std::error::Error;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use nichrome_hca::{Adapter, AdapterConfig, Connection, Endpoint, RemoteRegion, exchange};
use nichrome_rdma::{Access, Operation, PathMtu, QpCapacity, SendRequest, Status};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PORT: u16 = 18_599;
const SIZE: usize = 64 << 10;
const DEPTH: usize = 128;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let stream = match words.as_slice() {
        ["server"] => TcpListener::bind(("0.0.0.0", PORT))?.accept()?.0,
        ["client", server] => TcpStream::connect((*server, PORT))?,
        _ => return Err("usage: bandwidth server | client ADDRESS".into()),
    };

    let adapter = Adapter::open(&AdapterConfig::default())?;
    let region = adapter.region(SIZE, Access::REMOTE_WRITE)?;
    let cq = adapter.completion_queue(DEPTH)?;
    let capacity = QpCapacity { send_wrs: DEPTH, receive_wrs: 0, send_sges: 1, receive_sges: 0, inline: 0 };
    let qp = adapter.queue_pair(capacity, &cq, &cq)?;
    let (endpoint, memory): (Endpoint, RemoteRegion) = exchange(&stream, &(qp.endpoint(), region.remote()))?;
    qp.connect(&endpoint, &Connection::new(PathMtu::B4096))?;
    exchange(&stream, &"connected".to_owned())?;

    if words[0] == "client" {
        let buffers = [region.slice(0, SIZE)];
        let write = SendRequest::new(0, Operation::Write(memory.at(0)), &buffers);
        let (start, mut done, mut completions) = (Instant::now(), 0, Vec::new());
        qp.post_sends([write; DEPTH])?;
        while start.elapsed() < Duration::from_secs(3) {
            cq.drain(&mut completions);
            if let Some(failed) = completions.iter().find(|done| done.status != Status::Success) {
                return Err(format!("a WRITE ended with {:?}", failed.status).into());
            }
            done += completions.len();
            qp.post_sends(completions.drain(..).map(|_| write))?;
        }
        let bits = (done * SIZE * 8) as f64;
        println!("{:.2} Gb/s", bits / start.elapsed().as_secs_f64() / 1e9);
    }
    // The server's program calls no verb: its adapter's thread serves the WRITEs.
    exchange(&stream, &"done".to_owned())?;
    Ok(())
}
