//! Connections by address and port where several processes share an address.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use nichrome_hca::cm::{
    CmOptions, CommandError, ConnectError, Connected, ListenError, Listener, TimeExponent, Unavailable,
};
use nichrome_hca::{Adapter, AdapterConfig, CompletionQueue, Connection, Place, QueuePair, Reception};
use nichrome_rdma::{PathMtu, QpCapacity};

use self::peer_process::{Peer, role};

#[path = "common/peer_process.rs"]
mod peer_process;

const PATIENCE: Duration = Duration::from_secs(20);

/// Longer than an impatient end takes to give up (four waits of 134 ms, and 537 ms by an MRA), and shorter
/// than an end with the default options takes (69 s).
const GIVES_UP_WITHIN: Duration = Duration::from_secs(30);

/// Messages are retransmitted every 134 ms, three times: a live peer may have to wait for a processor.
const IMPATIENT: CmOptions = CmOptions {
    response_timeout: TimeExponent::new(15),
    max_retries: 3,
    service_timeout: TimeExponent::new(17),
    guid: None,
};

/// A process at a loopback address. Tests with different `last` have different addresses.
struct End {
    adapter: Adapter,
    cq: CompletionQueue,
}

fn place(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 79, last).into()
}

impl End {
    fn join(address: IpAddr) -> Self {
        Self::open(address, CmOptions::default())
    }

    /// A process that gives up a peer soon.
    fn impatient(address: IpAddr) -> Self {
        Self::open(address, IMPATIENT)
    }

    fn open(address: IpAddr, cm: CmOptions) -> Self {
        let config = AdapterConfig { place: Place::Address(address), cm, ..AdapterConfig::default() };
        let adapter = Adapter::open(&config).unwrap();
        let cq = adapter.completion_queue(64).unwrap();
        Self { adapter, cq }
    }

    fn queue_pair(&self) -> QueuePair {
        let capacity = QpCapacity { send_wrs: 1, receive_wrs: 1, send_sges: 1, receive_sges: 1, inline: 0 };
        self.adapter.queue_pair(capacity, &self.cq, &self.cq).unwrap()
    }

    fn connect(&self, peer: SocketAddr) -> Result<Connected, ConnectError> {
        self.adapter.connect(peer, self.queue_pair(), b"", &Connection::new(PathMtu::B1024))
    }

    fn accept(&self, listener: &Listener, private_data: &[u8]) -> Connected {
        let request = listener.accept(PATIENCE).unwrap().unwrap();
        request.accept(self.queue_pair(), private_data, &Connection::new(PathMtu::B1024)).unwrap()
    }
}

/// Connects `client` to a listener of `server`, which names itself by `name`.
fn reaches(client: &End, (server, listener, name): (&End, &Listener, &[u8])) -> [Connected; 2] {
    thread::scope(|scope| {
        let accepted = scope.spawn(|| server.accept(listener, name));
        let connected = client.connect(listener.address()).unwrap();
        assert!(connected.private_data().starts_with(name));
        [connected, accepted.join().unwrap()]
    })
}

#[test]
fn each_of_several_processes_listens_and_connects() {
    let ends = [(); 3].map(|()| End::join(place(1)));
    let stranger = End::join(place(2));
    let listeners = ends.each_ref().map(|end| end.adapter.listen(0, 0).unwrap());
    for (nth, listener) in listeners.iter().enumerate() {
        let server = (&ends[nth], listener, &[b'a' + nth as u8][..]);
        for client in ends.iter().chain([&stranger]) {
            let [connected, accepted] = reaches(client, server);
            drop(connected);
            assert!(accepted.wait_disconnected(PATIENCE).unwrap());
        }
    }
}

#[test]
fn a_port_belongs_to_one_process_until_its_listener_is_dropped() {
    let [first, second] = [(); 2].map(|()| End::join(place(3)));
    let listener = first.adapter.listen(7174, 0).unwrap();
    let taken = Some(ListenError::Command(CommandError::AddressInUse));
    assert_eq!(second.adapter.listen(7174, 0).err(), taken);
    drop(listener);
    let listener = second.adapter.listen(7174, 0).unwrap();
    assert_eq!(first.adapter.listen(7174, 0).err(), taken);
    reaches(&first, (&second, &listener, b"second"));
    reaches(&second, (&second, &listener, b"second"));
}

#[test]
fn where_no_process_listens_the_error_says_so() {
    let [first, second] = [(); 2].map(|()| End::join(place(4)));
    let address = SocketAddr::new(place(4), 9);
    let listener = second.adapter.listen(10, 0).unwrap();
    for end in [&first, &second] {
        assert_eq!(end.connect(address).err(), Some(ConnectError::NoListener));
    }
    let was_at = listener.address();
    drop(listener);
    assert_eq!(first.connect(was_at).err(), Some(ConnectError::NoListener));
    drop(second);
    assert_eq!(first.connect(was_at).err(), Some(ConnectError::NoListener));
}

#[test]
fn packets_of_all_processes_are_no_way_to_share_ports() {
    /// Kernels before 6.2 have no such adapter at a loopback address.
    const OURS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 5));
    nichrome_port::gain_network_admin().unwrap();
    let refused = || {
        let netlink = nichrome_port::Netlink::open().unwrap();
        let loopback = netlink.interface("lo".parse().unwrap()).unwrap();
        netlink.set_up(&loopback).unwrap();
        netlink.add_address(&loopback, OURS, 24).unwrap();
        let place = Place::Address(OURS);
        let config = AdapterConfig { place, reception: Reception::Packets, ..AdapterConfig::default() };
        Adapter::open(&config).unwrap().listen(1, 0).err()
    };
    let refused = nichrome_port::NetworkNamespace::new().unwrap().run(refused).unwrap();
    assert!(matches!(refused, Some(ListenError::Unavailable(Unavailable::Services(_)))));
}

/// Port of [`Peer`]s.
const PORT: u16 = 7175;

/// What a [`Peer`] runs: it listens at [`PORT`], and does nothing more (`listen`), takes a request and does
/// not answer it (`take`), or accepts requests for ever (`accept`).
#[test]
#[ignore = "the other process of these tests, which start it"]
fn a_peer_in_another_process() {
    let [address, does] = role().try_into().unwrap();
    let end = End::join(address.parse().unwrap());
    let listener = end.adapter.listen(PORT, 0).unwrap();
    println!("\nlistens");
    let mut kept = Vec::new();
    let mut requests = Vec::new();
    loop {
        match does.as_str() {
            "accept" => kept.push(end.accept(&listener, b"peer")),
            "take" => requests.push(listener.accept(Duration::from_secs(60)).unwrap()),
            _ => thread::sleep(Duration::from_secs(60)),
        }
        println!("\nhas {}", kept.len() + requests.len());
    }
}

/// Runs `attempt`, which must give up within [`GIVES_UP_WITHIN`].
fn gives_up<T>(attempt: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = attempt();
    assert!(begun.elapsed() < GIVES_UP_WITHIN, "{:?}", begun.elapsed());
    result
}

#[test]
fn a_killed_listener_is_given_up_and_frees_its_port() {
    let address = SocketAddr::new(place(6), PORT);
    let end = End::impatient(place(6));
    let mut peer = Peer::start(&format!("{} accept", place(6)));
    peer.hear("listens");
    let connected = end.connect(address).unwrap();
    assert!(connected.private_data().starts_with(b"peer"));
    let taken = Some(ListenError::Command(CommandError::AddressInUse));
    assert_eq!(end.adapter.listen(PORT, 0).err(), taken);
    peer.kill();
    // Established: the peer answers no DREQ.
    connected.disconnect();
    assert!(gives_up(|| connected.wait_disconnected(PATIENCE).unwrap()));
    assert_eq!(gives_up(|| end.connect(address).err()), Some(ConnectError::TimedOut));
    let listener = end.adapter.listen(PORT, 0).unwrap();
    reaches(&end, (&end, &listener, b"again"));
}

#[test]
fn a_process_that_is_killed_with_a_request_is_given_up() {
    let (address, end) = (SocketAddr::new(place(7), PORT), End::impatient(place(8)));
    let mut peer = Peer::start(&format!("{} take", place(7)));
    peer.hear("listens");
    thread::scope(|scope| {
        let connecting = scope.spawn(|| gives_up(|| end.connect(address).err()));
        peer.hear("has 1");
        peer.kill();
        assert_eq!(connecting.join().unwrap(), Some(ConnectError::TimedOut));
    });
}

#[test]
fn the_other_processes_at_the_address_go_on_when_one_is_killed() {
    let [first, client] = [place(9), place(10)].map(End::join);
    let mut peer = Peer::start(&format!("{} accept", place(9)));
    peer.hear("listens");
    let last = End::join(place(9));
    let listeners = [&first, &last].map(|end| end.adapter.listen(0, 0).unwrap());
    let connected = client.connect(SocketAddr::new(place(9), PORT)).unwrap();
    peer.kill();
    for (end, listener) in [&first, &last].into_iter().zip(&listeners) {
        reaches(&client, (end, listener, b"lives"));
    }
    // Another process takes the slot and the port.
    let mut successor = Peer::start(&format!("{} accept", place(9)));
    successor.hear("listens");
    assert!(client.connect(SocketAddr::new(place(9), PORT)).unwrap().is_established());
    drop(connected);
    successor.kill();
}

/// A REQ for [`PORT`] at `server`, from an adapter at `client` that has given up since.
fn recorded_request(client: IpAddr, server: IpAddr) -> Vec<u8> {
    let silent = UdpSocket::bind(SocketAddr::new(server, 4791)).unwrap();
    let end = End::impatient(client);
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(end.connect(SocketAddr::new(server, PORT)).err(), Some(ConnectError::TimedOut));
        });
        let mut bytes = vec![0; 2048];
        let len = silent.recv(&mut bytes).unwrap();
        bytes.truncate(len);
        bytes
    })
}

#[test]
fn a_request_that_is_replayed_is_one_request_and_a_forged_one_is_none() {
    let (client, server) = (place(11), place(12));
    let request = recorded_request(client, server);
    let end = End::impatient(server);
    let listener = end.adapter.listen(PORT, 0).unwrap();
    let sender = UdpSocket::bind(SocketAddr::new(client, 4791)).unwrap();
    let send = |bytes: &[u8]| sender.send_to(bytes, SocketAddr::new(server, 4791)).unwrap();
    let is_idle = || listener.accept(Duration::from_millis(100)).unwrap().is_none();
    // With a changed byte of the MAD or of the Q_Key, the ICRC is wrong.
    for at in [12, 20, 48, 60, 200] {
        let mut forged = request.clone();
        forged[at] ^= 1;
        send(&forged);
    }
    assert!(is_idle());
    // From another address.
    UdpSocket::bind(SocketAddr::new(place(13), 4791))
        .unwrap()
        .send_to(&request, SocketAddr::new(server, 4791))
        .unwrap();
    assert!(is_idle());
    (0..10).for_each(|_| _ = send(&request));
    let taken = listener.accept(PATIENCE).unwrap().unwrap();
    assert_eq!(taken.peer().ip(), client);
    assert!(is_idle());
    // No RTU confirms the connection.
    let accepted = taken.accept(end.queue_pair(), b"", &Connection::new(PathMtu::B1024));
    assert!(accepted.is_err());
    // A replay after that makes no connection either.
    send(&request);
    assert!(is_idle());
}
