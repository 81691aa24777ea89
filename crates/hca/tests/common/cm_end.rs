//! Ends of connections by address and port.

use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nichrome_hca::cm::{ConnectError, Connected, Listener};
use nichrome_hca::{Adapter, AdapterConfig, CompletionQueue, Connection, QueuePair, Region};
use nichrome_rdma::{Access, Operation, PathMtu, QpCapacity, ReceiveRequest, SendRequest, Status};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
const LEN: usize = 4096;

/// An adapter with the objects for a connection.
pub(crate) struct End {
    pub(crate) adapter: Adapter,
    pub(crate) region: Region,
    pub(crate) cq: CompletionQueue,
}

impl End {
    pub(crate) fn open(config: &AdapterConfig) -> Self {
        let adapter = Adapter::open(config).unwrap();
        let region = adapter.region(LEN, Access::REMOTE_WRITE | Access::REMOTE_READ).unwrap();
        let cq = adapter.completion_queue(4096).unwrap();
        Self { adapter, region, cq }
    }

    pub(crate) fn pair(config: &AdapterConfig) -> [Self; 2] {
        [Self::open(config), Self::open(config)]
    }

    pub(crate) fn queue_pair(&self) -> QueuePair {
        let capacity = QpCapacity { send_wrs: 4, receive_wrs: 4, send_sges: 1, receive_sges: 1, inline: 0 };
        self.adapter.queue_pair(capacity, &self.cq, &self.cq).unwrap()
    }

    pub(crate) fn connect(&self, peer: SocketAddr, private_data: &[u8]) -> Result<Connected, ConnectError> {
        self.adapter.connect(peer, self.queue_pair(), private_data, &connection())
    }

    pub(crate) fn accept(&self, listener: &Listener, private_data: &[u8]) -> Result<Connected, ConnectError> {
        let request = listener.accept(PATIENCE).unwrap().unwrap();
        request.accept(self.queue_pair(), private_data, &connection())
    }
}

pub(crate) fn connection() -> Connection {
    Connection::new(PathMtu::B1024)
}

/// Connects both ends: the second listens.
pub(crate) fn connected([client, server]: &[End; 2], listener: &Listener) -> [Connected; 2] {
    thread::scope(|scope| {
        let accepted = scope.spawn(|| server.accept(listener, b"welcome").unwrap());
        let connected = client.connect(listener.address(), b"hello").unwrap();
        [connected, accepted.join().unwrap()]
    })
}

/// Sends a message from the first connection to the second.
pub(crate) fn sends([from, to]: [(&End, &Connected); 2]) {
    let receive = [to.0.region.slice(0, 100)];
    to.1.queue_pair().post_receive(&ReceiveRequest { wr_id: 1, buffers: &receive }).unwrap();
    from.0.region.with(|bytes| bytes[..100].fill(7));
    let send = [from.0.region.slice(0, 100)];
    from.1.queue_pair().post_send(&SendRequest::new(2, Operation::Send, &send)).unwrap();
    for (end, wr_id) in [(from.0, 2), (to.0, 1)] {
        let done = end.cq.wait(PATIENCE).unwrap();
        assert_eq!((done.status, done.wr_id), (Status::Success, wr_id));
    }
    assert_eq!(to.0.region.with(|bytes| bytes[..100].to_vec()), [7; 100]);
}

/// Sends a message from the first connection to the second, whose program does not poll it yet.
pub(crate) fn sends_unpolled([from, to]: [(&End, &Connected); 2]) {
    let receive = [to.0.region.slice(0, 100)];
    to.1.queue_pair().post_receive(&ReceiveRequest { wr_id: 1, buffers: &receive }).unwrap();
    let send = [from.0.region.slice(0, 100)];
    from.1.queue_pair().post_send(&SendRequest::new(2, Operation::Send, &send)).unwrap();
    assert_eq!(from.0.cq.wait(PATIENCE).unwrap().status, Status::Success);
}

/// Asserts that the end of a connection, which came after `start`, waits until the program polls the message
/// before it.
pub(crate) fn polls_and_sees_the_end((end, connection): (&End, &Connected), start: Instant) {
    let has_ended = connection.wait_disconnected(Duration::from_millis(30)).unwrap();
    assert!(!has_ended || start.elapsed() > Duration::from_millis(100));
    assert_eq!(end.cq.wait(PATIENCE).unwrap().status, Status::Success);
    assert!(connection.wait_disconnected(PATIENCE).unwrap());
}

/// The end of a connection waits for a program that has not polled the message before it, for 100 ms at most.
pub(crate) fn polls_the_last_message_before_the_end(ends: &[End; 2]) {
    let listener = ends[1].adapter.listen(0, 0).unwrap();
    let [client, server] = connected(ends, &listener);
    let start = Instant::now();
    sends_unpolled([(&ends[0], &client), (&ends[1], &server)]);
    client.disconnect();
    polls_and_sees_the_end((&ends[1], &server), start);
    // A program that does not poll gets the end nevertheless.
    let [client, server] = connected(ends, &listener);
    sends_unpolled([(&ends[0], &client), (&ends[1], &server)]);
    client.disconnect();
    assert!(server.wait_disconnected(PATIENCE).unwrap());
}

/// Makes `count` connections, sends over the first, the middle and the last, and ends them all.
pub(crate) fn makes_and_ends(count: usize, ends: &[End; 2]) {
    let listener = ends[1].adapter.listen(0, 0).unwrap();
    let made: Vec<[Connected; 2]> = (0..count).map(|_| connected(ends, &listener)).collect();
    for nth in [0, count / 2, count - 1] {
        sends([(&ends[0], &made[nth][0]), (&ends[1], &made[nth][1])]);
    }
    assert!(made.iter().flatten().all(Connected::is_established));
    let (clients, servers): (Vec<_>, Vec<_>) = made.into_iter().map(<(_, _)>::from).unzip();
    drop(clients);
    assert!(servers.iter().all(|server| server.wait_disconnected(PATIENCE).unwrap()));
}

/// Makes 40 connections, from eight threads to four that accept.
pub(crate) fn connects_from_several_threads([client, server]: &[End; 2]) {
    let listener = &server.adapter.listen(0, 0).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..10).for_each(|_| drop(server.accept(listener, b"").unwrap())));
        }
        for _ in 0..8 {
            scope.spawn(|| (0..5).for_each(|_| drop(client.connect(listener.address(), b"").unwrap())));
        }
    });
}

/// Connects from a thousand threads at once, to 16 that accept; neither end keeps anything of these
/// connections.
pub(crate) fn connects_from_a_thousand_threads_at_once(ends: &[End; 2]) {
    const CLIENTS: usize = 1000;
    const SERVERS: usize = 16;
    let [client, server] = ends;
    let listener = &server.adapter.listen(0, 0).unwrap();
    let before = ends.each_ref().map(|end| (end.adapter.cm_usage().unwrap(), end.adapter.card_state_bytes()));
    let (taken, begin) = (AtomicUsize::new(0), &Barrier::new(CLIENTS));
    thread::scope(|scope| {
        for _ in 0..SERVERS {
            scope.spawn(|| {
                while taken.fetch_add(1, Ordering::Relaxed) < CLIENTS {
                    drop(server.accept(listener, b"").unwrap());
                }
            });
        }
        for _ in 0..CLIENTS {
            thread::Builder::new()
                .stack_size(256 << 10)
                .spawn_scoped(scope, || {
                    begin.wait();
                    drop(client.connect(listener.address(), b"").unwrap());
                })
                .unwrap();
        }
    });
    let begun = Instant::now();
    for (end, before) in ends.iter().zip(before) {
        let kept = || (end.adapter.cm_usage().unwrap(), end.adapter.card_state_bytes());
        while kept() != before {
            assert!(begun.elapsed() < PATIENCE, "{:?}, not {before:?}", kept());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Drops a listener at which requests wait: all are rejected.
pub(crate) fn rejects_what_waits_at_a_listener_that_goes([client, server]: &[End; 2]) {
    const WAITING: usize = 5;
    let listener = server.adapter.listen(0, 0).unwrap();
    let address = listener.address();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..WAITING).map(|_| scope.spawn(|| client.connect(address, b""))).collect();
        let begun = Instant::now();
        while server.adapter.cm_usage().unwrap().identifiers < 1 + WAITING {
            assert!(begun.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(1));
        }
        drop(listener);
        for client in clients {
            let refused = client.join().unwrap().err().unwrap();
            assert!(matches!(refused, ConnectError::Rejected(_)), "{refused}");
        }
    });
    assert_eq!(server.adapter.cm_usage().unwrap().identifiers, 0);
}
