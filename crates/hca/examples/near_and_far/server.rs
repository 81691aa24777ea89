//! A server: a table that clients READ, and a program that executes PUTs.

use std::net::{SocketAddr, UdpSocket};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nichrome_hca::cm::{Connected, Listener, Request};
use nichrome_hca::reach::answer_probe;
use nichrome_hca::{Adapter, CompletionQueue, Connection, Region, Transport};
use nichrome_rdma::{Access, CompletedOperation, Operation, QpCapacity, ReceiveRequest, SendRequest, Status};

use crate::messages::{ANSWER, Introduction, Outcome, answer};
use crate::slots::{Found, SLOT, decode, insert};
use crate::{Result, open};

/// Maximum number of clients; further ones are rejected.
const MAX_CLIENTS: usize = 64;

/// Time without a message after which the server tests whether a client is still connected.
const SILENCE: Duration = Duration::from_secs(2);

/// Timeout of waiting for a connection request.
const LONG: Duration = Duration::from_secs(3600);

/// An adapter with its copy of the table, since each adapter has its own memory.
struct Entrance {
    adapter: Adapter,
    table: Region,
}

pub(crate) struct Server {
    entrances: Vec<Entrance>,
    /// Held while the copies of the table differ.
    changing: Mutex<()>,
    clients: AtomicUsize,
}

impl Server {
    pub(crate) fn open(at: SocketAddr, slots: usize) -> Result<Self> {
        let entrance = |transport| {
            let adapter = open(transport, at.ip())?;
            let table = adapter.region(slots * SLOT, Access::REMOTE_READ)?;
            Ok(Entrance { adapter, table })
        };
        let entrances =
            [Transport::Roce, Transport::Iwarp].map(entrance).into_iter().collect::<Result<_>>()?;
        Ok(Self { entrances, changing: Mutex::new(()), clients: AtomicUsize::new(0) })
    }

    /// Serves clients. Answers probes once peers can connect.
    pub(crate) fn run(&self, at: SocketAddr) -> Result<ExitCode> {
        let probes = UdpSocket::bind(at).map_err(|error| format!("cannot answer probes at {at}: {error}"))?;
        let listen = |entrance: &Entrance| {
            let name = entrance.adapter.transport().name();
            entrance
                .adapter
                .listen(at.port(), 0)
                .map_err(|error| format!("cannot listen over {name}: {error}"))
        };
        let listeners: Vec<Listener> =
            self.entrances.iter().map(listen).collect::<std::result::Result<_, _>>()?;
        eprintln!("serving at {at}");
        thread::scope(|scope| {
            for (entrance, listener) in self.entrances.iter().zip(&listeners) {
                scope.spawn(move || self.accept_clients(scope, entrance, listener));
            }
            loop {
                answer_probe(&probes)?;
            }
        })
    }

    /// Accepts clients, each on its own thread, so that none waits for another.
    fn accept_clients<'scope, 'env>(
        &'env self,
        scope: &'scope thread::Scope<'scope, 'env>,
        entrance: &'env Entrance,
        listener: &Listener,
    ) {
        while let Ok(arrived) = listener.accept(LONG) {
            let Some(request) = arrived else { continue };
            if self.clients.fetch_add(1, Ordering::Relaxed) >= MAX_CLIENTS {
                self.clients.fetch_sub(1, Ordering::Relaxed);
                // Fails only if the client is gone.
                let _ =
                    request.reject(format!("the server has its maximum of {MAX_CLIENTS} clients").as_bytes());
                continue;
            }
            scope.spawn(move || {
                let client = request.peer();
                if let Err(error) = self.serve_client(entrance, request) {
                    eprintln!("near_and_far: client {client}: {error}");
                }
                self.clients.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }

    /// Serves a client until it disconnects.
    fn serve_client(&self, entrance: &Entrance, request: Request) -> Result<()> {
        let adapter = &entrance.adapter;
        let completions = adapter.completion_queue(8)?;
        let capacity = QpCapacity { send_wrs: 2, receive_wrs: 1, send_sges: 1, receive_sges: 1, inline: 0 };
        let queue_pair = adapter.queue_pair(capacity, &completions, &completions)?;
        let messages = adapter.region(SLOT + ANSWER, Access::NONE)?;
        queue_pair.prepare()?;
        queue_pair.post_receive(&ReceiveRequest { wr_id: 0, buffers: &[messages.slice(0, SLOT)] })?;
        // Disconnects a client that posts no receive for the answer.
        let connection =
            Connection { access: Access::REMOTE_READ, rnr_retry: 6, ..Connection::new(adapter.mtu()) };
        let introduction = Introduction::bytes(entrance.table.remote())?;
        let connected = request.accept(queue_pair, &introduction, &connection)?;
        Client { connected, completions, messages }.serve(self)
    }

    /// Puts the value into every copy of the table.
    fn put(&self, message: &[u8]) -> Result<[u8; ANSWER]> {
        let Found::Entry(key, value) = decode(message) else {
            return Err(format!("a message of {} bytes is no PUT", message.len()).into());
        };
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut outcome = Outcome::Stored;
        for Entrance { table, .. } in &self.entrances {
            if !table.with(|table| insert(table, key, &value)) {
                outcome = Outcome::Full;
            }
        }
        Ok(answer(key, outcome))
    }
}

/// A connected client.
struct Client {
    connected: Connected,
    completions: CompletionQueue,
    /// Memory of a PUT's message and its answer.
    messages: Region,
}

impl Client {
    fn serve(&self, server: &Server) -> Result<()> {
        loop {
            let Some(done) = self.completions.wait(SILENCE) else {
                self.ask_whether_it_is_there()?;
                continue;
            };
            match (done.status, done.operation) {
                (Status::Success, CompletedOperation::Receive) => self.answer(server, done.len as usize)?,
                (Status::Success, _) => {}
                (Status::Flushed, _) => return Ok(()),
                (status, _) => return Err(format!("the connection has failed: {status:?}").into()),
            }
        }
    }

    fn answer(&self, server: &Server, len: usize) -> Result<()> {
        let message = self.messages.with(|bytes| bytes[..len].to_vec());
        let answer = server.put(&message)?;
        let queue_pair = self.connected.queue_pair();
        queue_pair.post_receive(&ReceiveRequest { wr_id: 0, buffers: &[self.messages.slice(0, SLOT)] })?;
        self.messages.with(|bytes| bytes[SLOT..].copy_from_slice(&answer));
        let buffers = [self.messages.slice(SLOT, ANSWER)];
        Ok(queue_pair.post_send(&SendRequest::new(0, Operation::Send, &buffers))?)
    }

    /// Posts an empty WRITE, which fails if the client's adapter does not acknowledge it.
    fn ask_whether_it_is_there(&self) -> Result<()> {
        let nowhere = self.messages.remote().at(0);
        Ok(self.connected.queue_pair().post_send(&SendRequest::new(0, Operation::Write(nowhere), &[]))?)
    }
}
