//! Programs that use rdma-core's unmodified librdmacm, whose device file is emulated within the process.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Output};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::applications::Application;
use crate::running::{THROUGH_MEMORY, command, ended, is_listening, needs, turn};

/// Addresses of the two processes, which no other test uses.
pub(crate) const SERVER: &str = "127.77.0.2";
const CLIENT: &str = "127.77.0.3";

/// How long a server may take until it listens.
const UNTIL_LISTENING: Duration = Duration::from_secs(20);

pub(crate) const STAR: (&str, &str) = ("NICHROME_TRANSPORT", "star");
pub(crate) const IWARP: (&str, &str) = ("NICHROME_TRANSPORT", "iwarp");

/// The TCP port of qperf.
const QPERF_PORT: &str = "19765";

/// The TCP port of uDAPL's tests.
const DTEST_PORT: &str = "15828";

/// The group of mckey, which no other test joins.
const GROUP: &str = "239.77.0.1";

const EXAMPLES_OF_LIBRDMACM: Application = Application {
    name: "rdma-core's examples of librdmacm",
    version: "44.0",
    package: "rdmacm-utils",
    operations: "rping, ucmatose, udaddy, mckey, cmtime, rdma_client, rdma_xclient, rstream, rcopy, riostream",
    transport: "connection manager; RC, UD, multicast; iWARP; StaR",
};

const LIBRSPRELOAD: Application = Application {
    name: "librspreload",
    version: "44.0",
    package: "librdmacm1",
    operations: "Python's sockets",
    transport: "connection manager; RC; iWARP",
};

const PERFTEST: Application = Application {
    name: "perftest",
    version: "4.5",
    package: "perftest",
    operations: "write, read, send and atomic with `-R`",
    transport: "connection manager; RC; iWARP; StaR",
};

const QPERF: Application = Application {
    name: "qperf",
    version: "0.4.11",
    package: "qperf",
    operations: "`rc_bw`, `rc_lat`, `rc_rdma_write_bw` with `-cm1`",
    transport: "connection manager; RC; StaR",
};

const FIO: Application = Application {
    name: "fio",
    version: "3.33",
    package: "fio",
    operations: "`ioengine=rdma` with `verb=write` and `verb=read`",
    transport: "connection manager; RC; iWARP; StaR",
};

pub(crate) const OF_LIBRDMACM: [Application; 5] = [EXAMPLES_OF_LIBRDMACM, LIBRSPRELOAD, PERFTEST, QPERF, FIO];

/// A server and its client; `@` is the server's address, `#` a folder. A server that never ends has a `!`,
/// and is killed after its client.
pub(crate) struct Pair<'a>(pub(crate) &'a str, pub(crate) &'a str);

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
    Pair("rstream -b @ -S 4096 -C 100", "rstream -s @ -S 4096 -C 100"),
    Pair("rstream -b @ -S 64 -C 100 -T n", "rstream -s @ -S 64 -C 100 -T n"),
    Pair("!rcopy", "rcopy /etc/services @:#/copied"),
    Pair("riostream -b @ -S 4096 -C 100", "riostream -s @ -S 4096 -C 100"),
    Pair("mckey -b @ -m 239.77.0.1", "mckey -b 127.77.0.3 -m 239.77.0.1 -s"),
];

/// A pair of the same package, rdmacm-utils. Version 65 has other options.
const CMTIME: Pair<'_> = Pair("!cmtime -b @", "cmtime -s @ -c 100");

/// Debian's packages perftest, qperf and fio.
const BENCHMARKS: &[Pair<'_>] = &[
    Pair("ib_write_bw -R -F -n 100", "ib_write_bw -R -F -n 100 @"),
    Pair("ib_read_bw -R -F -n 100", "ib_read_bw -R -F -n 100 @"),
    Pair("ib_send_bw -R -F -n 100", "ib_send_bw -R -F -n 100 @"),
    Pair("ib_send_bw -R -F -n 100 -b", "ib_send_bw -R -F -n 100 -b @"),
    Pair("ib_send_lat -R -F -n 50", "ib_send_lat -R -F -n 50 @"),
    Pair("ib_write_lat -R -F -n 50", "ib_write_lat -R -F -n 50 @"),
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

/// Starts a program as the leader of a process group.
fn spawn(line: &str, address: &str, more: &[(&str, &str)]) -> Child {
    let environment = [&[("NICHROME_IP", address)], more].concat();
    let line = line.replace('@', SERVER).replace('#', env!("CARGO_TARGET_TMPDIR"));
    command(&line, &[], &environment).process_group(0).spawn().unwrap()
}

/// A server, killed when dropped, with the processes that it has started: they would keep its address if the
/// test fails.
struct Server(Option<Child>);

impl Server {
    /// Starts a server and waits until its client may start.
    fn start(line: &str, more: &[(&str, &str)]) -> Self {
        let mut child = spawn(line, SERVER, more);
        let process = child.id();
        let start = Instant::now();
        while !is_ready(line, process, more) {
            let is_over = child.try_wait().unwrap().is_some() || start.elapsed() > UNTIL_LISTENING;
            if is_over {
                child.kill().unwrap();
                let stderr = child.wait_with_output().unwrap().stderr;
                panic!("{line} does not listen: {}", String::from_utf8_lossy(&stderr));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Self(Some(child))
    }

    fn kill(&mut self) {
        let id = self.0.as_ref().and_then(|child| Pid::from_raw(child.id().cast_signed()));
        if let Some(id) = id {
            // Fails if all its processes have ended.
            let _ = kill_process_group(id, Signal::KILL);
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

/// Returns true once a server takes clients.
fn is_ready(line: &str, process: u32, more: &[(&str, &str)]) -> bool {
    match line.split(' ').next() {
        // qperf's client sends the connection manager's port over TCP.
        Some("qperf") => is_listening(QPERF_PORT),
        // uDAPL's clients ask for that port over TCP, too.
        Some("dtest" | "dtestcm" | "dtestx") => is_listening(DTEST_PORT),
        // mckey joins a group and has no port.
        Some("mckey") => has_joined(GROUP),
        _ if more.contains(&IWARP) => listens_beside_its_adapter(),
        _ => [process].into_iter().chain(children(process)).any(has_service_port),
    }
}

fn children(process: u32) -> Vec<u32> {
    // The process may have ended.
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    children.unwrap_or_default().split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// Returns true if a process at its adapter's address listens at a port of the connection manager: the file
/// of service ports names its slot.
fn has_service_port(process: u32) -> bool {
    let files = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let is_table = |path: &std::path::PathBuf| {
        fs::read_link(path).is_ok_and(|target| target.to_string_lossy().contains("memfd:nichrome-ports/"))
    };
    let mut tables = files.map(|file| file.path()).filter(is_table);
    tables.any(|path| fs::read(path).is_ok_and(|ports| ports.iter().any(|slot| *slot != 0)))
}

/// Returns true if a TCP port is listened at on the server's address, other than those of adapters.
fn listens_beside_its_adapter() -> bool {
    let address: Ipv4Addr = SERVER.parse().unwrap();
    let (address, adapters) = (format!("{:08X}", u32::from_ne_bytes(address.octets())), 4832..4864);
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
    let ports = sockets.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, state) = (fields.next()?, fields.nth(1)?);
        let (host, port) = local.split_once(':')?;
        let port = u32::from_str_radix(port, 16).ok()?;
        (state == "0A" && host == address).then_some(port)
    });
    ports.into_iter().any(|port| !adapters.contains(&port))
}

/// Returns true if a process of this machine has joined the group.
fn has_joined(group: &str) -> bool {
    let address: Ipv4Addr = group.parse().unwrap();
    let number = format!("{:08X}", u32::from_ne_bytes(address.octets()));
    fs::read_to_string("/proc/net/igmp").unwrap().contains(&number)
}

/// Runs a pair; both must succeed.
pub(crate) fn run(pair: &Pair<'_>, more: &[(&str, &str)]) {
    run_each(pair, [more; 2]);
}

/// Runs a pair, the server and the client each with an environment of its own; both must succeed.
fn run_each(pair: &Pair<'_>, environments: [&[(&str, &str)]; 2]) {
    let _turn = turn();
    let mut ends = ends_of(pair, environments);
    for _ in 1..TRIES {
        if !came_too_early(&ends[1]) && !ends.iter().any(closed_its_channel_too_early) {
            break;
        }
        ends = ends_of(pair, environments);
    }
    let [server, client] = ends;
    let is_endless = pair.0.starts_with('!');
    let is_right = client.status.success()
        && (server.status.success() || is_endless && server.status.signal() == Some(9));
    let text = [&client.stdout, &client.stderr, &server.stdout, &server.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .join("\n---\n");
    assert!(is_right, "{}: {}, server {}\n{text}", pair.1, client.status, server.status);
}

/// Maximum number of runs of a pair that loses a race of its own programs.
const TRIES: usize = 5;

/// Returns true if the client was refused because its server was not ready yet. After the first connection
/// perftest's server ends its listener and makes another at the same port; its client does not wait for it,
/// and is refused by TCP. dtestx's server answers its client over TCP before it creates its listener
/// (`connect_ep`). riostream's server listens before it makes room for the client's mappings
/// (`server_connect`).
fn came_too_early(client: &Output) -> bool {
    let refusals = [
        "Event: RDMA_CM_EVENT_REJECTED; error: -111.",
        "dapl_cma_active: non-consumer REJ, reason=8,",
        "riomap: Cannot allocate memory",
    ];
    [&client.stdout, &client.stderr].into_iter().any(|bytes| {
        let text = String::from_utf8_lossy(bytes);
        refusals.iter().any(|refusal| text.contains(refusal))
    })
}

/// Returns true if rping closed its event channel while its thread `cm_thread` was between two events. The
/// thread, which should wait in `rdma_get_cm_event` until the process ends, then finds no file and ends the
/// process with status 255, on a busy machine only.
fn closed_its_channel_too_early(end: &Output) -> bool {
    String::from_utf8_lossy(&end.stderr).ends_with("rdma_get_cm_event: Bad file descriptor\n")
}

/// Runs a pair; returns how the server and the client ended.
fn ends_of(
    Pair(server_line, client_line): &Pair<'_>,
    [of_server, of_client]: [&[(&str, &str)]; 2],
) -> [Output; 2] {
    let is_endless = server_line.starts_with('!');
    let mut server = Server::start(server_line.trim_start_matches('!'), of_server);
    let client = ended(spawn(client_line, CLIENT, of_client), client_line);
    if is_endless || !client.status.success() {
        server.kill();
    }
    [server.ended(server_line), client]
}

#[test]
fn the_examples_of_librdmacm_run() {
    needs("rping", EXAMPLES_OF_LIBRDMACM.package);
    EXAMPLES.iter().for_each(|pair| run(pair, &[]));
}

#[test]
fn cmtime_runs() {
    needs("cmtime", EXAMPLES_OF_LIBRDMACM.package);
    run(&CMTIME, &[]);
}

#[test]
fn benchmarks_connect_by_the_connection_manager() {
    needs("ib_write_bw", PERFTEST.package);
    needs("qperf", QPERF.package);
    needs("fio", FIO.package);
    BENCHMARKS.iter().for_each(|pair| run(pair, &[]));
}

#[test]
fn connections_are_made_and_ended_with_packet_loss() {
    needs("rping", EXAMPLES_OF_LIBRDMACM.package);
    let environment = [("NICHROME_LOSS", "5%"), ("NICHROME_SEED", "7")];
    [&EXAMPLES[0], &EXAMPLES[3], &EXAMPLES[6]].into_iter().for_each(|pair| run(pair, &environment));
}

/// iWARP has no datagrams, multicast or XRC. The connection manager does not find out whether an iWARP peer
/// has atomics. The client of qperf connects before its server listens, which TCP refuses.
const NOT_ON_IWARP: &[&str] = &["udaddy", "rdma_xserver", "mckey", "ib_atomic_lat", "!qperf"];

#[test]
fn the_examples_and_benchmarks_run_over_iwarp() {
    needs("rping", EXAMPLES_OF_LIBRDMACM.package);
    needs("ib_write_bw", PERFTEST.package);
    let can = |Pair(server, _): &&Pair<'_>| !NOT_ON_IWARP.iter().any(|program| server.starts_with(program));
    EXAMPLES.iter().chain([&CMTIME]).chain(BENCHMARKS).filter(can).for_each(|pair| run(pair, &[IWARP]));
}

#[test]
fn connections_of_the_connection_manager_go_through_memory() {
    needs("rping", EXAMPLES_OF_LIBRDMACM.package);
    needs("ib_write_bw", PERFTEST.package);
    let pairs = [&EXAMPLES[0], &EXAMPLES[3], &EXAMPLES[6], &BENCHMARKS[0]];
    pairs.into_iter().for_each(|pair| run(pair, &[THROUGH_MEMORY]));
}

/// StaR has no packets for XRC.
const NOT_ON_STAR: &[&str] = &["rdma_xserver"];

#[test]
fn the_examples_and_benchmarks_run_where_the_server_keeps_no_state() {
    needs("rping", EXAMPLES_OF_LIBRDMACM.package);
    needs("ib_write_bw", PERFTEST.package);
    let server = [STAR, ("NICHROME_STATELESS", "self")];
    let can = |Pair(server, _): &&Pair<'_>| !NOT_ON_STAR.iter().any(|program| server.starts_with(program));
    EXAMPLES
        .iter()
        .chain([&CMTIME])
        .chain(BENCHMARKS)
        .filter(can)
        .for_each(|pair| run_each(pair, [&server, &[STAR]]));
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
fn a_process_that_exits_ends_its_connections() {
    needs("rping", EXAMPLES_OF_LIBRDMACM.package);
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program.py");
    fs::write(&program, EXITING).unwrap();
    let client = format!("/usr/bin/python3 {}", program.display());
    // rping waits for the peer's requests, and ends when it disconnects.
    run(&Pair("rping -s -a @", &client), &[]);
}

/// A server that returns 100,000 bytes in reverse. Python's own `socket` and `accept` pass SOCK_CLOEXEC, and
/// librspreload leaves sockets with that flag to the kernel.
const SERVER_OF_SOCKETS: &str = "import ctypes, socket
calls = ctypes.CDLL(None)
def of(fd):
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=fd)
listener = of(calls.socket(socket.AF_INET, socket.SOCK_STREAM, 0))
listener.bind(('127.77.0.2', 7999))
listener.listen(1)
connection = of(calls.accept(listener.fileno(), None, None))
received = b''
while len(received) < 100000:
    received += connection.recv(100000)
connection.sendall(received[::-1])
connection.close()
";

/// The client of [`SERVER_OF_SOCKETS`].
const CLIENT_OF_SOCKETS: &str = "import ctypes, socket
calls = ctypes.CDLL(None)
fd = calls.socket(socket.AF_INET, socket.SOCK_STREAM, 0)
connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, fileno=fd)
connection.connect(('127.77.0.2', 7999))
sent = bytes(i % 251 for i in range(100000))
connection.sendall(sent)
received = b''
while len(received) < 100000:
    received += connection.recv(100000)
assert received == sent[::-1]
";

#[test]
fn sockets_of_python_run_over_librspreload() {
    needs("rping", EXAMPLES_OF_LIBRDMACM.package);
    let folder = tempfile::tempdir().unwrap();
    let preloaded = crate::common::environment()[1].1.clone();
    let architecture = std::env::consts::ARCH;
    let sockets = format!("/usr/lib/{architecture}-linux-gnu/rsocket/librspreload.so:{preloaded}");
    let [server, client] =
        [("server.py", SERVER_OF_SOCKETS), ("client.py", CLIENT_OF_SOCKETS)].map(|(name, text)| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            format!("/usr/bin/python3 {}", path.display())
        });
    for more in [&[][..], &[IWARP]] {
        run(&Pair(&server, &client), &[&[("LD_PRELOAD", sockets.as_str())], more].concat());
    }
}
