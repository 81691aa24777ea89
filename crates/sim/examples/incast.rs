//! Incast: several hosts answer one client at the same time, and their packets meet in the queue of the
//! switch's port to it.
//!
//!     cargo run --release -p nichrome-sim --example incast
//!
//! Prints the time until all have answered, and the number of packets that the queue drops, by number of
//! hosts.

use nichrome_sim::host::{Host, HostConfig, Role};
use nichrome_sim::{
    EventQueue, Fingerprint, HostId, Link, LinkConfig, Packet, Rate, Simulation, Switch, Timer, TraceHash,
    World,
};
use nichrome_wire::{Engine, Instant};

const CLIENT: HostId = HostId(0);
const BYTES_OF_EACH: u64 = 64_000;

/// Hosts around a switch; the first is the client.
struct Incast {
    hosts: Vec<Host>,
    timers: Vec<Timer>,
    uplinks: Vec<Link>,
    switch: Switch,
}

enum Event {
    HostDue(HostId),
    AtSwitch(Packet),
    AtHost(HostId, Packet),
}

impl Fingerprint for Event {
    fn fingerprint(&self) -> u64 {
        match self {
            Self::HostDue(host) => TraceHash::of(&[0, u64::from(host.0)]),
            Self::AtSwitch(packet) => TraceHash::of(&[1, packet.fingerprint()]),
            Self::AtHost(host, packet) => TraceHash::of(&[2, u64::from(host.0), packet.fingerprint()]),
        }
    }
}

impl World for Incast {
    type Event = Event;

    fn handle(&mut self, event: Event, queue: &mut EventQueue<Event>) {
        let now = queue.now();
        match event {
            Event::HostDue(host) => {
                self.timers[usize::from(host.0)].fired(now);
                self.hosts[usize::from(host.0)].handle_timeout(now);
                self.send(host, queue);
            }
            Event::AtSwitch(mut packet) => {
                let forwarded = self.switch.forward(&mut packet, now);
                if let (Ok(forwarded), Some(host)) = (forwarded, packet.destination()) {
                    queue.schedule(forwarded.sent.arrives, Event::AtHost(host, packet));
                }
            }
            Event::AtHost(host, packet) => {
                if let Packet::Frame(frame) = packet {
                    self.hosts[usize::from(host.0)].receive(frame, now);
                    self.send(host, queue);
                }
            }
        }
    }
}

impl Incast {
    fn new(servers: u16) -> anyhow::Result<Self> {
        let config = HostConfig { seed: 1, ..HostConfig::default() };
        let link = LinkConfig { queue: "100p".parse()?, ..LinkConfig::ethernet(Rate::GIGABIT, 5000) };
        let mut switch = Switch::new(500);
        let mut hosts = Vec::new();
        for number in 0..=servers {
            let mut host = Host::new(HostId(number), config)?;
            match host.id() {
                CLIENT => host.listen(80, Role::Receive),
                _ => {
                    host.connect(CLIENT, 80, Role::Send { bytes: Some(BYTES_OF_EACH) }, Instant::ZERO)?;
                }
            }
            let port = switch.add_port(link);
            switch.set_route(host.id(), port);
            hosts.push(host);
        }
        let (timers, uplinks) = (vec![Timer::default(); hosts.len()], vec![Link::new(link); hosts.len()]);
        Ok(Self { hosts, timers, uplinks, switch })
    }

    /// Sends a host's pending packets and sets its timer.
    fn send(&mut self, host: HostId, queue: &mut EventQueue<Event>) {
        let place = usize::from(host.0);
        while let Some(frame) = self.hosts[place].poll() {
            if let Ok(sent) = self.uplinks[place].send(frame.len(), queue.now()) {
                queue.schedule(sent.arrives, Event::AtSwitch(Packet::Frame(frame)));
            }
        }
        self.timers[place].arm(self.hosts[place].poll_timeout(), queue, Event::HostDue(host));
    }
}

fn main() -> anyhow::Result<()> {
    println!("{:>8}{:>12}{:>10}{:>12}", "hosts", "ms", "drops", "events");
    for servers in [1, 2, 4, 8, 16, 32, 64] {
        let mut simulation = Simulation::new(Incast::new(servers)?);
        for server in 1..=servers {
            simulation.queue.schedule(Instant::ZERO, Event::HostDue(HostId(server)));
        }
        simulation.run_until(Instant::from_nanos(30_000_000_000));
        let client = &simulation.world.hosts[0];
        let last = client.connections().iter().filter_map(|connection| connection.times().last_read).max();
        let millis = last.unwrap_or_default().as_nanos() as f64 / 1e6;
        let drops =
            simulation.world.switch.link(nichrome_sim::PortId(0)).map_or(0, |link| link.counters().dropped);
        println!("{servers:>8}{millis:>12.2}{drops:>10}{:>12}", simulation.events());
    }
    Ok(())
}
