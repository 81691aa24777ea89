//! A program in a guest whose kernel is the peer: one JSON object a line each way.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Faults on the packets that the kernel sends, by netem; its ACKs are among those.
pub(crate) const FAULTS: &str = "delay 1ms 1ms loss 2% duplicate 1% reorder 10%";

/// The pattern of `kernel_peer.py`: it shows swapped and missing pieces at every MTU.
pub(crate) fn pattern(seed: u8, len: usize) -> Vec<u8> {
    const PERIOD: u64 = 65_521;
    (0..len as u64)
        .map(|at| (((at % PERIOD) * 2_654_435_761) >> 13) as u8)
        .map(|byte| byte.wrapping_add(seed))
        .collect()
}

/// The guest's program.
pub(crate) struct Peer(BufReader<TcpStream>);

impl Peer {
    /// Connects to the address and port in the environment variable.
    pub(crate) fn connect(variable: &str) -> Self {
        let address: SocketAddr = std::env::var(variable)
            .unwrap_or_else(|_| {
                panic!("{variable} names no peer: run the script that starts one, in scripts")
            })
            .parse()
            .expect("an address and port");
        let stream = TcpStream::connect(address).expect("the kernel peer listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(BufReader::new(stream))
    }

    /// The addresses of this end and of the guest.
    pub(crate) fn addresses(&self) -> [SocketAddr; 2] {
        let stream = self.0.get_ref();
        [stream.local_addr().unwrap(), stream.peer_addr().unwrap()]
    }

    /// Sends a command.
    pub(crate) fn begin(&mut self, what: &str, mut with: Value) {
        with["do"] = json!(what);
        writeln!(self.0.get_mut(), "{with}").unwrap();
    }

    /// Waits for the answer to a command.
    pub(crate) fn end(&mut self, what: &str) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap_or_else(|error| panic!("{what}: {error}"));
        let answer: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{what}: {error}: {line}"));
        assert!(answer["error"].is_null(), "{answer}");
        answer
    }

    pub(crate) fn ask(&mut self, what: &str, with: Value) -> Value {
        self.begin(what, with);
        self.end(what)
    }

    /// Checks that the kernel's region begins with `len` bytes of the pattern.
    pub(crate) fn holds(&mut self, seed: u8, len: usize) {
        let answer = self.ask("check", json!({"seed": seed, "length": len}));
        assert!(answer["differs"].is_null(), "{len} bytes differ from {} on", answer["differs"]);
    }
}
