//! Hosts around a switch that send to each other at random: three events with handlers per packet.

use nichrome_sim::{
    EventQueue, Fingerprint, HostId, Link, LinkConfig, Outline, Packet, Rate, Simulation, Switch, TraceHash,
    World,
};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};

pub(super) const HOSTS: usize = 256;
/// Maximum packet length, in bytes.
const MAX_BYTES: u64 = 1514;
/// Maximum time between a host's packets, in nanoseconds: about three quarters of the load of 10 Gb/s (1.25
/// bytes per nanosecond).
const MAX_GAP: u64 = 1664;
const DELAY: u64 = 20_000;
/// Virtual time of a run, in nanoseconds.
const RUN: u64 = 1_500_000;

pub(super) struct Network {
    simulation: Simulation<Star>,
    pending: u64,
    runs: u64,
}

struct Star {
    uplinks: Vec<Link>,
    switch: Switch,
    random: Pcg64Mcg,
    received: u64,
}

enum Event {
    Send(HostId),
    AtSwitch(Packet),
    AtHost(Packet),
}

impl Fingerprint for Event {
    #[inline]
    fn fingerprint(&self) -> u64 {
        match self {
            Self::Send(host) => TraceHash::of(&[0, u64::from(host.0)]),
            Self::AtSwitch(packet) => TraceHash::of(&[1, packet.fingerprint()]),
            Self::AtHost(packet) => TraceHash::of(&[2, packet.fingerprint()]),
        }
    }
}

impl World for Star {
    type Event = Event;

    fn handle(&mut self, event: Event, queue: &mut EventQueue<Event>) {
        let now = queue.now();
        match event {
            Event::Send(host) => {
                let to = HostId(self.below(HOSTS as u64) as u16);
                let len = 60 + self.below(MAX_BYTES - 60) as u32;
                let packet = Packet::from(Outline { len, to, flow: u32::from(host.0), ..Outline::default() });
                if let Ok(sent) = self.uplinks[usize::from(host.0)].send(packet.wire_len(), now) {
                    queue.schedule(sent.arrives, Event::AtSwitch(packet));
                }
                queue.schedule_in(self.below(MAX_GAP), Event::Send(host));
            }
            Event::AtSwitch(mut packet) => {
                if let Ok(forwarded) = self.switch.forward(&mut packet, now) {
                    queue.schedule(forwarded.sent.arrives, Event::AtHost(packet));
                }
            }
            Event::AtHost(packet) => self.received += packet.wire_len() as u64,
        }
    }
}

impl Star {
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.random.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

impl Network {
    pub(super) fn new() -> anyhow::Result<Self> {
        let queue = "64kB".parse()?;
        let link = LinkConfig { queue, ..LinkConfig::ethernet(Rate::TEN_GIGABIT, DELAY) };
        let uplinks = vec![Link::new(link); HOSTS];
        let mut switch = Switch::new(500);
        let hosts: Vec<_> =
            (0..HOSTS).map(|host| u16::try_from(host).map(HostId)).collect::<Result<_, _>>()?;
        for host in &hosts {
            let port = switch.add_port(link);
            switch.set_route(*host, port);
        }
        let random = Pcg64Mcg::seed_from_u64(1);
        let mut simulation = Simulation::new(Star { uplinks, switch, random, received: 0 });
        for host in hosts {
            simulation.queue.schedule_in(u64::from(host.0), Event::Send(host));
        }
        Ok(Self { simulation, pending: 0, runs: 0 })
    }

    /// Continues for the time of one run; returns the number of events.
    pub(super) fn run(&mut self) -> u64 {
        let before = self.simulation.events();
        let limit = self.simulation.now().plus_nanos(RUN);
        self.simulation.run_until(limit);
        self.pending += self.simulation.queue.len() as u64;
        self.runs += 1;
        self.simulation.events() - before
    }

    /// Returns the mean number of pending events at the ends of runs.
    pub(super) fn mean_pending(&self) -> f64 {
        self.pending as f64 / self.runs.max(1) as f64
    }
}
