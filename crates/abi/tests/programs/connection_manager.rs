//! Programs of librdmacm, which is rdma-core's own and finds the device file within its process.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Output};
use std::time::{Duration, Instant};

use crate::running::{command, ended, needs, turn};

/// Addresses of the two processes, which no other test uses.
const SERVER: &str = "127.77.0.2";
const CLIENT: &str = "127.77.0.3";

/// How long a server may take until it listens: a client that finds no listener ends, and is started again.
const UNTIL_LISTENING: Duration = Duration::from_secs(20);

/// A server and its client; `@` is the server's address, `#` a folder. A server that never ends has a `!`, and is killed after its client.
struct Pair<'a>(&'a str, &'a str);

/// Debian's package rdmacm-utils.
const EXAMPLES: &[Pair<'_>] = &[
    Pair("rping -s -a @ -C 20 -V", "rping -c -a @ -C 20 -V"),
    Pair("rping -s -a @ -C 5 -V -S 60000", "rping -c -a @ -C 5 -V -S 60000"),
    Pair("!rping -s -P -a @ -V", "rping -c -a @ -C 20 -V"),
    Pair("ucmatose -b @ -c 10 -C 20", "ucmatose -s @ -c 10 -C 20"),
    Pair("ucmatose -b @ -c 4 -m", "ucmatose -s @ -c 4 -m"),
    Pair("udaddy -b @ -c 5 -C 20", "udaddy -s @ -c 5 -C 20"),
    Pair("rdma_server -s @", "rdma_client -s @"),
    Pair("rdma_xserver -c r", "rdma_xclient -c r -s @"),
    Pair("!cmtime -b @", "cmtime -s @ -c 100"),
    Pair("rstream -b @ -S 4096 -C 100", "rstream -s @ -S 4096 -C 100"),
    Pair("rstream -b @ -S 64 -C 100 -T n", "rstream -s @ -S 64 -C 100 -T n"),
    Pair("!rcopy", "rcopy /etc/services @:#/copied"),
    Pair("riostream -b @ -S 4096 -C 100", "riostream -s @ -S 4096 -C 100"),
    Pair("mckey -b @ -m 239.77.0.1", "mckey -b 127.77.0.3 -m 239.77.0.1 -s"),
];

/// Debian's packages perftest, qperf and fio.
const BENCHMARKS: &[Pair<'_>] = &[
    Pair("ib_write_bw -R -F -n 100", "ib_write_bw -R -F -n 100 @"),
    Pair("ib_read_bw -R -F -n 100", "ib_read_bw -R -F -n 100 @"),
    Pair("ib_send_bw -R -F -n 100", "ib_send_bw -R -F -n 100 @"),
    Pair("ib_send_bw -R -F -n 100 -b", "ib_send_bw -R -F -n 100 -b @"),
    Pair("ib_send_lat -R -F -n 50", "ib_send_lat -R -F -n 50 @"),
    Pair("ib_atomic_lat -R -F -n 50", "ib_atomic_lat -R -F -n 50 @"),
    Pair("ib_write_bw -R -F -n 20 -q 8", "ib_write_bw -R -F -n 20 -q 8 @"),
    Pair("!qperf", "qperf -cm1 @ -t 1 rc_bw rc_lat rc_rdma_write_bw"),
    Pair(
        "fio --ioengine=rdma --name=s --port=7737 --bs=64k --size=4m --rw=read",
        "fio --ioengine=rdma --name=c --port=7737 --hostname=@ --verb=write --bs=64k --size=4m --rw=write --iodepth=8",
    ),
    Pair(
        "fio --ioengine=rdma --name=s --port=7738 --bs=64k --size=4m --rw=read",
        "fio --ioengine=rdma --name=c --port=7738 --hostname=@ --verb=read --bs=64k --size=4m --rw=write --iodepth=8",
    ),
];

fn spawn(line: &str, address: &str, more: &[(&str, &str)]) -> Child {
    let environment = [&[("NICHROME_IP", address)], more].concat();
    command(&line.replace('@', SERVER).replace('#', env!("CARGO_TARGET_TMPDIR")), &[], &environment)
        .spawn()
        .unwrap()
}

/// A server, killed when dropped: it would keep its address if the test fails.
struct Server(Option<Child>);

impl Server {
    fn has_ended(&mut self) -> bool {
        self.0.as_mut().is_none_or(|child| child.try_wait().unwrap().is_some())
    }

    fn kill(&mut self) {
        if let Some(child) = &mut self.0 {
            child.kill().unwrap();
        }
    }

    fn ended(mut self, what: &str) -> Output {
        ended(self.0.take().unwrap(), what)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a pair; both must succeed.
fn run(Pair(server_line, client_line): &Pair<'_>, more: &[(&str, &str)]) {
    let _turn = turn();
    let is_endless = server_line.starts_with('!');
    let mut server = Server(Some(spawn(server_line.trim_start_matches('!'), SERVER, more)));
    let start = Instant::now();
    let client = loop {
        let client = ended(spawn(client_line, CLIENT, more), client_line);
        let has_ended = server.has_ended();
        if client.status.success() || has_ended || start.elapsed() > UNTIL_LISTENING {
            break client;
        }
    };
    if is_endless || !client.status.success() {
        server.kill();
    }
    let server = server.ended(server_line);
    let is_right = client.status.success()
        && (server.status.success() || is_endless && server.status.signal() == Some(9));
    let text = [&client.stdout, &client.stderr, &server.stdout, &server.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .join("\n---\n");
    assert!(is_right, "{client_line}: {}, server {}\n{text}", client.status, server.status);
}

#[test]
#[ignore = "pairs hang in some runs, for a reason that is not known: run by hand"]
fn the_examples_of_librdmacm_run() {
    needs("rping", "rdmacm-utils");
    EXAMPLES.iter().for_each(|pair| run(pair, &[]));
}

#[test]
#[ignore = "pairs hang in some runs, for a reason that is not known: run by hand"]
fn benchmarks_connect_by_the_connection_manager() {
    needs("ib_write_bw", "perftest");
    needs("qperf", "qperf");
    needs("fio", "fio");
    BENCHMARKS.iter().for_each(|pair| run(pair, &[]));
}

#[test]
#[ignore = "pairs hang in some runs, for a reason that is not known: run by hand"]
fn connections_are_made_and_ended_with_packet_loss() {
    needs("rping", "rdmacm-utils");
    let environment = [("NICHROME_LOSS", "5%"), ("NICHROME_SEED", "7")];
    [&EXAMPLES[0], &EXAMPLES[3], &EXAMPLES[6]].into_iter().for_each(|pair| run(pair, &environment));
}

/// Connects to rping and exits, without disconnecting and without Python's own clean-up.
const EXITING: &str = "import ctypes
import pyverbs.cm_enums as ce
from pyverbs.cmid import CMID, AddrInfo
from pyverbs.qp import QPCap, QPInitAttr
info = AddrInfo(src=None, dst='127.77.0.2', dst_service='7174', port_space=ce.RDMA_PS_TCP)
identifier = CMID(creator=info, qp_init_attr=QPInitAttr(cap=QPCap(max_recv_wr=1)))
identifier.connect()
ctypes.CDLL(None).exit(0)
";

#[test]
#[ignore = "pairs hang in some runs, for a reason that is not known: run by hand"]
fn a_process_that_exits_ends_its_connections() {
    needs("rping", "rdmacm-utils");
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program.py");
    fs::write(&program, EXITING).unwrap();
    let client = format!("/usr/bin/python3 {}", program.display());
    // rping waits for the peer's requests, and ends when it disconnects.
    run(&Pair("rping -s -a @", &client), &[]);
}

/// A server that returns 100,000 bytes in reverse.
const SERVER_OF_SOCKETS: &str = "import socket
listener = socket.socket()
listener.bind(('127.77.0.2', 7999))
listener.listen(1)
connection, _ = listener.accept()
received = b''
while len(received) < 100000:
    received += connection.recv(100000)
connection.sendall(received[::-1])
connection.close()
";

/// Its client. A socket whose connection was refused is of no further use.
const CLIENT_OF_SOCKETS: &str = "import socket, time
for _ in range(100):
    connection = socket.socket()
    if connection.connect_ex(('127.77.0.2', 7999)) == 0:
        break
    time.sleep(0.1)
sent = bytes(i % 251 for i in range(100000))
connection.sendall(sent)
received = b''
while len(received) < 100000:
    received += connection.recv(100000)
assert received == sent[::-1]
";

#[test]
#[ignore = "pairs hang in some runs, for a reason that is not known: run by hand"]
fn sockets_of_python_run_over_librspreload() {
    needs("rping", "rdmacm-utils");
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let preloaded = crate::common::environment()[1].1.clone();
    let architecture = std::env::consts::ARCH;
    let sockets = format!("/usr/lib/{architecture}-linux-gnu/rsocket/librspreload.so:{preloaded}");
    let start = |name: &str, text: &str, address: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        let line = format!("/usr/bin/python3 {}", path.display());
        spawn(&line, address, &[("LD_PRELOAD", &sockets)])
    };
    let server = start("server.py", SERVER_OF_SOCKETS, SERVER);
    let client = ended(start("client.py", CLIENT_OF_SOCKETS, CLIENT), "the client");
    let server = ended(server, "the server");
    for end in [client, server] {
        assert!(end.status.success(), "{}", String::from_utf8_lossy(&end.stderr));
    }
}
