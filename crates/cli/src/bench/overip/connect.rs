//! Connections between the programs of the two hosts.

use std::fs::{File, Permissions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nichrome_hca::{Adapter, AdapterConfig, Place, StarOptions, Stateless, Transport};
use nichrome_rdma::QpState;

use super::bearer::Bearer;
use super::end::{End, Pair, TIMEOUT};
use super::hosts::Hosts;
use super::processors::{Processors, Role, Threads};
use super::sockets::{SocketEnd, Wait};
use super::verbs::VerbsEnd;
use crate::side::Side;

/// Time for which a program that has a processor of its own spins.
const SPIN: Duration = Duration::from_millis(1);

/// The pre-shared key of StaR's set-up, in an unnamed file that ends with the process.
pub(super) struct Key(File);

impl Key {
    /// Draws a random key.
    pub(super) fn new() -> anyhow::Result<Self> {
        let mut bytes = [0; 32];
        File::open("/dev/urandom")
            .and_then(|mut random| random.read_exact(&mut bytes))
            .context("/dev/urandom")?;
        let mut file = tempfile::tempfile().context("cannot create a file for the key of StaR's set-up")?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        file.write_all(&bytes)?;
        Ok(Self(file))
    }

    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

/// Connections, and the threads of the adapters.
pub(super) struct Connections {
    pub(super) pairs: Vec<Pair>,
    /// Threads of each host's adapter, the left one's first; empty for sockets.
    pub(super) cards: [Threads; 2],
}

/// The hosts between which connections are made.
pub(super) struct Site<'a> {
    pub(super) hosts: &'a Hosts,
    pub(super) processors: &'a Processors,
    /// The measured host, whose program has a processor of its own.
    pub(super) measured: Side,
    pub(super) key: &'a Key,
}

impl Site<'_> {
    /// Connects `count` times over `bearer`, for messages of up to `max_len` bytes.
    pub(super) fn connect(
        &self,
        bearer: Bearer,
        count: usize,
        max_len: usize,
    ) -> anyhow::Result<Connections> {
        let made = match bearer.transport() {
            None => self.sockets(bearer, count, max_len),
            Some(transport) => self.verbs(transport, count, max_len),
        };
        made.with_context(|| format!("cannot connect over {}", bearer.name()))
    }

    fn role(&self, side: Side) -> Role {
        if side == self.measured { Role::Application } else { Role::Peer }
    }

    fn sockets(&self, bearer: Bearer, count: usize, max_len: usize) -> anyhow::Result<Connections> {
        let [left, right] = Side::BOTH.map(|side| self.hosts.namespace(side));
        let listener = left.run(|| TcpListener::bind((Hosts::address(Side::Left), 0)))??;
        let address = listener.local_addr()?;
        let end = |stream, side| -> anyhow::Result<Box<dyn End>> {
            let wait = match bearer {
                Bearer::SocketsBlocking => Wait::Blocking,
                _ => Wait::Nonblocking(self.spin(side)),
            };
            Ok(Box::new(SocketEnd::new(stream, wait, max_len)?))
        };
        let pairs = (0..count).map(|_| {
            let stream = right.run(|| TcpStream::connect(address))??;
            Ok([end(listener.accept()?.0, Side::Left)?, end(stream, Side::Right)?])
        });
        Ok(Connections {
            pairs: pairs.collect::<anyhow::Result<_>>()?,
            cards: [Threads::default(), Threads::default()],
        })
    }

    /// Returns the wait of a program: on a processor shared with the path it yields at once.
    fn spin(&self, side: Side) -> Duration {
        let shares = match self.role(side) {
            Role::Application => self.processors.count() < 2,
            _ => self.processors.count() < 4,
        };
        if shares { Duration::ZERO } else { SPIN }
    }

    fn verbs(&self, transport: Transport, count: usize, max_len: usize) -> anyhow::Result<Connections> {
        let (left_card, left) = self.adapter(transport, Side::Left)?;
        let (right_card, right) = self.adapter(transport, Side::Right)?;
        let mut ends = Vec::new();
        for _ in 0..count {
            let mut pair = [VerbsEnd::new(&left, max_len)?, VerbsEnd::new(&right, max_len)?];
            VerbsEnd::connect(pair.each_mut())?;
            ends.push(pair);
        }
        await_set_up([&left, &right])?;
        for end in ends.iter().flatten() {
            if end.queue_pair().state() == QpState::Err {
                bail!("a connection could not be set up");
            }
        }
        let boxed = |end| Box::new(end) as Box<dyn End>;
        let pairs = ends.into_iter().map(|pair| pair.map(boxed)).collect();
        Ok(Connections { pairs, cards: [left_card, right_card] })
    }

    /// Opens the adapter of a host; returns its threads with it.
    fn adapter(&self, transport: Transport, side: Side) -> anyhow::Result<(Threads, Adapter)> {
        let config = AdapterConfig {
            transport,
            place: Place::Address(Hosts::address(side).into()),
            star: StarOptions {
                stateless: if side == Side::Left { Stateless::Own } else { Stateless::Automatic },
                key_file: (transport == Transport::Star).then(|| self.key.path()),
                ..StarOptions::default()
            },
            ..AdapterConfig::default()
        };
        let role = self.role(side);
        let open = || self.hosts.namespace(side).run(|| self.processors.on(role, || Adapter::open(&config)));
        let (threads, adapter) = Threads::started_by(open);
        self.processors.place(&threads, if role == Role::Application { Role::Card } else { role });
        Ok((threads, adapter?.context("cannot open an adapter")?))
    }
}

/// Waits until the transports of all connections are negotiated.
fn await_set_up(adapters: [&Adapter; 2]) -> anyhow::Result<()> {
    let since = Instant::now();
    while adapters.iter().any(|adapter| adapter.held_connections() > 0) {
        if since.elapsed() > TIMEOUT {
            bail!("the transport is not negotiated yet");
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
