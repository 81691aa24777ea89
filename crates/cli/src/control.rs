//! Control sockets of running commands: a request is one line of JSON, and so is its answer.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use nichrome_port::uninterrupted;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Uid, geteuid};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::deadline::remaining;
use crate::{runtime_dir, threads};

/// Maximum length of a request or answer, in bytes: enough for the longest text file ([`read_text`]), in
/// which JSON takes two bytes for a line end.
///
/// [`read_text`]: nichrome_sim::experiment::read_text
const LONGEST: usize = 1 << 27;

/// Timeout of a client for its answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout for receiving a client's request, and again for sending the answer: together less than
/// [`TIMEOUT`], for which other clients wait meanwhile.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Time until the next attempt to accept a client, after one has failed.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// The control socket of this process; removed on drop.
pub(crate) struct ControlSocket(PathBuf);

impl ControlSocket {
    /// Starts to answer requests at `file` on a separate thread.
    pub(crate) fn open<Q: DeserializeOwned, A: Serialize>(
        file: PathBuf,
        mut answer: impl FnMut(Q) -> A + Send + 'static,
    ) -> anyhow::Result<Self> {
        let listener = listen(&file).with_context(|| format!("cannot listen at {}", file.display()))?;
        let socket = Self(file);
        threads::start("control", move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else {
                    // No descriptor is free: the client waits in the backlog.
                    thread::sleep(RETRY_DELAY);
                    continue;
                };
                // A client that disconnects misses the answer.
                let _ = receive(&stream, Instant::now() + CLIENT_TIMEOUT)
                    .and_then(|request| send(&stream, &answer(request), Instant::now() + CLIENT_TIMEOUT));
            }
        })?;
        Ok(socket)
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // Another process may have removed it.
        let _ = fs::remove_file(&self.0);
        if let Some(directory) = self.0.parent() {
            runtime_dir::remove_if_empty(directory);
        }
    }
}

/// Listens at a file, whose directory is created.
fn listen(file: &Path) -> anyhow::Result<UnixListener> {
    let bind = || {
        // A leftover of a process that was killed.
        let _ = fs::remove_file(file);
        UnixListener::bind(file)
    };
    match file.parent() {
        Some(directory) => runtime_dir::create_with(directory, bind),
        None => Ok(bind()?),
    }
}

/// Sends a request to the process at the other end and returns its answer. The process must belong to this
/// user or root: another user may have created the socket's directory.
pub(crate) fn ask<A: DeserializeOwned>(stream: &UnixStream, request: &impl Serialize) -> anyhow::Result<A> {
    let peer = socket_peercred(stream).context("cannot identify the owner of the process that answers")?.uid;
    ensure!(is_trusted(peer, geteuid()), "the process that answers belongs to another user");
    let until = Instant::now() + TIMEOUT;
    send(stream, request, until).and_then(|()| receive(stream, until)).map_err(without_answer)
}

/// Describes why a request has no answer.
fn without_answer(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<io::Error>().map(io::Error::kind) {
        // A socket's timeout is WouldBlock (socket(7), SO_RCVTIMEO).
        Some(ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            anyhow!("the process does not answer within {} s", TIMEOUT.as_secs())
        }
        _ => error.context("no answer"),
    }
}

fn is_trusted(peer: Uid, own: Uid) -> bool {
    peer == own || peer.is_root()
}

/// Sends a message until the deadline, however slowly the other side reads.
fn send(mut stream: &UnixStream, message: &impl Serialize, until: Instant) -> anyhow::Result<()> {
    let line = serde_json::to_string(message)? + "\n";
    ensure!(line.len() <= LONGEST, "{} bytes are too long for a message: at most {LONGEST}", line.len());
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        stream.set_write_timeout(Some(remaining(until)?))?;
        match uninterrupted(|| stream.write(rest))? {
            0 => return Err(io::Error::from(ErrorKind::WriteZero).into()),
            written => rest = &rest[written..],
        }
    }
    Ok(())
}

/// Receives a message until the deadline, however slowly the other side writes.
fn receive<T: DeserializeOwned>(mut stream: &UnixStream, until: Instant) -> anyhow::Result<T> {
    let (mut received, mut piece) = (Vec::new(), [0; 1 << 16]);
    loop {
        stream.set_read_timeout(Some(remaining(until)?))?;
        let len = uninterrupted(|| stream.read(&mut piece))?;
        let end = piece[..len].iter().position(|byte| *byte == b'\n');
        received.extend_from_slice(&piece[..end.unwrap_or(len)]);
        if end.is_some() || len == 0 || received.len() > LONGEST {
            return Ok(serde_json::from_slice(&received)?);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::fs::File;
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use rustix::time::{ClockId, clock_gettime};

    use super::*;

    const CHILD: &str = "NICHROME_TEST_CONTROL_SOCKET";

    /// Returns the processor time of this process.
    fn used() -> Duration {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    /// In a process of its own, which has no descriptor free.
    #[test]
    fn a_client_that_cannot_be_accepted_waits_and_costs_no_processor_time() {
        if env::var_os(CHILD).is_none() {
            let name = "control::tests::a_client_that_cannot_be_accepted_waits_and_costs_no_processor_time";
            let mut child = Command::new(env::current_exe().unwrap());
            assert!(child.args(["--exact", name]).env(CHILD, "").status().unwrap().success());
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("socket");
        let _socket = ControlSocket::open(file.clone(), |number: u32| number + 1).unwrap();
        let client = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..getrlimit(Resource::Nofile) }).unwrap();
        let taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        connect(&client, &SocketAddrUnix::new(&file).unwrap()).unwrap();
        let before = used();
        thread::sleep(Duration::from_millis(300));
        let used = used() - before;
        assert!(used < Duration::from_millis(30), "{used:?}");
        drop(taken);
        assert_eq!(ask::<u32>(&client.into(), &1).unwrap(), 2);
    }

    #[test]
    fn a_client_that_sends_byte_by_byte_does_not_keep_others_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("socket");
        let _socket = ControlSocket::open(file.clone(), |number: u32| number + 1).unwrap();
        let connect = || UnixStream::connect(&file).unwrap();
        let (mut slow, other, ended) = (connect(), connect(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                // Fails once its connection is closed.
                while !ended.load(Ordering::Relaxed) && slow.write_all(b"1").is_ok() {
                    thread::sleep(Duration::from_millis(10));
                }
            });
            let answer = ask::<u32>(&other, &1);
            ended.store(true, Ordering::Relaxed);
            assert_eq!(answer.unwrap(), 2);
        });
    }

    #[test]
    fn a_process_that_does_not_answer_and_a_request_that_is_too_long_are_reported() {
        let (client, mut server) = UnixStream::pair().unwrap();
        let error = ask::<u32>(&client, &1).unwrap_err();
        assert_eq!(format!("{error:#}"), "the process does not answer within 5 s");
        // Too long: not sent.
        let error = ask::<u32>(&client, &"x".repeat(LONGEST)).unwrap_err();
        let expected = "no answer: 134217731 bytes are too long for a message: at most 134217728";
        assert_eq!(format!("{error:#}"), expected);
        server.set_nonblocking(true).unwrap();
        assert_eq!(server.read(&mut [0; 4096]).unwrap(), "1\n".len());
    }

    #[test]
    fn a_socket_is_opened_while_others_remove_its_empty_directory() {
        let folder = tempfile::tempdir().unwrap();
        let (directory, ended) = (folder.path().join("nichrome"), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    runtime_dir::remove_if_empty(&directory);
                }
            });
            let open = |_| ControlSocket::open(directory.join("socket"), |number: u32| number).map(drop);
            let opened: anyhow::Result<()> = (0..200).try_for_each(open);
            ended.store(true, Ordering::Relaxed);
            opened.unwrap();
        });
    }

    #[test]
    fn this_user_and_root_are_trusted() {
        let [root, one, other] = [0, 1000, 1001].map(Uid::from_raw);
        assert!(is_trusted(one, one) && is_trusted(root, one) && is_trusted(root, root));
        assert!(!is_trusted(other, one) && !is_trusted(one, root));
    }
}
