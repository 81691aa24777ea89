//! A process that has no free descriptor. The limit applies to the process, so this is the only test here.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::net::TcpStream;
use std::time::Duration;

use nichrome_hca::{Adapter, AdapterConfig, Connection, Transport};
use nichrome_rdma::QpCapacity;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};

#[test]
fn connecting_and_accepting_without_a_free_descriptor_fail_with_errors_that_say_so() {
    let config = AdapterConfig { transport: Transport::Iwarp, ..AdapterConfig::default() };
    let [adapter, peer] = [(); 2].map(|()| Adapter::open(&config).unwrap());
    let listener = peer.listen(0, 0).unwrap();
    let cq = adapter.completion_queue(4).unwrap();
    let limit = Some(200);
    setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit }).unwrap();
    let mut taken: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let error = adapter.listen(0, 0).map(drop).unwrap_err().to_string();
    assert!(error.contains(&Errno::MFILE.to_string()), "{error}");
    // The route lookup takes one descriptor for a moment, then the connection takes it.
    for free in 0..=1 {
        let queue_pair = adapter.queue_pair(QpCapacity::default(), &cq, &cq).unwrap();
        let connection = Connection::new(adapter.mtu());
        let result = adapter.connect(listener.address(), queue_pair, b"", &connection);
        let error = result.map(drop).unwrap_err().to_string();
        assert!(
            error.contains(&Errno::MFILE.to_string()) && !error.contains("route"),
            "{free} free: {error}"
        );
        taken.pop();
    }
    // The connection takes the last descriptor: the listener has none for its other end.
    taken.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
    taken.pop();
    let _connected = TcpStream::connect(listener.address()).unwrap();
    taken.pop();
    let error = listener.accept(Duration::from_secs(2)).unwrap_err().to_string();
    assert!(
        error.contains(&Errno::MFILE.to_string()) && error.contains("may have 200 descriptors"),
        "{error}"
    );
}
