//! Changing a path while it is in use, and asking it: a socket that `nichrome wan set` and `nichrome wan show` talk to.
//! A request is one line of JSON, and so is its answer.

use std::fs::{self, DirBuilder};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use nichrome_wan::Impairments;
use serde::{Deserialize, Serialize};

use super::impairment_options::Asked;
use super::live_path::Remote;
use super::summary::Summary;

/// Bytes of a request or an answer.
const LONGEST: u64 = 1 << 20;

/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a path in use is asked.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// Impair packets like this, everything else as before.
    Set(Asked),
    /// What have you done so far?
    Show,
}

/// What it says.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// It is done.
    Done,
    /// This was done so far.
    Summary(Box<Summary>),
    /// That is not possible.
    Error(String),
}

/// The socket of this process; it goes when this is dropped.
pub(super) struct ControlSocket(PathBuf);

/// What a path answers with.
pub(super) struct Controlled {
    pub(super) remote: Remote,
    pub(super) impairments: [Impairments; 2],
    pub(super) seed: u64,
}

impl ControlSocket {
    /// Answers requests from now on, on a thread of its own.
    pub(super) fn open(mut path: Controlled) -> anyhow::Result<Self> {
        let directory = directory();
        let file = directory.join(format!("wan-{}.sock", process::id()));
        let listen = || {
            DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
            // One of an earlier process with the same number.
            let _ = fs::remove_file(&file);
            UnixListener::bind(&file)
        };
        let listener = listen().with_context(|| format!("cannot listen at {}", file.display()))?;
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // Whoever asks and does not wait for the answer misses it.
                let _ = path.serve(&stream);
            }
        });
        Ok(Self(file))
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // It may have been removed by someone else.
        let _ = fs::remove_file(&self.0);
        // Others' sockets may be there.
        let _ = self.0.parent().map(fs::remove_dir);
    }
}

impl Controlled {
    fn serve(&mut self, stream: &UnixStream) -> anyhow::Result<()> {
        let answer = match receive(stream)? {
            Request::Set(asked) => self.set(&asked).map(|()| Answer::Done),
            Request::Show => self.summary().map(|summary| Answer::Summary(Box::new(summary))),
        };
        send(stream, &answer.unwrap_or_else(|error| Answer::Error(format!("{error:#}"))))
    }

    fn set(&mut self, asked: &Asked) -> anyhow::Result<()> {
        let mut impairments = self.impairments.clone();
        asked.apply(&mut impairments)?;
        self.remote.impair(&impairments)?;
        self.impairments = impairments;
        Ok(())
    }

    fn summary(&self) -> anyhow::Result<Summary> {
        Ok(Summary::new(self.seed, &self.remote.reports()?, [0, 0]))
    }
}

/// Asks the path of process `pid`, or the only one there is.
pub(super) fn ask(pid: Option<u32>, request: &Request) -> anyhow::Result<Answer> {
    let stream = match pid {
        Some(pid) => UnixStream::connect(directory().join(format!("wan-{pid}.sock")))
            .with_context(|| format!("process {pid} does not run 'nichrome wan' as this user"))?,
        None => the_only_one()?,
    };
    send(&stream, request)?;
    receive(&stream).context("no answer")
}

/// The only path in use.
fn the_only_one() -> anyhow::Result<UnixStream> {
    let entries = fs::read_dir(directory()).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.path()) {
        let Some(pid) = pid_of(&path) else { continue };
        match UnixStream::connect(&path) {
            Ok(stream) => found.push((pid, stream)),
            // Its process was killed.
            Err(_) => drop(fs::remove_file(&path)),
        }
    }
    if found.len() > 1 {
        let pids = found.iter().map(|(pid, _)| pid.to_string()).collect::<Vec<_>>().join(", ");
        bail!("several run 'nichrome wan': say which one with --run ({pids})");
    }
    found.pop().map(|(_, stream)| stream).ok_or_else(|| anyhow!("nobody runs 'nichrome wan' as this user"))
}

fn pid_of(socket: &Path) -> Option<u32> {
    socket.file_name()?.to_str()?.strip_prefix("wan-")?.strip_suffix(".sock")?.parse().ok()
}

/// Where this user's sockets are.
fn directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) if !directory.is_empty() => PathBuf::from(directory).join("nichrome"),
        _ => std::env::temp_dir().join(format!("nichrome-{}", rustix::process::geteuid().as_raw())),
    }
}

fn send<T: Serialize>(mut stream: &UnixStream, message: &T) -> anyhow::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream.write_all((serde_json::to_string(message)? + "\n").as_bytes())?)
}

fn receive<T: for<'a> Deserialize<'a>>(stream: &UnixStream) -> anyhow::Result<T> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}
