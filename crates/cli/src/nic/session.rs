//! The time in which a card is in use: it ends with a signal, a request, or an interface that goes.

use std::sync::mpsc::{self, Receiver, Sender};

use anyhow::bail;
use nichrome_port::{InterfaceName, Netlink};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::forwarding;
use crate::links::{self, Link};
use crate::{failure, signals};

/// Something that may end the session.
pub(super) enum Event {
    Signal,
    StopAsked,
    LinksChanged,
    CardEnded,
}

/// How a session ended that nothing was wrong with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// As somebody wanted.
    Asked,
    /// The card says why.
    ByItself,
}

/// What a session watches over.
pub(super) struct Watched {
    /// `None` where it may go to another network namespace: a TAP device.
    pub(super) wire: Option<InterfaceName>,
    pub(super) host: InterfaceName,
    /// Whether forwarding of what the card makes is worth a warning.
    pub(super) lossy: Option<&'static str>,
}

/// A session.
pub(super) struct Session {
    events: Receiver<Event>,
    sender: Sender<Event>,
}

impl Session {
    /// From now on, signals end the session instead of the process, and interfaces are watched.
    pub(super) fn begin() -> anyhow::Result<Self> {
        let (sender, events) = mpsc::channel();
        let to = sender.clone();
        signals::forward(&[SIGINT, SIGTERM, SIGHUP], move |_| to.send(Event::Signal))?;
        let to = sender.clone();
        links::watch(move || to.send(Event::LinksChanged))?;
        Ok(Self { events, sender })
    }

    /// Whoever has this can end the session.
    pub(super) fn sender(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// What is to be called when the card ends by itself.
    pub(super) fn card_ended(&self) -> impl Fn() + Clone + Send + use<> {
        let sender = self.sender.clone();
        move || drop(sender.send(Event::CardEnded))
    }

    /// Waits until the session ends, and says on the way what happens to the interfaces.
    ///
    /// # Errors
    /// One of the interfaces has gone.
    pub(super) fn wait_for_the_end(&self, watched: &Watched) -> anyhow::Result<Ended> {
        let netlink = Netlink::open()?;
        let wire = watched.wire.map(|wire| Link::new(wire, "card"));
        let mut watch = Watch { netlink: &netlink, watched, wire, may_warn: true };
        loop {
            // There may have been news before there was a session.
            watch.look()?;
            match self.events.recv() {
                Ok(Event::Signal | Event::StopAsked) => return Ok(Ended::Asked),
                Ok(Event::LinksChanged) => {}
                Ok(Event::CardEnded) | Err(_) => {
                    watch.look()?;
                    return Ok(Ended::ByItself);
                }
            }
        }
    }
}

/// What is known of the interfaces.
struct Watch<'a> {
    netlink: &'a Netlink,
    watched: &'a Watched,
    wire: Option<Link>,
    may_warn: bool,
}

impl Watch<'_> {
    fn look(&mut self) -> anyhow::Result<()> {
        let Watched { host, lossy, .. } = *self.watched;
        if links::find(self.netlink, host)?.is_none() {
            bail!("{host} was deleted: the card ends");
        }
        if let Some(wire) = &mut self.wire {
            wire.look(self.netlink)?;
        }
        if let Some(profile) = lossy
            && self.may_warn
            && forwarding::is_on(host)
        {
            self.may_warn = false;
            failure::warn(format_args!("{}", forwarding::why_not(host, profile)));
        }
        Ok(())
    }
}
