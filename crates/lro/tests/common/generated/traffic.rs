//! Generated traffic: a mix of connections, and a network that loses, delays, duplicates and damages frames.

use nichrome_lro::Medium;
use nichrome_wire::{Network, SeqNumber, TcpFlags, TcpFrame};

use super::choose::Choose;
use super::damage::{damage, malform_tcp_header, not_tcp};
use super::exchange::Exchange;
use super::flow::Flow;
use super::tunnel::Tunnel;

/// An event for an engine or its driver.
#[derive(Clone, Debug)]
pub enum Step {
    /// A frame is received.
    Receive(Vec<u8>),
    /// Frames are received together.
    Batch(Vec<Vec<u8>>),
    /// As `Batch`, but the receive batch continues.
    Part(Vec<Vec<u8>>),
    /// The driver drains the frames held longest, at least this number.
    DrainOldest(usize),
    /// The host sends a segment that acknowledges one `share`th of the bytes that the host has and has not
    /// acknowledged. The stream towards the host begins at `start`.
    HostSends { segment: TcpFrame, start: SeqNumber, share: u32 },
    /// Nanoseconds pass.
    Wait(u64),
    /// The receive batch ends.
    EndBatch,
    /// From now on, the driver keeps this number of outputs before it drops them.
    Keep(usize),
}

/// A mix of connections, and of senders of UDP datagrams.
pub struct Traffic {
    flows: Vec<Flow>,
    /// The tunnel that each flow is sent through, if any.
    tunnels: Vec<Option<Tunnel>>,
    exchanges: Vec<Exchange>,
    /// The flow that sends now.
    current: usize,
    /// Percentage of frames before which the sending flow is chosen again.
    turns: u32,
    /// Frames that the network delays, with the number of steps until they arrive.
    delayed: Vec<(u32, Vec<u8>)>,
    medium: Medium,
    /// True if Ethernet frames are padded to 60 bytes.
    pads: bool,
    /// Percentage of cases in which no unusual event can happen.
    calm: u32,
}

impl Traffic {
    /// One flow or a few.
    pub fn new(choose: &mut impl Choose, medium: Medium) -> Self {
        let count = choose.one_of(&[1, 2, 3, 5, 12, 40]);
        let calm = choose.one_of(&[0, 0, 50, 90, 97]);
        let flows: Vec<Flow> = (0..count).map(|nth| Flow::new(choose, nth, calm)).collect();
        let exchanges = choose.one_of(&[0, 0, 1, 2]).min(flows.len());
        let fields: Vec<_> = flows[..exchanges].iter().map(|flow| flow.fields().clone()).collect();
        let exchanges = fields.into_iter().map(|fields| Exchange::new(choose, fields)).collect();
        let tunnels = (0..count).map(|_| Tunnel::any(choose, medium)).collect();
        let pads = medium == Medium::Ethernet && choose.chance(30);
        let turns = choose.one_of(&[20, 20, 90]);
        Self { flows, tunnels, exchanges, current: 0, turns, delayed: Vec::new(), medium, pads, calm }
    }

    /// Returns the next event.
    pub fn step(&mut self, choose: &mut impl Choose) -> Step {
        for (steps, _) in &mut self.delayed {
            *steps = steps.saturating_sub(1);
        }
        if let Some(due) = self.delayed.iter().position(|(steps, _)| *steps == 0) {
            return Step::Receive(self.delayed.swap_remove(due).1);
        }
        if choose.chance(self.calm / 2) {
            return self.receive(choose);
        }
        match choose.below(64) {
            0..46 => self.receive(choose),
            46..50 => Step::Wait(any_wait(choose)),
            50 => Step::Part(self.burst(choose)),
            51..53 => Step::EndBatch,
            53..60 => self.flows[self.current].host_sends(choose),
            60 => Step::Batch(self.burst(choose)),
            61 if choose.chance(30) => Step::DrainOldest(choose.one_of(&[1, 0, 5, 40])),
            61 => Step::Keep(choose.one_of(&[0, 1, 4, 16])),
            62 => {
                self.current = choose.below(self.flows.len() as u32) as usize;
                self.receive(choose)
            }
            _ => Step::Receive(not_tcp(choose, self.medium)),
        }
    }

    fn burst(&mut self, choose: &mut impl Choose) -> Vec<Vec<u8>> {
        let most = choose.one_of(&[2, 12, 32, 70]);
        let frames = (0..most).map(|_| self.receive(choose)).filter_map(|step| match step {
            Step::Receive(frame) => Some(frame),
            _ => None,
        });
        frames.collect()
    }

    fn receive(&mut self, choose: &mut impl Choose) -> Step {
        if choose.chance(self.turns) {
            self.current = choose.below(self.flows.len() as u32) as usize;
        }
        let medium = self.medium;
        if !self.exchanges.is_empty() && choose.chance(40) {
            let nth = choose.below(self.exchanges.len() as u32) as usize;
            let datagram = self.exchanges[nth].send(choose, medium);
            return self.carry(choose, datagram);
        }
        let frame = self.flows[self.current].send(choose);
        let mut bytes = if medium == Medium::Ip { frame.build_ip() } else { frame.build() };
        let is_extended =
            matches!(&frame.network, Network::Ipv6 { extensions, .. } if !extensions.is_empty());
        if is_extended && choose.chance(30) {
            malform_tcp_header(choose, &mut bytes, medium);
        }
        if let Some(tunnel) = &mut self.tunnels[self.current] {
            bytes = tunnel.wrap(&bytes, medium, frame.tags.len());
        }
        if self.pads && bytes.len() < 60 {
            bytes.resize(60, 0);
        }
        if frame.flags.contains(TcpFlags::SYN) {
            // Not damaged or lost: a host that never saw the SYN would continue with the old connection,
            // which the model does not.
            return Step::Receive(bytes);
        }
        self.carry(choose, bytes)
    }

    /// Sends a frame through the network: it may be damaged, lost, delayed or duplicated.
    fn carry(&mut self, choose: &mut impl Choose, mut bytes: Vec<u8>) -> Step {
        if choose.chance(self.calm) {
            return Step::Receive(bytes);
        }
        if choose.chance(6) {
            damage(choose, &mut bytes, self.medium);
        }
        match choose.below(32) {
            0..27 => Step::Receive(bytes),
            27..30 => {
                self.delayed.push((1 + choose.below(12), bytes));
                Step::Wait(0)
            }
            30 => {
                self.delayed.push((1 + choose.below(12), bytes.clone()));
                Step::Receive(bytes)
            }
            _ => Step::Wait(0), // lost
        }
    }
}

fn any_wait(choose: &mut impl Choose) -> u64 {
    let most = choose.one_of(&[2000, 100_000, 3_000_000, 1_000_000_000]);
    u64::from(choose.below(most))
}
