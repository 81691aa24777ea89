//! Where StaR runs: at loopback addresses, elsewhere under a key.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nichrome_hca::{
    Adapter, AdapterConfig, CompletionQueue, Connection, Place, QueuePair, Region, StarOptions, Stateless,
    Transport,
};
use nichrome_port::{Netlink, NetworkNamespace, gain_network_admin};
use nichrome_rdma::{Access, Operation, PathMtu, QpCapacity, SendRequest, Status};
use nichrome_wire::star::STAR_PORT;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);

/// Reported lines; the report is a plain function, so they are static.
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn config(place: Place, key_file: Option<PathBuf>) -> AdapterConfig {
    let star = StarOptions { stateless: Stateless::Own, key_file, ..StarOptions::default() };
    AdapterConfig { transport: Transport::Star, star, place, ..AdapterConfig::default() }
}

fn key_file(folder: &TempDir, name: &str, byte: u8) -> Option<PathBuf> {
    let path = folder.path().join(name);
    fs::write(&path, [byte; 32]).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    Some(path)
}

/// Runs `f` where 192.0.2.1 and 192.0.2.2 are addresses of this machine.
fn elsewhere<T: Send>(f: impl FnOnce([Place; 2]) -> T + Send) -> T {
    gain_network_admin().unwrap();
    let addresses: [IpAddr; 2] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().unwrap());
    let namespace = NetworkNamespace::new().unwrap();
    let prepared = || {
        let netlink = Netlink::open().unwrap();
        let lo = netlink.interface("lo".parse().unwrap()).unwrap();
        netlink.set_up(&lo).unwrap();
        addresses.iter().for_each(|address| netlink.add_address(&lo, *address, 32).unwrap());
        f(addresses.map(Place::Address))
    };
    namespace.run(prepared).unwrap()
}

/// The status of a WRITE from the first adapter to the second.
fn write(configs: &[AdapterConfig; 2]) -> Status {
    let capacity = QpCapacity { send_wrs: 4, receive_wrs: 4, send_sges: 1, receive_sges: 1, inline: 0 };
    let ends = configs.each_ref().map(|config| {
        let adapter = Adapter::open(config).unwrap();
        let region = adapter.region(64, Access::REMOTE_WRITE).unwrap();
        let cq = adapter.completion_queue(16).unwrap();
        let qp = adapter.queue_pair(capacity, &cq, &cq).unwrap();
        (adapter, region, cq, qp)
    });
    let [(_, region, cq, qp), (_, there, _, peer)] = &ends;
    let connection = Connection::new(PathMtu::B1024);
    // A set-up that fails may end a queue pair before it is in RTS; the WRITE's status says so.
    let _ = qp.connect(&peer.endpoint(), &connection);
    let _ = peer.connect(&qp.endpoint(), &connection);
    let write = Operation::Write(there.remote().at(0));
    qp.post_send(&SendRequest::new(1, write, &[region.slice(0, 8)])).unwrap();
    cq.wait(PATIENCE).unwrap().status
}

#[test]
fn beyond_loopback_star_needs_a_key_and_authenticated_packets() {
    let folder = tempfile::tempdir().unwrap();
    let key = key_file(&folder, "key", 7);
    let refused = elsewhere(|[place, _]| {
        let plain = config(place, None);
        let mut without_tags = config(place, key);
        without_tags.star.authenticates = false;
        [plain, without_tags].map(|config| Adapter::open(&config).err().unwrap().to_string())
    });
    assert_eq!(
        refused,
        [
            "StaR at 192.0.2.1 needs a key for its set-up: give both sides the same --key-file (NICHROME_KEY_FILE)",
            "StaR without authentication is for loopback addresses only: 192.0.2.1 needs authenticated packets"
        ]
    );
}

#[test]
fn with_equal_keys_star_runs_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let key = key_file(&folder, "key", 7);
    let status = elsewhere(|places| {
        let [one, other] = places.map(|place| config(place, key.clone()));
        let peer = StarOptions { stateless: Stateless::Peer, ..other.star.clone() };
        write(&[one, AdapterConfig { star: peer, ..other }])
    });
    assert_eq!(status, Status::Success);
}

#[test]
fn with_other_keys_no_connection_is_set_up_and_a_line_at_each_side_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let keys = [key_file(&folder, "one", 7), key_file(&folder, "other", 8)];
    let time_until_refused = || {
        let start = Instant::now();
        let status = elsewhere(|[low, high]| {
            // The lower address connects.
            let ends = [config(low, keys[0].clone()), config(high, keys[1].clone())];
            write(&ends.map(|mut config| {
                config.star.report = |line| LINES.lock().unwrap().push(line.to_owned());
                config
            }))
        });
        assert_eq!(status, Status::Flushed);
        let mut lines = std::mem::take(&mut *LINES.lock().unwrap());
        lines.sort();
        let [ours, theirs] = &lines[..] else { panic!("{lines:?}") };
        let why = "refused a connection from 192.0.2.1: the peer's set-up is encrypted with another key: both sides need the \
                   same --key-file";
        assert_eq!(theirs, why);
        assert!(
            ours.ends_with("the peer does not accept this side's key: both sides need the same --key-file")
        );
        start.elapsed()
    };
    // On a busy machine, one attempt may take longer.
    assert!((0..5).any(|_| time_until_refused() < Duration::from_secs(2)), "refused only after a time limit");
}

#[test]
fn options_are_checked_before_an_address_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let missing = config(Place::Loopback, Some(folder.path().join("nothing")));
    assert!(Adapter::check(&missing).unwrap_err().to_string().contains("cannot be read"));
    let place = Place::Address("192.0.2.1".parse().unwrap());
    assert!(Adapter::check(&config(place, None)).unwrap_err().to_string().contains("needs a key"));
    Adapter::check(&config(place, key_file(&folder, "key", 7))).unwrap();
    Adapter::check(&config(Place::Loopback, None)).unwrap();
}

#[test]
fn without_authentication_a_warning_says_what_is_lost() {
    static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut plain = config(Place::Loopback, None);
    plain.star.authenticates = false;
    plain.star.report = |line| WARNINGS.lock().unwrap().push(line.to_owned());
    drop(Adapter::open(&plain).unwrap());
    let lines = WARNINGS.lock().unwrap();
    assert!(
        lines.len() == 1 && lines[0].starts_with("warning: StaR's packets are not authenticated"),
        "{lines:?}"
    );
    assert!(config(Place::Loopback, None).star.authenticates);
}

/// One end of a connection between adapters.
struct End {
    adapter: Adapter,
    region: Region,
    cq: CompletionQueue,
    qp: QueuePair,
}

impl End {
    fn new(config: &AdapterConfig) -> Self {
        let capacity = QpCapacity { send_wrs: 4, receive_wrs: 4, send_sges: 1, receive_sges: 1, inline: 0 };
        let adapter = Adapter::open(config).unwrap();
        let region = adapter.region(64, Access::REMOTE_WRITE | Access::REMOTE_ATOMIC).unwrap();
        let cq = adapter.completion_queue(16).unwrap();
        let qp = adapter.queue_pair(capacity, &cq, &cq).unwrap();
        Self { adapter, region, cq, qp }
    }

    /// Posts a request and waits for its success.
    fn complete(&self, operation: Operation, at: usize) {
        self.qp.post_send(&SendRequest::new(1, operation, &[self.region.slice(at, 8)])).unwrap();
        assert_eq!(self.cq.wait(PATIENCE).unwrap().status, Status::Success);
    }
}

/// The side that connects tries this port before the slot's.
#[test]
fn where_adapters_share_an_address_no_other_program_gets_the_port_that_callers_try_first() {
    let folder = tempfile::tempdir().unwrap();
    let key = key_file(&folder, "key", 7);
    let errors = elsewhere(|[place, _]| {
        let adapters = [(); 2].map(|()| Adapter::open(&config(place, key.clone())).unwrap());
        let address = SocketAddr::new(adapters[0].address(), STAR_PORT);
        let errors = [TcpListener::bind(address), TcpListener::bind((Ipv4Addr::UNSPECIFIED, STAR_PORT))]
            .map(|bound| bound.err().map(|error| error.kind()));
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        drop(adapters);
        drop(TcpListener::bind(address).unwrap());
        errors
    });
    assert_eq!(errors, [Some(ErrorKind::AddrInUse); 2]);
}

/// Three adapters share the server's address, and three the client's; each has a slot of its own. WRITEs and
/// atomic operations of both sides reach the memory of their peer.
#[test]
fn several_adapters_share_an_address() {
    let folder = tempfile::tempdir().unwrap();
    let key = key_file(&folder, "key", 7);
    elsewhere(|places| {
        let [mine, theirs] = places.map(|place| config(place, key.clone()));
        let peer = StarOptions { stateless: Stateless::Peer, ..theirs.star.clone() };
        let theirs = AdapterConfig { star: peer, ..theirs };
        let open = |config: &AdapterConfig| [(); 3].map(|()| End::new(config));
        let (servers, mut clients) = (open(&mine), open(&theirs));
        // All servers but one have another slot than their client.
        clients.reverse();
        let connection = Connection::new(PathMtu::B1024);
        for (server, client) in servers.iter().zip(&clients) {
            server.qp.connect(&client.qp.endpoint(), &connection).unwrap();
            client.qp.connect(&server.qp.endpoint(), &connection).unwrap();
        }
        for (nth, (server, client)) in servers.iter().zip(&clients).enumerate() {
            for (one, other) in [(server, client), (client, server)] {
                one.region.with(|bytes| bytes[..8].fill(1 + nth as u8));
                one.complete(Operation::Write(other.region.remote().at(16)), 0);
                let remote = other.region.remote().at(32);
                one.complete(Operation::FetchAdd { remote, add: 10 + nth as u64 }, 8);
                let swap = 100;
                one.complete(Operation::CompareSwap { remote, compare: 10 + nth as u64, swap }, 40);
            }
        }
        for (nth, end) in servers
            .iter()
            .zip(&clients)
            .enumerate()
            .flat_map(|(nth, (one, other))| [(nth, one), (nth, other)])
        {
            end.region.with(|bytes| {
                assert_eq!(bytes[16..24], [1 + nth as u8; 8]);
                assert_eq!(bytes[8..16], [0; 8]);
                assert_eq!(bytes[40..48], (10 + nth as u64).to_ne_bytes());
                assert_eq!(bytes[32..40], 100u64.to_ne_bytes());
            });
        }
        assert!(servers.iter().all(|server| server.adapter.stateless_connections() == 1));
    });
}
