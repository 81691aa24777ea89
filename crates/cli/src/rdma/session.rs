//! A reliable connection between the two ends of a measurement.

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

/// How long nothing may happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// What each end tells the other before it tells its queue pairs.
#[derive(Serialize, Deserialize)]
struct Introduction {
    region: RemoteRegion,
    mtu: usize,
}

/// Queue pairs that are told of at once.
const TOLD_AT_ONCE: usize = 500;

/// This end of a connection.
pub(super) struct Session {
    pub(super) role: Role,
    pub(super) adapter: Adapter,
    pub(super) region: Region,
    pub(super) peer: RemoteRegion,
    pub(super) cq: CompletionQueue,
    pub(super) qps: Vec<QueuePair>,
    pub(super) mtu: PathMtu,
    /// What this process has grown by for each queue pair; `None` where they are too few to tell.
    pub(super) bytes_per_qp: Option<u64>,
    stream: TcpStream,
}

/// An end that has met the other, and has no queue pair yet.
pub(super) struct Meeting {
    pub(super) role: Role,
    adapter: Adapter,
    stream: TcpStream,
}

impl Meeting {
    /// Meets the other end and opens an adapter.
    pub(super) fn hold(options: &Options) -> anyhow::Result<Self> {
        let (role, stream) = meet(options)?;
        let adapter = Adapter::open(&options.adapter(here(&stream)?)?).context("cannot open an adapter")?;
        Ok(Self { role, adapter, stream })
    }

    /// What is to be done: the client's wish, at both ends.
    pub(super) fn agree<T: Serialize + DeserializeOwned>(&self, wish: T) -> anyhow::Result<T> {
        let theirs = exchange(&self.stream, &wish).context("the other end is not of the same kind")?;
        Ok(if self.role == Role::Client { wish } else { theirs })
    }

    /// Connects `count` queue pairs that hold `depth` requests each, with a region of `len` bytes at each end.
    pub(super) fn connect(self, count: usize, depth: usize, len: usize) -> anyhow::Result<Session> {
        let Self { role, adapter, stream } = self;
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
        let region = adapter.region(len, access).context("cannot register memory")?;
        let cq = adapter.completion_queue(2 * count * depth + 1)?;
        let mine = Introduction { region: region.remote(), mtu: adapter.mtu().bytes() };
        let theirs = exchange(&stream, &mine).context("the other end has gone")?;
        let mtu = PathMtu::fitting(mine.mtu.min(theirs.mtu)).context("the other end has no path MTU")?;
        // Both ends are of this command, which tells of marks.
        let connection = Connection { ecn: true, ..Connection::new(mtu) };
        let capacity =
            QpCapacity { send_wrs: depth, receive_wrs: depth, send_sges: 1, receive_sges: 1, inline: INLINE };
        let before = resident();
        let mut qps = Vec::with_capacity(count);
        for first in (0..count).step_by(TOLD_AT_ONCE) {
            for _ in first..count.min(first + TOLD_AT_ONCE) {
                qps.push(adapter.queue_pair(capacity, &cq, &cq)?);
            }
            let endpoints: Vec<Endpoint> = qps[first..].iter().map(QueuePair::endpoint).collect();
            let theirs_of_these = exchange(&stream, &endpoints).context("the other end has gone")?;
            for (qp, peer) in qps[first..].iter().zip(&theirs_of_these) {
                qp.connect(peer, &connection).context("cannot connect")?;
            }
        }
        await_transports(&adapter)?;
        let grown = resident().zip(before).map(|(after, before)| after.saturating_sub(before));
        let bytes_per_qp = grown.filter(|_| count >= ENOUGH_TO_WEIGH).map(|bytes| bytes / count as u64);
        // Both are ready before either begins.
        exchange(&stream, &Ready {}).context("the other end has gone")?;
        Ok(Session { role, adapter, region, peer: theirs.region, cq, qps, mtu, bytes_per_qp, stream })
    }
}

/// What is posted before all connections have their transport waits for it.
fn await_transports(adapter: &Adapter) -> anyhow::Result<()> {
    let (mut held, mut since) = (adapter.held_connections(), Instant::now());
    while held > 0 {
        if since.elapsed() > PATIENCE {
            bail!("the transport of {held} connections is not negotiated");
        }
        thread::sleep(Duration::from_millis(1));
        let now = adapter.held_connections();
        if now < held {
            (held, since) = (now, Instant::now());
        }
    }
    Ok(())
}

/// Queue pairs that take much more memory together than a process takes by the way.
const ENOUGH_TO_WEIGH: usize = 1000;

/// Bytes of memory that this process has.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Inline bytes of a send.
pub(super) const INLINE: usize = 256;

#[derive(Serialize, Deserialize)]
struct Ready {}

impl Session {
    /// The only queue pair, or the first.
    pub(super) fn qp(&self) -> &QueuePair {
        &self.qps[0]
    }

    /// Waits until the other end has come here too.
    pub(super) fn finish(&self) -> anyhow::Result<()> {
        self.stream.set_read_timeout(None)?;
        exchange(&self.stream, &Ready {}).context("the other end has gone")?;
        Ok(())
    }

    /// Polls until something completes.
    pub(super) fn drain(&self, completions: &mut Vec<Completion>) -> anyhow::Result<()> {
        completions.clear();
        self.until(|| {
            self.cq.drain(completions);
            !completions.is_empty()
        })?;
        completions.iter().try_for_each(check)
    }

    /// Polls until something is so.
    pub(super) fn until(&self, mut is_so: impl FnMut() -> bool) -> anyhow::Result<()> {
        const LOOKS: u32 = 1 << 12;
        let mut start = None;
        loop {
            for _ in 0..LOOKS {
                if is_so() {
                    return Ok(());
                }
            }
            if start.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                bail!("the other end has said nothing for {PATIENCE:?}");
            }
        }
    }
}

/// A completion in error ends the measurement.
pub(super) fn check(completion: &Completion) -> anyhow::Result<()> {
    match completion.status {
        Status::Success => Ok(()),
        status => bail!("{:?} ended with {status:?}", completion.operation),
    }
}
