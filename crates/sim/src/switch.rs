//! An output-queued switch: a link per port, and a forwarding table by host.

use nichrome_wire::Instant;
use thiserror::Error;

use crate::{HostId, Link, LinkConfig, Packet, Sent};

/// The number of a switch port, in order of creation from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortId(pub usize);

/// A switch. A packet is queued at the link of its output port.
#[derive(Clone, Debug)]
pub struct Switch {
    /// Nanoseconds from a packet's arrival to its queueing.
    latency: u64,
    ports: Vec<Link>,
    /// The port of each host.
    routes: Vec<Option<PortId>>,
    unroutable: u64,
}

/// The result of forwarding a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// The port.
    pub port: PortId,
    /// The packet's schedule on the port's link.
    pub sent: Sent,
}

/// The reason for a drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SwitchDrop {
    /// No port for the destination.
    #[error("there is no port for the destination")]
    NoRoute,
    /// The port's queue is full.
    #[error("the queue of port {} is full", .0.0)]
    QueueFull(PortId),
}

impl Switch {
    /// Creates a switch without ports that takes `latency` nanoseconds per packet.
    pub fn new(latency: u64) -> Self {
        Self { latency, ports: Vec::new(), routes: Vec::new(), unroutable: 0 }
    }

    /// Adds a port with its link.
    pub fn add_port(&mut self, link: LinkConfig) -> PortId {
        self.ports.push(Link::new(link));
        PortId(self.ports.len() - 1)
    }

    /// Adds a forwarding entry; `port` must be one of this switch.
    pub fn set_route(&mut self, host: HostId, port: PortId) {
        let place = usize::from(host.0);
        if place >= self.routes.len() {
            self.routes.resize(place + 1, None);
        }
        self.routes[place] = Some(port);
    }

    /// Forwards a packet that arrived at `now`; marks it CE if the queue exceeds the threshold. `now` must
    /// not decrease.
    ///
    /// # Errors
    /// The packet is dropped.
    pub fn forward(&mut self, packet: &mut Packet, now: Instant) -> Result<Forwarded, SwitchDrop> {
        let route = packet.destination().and_then(|host| *self.routes.get(usize::from(host.0))?);
        let Some((port, link)) = route.and_then(|port| Some((port, self.ports.get_mut(port.0)?))) else {
            self.unroutable += 1;
            return Err(SwitchDrop::NoRoute);
        };
        let sent =
            link.carry(packet, now.plus_nanos(self.latency)).map_err(|_| SwitchDrop::QueueFull(port))?;
        Ok(Forwarded { port, sent })
    }

    /// Returns the link of a port.
    pub fn link(&self, port: PortId) -> Option<&Link> {
        self.ports.get(port.0)
    }

    /// Returns the number of packets without an output port.
    pub fn unroutable(&self) -> u64 {
        self.unroutable
    }
}

#[cfg(test)]
mod tests {
    use nichrome_wire::Ecn;

    use super::*;
    use crate::{Outline, Rate};

    #[test]
    fn packets_leave_by_the_port_of_their_destination() {
        let mut switch = Switch::new(300);
        let queue = "2p".parse().unwrap();
        let link = LinkConfig { queue, overhead: 0, ..LinkConfig::ethernet(Rate::GIGABIT, 1000) };
        let ports = [0, 1].map(|_| switch.add_port(link));
        for (host, port) in [(5, 0), (6, 1), (7, 1)] {
            switch.set_route(HostId(host), ports[port]);
        }
        let mut send = |to| {
            let mut packet = Outline { len: 125, to: HostId(to), ..Outline::default() }.into();
            let forwarded = switch.forward(&mut packet, Instant::ZERO)?;
            Ok((forwarded.port.0, forwarded.sent.arrives.as_nanos()))
        };
        assert_eq!(send(5), Ok((0, 2300)));
        assert_eq!([6, 7, 6].map(&mut send), [Ok((1, 2300)), Ok((1, 3300)), Ok((1, 4300))]);
        assert_eq!(send(7), Err(SwitchDrop::QueueFull(ports[1])));
        assert_eq!([send(1), send(9)], [Err(SwitchDrop::NoRoute); 2]);
        assert_eq!(switch.unroutable(), 2);
        assert_eq!(switch.link(ports[1]).map(|link| link.counters().dropped), Some(1));
    }

    #[test]
    fn a_long_queue_marks_what_can_be_marked() {
        let mut switch = Switch::new(0);
        let ecn_threshold = Some("1p".parse().unwrap());
        let port = switch.add_port(LinkConfig { ecn_threshold, ..LinkConfig::ethernet(Rate::GIGABIT, 0) });
        switch.set_route(HostId(0), port);
        let mut marks = Vec::new();
        for ecn in [Ecn::Ect0, Ecn::Ect0, Ecn::Ect0, Ecn::Ect0, Ecn::NotEct] {
            let mut packet = Packet::Outline(Outline { len: 1500, ecn, ..Outline::default() });
            switch.forward(&mut packet, Instant::ZERO).unwrap();
            marks.push(nichrome_wan::Packet::ecn(&packet));
        }
        assert_eq!(marks, [Ecn::Ect0, Ecn::Ect0, Ecn::Ect0, Ecn::Ce, Ecn::NotEct]);
        assert_eq!(switch.link(port).map(|link| link.counters().marked), Some(2));
    }
}
