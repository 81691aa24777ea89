//! Control sockets of running commands: a request is one line of JSON, and so is its answer.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Uid, geteuid};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{runtime_dir, threads};

/// Maximum length of a request or answer, in bytes.
const LONGEST: u64 = 1 << 20;

/// Timeout for the other side.
const PATIENCE: Duration = Duration::from_secs(5);

/// The control socket of this process; removed on drop.
pub(crate) struct ControlSocket(PathBuf);

impl ControlSocket {
    /// Starts to answer requests at `file` on a separate thread.
    pub(crate) fn open<Q: DeserializeOwned, A: Serialize>(
        file: PathBuf,
        mut answer: impl FnMut(Q) -> A + Send + 'static,
    ) -> anyhow::Result<Self> {
        if let Some(directory) = file.parent() {
            runtime_dir::create(directory)?;
        }
        // A leftover of a process that was killed.
        let _ = fs::remove_file(&file);
        let listener =
            UnixListener::bind(&file).with_context(|| format!("cannot listen at {}", file.display()))?;
        let socket = Self(file);
        threads::start("control", move || {
            for stream in listener.incoming().flatten() {
                // A client that disconnects misses the answer.
                let _ = receive(&stream).and_then(|request| send(&stream, &answer(request)));
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

/// Sends a request to the process at the other end, which must be this user's or root's, since others may have created
/// its directory.
pub(crate) fn ask<A: DeserializeOwned>(stream: &UnixStream, request: &impl Serialize) -> anyhow::Result<A> {
    let peer = socket_peercred(stream).context("cannot identify the owner of the process that answers")?.uid;
    ensure!(is_trusted(peer, geteuid()), "the process that answers belongs to another user");
    send(stream, request)?;
    receive(stream).context("no answer")
}

fn is_trusted(peer: Uid, own: Uid) -> bool {
    peer == own || peer.is_root()
}

fn send(mut stream: &UnixStream, message: &impl Serialize) -> anyhow::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream.write_all((serde_json::to_string(message)? + "\n").as_bytes())?)
}

fn receive<T: DeserializeOwned>(stream: &UnixStream) -> anyhow::Result<T> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_user_and_root_are_trusted() {
        let [root, one, other] = [0, 1000, 1001].map(Uid::from_raw);
        assert!(is_trusted(one, one) && is_trusted(root, one) && is_trusted(root, root));
        assert!(!is_trusted(other, one) && !is_trusted(one, root));
    }
}
