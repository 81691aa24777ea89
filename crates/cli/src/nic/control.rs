//! Requests of other commands to a running card.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::Sender;

use anyhow::{Context, anyhow, bail};
use nichrome_port::InterfaceName;
use serde::{Deserialize, Serialize};

use super::place;
use super::report::{Report, Reporter};
use super::session::Event;
use crate::control::{self, ControlSocket};

/// A request.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    /// Report the counters.
    Show,
    /// Restore everything and exit.
    Stop,
}

/// An answer.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// The counters.
    Report(Box<Report>),
    /// The request will be executed.
    Done,
    /// The card is about to exit.
    Ended,
}

/// Answers for the card behind `host` until the socket is dropped.
pub(super) fn open(
    host: InterfaceName,
    reporter: Reporter,
    session: Sender<Event>,
) -> anyhow::Result<ControlSocket> {
    ControlSocket::open(place::of_socket(host.as_str())?, move |request| match request {
        Request::Show => reporter.report().map_or(Answer::Ended, |report| Answer::Report(Box::new(report))),
        Request::Stop => session.send(Event::StopRequested).map_or(Answer::Ended, |()| Answer::Done),
    })
}

/// Finds the card behind the interface `host`, or the only card.
pub(super) fn find(host: Option<InterfaceName>) -> anyhow::Result<Found> {
    match host {
        Some(host) => Found::at(host.as_str(), &place::of_socket(host.as_str())?).map_err(|_| {
            anyhow!("no card is behind {host} in this network namespace, or it is another user's")
        }),
        None => the_only_one(),
    }
}

fn the_only_one() -> anyhow::Result<Found> {
    let sockets = place::all_sockets()?;
    let mut found: Vec<_> =
        sockets.into_iter().filter_map(|(name, path)| Found::at(&name, &path).ok()).collect();
    if found.len() > 1 {
        let names = found.iter().map(|card| card.host.as_str()).collect::<Vec<_>>().join(", ");
        bail!("there are several cards: choose one ({names})");
    }
    found.pop().context("there is no card in this network namespace, or it is another user's")
}

/// A running card.
pub(super) struct Found {
    /// The host interface.
    pub(super) host: String,
    stream: UnixStream,
}

impl Found {
    fn at(host: &str, path: &Path) -> std::io::Result<Self> {
        Ok(Self { host: host.to_owned(), stream: UnixStream::connect(path)? })
    }

    /// Requests its counters.
    pub(super) fn report(self) -> anyhow::Result<Report> {
        match control::ask(&self.stream, &Request::Show)? {
            Answer::Report(report) => Ok(*report),
            Answer::Done | Answer::Ended => bail!("the card behind {} has ended", self.host),
        }
    }

    /// Stops it.
    pub(super) fn stop(self) -> anyhow::Result<()> {
        match control::ask(&self.stream, &Request::Stop)? {
            Answer::Done | Answer::Ended => Ok(()),
            Answer::Report(_) => bail!("unexpected answer"),
        }
    }
}
