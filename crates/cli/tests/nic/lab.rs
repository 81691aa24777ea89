//! Two network namespaces and a wire between them: `w0`, which the card uses, and `p0`, its other end.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use nichrome_port::{Feature, Interface, InterfaceName, Netlink, NetworkNamespace, uninterrupted};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) use crate::common::{failure, text};
pub(crate) use crate::until::{TIMEOUT, until};

const PORT: u16 = 5001;

/// Environment variable that is set if the test runs in a user namespace.
const SANDBOX: &str = "NICHROME_TEST_SANDBOX";

/// Returns true if this process may create network namespaces. Otherwise runs the test in a process that may,
/// in a user namespace, and returns false.
pub(crate) fn is_able(test: &str) -> bool {
    if NetworkNamespace::new().is_ok() {
        return true;
    }
    let status = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net"])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(SANDBOX, "1")
        .status()
        .expect("these tests need root, or unshare(1) and user namespaces");
    assert!(status.success(), "{test}");
    false
}

/// Returns from a test that has run in another process.
macro_rules! needs_namespaces {
    ($test:literal) => {
        if !crate::lab::is_able($test) {
            return;
        }
    };
}
pub(crate) use needs_namespaces;

/// Returns the available back ends: AF_XDP needs root.
pub(crate) fn back_ends() -> &'static [&'static str] {
    if std::env::var_os(SANDBOX).is_some() { &["packet"] } else { &["packet", "xdp"] }
}

pub(crate) fn name(name: &str) -> InterfaceName {
    name.parse().unwrap()
}

/// The two namespaces.
pub(crate) struct Lab {
    /// The namespace of the card.
    pub(crate) here: NetworkNamespace,
    pub(crate) there: NetworkNamespace,
    directory: TempDir,
}

impl Lab {
    /// Creates the namespaces and the wire, with both ends up. The sender at `p0` completes its checksums.
    pub(crate) fn new() -> Self {
        let (here, there) = (NetworkNamespace::new().unwrap(), NetworkNamespace::new().unwrap());
        for namespace in [&here, &there] {
            namespace
                .run(|| {
                    // A new namespace may inherit the machine's setting.
                    fs::write("/proc/sys/net/ipv4/ip_forward", "0").unwrap();
                    let netlink = Netlink::open().unwrap();
                    netlink.set_up(&netlink.interface(name("lo")).unwrap()).unwrap();
                })
                .unwrap();
        }
        let lab = Self { here, there, directory: tempfile::tempdir().unwrap() };
        // Removes the files of cards that were killed in an earlier namespace with the same inode number.
        lab.files().iter().for_each(|file| fs::remove_file(file).unwrap());
        lab.add_wire();
        lab
    }

    /// Creates the wire.
    pub(crate) fn add_wire(&self) {
        self.here
            .run(|| Netlink::open().unwrap().add_veth(name("w0"), name("p0"), &self.there).unwrap())
            .unwrap();
        self.there
            .run(|| {
                Feature::TransmitChecksum.disable(name("p0")).unwrap();
                let netlink = Netlink::open().unwrap();
                netlink.set_up(&netlink.interface(name("p0")).unwrap()).unwrap();
            })
            .unwrap();
        self.here(|netlink| netlink.set_up(&netlink.interface(name("w0")).unwrap()).unwrap());
        self.there.run(|| add_addresses("p0", 2)).unwrap();
    }

    /// Runs `work` in the card's namespace.
    pub(crate) fn here<T>(&self, work: impl FnOnce(&Netlink) -> T) -> T {
        self.here.run(|| work(&Netlink::open().unwrap())).unwrap()
    }

    pub(crate) fn interface(&self, called: &str) -> Interface {
        self.here(|netlink| netlink.interface(name(called)).unwrap())
    }

    /// Adds addresses to the host interface.
    pub(crate) fn configure_host(&self) {
        self.here.run(|| add_addresses("h0", 1)).unwrap();
    }

    /// Runs `ip` in the card's namespace.
    pub(crate) fn ip(&self, arguments: &str) {
        let command = || {
            let mut command = Command::new("ip");
            command.args(arguments.split(' ')).status().expect("these tests need ip (Debian: iproute2)")
        };
        assert!(self.here.run(command).unwrap().success(), "ip {arguments}");
    }

    /// Moves an interface to the other namespace.
    pub(crate) fn move_there(&self, interface: &str) {
        let there = format!("/proc/{}/fd/{}", std::process::id(), self.there.as_fd().as_raw_fd());
        self.ip(&format!("link set {interface} netns {there}"));
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    /// Returns the command `nichrome` with these arguments, in the card's namespace.
    pub(crate) fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).env("XDG_RUNTIME_DIR", self.directory.path()).stdin(Stdio::null());
        command
    }

    /// Runs `nichrome` and waits for its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(env!("CARGO_BIN_EXE_nichrome"), arguments);
        self.here.run(|| command.output().unwrap()).unwrap()
    }

    /// Returns the error line of `nichrome`, and its exit status.
    pub(crate) fn failure(&self, arguments: &[&str]) -> (String, i32) {
        failure(&self.run(arguments))
    }

    /// Starts `nichrome nic up` between w0 and h0, and waits until it is up.
    pub(crate) fn up(&self, arguments: &[&str]) -> Up {
        let between = ["nic", "up", "--wire", "w0", "--host", "h0"];
        let mut command = self.command(env!("CARGO_BIN_EXE_nichrome"), &[&between, arguments].concat());
        self.start(&mut command)
    }

    /// Starts a command that runs a card, and waits until the card is up.
    pub(crate) fn start(&self, command: &mut Command) -> Up {
        let mut up = self.here.run(|| Up::new(command)).unwrap();
        up.wait_for(" is up on ");
        up
    }

    /// Returns the counters of the only card.
    pub(crate) fn stats(&self) -> Value {
        let output = self.run(&["nic", "stats", "--json"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns true if no file of a card is left.
    pub(crate) fn is_tidy(&self) -> bool {
        self.files().is_empty()
    }

    /// Opens the claim of the only card.
    pub(crate) fn claim(&self) -> File {
        File::open(self.claim_path()).unwrap()
    }

    /// Returns the path of the claim of the only card.
    pub(crate) fn claim_path(&self) -> PathBuf {
        let claims = self.files().into_iter().filter(|path| path.extension().is_some_and(|of| of == "json"));
        let [claim] = <[_; 1]>::try_from(claims.collect::<Vec<_>>()).unwrap();
        claim
    }

    /// Returns the files of the cards.
    fn files(&self) -> Vec<PathBuf> {
        let suffix = self.here.run(|| {
            use std::os::unix::fs::MetadataExt;
            format!("@{}.", fs::metadata("/proc/thread-self/ns/net").unwrap().ino())
        });
        let suffix = suffix.unwrap();
        let places = [Path::new("/run/nichrome").to_owned(), self.directory.path().join("nichrome")];
        let files = places.iter().filter_map(|place| fs::read_dir(place).ok()).flatten().flatten();
        files.map(|file| file.path()).filter(|path| path.to_str().unwrap().contains(&suffix)).collect()
    }

    /// Sends `data` from one side to the other over TCP, and checks that it arrives unchanged.
    pub(crate) fn transfer(&self, data: &'static [u8], direction: Direction, family: Family) {
        let (from, to) = match direction {
            Direction::ToHost => (&self.there, &self.here),
            Direction::FromHost => (&self.here, &self.there),
        };
        let address = address(family, if direction == Direction::ToHost { 1 } else { 2 });
        let listener = to.run(|| listen(SocketAddr::new(address, PORT))).unwrap();
        let mut sender = from
            .run(|| TcpStream::connect_timeout(&SocketAddr::new(address, PORT), TIMEOUT).unwrap())
            .unwrap();
        let sending = thread::spawn(move || sender.write_all(data).unwrap());
        let (mut receiver, _) = listener.accept().unwrap();
        receiver.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut received = Vec::with_capacity(data.len());
        receiver.read_to_end(&mut received).unwrap();
        sending.join().unwrap();
        assert!(received == data, "{direction:?} {family:?}: {} of {} bytes", received.len(), data.len());
    }

    /// Sends UDP datagrams to the host and checks that they arrive unchanged in order. Sends `at_once`
    /// datagrams before it receives them: the socket and the queue of an unresolved neighbour hold few.
    pub(crate) fn send_datagrams(&self, datagrams: &[Vec<u8>], at_once: usize, family: Family) {
        let to = SocketAddr::new(address(family, 1), PORT);
        let receiver = self.here.run(|| UdpSocket::bind(to).unwrap()).unwrap();
        receiver.set_read_timeout(Some(TIMEOUT)).unwrap();
        let from = SocketAddr::new(address(family, 2), PORT);
        let sender = self.there.run(|| UdpSocket::bind(from).unwrap()).unwrap();
        let mut received = vec![0; 65_536];
        for some in datagrams.chunks(at_once) {
            for datagram in some {
                assert_eq!(sender.send_to(datagram, to).unwrap(), datagram.len());
            }
            for datagram in some {
                let len = uninterrupted(|| receiver.recv(&mut received)).unwrap();
                assert!(received[..len] == *datagram, "{family:?}: {len} bytes for {}", datagram.len());
            }
        }
    }

    /// Waits until the hosts can connect.
    pub(crate) fn wait_until_connected(&self) {
        until("a connection", || {
            let address = SocketAddr::new(address(Family::V4, 2), PORT);
            let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(1));
            match self.here.run(connect).unwrap() {
                Ok(_) => true,
                // The other host has answered.
                Err(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
            }
        });
    }
}

/// Listens at an address whose last listener has been closed: a child that another test has forked keeps the
/// descriptor open until it executes its program.
fn listen(address: SocketAddr) -> TcpListener {
    let mut listener = None;
    until("a listener", || match TcpListener::bind(address) {
        Ok(bound) => listener.replace(bound).is_none(),
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
            false
        }
    });
    listener.unwrap()
}

/// The direction of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToHost,
    FromHost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

const fn address(family: Family, number: u8) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::new(10, 8, 0, number)),
        Family::V6 => IpAddr::V6(Ipv6Addr::new(0xFD08, 0, 0, 0, 0, 0, 0, number as u16)),
    }
}

/// Adds addresses to an interface of this namespace.
pub(crate) fn add_addresses(called: &str, number: u8) {
    let netlink = Netlink::open().unwrap();
    let interface = netlink.interface(name(called)).unwrap();
    netlink.wait_until_running(&interface).unwrap();
    netlink.add_address(&interface, address(Family::V4, number), 24).unwrap();
    netlink.add_address(&interface, address(Family::V6, number), 64).unwrap();
}

/// A running card; ended on drop, since its files would otherwise be taken for those of a later namespace
/// with the same inode number.
pub(crate) struct Up {
    child: Child,
    lines: Receiver<String>,
    logged: Vec<String>,
}

impl Up {
    fn new(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (to, lines) = mpsc::channel();
        let stderr = child.stderr.take().unwrap();
        thread::spawn(move || {
            BufReader::new(stderr).lines().map_while(Result::ok).for_each(|line| drop(to.send(line)));
        });
        Self { child, lines, logged: Vec::new() }
    }

    /// Waits for a line on standard error that contains these words, and returns it.
    pub(crate) fn wait_for(&mut self, words: &str) -> String {
        let until = Instant::now() + TIMEOUT;
        loop {
            let Ok(line) = self.lines.recv_timeout(until - Instant::now()) else {
                panic!("'{words}' was not printed: {:?}", self.logged);
            };
            self.logged.push(line.clone());
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Returns its resident memory, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end. Returns its lines on standard error, and its exit status.
    pub(crate) fn wait(mut self) -> (Vec<String>, Option<i32>) {
        let until = Instant::now() + TIMEOUT;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "it does not end: {:?}", self.logged);
            thread::sleep(Duration::from_millis(5));
        };
        let rest = self.lines.iter().collect::<Vec<_>>();
        self.logged.extend(rest);
        (std::mem::take(&mut self.logged), status.code())
    }

    /// Ends it by SIGTERM, as a service manager does.
    pub(crate) fn stop(self) -> Vec<String> {
        self.signal(Signal::TERM);
        let (logged, status) = self.wait();
        assert_eq!(status, Some(0), "{logged:?}");
        logged
    }

    /// Ends it by SIGKILL.
    pub(crate) fn kill(self) {
        self.signal(Signal::KILL);
        assert_eq!(self.wait().1, None);
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            self.signal(Signal::TERM);
            let _ = self.child.wait();
        }
    }
}
