//! Changing a path while it is in use, and asking it: what `nichrome wan set`, `show` and `exec` say to it.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process;

use anyhow::{Context, anyhow, bail};
use nichrome_wan::Impairments;
use serde::{Deserialize, Serialize};

use super::host::Host;
use super::live_path::Remote;
use super::summary::Summary;
use crate::control::{self, ControlSocket};
use crate::impairment_options::Asked;
use crate::runtime_dir;
use crate::side::Side;

/// What a path in use is asked.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// Impair packets like this, everything else as before.
    Set(Asked),
    /// What have you done so far?
    Show,
    /// Where is the host on this side?
    Host(Side),
}

/// What it says.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// It is done, except that it does nothing for this reason.
    Done(Option<String>),
    /// This was done so far.
    Summary(Box<Summary>),
    /// It is there.
    Host(HostPlace),
    /// That is not possible.
    Error(String),
}

/// Where another process finds a host.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct HostPlace {
    /// The process that holds the host's namespace.
    pub(super) pid: u32,
    /// The namespace's descriptor in that process.
    pub(super) namespace: RawFd,
    pub(super) has_ipv6: bool,
}

impl HostPlace {
    /// A host of this process.
    pub(super) fn of(host: &Host) -> Self {
        let namespace = host.namespace().as_fd().as_raw_fd();
        Self { pid: process::id(), namespace, has_ipv6: host.ipv6.is_ok() }
    }
}

/// What a path answers with.
pub(super) struct Controlled {
    pub(super) remote: Remote,
    pub(super) impairments: [Impairments; 2],
    pub(super) seed: u64,
    /// The left host and the right one; none between two interfaces.
    pub(super) hosts: Vec<HostPlace>,
}

impl Controlled {
    /// Answers requests from now on, until the socket is dropped.
    pub(super) fn open(mut self) -> anyhow::Result<ControlSocket> {
        let file = runtime_dir::of_user().join(format!("wan-{}.sock", process::id()));
        ControlSocket::open(file, move |request| self.answer(&request))
    }

    fn answer(&mut self, request: &Request) -> Answer {
        let answer = match request {
            Request::Set(asked) => self.set(asked).map(Answer::Done),
            Request::Show => self.summary().map(|summary| Answer::Summary(Box::new(summary))),
            Request::Host(side) => self.host(*side).map(Answer::Host),
        };
        answer.unwrap_or_else(|error| Answer::Error(format!("{error:#}")))
    }

    /// Says what of it does nothing.
    fn set(&mut self, asked: &Asked) -> anyhow::Result<Option<String>> {
        let mut impairments = self.impairments.clone();
        asked.apply(&mut impairments)?;
        self.remote.impair(&impairments)?;
        self.impairments = impairments;
        Ok(asked.without_effect(&self.impairments))
    }

    fn host(&self, side: Side) -> anyhow::Result<HostPlace> {
        let host = self.hosts.get(usize::from(side.number() - 1)).cloned();
        host.context("this path is between two interfaces and has no hosts")
    }

    fn summary(&self) -> anyhow::Result<Summary> {
        Ok(Summary::new(self.seed, &self.remote.reports()?, [0, 0]))
    }
}

/// Asks the path of process `pid`, or the only one there is.
pub(super) fn ask(pid: Option<u32>, request: &Request) -> anyhow::Result<Answer> {
    let stream = match pid {
        Some(pid) => UnixStream::connect(runtime_dir::of_user().join(format!("wan-{pid}.sock")))
            .with_context(|| format!("process {pid} does not run 'nichrome wan' as this user"))?,
        None => the_only_one()?,
    };
    control::ask(&stream, request)
}

/// The only path in use.
fn the_only_one() -> anyhow::Result<UnixStream> {
    let entries = fs::read_dir(runtime_dir::of_user()).into_iter().flatten().flatten();
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
