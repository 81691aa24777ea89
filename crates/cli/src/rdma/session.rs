//! The session of a measurement: an adapter and the queue pairs connected to the peer's.

use std::net::{IpAddr, Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use nichrome_hca::{
    Adapter, CompletionQueue, Connection, Endpoint, QueuePair, Region, RemoteRegion, Transport,
};
use nichrome_rdma::{Access, Completion, PathMtu, QpCapacity, QpState, Status};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::growth::{Growth, Memory};
use super::options::Options;
use super::rendezvous::{Lost, Role, check_peer, exchange, here, meet, part_from_peer};
use super::report;
use crate::number::plural;

/// Time limit for progress.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The first message of each end: its memory region and path MTU in bytes.
#[derive(Serialize, Deserialize)]
struct Introduction {
    region: RemoteRegion,
    mtu: usize,
}

/// The client's parameters, which both ends use.
pub(super) trait Agreed: Serialize + DeserializeOwned {
    /// Returns true if the options allow the parameters: a client may be any program.
    fn is_in_range(&self) -> bool;
}

/// An end's message before the measurement: its transport, and the command's parameters.
#[derive(Serialize, Deserialize)]
struct Offer<T> {
    transport: String,
    #[serde(flatten)]
    parameters: T,
}

/// The regions of a session's connections at each end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Regions {
    /// All connections share one region.
    Shared,
    /// Each connection has its own region, in a protection domain of its own, over the same bytes.
    OfConnections,
}

/// Maximum numbers of outstanding requests on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Depths {
    pub(super) sends: usize,
    pub(super) receives: usize,
}

/// The data that the peer needs to connect to a queue pair: its endpoint and, if it has one, its region.
#[derive(Serialize, Deserialize)]
struct Entry {
    endpoint: Endpoint,
    region: Option<RemoteRegion>,
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
    pub(super) growth: Growth,
    /// With [`Regions::OfConnections`], the region of each connection, and the peer's.
    own_regions: Vec<(Region, RemoteRegion)>,
    stream: TcpStream,
}

/// One end of a measurement, with a TCP connection to the peer but no queue pairs yet.
pub(super) struct Negotiation {
    pub(super) role: Role,
    pub(super) adapter: Adapter,
    stream: TcpStream,
}

impl Negotiation {
    /// Connects to the peer over TCP and opens an adapter.
    pub(super) fn begin(options: &Options) -> anyhow::Result<Self> {
        let (role, stream) = meet(options)?;
        let adapter = Adapter::open(&options.adapter(here(&stream)?)?).context("cannot open an adapter")?;
        Ok(Self { role, adapter, stream })
    }

    /// Exchanges parameters with the peer and returns the client's.
    ///
    /// # Errors
    /// The peer ended, runs another command or uses another transport, or the client's parameters are out of
    /// their ranges.
    pub(super) fn agree<T: Agreed>(&self, parameters: T) -> anyhow::Result<T> {
        let ours = Offer { transport: self.adapter.transport().name().to_owned(), parameters };
        let theirs = exchange(&self.stream, &ours)?;
        ensure!(
            theirs.transport == ours.transport,
            "this end uses {} and the peer {}: both need the same --transport",
            ours.transport,
            theirs.transport.escape_debug()
        );
        if self.role == Role::Client {
            return Ok(ours.parameters);
        }
        ensure!(
            theirs.parameters.is_in_range(),
            "the client's parameters are out of their ranges: its options would refuse them"
        );
        Ok(theirs.parameters)
    }

    /// Fails if the peer is lost.
    pub(super) fn check_peer(&self) -> Result<(), Lost> {
        check_peer(&self.stream)
    }

    /// Sends a value from the server to its client; returns it at both ends.
    pub(super) fn exchange_server_value<T: Serialize + DeserializeOwned>(
        &self,
        value: Option<T>,
    ) -> anyhow::Result<T> {
        let theirs = exchange(&self.stream, &value)?;
        value.or(theirs).context("the peer runs another command")
    }

    /// Waits until the peer has finished too, and at the client until the server has reported its results.
    pub(super) fn finish(&self) -> anyhow::Result<()> {
        finish(self.role, &self.stream)?;
        report::warn_of_capture(&self.adapter);
        Ok(())
    }

    /// Connects `count` queue pairs with `depths` each, with `regions` of `len` bytes at each end.
    pub(super) fn connect(
        self,
        count: usize,
        depths: Depths,
        len: usize,
        regions: Regions,
    ) -> anyhow::Result<Session> {
        let Self { role, adapter, stream } = self;
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
        let region = adapter.region(len, access).context("cannot register memory")?;
        let Depths { sends, receives } = depths;
        let cq = adapter.completion_queue(count * (sends + receives) + 1)?;
        let mine = Introduction { region: region.remote(), mtu: adapter.mtu().bytes() };
        let theirs = exchange(&stream, &mine)?;
        let mtu = PathMtu::fitting(mine.mtu.min(theirs.mtu)).context("the peer's path MTU is invalid")?;
        // Both ends run this command, which answers ECN marks with CNPs.
        let connection = Connection { ecn: true, ..Connection::new(mtu) };
        let capacity = QpCapacity {
            send_wrs: sends,
            receive_wrs: receives,
            send_sges: 1,
            receive_sges: 1,
            inline: INLINE,
        };
        let before = Memory::now();
        let (mut qps, mut own_regions) = (Vec::with_capacity(count), Vec::new());
        for first in (0..count).step_by(ENDPOINT_BATCH) {
            let mut of_these = Vec::new();
            for _ in first..count.min(first + ENDPOINT_BATCH) {
                qps.push(match regions {
                    Regions::Shared => adapter.queue_pair(capacity, &cq, &cq)?,
                    Regions::OfConnections => {
                        let domain = adapter.protection_domain()?;
                        of_these.push(domain.region_over(&region, access).context("cannot register memory")?);
                        domain.queue_pair(capacity, &cq, &cq)?
                    }
                });
            }
            let entry = |(nth, qp): (usize, &QueuePair)| Entry {
                endpoint: qp.endpoint(),
                region: of_these.get(nth).map(Region::remote),
            };
            let entries: Vec<Entry> = qps[first..].iter().enumerate().map(entry).collect();
            let theirs_of_these = exchange(&stream, &entries)?;
            for (qp, peer) in qps[first..].iter().zip(&theirs_of_these) {
                check_family(adapter.address(), peer.endpoint.address)?;
                qp.connect(&peer.endpoint, &connection).context("cannot connect")?;
            }
            let remote = theirs_of_these.into_iter().filter_map(|peer| peer.region);
            own_regions.extend(of_these.into_iter().zip(remote));
        }
        await_transports(&adapter, &qps, &stream)?;
        let growth = before.growth(count);
        // Barrier: neither end starts before both are connected. The peer ends if its side of a connection
        // has failed.
        or_failure(exchange(&stream, &Ready {}), || check_transports(&adapter, &qps))?;
        let peer = theirs.region;
        Ok(Session { role, adapter, region, peer, cq, qps, mtu, growth, own_regions, stream })
    }
}

/// Fails if the two ends' devices have addresses of different families.
pub(super) fn check_family(ours: IpAddr, theirs: IpAddr) -> anyhow::Result<()> {
    ensure!(
        ours.is_ipv4() == theirs.is_ipv4(),
        "this end's device is at {ours}, the peer's at {theirs}: both need addresses of one family, by --ip"
    );
    Ok(())
}

/// Waits until the transports of all connections are negotiated; until then posted requests are held. Fails
/// if a connection could not be set up, the peer is lost, or there is no progress for 30 s.
fn await_transports(adapter: &Adapter, qps: &[QueuePair], stream: &TcpStream) -> anyhow::Result<()> {
    let (mut held, mut since) = (adapter.held_connections(), Instant::now());
    while held > 0 {
        let connections = || plural(held as u64, "connection", "connections");
        if since.elapsed() > TIMEOUT {
            bail!("no transport is negotiated for {TIMEOUT:?}, {} are left{}", connections(), cause(adapter));
        }
        if let Err(lost) = check_peer(stream) {
            bail!("the peer {lost} during the set-up of {}{}", connections(), cause(adapter));
        }
        thread::sleep(Duration::from_millis(1));
        let now = adapter.held_connections();
        if now < held {
            (held, since) = (now, Instant::now());
        }
    }
    check_transports(adapter, qps)
}

/// Fails if connections could not be set up.
fn check_transports(adapter: &Adapter, qps: &[QueuePair]) -> anyhow::Result<()> {
    match qps.iter().filter(|qp| qp.state() == QpState::Err).count() {
        0 => Ok(()),
        failed => bail!("{failed} of {} connections could not be set up{}", qps.len(), cause(adapter)),
    }
}

/// Returns true if the peer has closed the TCP connection or does so within 100 ms: the kernel closes a
/// process's sockets in any order.
fn hangs_up(stream: &TcpStream) -> bool {
    const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    poll(&mut [PollFd::new(stream, PollFlags::RDHUP)], Some(&WAIT)).is_ok_and(|ready| ready > 0)
}

/// Maximum inline payload of a request in bytes.
pub(super) const INLINE: usize = 256;

/// A message without content, exchanged as a barrier.
#[derive(Serialize, Deserialize)]
struct Ready {}

/// Waits until the peer calls this function too, then calls [`part_from_peer`]. The first wait has no time
/// limit as long as the peer's machine answers.
fn finish(role: Role, stream: &TcpStream) -> anyhow::Result<()> {
    stream.set_read_timeout(None)?;
    exchange(stream, &Ready {})?;
    part_from_peer(role, stream)
}

impl Session {
    /// Returns the first queue pair.
    pub(super) fn qp(&self) -> &QueuePair {
        &self.qps[0]
    }

    /// Returns the region of the `nth` connection.
    pub(super) fn region_of(&self, nth: usize) -> &Region {
        self.own_regions.get(nth).map_or(&self.region, |(own, _)| own)
    }

    /// Returns the peer's region of the `nth` connection.
    pub(super) fn peer_of(&self, nth: usize) -> &RemoteRegion {
        self.own_regions.get(nth).map_or(&self.peer, |(_, theirs)| theirs)
    }

    /// Waits until the peer has finished too, and at the client until the server has reported its results.
    pub(super) fn finish(&self) -> anyhow::Result<()> {
        self.or_failure(self.await_end())?;
        report::warn_of_capture(&self.adapter);
        Ok(())
    }

    /// Waits as [`finish`](Self::finish), but does not check for failures of connections.
    pub(super) fn await_end(&self) -> anyhow::Result<()> {
        finish(self.role, &self.stream)
    }

    /// Returns `result`. If it is an error, waits up to 500 ms for the failure of a connection and returns
    /// that instead.
    pub(super) fn or_failure<T>(&self, result: anyhow::Result<T>) -> anyhow::Result<T> {
        or_failure(result, || self.check_connections())
    }

    /// Shuts down the TCP connection, which ends the waits of both ends for each other.
    pub(super) fn shut_down(&self) {
        // Fails only if the connection has ended.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Replaces `completions` by those of requests that have completed. Fails if one completed in error.
    pub(super) fn poll(&self, completions: &mut Vec<Completion>) -> anyhow::Result<()> {
        completions.clear();
        self.cq.drain(completions);
        self.check_all(completions)
    }

    /// Polls until requests complete; replaces `completions` by their completions. Fails if one completed in
    /// error, or after 30 s.
    pub(super) fn drain(&self, completions: &mut Vec<Completion>) -> anyhow::Result<()> {
        self.drain_within(TIMEOUT, completions)
    }

    /// Likewise, but fails after `timeout`.
    pub(super) fn drain_within(
        &self,
        timeout: Duration,
        completions: &mut Vec<Completion>,
    ) -> anyhow::Result<()> {
        completions.clear();
        self.until_within(timeout, || {
            self.cq.drain(completions);
            !completions.is_empty()
        })?;
        self.check_all(completions)
    }

    /// Calls `condition` until it returns true. Fails after 30 s, or if a connection fails or the peer ends
    /// meanwhile.
    pub(super) fn until(&self, condition: impl FnMut() -> bool) -> anyhow::Result<()> {
        self.until_within(TIMEOUT, condition)
    }

    fn until_within(&self, timeout: Duration, condition: impl FnMut() -> bool) -> anyhow::Result<()> {
        until(timeout, condition, || self.check_for_failures())
    }

    /// Fails if a request has failed or the peer has ended.
    fn check_for_failures(&self) -> anyhow::Result<()> {
        self.check_connections()?;
        check_peer(&self.stream).map_err(|lost| anyhow!("the peer {lost}"))
    }

    /// Fails if a request has failed.
    fn check_connections(&self) -> anyhow::Result<()> {
        if self.qps.iter().any(|qp| qp.state() == QpState::Err) {
            self.poll(&mut Vec::new())?;
            ensure!(!self.peer_has_ended(), "the peer has ended");
            bail!("a connection has failed{}", cause_of_end(&self.adapter));
        }
        Ok(())
    }

    /// Fails if a request completed in error.
    fn check_all(&self, completions: &[Completion]) -> anyhow::Result<()> {
        let failed = completions.iter().find(|completion| completion.status != Status::Success);
        let is_flushed = failed.is_some_and(|completion| completion.status == Status::Flushed);
        ensure!(!(is_flushed && self.peer_has_ended()), "the peer has ended");
        completions.iter().try_for_each(|completion| check(completion, &self.adapter))
    }

    /// Returns true if the peer's process has ended, and with it iWARP's streams, without an error.
    fn peer_has_ended(&self) -> bool {
        self.adapter.transport() == Transport::Iwarp
            && cause(&self.adapter).is_empty()
            && hangs_up(&self.stream)
    }
}

/// Returns `result`. If it is an error, calls `check_failures` for up to 500 ms, and returns its error
/// instead: the peer may have ended because a connection failed, before the device has received the peer's
/// last packets.
fn or_failure<T>(
    result: anyhow::Result<T>,
    check_failures: impl Fn() -> anyhow::Result<()>,
) -> anyhow::Result<T> {
    /// Time for the device to receive the peer's last packets, also on a busy machine.
    const ARRIVAL: Duration = Duration::from_millis(500);
    const POLL_INTERVAL: Duration = Duration::from_millis(2);
    result.or_else(|error| {
        let end = Instant::now() + ARRIVAL;
        while Instant::now() < end {
            check_failures()?;
            thread::sleep(POLL_INTERVAL);
        }
        Err(error)
    })
}

/// Calls `condition` until it returns true, and `check_failures` now and then. Fails after `timeout`, or if
/// `check_failures` does.
fn until(
    timeout: Duration,
    mut condition: impl FnMut() -> bool,
    mut check_failures: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    /// Calls between two reads of the clock. Each yields the processor, on a busy machine for milliseconds.
    const CALLS: u32 = 1 << 6;
    /// Time without success between two checks for a failure.
    const CHECK_INTERVAL: Duration = Duration::from_millis(100);
    let (mut start, mut checks) = (None, 1);
    loop {
        for _ in 0..CALLS {
            if condition() {
                return Ok(());
            }
        }
        let waited = start.get_or_insert_with(Instant::now).elapsed();
        if waited > timeout {
            bail!("no message or completion for {timeout:?}");
        }
        if waited > checks * CHECK_INTERVAL {
            checks += 1;
            check_failures()?;
        }
    }
}

/// Fails if the request completed in error.
pub(super) fn check(completion: &Completion, adapter: &Adapter) -> anyhow::Result<()> {
    let operation = completion.operation;
    match completion.status {
        Status::Success => Ok(()),
        Status::Flushed => bail!("{operation:?} completed in error: Flushed{}", cause_of_end(adapter)),
        status => bail!("{operation:?} completed in error: {status:?}"),
    }
}

/// As [`cause`], for connected queue pairs: over iWARP, if no counter shows the reason, the stream has ended.
fn cause_of_end(adapter: &Adapter) -> &'static str {
    match cause(adapter) {
        "" if adapter.transport() == Transport::Iwarp => ": the stream was closed or lost",
        cause => cause,
    }
}

/// Returns the reason why queue pairs moved to ERROR or were not connected, as the counters show it: the
/// status of flushed requests does not. Empty if the counters do not show it either.
fn cause(adapter: &Adapter) -> &'static str {
    let counters = adapter.counters();
    if adapter.transport() != Transport::Iwarp {
        return if counters.refused > 0 { ": a request of the peer was refused" } else { "" };
    }
    let refused = adapter.iwarp_counters();
    let causes = [
        (counters.dropped_icrc, ": a segment of the peer had a wrong CRC"),
        (counters.dropped_malformed, ": a segment of the peer was malformed"),
        (counters.dropped_state, ": a segment of the peer was out of place"),
        (counters.refused, ": the peer accessed memory without the access right"),
        (counters.terminates_received, ": the peer ended the stream with a TERMINATE message"),
        (refused.garbage, ": a connection began with no MPA Request"),
        (refused.early_data, ": a connection had data before the MPA Reply"),
        (refused.foreign, ": a connection named an unknown queue pair"),
    ];
    causes.into_iter().find(|(count, _)| *count > 0).map_or("", |(_, text)| text)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_wait_whose_calls_take_long_checks_for_failures_in_time() {
        let mut calls = 0;
        let condition = || {
            calls += 1;
            thread::sleep(Duration::from_millis(2));
            false
        };
        let ended = until(Duration::MAX, condition, || bail!("the peer has ended"));
        assert_eq!(ended.unwrap_err().to_string(), "the peer has ended");
        assert!(calls <= 128, "{calls}");
    }

    #[test]
    fn a_failure_that_is_detected_after_the_peer_has_ended_is_the_error() {
        let checks = Cell::new(0);
        let check = || {
            checks.set(checks.get() + 1);
            ensure!(checks.get() < 3, "3 of 20 connections could not be set up");
            Ok(())
        };
        let failure = or_failure::<()>(Err(anyhow!("the peer has ended")), check).unwrap_err();
        assert_eq!(failure.to_string(), "3 of 20 connections could not be set up");
    }
}
