//! A discrete-event simulator: Nichrome's engines inside hardware models, in virtual time.
//!
//! A [`World`] is a struct of parts and an enum of events. Parts are plain structs whose methods return when
//! the next event happens ([`Link::send`]: when a packet arrives, or an error if it is dropped); the world
//! schedules the event. A [`Simulation`] runs one world on one thread, in the order of (time, sequence);
//! several may run in parallel, independently. [`Parts`] runs a world that is divided into parts on several
//! threads, if messages between these parts take time. Nothing reads a clock, and randomness derives from
//! seeds, so that equal configurations give equal [trace hashes](Simulation::trace_hash) on every machine.
//!
//! | part | what it is |
//! |---|---|
//! | [`Link`], [`Switch`] | queue, rate, delay, ECN threshold; forwarding by destination |
//! | [`host::Host`] | a TCP host: connections, and programs that send, receive, request and respond |
//! | [`generator::Generator`] | TCP frames at line rate |
//! | [`Server`], [`CpuCosts`] | a CPU or hardware thread: one job at a time |
//! | [`Pcie`] | latency, bandwidth, outstanding reads |
//! | `nichrome_wan::Path`, engines of `nichrome_lro` and others | unchanged, driven by the loops of [`nichrome_wire::engine`] |
//! | [`Timer`] | the event that wakes an engine |
//! | [`observe`] | counters, time series, captures, progress |
//!
//! Two hosts, a link in each direction, and a transfer from one to the other:
//!
//! ```
//! use nichrome_sim::host::{Host, HostConfig, Role};
//! use nichrome_sim::{EventQueue, Fingerprint, HostId, Link, LinkConfig, Rate, Simulation, Timer, TraceHash, World};
//! use nichrome_wire::{Engine, Instant};
//!
//! struct TwoHosts {
//!     hosts: [Host; 2],
//!     links: [Link; 2],
//!     timers: [Timer; 2],
//! }
//!
//! enum Event {
//!     Arrives(usize, Vec<u8>),
//!     Due(usize),
//! }
//!
//! impl Fingerprint for Event {
//!     fn fingerprint(&self) -> u64 {
//!         match self {
//!             Self::Arrives(host, frame) => TraceHash::of(&[0, *host as u64, frame.len() as u64]),
//!             Self::Due(host) => TraceHash::of(&[1, *host as u64]),
//!         }
//!     }
//! }
//!
//! impl World for TwoHosts {
//!     type Event = Event;
//!
//!     fn handle(&mut self, event: Event, queue: &mut EventQueue<Event>) {
//!         let now = queue.now();
//!         let host = match event {
//!             Event::Arrives(host, frame) => {
//!                 self.hosts[host].receive(frame, now);
//!                 host
//!             }
//!             Event::Due(host) => {
//!                 self.timers[host].fired(now);
//!                 self.hosts[host].handle_timeout(now);
//!                 host
//!             }
//!         };
//!         // The frames that the host sends, and its next timeout.
//!         while let Some(frame) = self.hosts[host].poll() {
//!             if let Ok(sent) = self.links[host].send(frame.len(), now) {
//!                 queue.schedule(sent.arrives, Event::Arrives(1 - host, frame));
//!             }
//!         }
//!         self.timers[host].arm(self.hosts[host].poll_timeout(), queue, Event::Due(host));
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = HostConfig { seed: 1, ..HostConfig::default() };
//! let mut hosts = [Host::new(HostId(0), config)?, Host::new(HostId(1), config)?];
//! hosts[1].listen(5201, Role::Receive);
//! hosts[0].connect(HostId(1), 5201, Role::Send { bytes: Some(1_000_000) }, Instant::ZERO)?;
//! let link = Link::new(LinkConfig::ethernet(Rate::GIGABIT, 50_000));
//! let world = TwoHosts { hosts, links: [link.clone(), link], timers: [Timer::default(); 2] };
//!
//! let mut simulation = Simulation::new(world);
//! simulation.queue.schedule(Instant::ZERO, Event::Due(0));
//! simulation.run_until(Instant::from_nanos(1_000_000_000));
//! let server = &simulation.world.hosts[1].connections()[0];
//! assert_eq!(server.program_counters().received, 1_000_000);
//! // 8.5 ms on the line, and the 10 ms of the delayed ACK of the first segment.
//! assert!(server.times().last_read < Some(Instant::from_nanos(20_000_000)));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod cpu;
mod engine_memory;
mod event_queue;
pub mod experiment;
pub mod generator;
pub mod host;
mod link;
pub mod netfpga;
pub mod observe;
pub mod overip;
mod packet;
mod parts;
mod pcie;
mod rate;
mod simulation;
pub mod star;
mod switch;
mod timer;
mod trace_hash;
pub mod xls416;

pub use cpu::{BacklogFull, CpuCosts, Server, Work};
pub use event_queue::EventQueue;
pub use link::{ETHERNET_OVERHEAD, Link, LinkConfig, LinkCounters, QueueFull, Sent};
pub use nichrome_wan::QueueLimit;
pub use nichrome_wire::{Engine, Instant};
pub use packet::{HostId, Outline, Packet};
pub use parts::{Message, Part, Parts};
pub use pcie::{Pcie, PcieConfig, PcieCounters};
pub use rate::{Pacer, Rate};
pub use simulation::{Advance, Progress, Simulation, Stop, World};
pub use switch::{Forwarded, PortId, Switch, SwitchDrop};
pub use timer::Timer;
pub use trace_hash::{Fingerprint, TraceHash};
