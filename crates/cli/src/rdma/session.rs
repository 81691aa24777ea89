//! The session of a measurement: an adapter and the queue pairs connected to the peer's.

use std::fs;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nichrome_hca::{
    Adapter, CompletionQueue, Connection, Endpoint, QueuePair, Region, RemoteRegion, exchange,
};
use nichrome_rdma::{Access, Completion, PathMtu, QpCapacity, Status};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::options::Options;
use super::rendezvous::{Role, here, meet};

/// Time limit for progress.
const PATIENCE: Duration = Duration::from_secs(30);

/// The first message of each end: its memory region and path MTU in bytes.
#[derive(Serialize, Deserialize)]
struct Introduction {
    region: RemoteRegion,
    mtu: usize,
}

/// Number of endpoints exchanged in one message.
const ENDPOINT_BATCH: usize = 500;

/// One end of a measurement, connected.
pub(super) struct Session {
    pub(super) role: Role,
    pub(super) adapter: Adapter,
    pub(super) region: Region,
    pub(super) peer: RemoteRegion,
    pub(super) cq: CompletionQueue,
    pub(super) qps: Vec<QueuePair>,
    pub(super) mtu: PathMtu,
    /// Growth of the process's resident memory per queue pair; `None` below 1000 queue pairs.
    pub(super) bytes_per_qp: Option<u64>,
    stream: TcpStream,
}

/// One end of a measurement, with a TCP connection to the peer but no queue pairs yet.
pub(super) struct Meeting {
    pub(super) role: Role,
    adapter: Adapter,
    stream: TcpStream,
}

impl Meeting {
    /// Connects to the peer over TCP and opens an adapter.
    pub(super) fn hold(options: &Options) -> anyhow::Result<Self> {
        let (role, stream) = meet(options)?;
        let adapter = Adapter::open(&options.adapter(here(&stream)?)?).context("cannot open an adapter")?;
        Ok(Self { role, adapter, stream })
    }

    /// Exchanges parameters with the peer and returns the client's.
    pub(super) fn agree<T: Serialize + DeserializeOwned>(&self, parameters: T) -> anyhow::Result<T> {
        let theirs = exchange(&self.stream, &parameters).context("the peer runs another command")?;
        Ok(if self.role == Role::Client { parameters } else { theirs })
    }

    /// Connects `count` queue pairs that hold `depth` requests each, with a region of `len` bytes at each end.
    pub(super) fn connect(self, count: usize, depth: usize, len: usize) -> anyhow::Result<Session> {
        let Self { role, adapter, stream } = self;
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
        let region = adapter.region(len, access).context("cannot register memory")?;
        let cq = adapter.completion_queue(2 * count * depth + 1)?;
        let mine = Introduction { region: region.remote(), mtu: adapter.mtu().bytes() };
        let theirs = exchange(&stream, &mine).context("the peer closed the TCP connection")?;
        let mtu = PathMtu::fitting(mine.mtu.min(theirs.mtu)).context("the peer's path MTU is invalid")?;
        // Both ends run this command, which answers ECN marks with CNPs.
        let connection = Connection { ecn: true, ..Connection::new(mtu) };
        let capacity =
            QpCapacity { send_wrs: depth, receive_wrs: depth, send_sges: 1, receive_sges: 1, inline: INLINE };
        let before = resident();
        let mut qps = Vec::with_capacity(count);
        for first in (0..count).step_by(ENDPOINT_BATCH) {
            for _ in first..count.min(first + ENDPOINT_BATCH) {
                qps.push(adapter.queue_pair(capacity, &cq, &cq)?);
            }
            let endpoints: Vec<Endpoint> = qps[first..].iter().map(QueuePair::endpoint).collect();
            let theirs_of_these =
                exchange(&stream, &endpoints).context("the peer closed the TCP connection")?;
            for (qp, peer) in qps[first..].iter().zip(&theirs_of_these) {
                qp.connect(peer, &connection).context("cannot connect")?;
            }
        }
        await_transports(&adapter)?;
        let grown = resident().zip(before).map(|(after, before)| after.saturating_sub(before));
        let bytes_per_qp = grown.filter(|_| count >= MIN_QPS_TO_MEASURE).map(|bytes| bytes / count as u64);
        // Barrier: neither end starts before both are connected.
        exchange(&stream, &Ready {}).context("the peer closed the TCP connection")?;
        Ok(Session { role, adapter, region, peer: theirs.region, cq, qps, mtu, bytes_per_qp, stream })
    }
}

/// Waits until the transports of all connections are negotiated; until then posted requests are held. Fails after 30 s
/// without progress.
fn await_transports(adapter: &Adapter) -> anyhow::Result<()> {
    let (mut held, mut since) = (adapter.held_connections(), Instant::now());
    while held > 0 {
        if since.elapsed() > PATIENCE {
            bail!("the transports of {held} connections are still not negotiated");
        }
        thread::sleep(Duration::from_millis(1));
        let now = adapter.held_connections();
        if now < held {
            (held, since) = (now, Instant::now());
        }
    }
    Ok(())
}

/// Minimum number of queue pairs to measure memory with: fewer take no more than the process's other allocations.
const MIN_QPS_TO_MEASURE: usize = 1000;

/// Returns the process's resident memory in bytes.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Maximum inline payload of a request in bytes.
pub(super) const INLINE: usize = 256;

/// A message without content, exchanged as a barrier.
#[derive(Serialize, Deserialize)]
struct Ready {}

impl Session {
    /// Returns the first queue pair.
    pub(super) fn qp(&self) -> &QueuePair {
        &self.qps[0]
    }

    /// Waits until the peer has finished too.
    pub(super) fn finish(&self) -> anyhow::Result<()> {
        self.stream.set_read_timeout(None)?;
        exchange(&self.stream, &Ready {}).context("the peer closed the TCP connection")?;
        Ok(())
    }

    /// Polls until requests complete; replaces `completions` by their completions. Fails if one completed in error.
    pub(super) fn drain(&self, completions: &mut Vec<Completion>) -> anyhow::Result<()> {
        completions.clear();
        self.until(|| {
            self.cq.drain(completions);
            !completions.is_empty()
        })?;
        completions.iter().try_for_each(check)
    }

    /// Calls `condition` until it returns true. Fails after 30 s.
    pub(super) fn until(&self, mut condition: impl FnMut() -> bool) -> anyhow::Result<()> {
        /// Calls between two reads of the clock.
        const CALLS: u32 = 1 << 12;
        let mut start = None;
        loop {
            for _ in 0..CALLS {
                if condition() {
                    return Ok(());
                }
            }
            if start.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                bail!("no message or completion for {PATIENCE:?}");
            }
        }
    }
}

/// Fails if the request completed in error.
pub(super) fn check(completion: &Completion) -> anyhow::Result<()> {
    match completion.status {
        Status::Success => Ok(()),
        status => bail!("{:?} completed in error: {status:?}", completion.operation),
    }
}
