//! The lifetime of a running card: ends with a signal, a request, or the loss of an interface.

use std::sync::mpsc::{self, Receiver, Sender};

use anyhow::{bail, ensure};
use nichrome_port::{Interface, Netlink, Settings};

use super::forwarding;
use super::host_interface::{self, HostInterface};
use crate::links::{self, Link, User};
use crate::{failure, signals};

/// An event that may end the session.
pub(super) enum Event {
    Signal,
    StopRequested,
    LinksChanged,
    CardEnded,
}

/// The regular end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// A signal or a request ended the session.
    Requested,
    /// The card failed; it reports the error.
    CardFailed,
}

/// The objects that a session watches in addition to the host interface.
pub(super) struct Watched {
    /// `None` for a TAP device, which may move to another network namespace.
    pub(super) wire: Option<Interface>,
    /// MTU of the wire when the card was started.
    pub(super) mtu: u32,
    /// The profile's name if forwarding its output deserves a warning.
    pub(super) lossy: Option<&'static str>,
}

/// A session.
pub(super) struct Session {
    events: Receiver<Event>,
    sender: Sender<Event>,
}

impl Session {
    /// Starts a session: from now on signals end it instead of the process, and interfaces are watched.
    pub(super) fn begin() -> anyhow::Result<Self> {
        let (sender, events) = mpsc::channel();
        let to = sender.clone();
        signals::forward(&signals::ending(), move |_| to.send(Event::Signal))?;
        let to = sender.clone();
        links::watch(move || to.send(Event::LinksChanged))?;
        Ok(Self { events, sender })
    }

    /// Returns a sender for events.
    pub(super) fn sender(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// Returns a callback for the card's end.
    pub(super) fn card_ended(&self) -> impl Fn() + Clone + Send + use<> {
        let sender = self.sender.clone();
        move || drop(sender.send(Event::CardEnded))
    }

    /// Waits until the session ends; reports interface changes meanwhile.
    ///
    /// # Errors
    /// An interface is gone.
    pub(super) fn wait_for_the_end(&self, watched: &Watched, host: &HostInterface) -> anyhow::Result<Ended> {
        let netlink = Netlink::open()?;
        let mut watch = Watch::new(&netlink, watched, host);
        loop {
            // Interfaces may have changed before the session.
            watch.check()?;
            match self.events.recv() {
                Ok(Event::Signal | Event::StopRequested) => return Ok(Ended::Requested),
                Ok(Event::LinksChanged) => {}
                Ok(Event::CardEnded) | Err(_) => {
                    watch.check()?;
                    return Ok(Ended::CardFailed);
                }
            }
        }
    }
}

/// The state of the watched interfaces.
struct Watch<'a> {
    netlink: &'a Netlink,
    watched: &'a Watched,
    host: &'a HostInterface,
    wire: Option<Link>,
    /// True if the wire, and so the host interface, had a carrier at the last check.
    carrier: bool,
    wire_mtu: u32,
    host_mtu: u32,
    may_warn: bool,
}

impl<'a> Watch<'a> {
    fn new(netlink: &'a Netlink, watched: &'a Watched, host: &'a HostInterface) -> Self {
        let (wire_mtu, host_mtu) = (watched.mtu, host_interface::mtu(watched.mtu));
        let wire = watched.wire.clone().map(|wire| Link::new(wire, User::CARD));
        Self { netlink, watched, host, wire, carrier: true, wire_mtu, host_mtu, may_warn: true }
    }

    fn check(&mut self) -> anyhow::Result<()> {
        let host = &self.host.interface;
        let Some(of_host) = self.netlink.refresh(host)? else {
            bail!("{} is gone: the card ends", host.name);
        };
        // Another interface may have its name.
        ensure!(of_host.name == host.name, "{} is called {} now: the card ends", host.name, of_host.name);
        if let Some(wire) = &mut self.wire {
            let of_wire = wire.update(self.netlink)?;
            self.compare_mtus(&of_wire, &of_host)?;
            self.compare_carriers(&of_wire);
        }
        if let Some(profile) = self.watched.lossy
            && self.may_warn
            && let Some(reason) = forwarding::why_not_suitable(&of_host, profile)
        {
            self.may_warn = false;
            failure::warn(format_args!("{reason}"));
        }
        Ok(())
    }

    /// Gives the host interface a carrier while the wire has one, so that programs that watch the carrier,
    /// such as those for bonds and routes, detect its loss.
    fn compare_carriers(&mut self, wire: &Interface) {
        if wire.running == self.carrier {
            return;
        }
        self.carrier = wire.running;
        self.host.set_carrier(wire.running);
        let (wire, host) = (wire.name, self.host.interface.name);
        if self.carrier {
            failure::notice(format_args!("nichrome: {wire} has a carrier again, and {host}, too"));
        } else {
            failure::notice(format_args!("nichrome: {wire} has no carrier, and neither has {host}"));
        }
    }

    /// Limits the host's MTU to the wire's current MTU and to its MTU when the card was started.
    fn compare_mtus(&mut self, wire: &Interface, host: &Interface) -> anyhow::Result<()> {
        let longest = host_interface::mtu(wire.mtu.min(self.watched.mtu));
        let (wire_changed, host_changed) = (wire.mtu != self.wire_mtu, host.mtu != self.host_mtu);
        (self.wire_mtu, self.host_mtu) = (wire.mtu, host.mtu);
        if wire_changed {
            self.host_mtu = longest;
            self.netlink.configure(host, Settings { mtu: Some(longest), ..Settings::default() })?;
            let more = if wire.mtu > self.watched.mtu { ": for more, start the card anew" } else { "" };
            let (wire, host, mtu) = (wire.name, host.name, wire.mtu);
            failure::notice(format_args!(
                "nichrome: {wire} now has the MTU {mtu}, and {host} {longest}{more}"
            ));
        } else if host_changed && host.mtu > longest {
            let Interface { name, mtu, .. } = host;
            failure::warn(format_args!(
                "{name} now has the MTU {mtu}, but {} allows at most {longest}: longer packets are dropped \
                 ('ip link set {name} mtu {longest}' prevents that)",
                wire.name
            ));
        }
        Ok(())
    }
}
