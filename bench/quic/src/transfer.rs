//! One stream at full speed, from a sender to a receiver.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use quinn::{ClientConfig, Endpoint, RecvStream, ServerConfig, TransportConfig, VarInt};
use rustix::time::{ClockId, clock_gettime};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

/// The receiver's name in its certificate.
const NAME: &str = "receiver";
/// Bytes of a write.
const CHUNK: usize = 1 << 20;
/// Time in which the congestion window grows, before the measurement.
const WARM_UP: Duration = Duration::from_secs(1);
/// Time in which a sender must connect.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes that a sender may have in flight.
const WINDOW: u32 = 32 << 20;

/// What the receiver measures.
#[derive(Serialize, Deserialize)]
pub(crate) struct Transfer {
    /// Throughput of the stream in Gbit/s.
    pub(crate) gbps: f64,
    /// Processor time of the receiving process in seconds per GB.
    pub(crate) cpu_s_per_gb: f64,
    /// Datagrams received on the whole connection.
    pub(crate) datagrams: u64,
}

fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport.stream_receive_window(VarInt::from_u32(WINDOW));
    transport.receive_window(VarInt::from_u32(WINDOW));
    transport.send_window(WINDOW.into());
    Arc::new(transport)
}

/// Prints the receiver's certificate as a line of JSON once it listens, measures for `time` after a second of
/// warm-up, prints a [`Transfer`], and ends the connection.
pub(crate) async fn receive(address: SocketAddr, time: Duration) -> anyhow::Result<()> {
    let key = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    let private = PrivateKeyDer::try_from(key.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
    let mut config = ServerConfig::with_single_cert(vec![key.cert.der().clone()], private)?;
    config.transport_config(transport());
    let endpoint = Endpoint::server(config, address)?;
    println!("{}", serde_json::to_string(&key.cert.der()[..])?);
    let accepted = timeout(PATIENCE, endpoint.accept()).await.context("no sender has connected")?;
    let connection = accepted.context("the endpoint is closed")?.await?;
    let mut stream = connection.accept_uni().await?;
    read_until(&mut stream, Instant::now() + WARM_UP).await?;
    let before = Mark::now();
    let bytes = read_until(&mut stream, before.time + time).await?;
    let after = Mark::now();
    connection.close(VarInt::from_u32(0), b"measured");
    endpoint.wait_idle().await;
    let transfer = Transfer {
        gbps: bytes as f64 * 8e-9 / (after.time - before.time).as_secs_f64(),
        cpu_s_per_gb: (after.cpu - before.cpu).as_secs_f64() / (bytes as f64 / 1e9),
        datagrams: connection.stats().udp_rx.datagrams,
    };
    println!("{}", serde_json::to_string(&transfer)?);
    Ok(())
}

/// Reads until this time; returns the number of bytes.
async fn read_until(stream: &mut RecvStream, end: Instant) -> anyhow::Result<u64> {
    let mut bytes = 0;
    while Instant::now() < end {
        let chunk = stream.read_chunk(CHUNK, true).await?.context("the sender has ended the stream")?;
        bytes += chunk.bytes.len() as u64;
    }
    Ok(bytes)
}

/// A point in time.
struct Mark {
    time: Instant,
    /// Processor time of this process.
    cpu: Duration,
}

impl Mark {
    fn now() -> Self {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        Self { time: Instant::now(), cpu: Duration::new(cpu.tv_sec as u64, cpu.tv_nsec as u32) }
    }
}

/// Sends until the receiver, whose certificate is the standard input, ends the connection.
pub(crate) async fn send(address: SocketAddr) -> anyhow::Result<()> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(serde_json::from_reader::<_, Vec<u8>>(std::io::stdin())?))?;
    let mut config = ClientConfig::with_root_certificates(Arc::new(roots))?;
    config.transport_config(transport());
    let endpoint = Endpoint::client(SocketAddr::new([0, 0, 0, 0].into(), 0))?;
    let connection = endpoint.connect_with(config, address, NAME)?.await?;
    let mut stream = connection.open_uni().await?;
    let bytes = vec![7; CHUNK];
    while stream.write_all(&bytes).await.is_ok() {}
    Ok(())
}
