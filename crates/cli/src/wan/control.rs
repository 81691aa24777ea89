//! Requests of `nichrome wan set`, `show` and `exec` to a running path.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, anyhow, bail};
use nichrome_lab::Host;
use nichrome_wan::Impairments;
use serde::{Deserialize, Serialize};

use super::live_path::Remote;
use super::summary::Summary;
use crate::control::{self, ControlSocket};
use crate::impairment_options::ImpairmentSettings;
use crate::runtime_dir;
use crate::side::Side;

/// A request.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// Change these impairments; keep the others.
    Set(ImpairmentSettings),
    /// Report the results so far.
    Show,
    /// Return the host on this side.
    Host(Side),
}

/// An answer.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// Success; with the reason if the setting has no effect.
    Done(Option<String>),
    /// The results so far.
    Summary(Box<Summary>),
    /// The host.
    Host(HostNamespace),
    /// The request failed.
    Error(String),
}

/// How another process finds a host.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct HostNamespace {
    /// The process that holds the host's namespace.
    pub(super) pid: u32,
    /// The namespace's descriptor in that process.
    pub(super) namespace: RawFd,
    pub(super) has_ipv6: bool,
}

impl HostNamespace {
    /// Describes a host of this process.
    pub(super) fn of(host: &Host) -> Self {
        let namespace = host.namespace().as_fd().as_raw_fd();
        Self { pid: process::id(), namespace, has_ipv6: host.ipv6.is_ok() }
    }
}

/// Returns the numbers of packets that the kernel has dropped unread at the left and right end.
pub(super) type Unread = Arc<dyn Fn() -> anyhow::Result<[u64; 2]> + Send + Sync>;

/// The parts of a path that requests affect.
pub(super) struct Controlled {
    pub(super) remote: Remote,
    pub(super) impairments: [Impairments; 2],
    pub(super) seed: u64,
    /// The left and right host; empty between two interfaces.
    pub(super) hosts: Vec<HostNamespace>,
    pub(super) unread: Unread,
}

impl Controlled {
    /// Answers requests until the socket is dropped.
    pub(super) fn open(controlled: Arc<Mutex<Self>>) -> anyhow::Result<ControlSocket> {
        let file = runtime_dir::of_user().join(format!("wan-{}.sock", process::id()));
        ControlSocket::open(file, move |request| {
            // A request assigns everything that it changes, so the state stays valid even if a request
            // panics.
            controlled.lock().unwrap_or_else(PoisonError::into_inner).answer(&request)
        })
    }

    /// Executes a request and returns its answer.
    pub(super) fn answer(&mut self, request: &Request) -> Answer {
        let answer = match request {
            Request::Set(settings) => self.set(settings).map(Answer::Done),
            Request::Show => self.summary().map(|summary| Answer::Summary(Box::new(summary))),
            Request::Host(side) => self.host(*side).map(Answer::Host),
        };
        answer.unwrap_or_else(|error| Answer::Error(format!("{error:#}")))
    }

    /// Changes the impairments; returns the reason if a setting has no effect.
    fn set(&mut self, settings: &ImpairmentSettings) -> anyhow::Result<Option<String>> {
        let mut impairments = self.impairments.clone();
        settings.apply(&mut impairments)?;
        self.remote.impair(&impairments)?;
        self.impairments = impairments;
        Ok(settings.without_effect(&self.impairments))
    }

    fn host(&self, side: Side) -> anyhow::Result<HostNamespace> {
        let host = self.hosts.get(usize::from(side.number() - 1)).cloned();
        host.context("this path is between two interfaces and has no hosts")
    }

    fn summary(&self) -> anyhow::Result<Summary> {
        Ok(Summary::new(self.seed, &self.remote.reports()?, (self.unread)()?))
    }
}

/// Sends a request to the path of process `pid`, or to the only path.
pub(super) fn ask(pid: Option<u32>, request: &Request) -> anyhow::Result<Answer> {
    let stream = match pid {
        Some(pid) => UnixStream::connect(runtime_dir::of_user().join(format!("wan-{pid}.sock")))
            .with_context(|| format!("process {pid} does not run 'nichrome wan' as this user"))?,
        None => the_only_one()?,
    };
    control::ask(&stream, request)
}

/// Connects to the only running path.
fn the_only_one() -> anyhow::Result<UnixStream> {
    let entries = fs::read_dir(runtime_dir::of_user()).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.path()) {
        let Some(pid) = pid_of(&path) else { continue };
        match UnixStream::connect(&path) {
            Ok(stream) => found.push((pid, stream)),
            // The process is about to listen, or cannot accept clients now.
            Err(_) if is_alive(pid) => {}
            // A leftover of a process that was killed.
            Err(_) => drop(fs::remove_file(&path)),
        }
    }
    if found.len() > 1 {
        let pids = found.iter().map(|(pid, _)| pid.to_string()).collect::<Vec<_>>().join(", ");
        bail!("several 'nichrome wan' are running: choose one with --run ({pids})");
    }
    found.pop().map(|(_, stream)| stream).ok_or_else(|| anyhow!("no 'nichrome wan' of this user is running"))
}

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn pid_of(socket: &Path) -> Option<u32> {
    socket.file_name()?.to_str()?.strip_prefix("wan-")?.strip_suffix(".sock")?.parse().ok()
}
