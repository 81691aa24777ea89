//! Generates operations on two equal paths with different drivers: one calls in time, the other late and in
//! batches. Checks every invariant; the property tests and the fuzz target choose the operations.

use std::fmt::Write;

use nichrome_wan::{Departure, DropReason, Dummy, Impairments, JitterOrder, Output, Path, Stage};
use nichrome_wire::engine::{advance, deliver};
use nichrome_wire::{Ecn, Engine, Instant};

/// A source of choices.
pub trait Choose {
    /// Returns a number below `bound`.
    fn below(&mut self, bound: u32) -> u32;
    /// Returns true if no choices are left.
    fn is_exhausted(&self) -> bool;
}

/// Runs operations until the choices are exhausted; the error names the broken invariant.
pub fn run(choices: &mut impl Choose) -> Result<(), String> {
    let seed = choices.below(1000).into();
    let first = impairments(choices);
    let mut pair = Pair::new(&first, seed)?;
    while !choices.is_exhausted() {
        pair.operate(choices)?;
    }
    pair.finish()
}

/// Parses one of several texts.
fn one_of<T: std::str::FromStr>(choices: &mut impl Choose, texts: &[&str]) -> Option<T> {
    texts[choices.below(texts.len() as u32) as usize].parse().ok()
}

/// Parses one of several texts, or returns `None` in half of the cases.
fn maybe<T: std::str::FromStr>(choices: &mut impl Choose, texts: &[&str]) -> Option<T> {
    if choices.below(2) == 0 { None } else { one_of(choices, texts) }
}

fn impairments(choices: &mut impl Choose) -> Impairments {
    let mut impairments = Impairments {
        delay: one_of(choices, &["0", "1ns", "3us", "1ms", "40ms", "3600s"]).unwrap_or_default(),
        jitter: maybe(choices, &["1us", "5ms", "1s", "normal:1ms", "pareto:20ms", "pareto-normal:3us", "0"]),
        jitter_order: one_of(choices, &["keep", "reorder"]).unwrap_or_default(),
        loss: maybe(choices, &["10%", "100%", "gilbert:10%,30%", "gilbert:5%,20%,1%,50%", "packets:1,3,5-9"]),
        duplicate: maybe(choices, &["10%", "100%"]).unwrap_or_default(),
        corrupt: maybe(choices, &["10%", "100%"]).unwrap_or_default(),
        reorder: maybe(choices, &["10%", "30%:1ms", "100%:1ns"]),
        rate: None,
        trace: None,
        queue: one_of(choices, &["1000p", "1p", "3p", "1B", "4kB"]).unwrap_or_default(),
        aqm: one_of(choices, &["tail-drop", "codel", "codel:1us,1ms"]).unwrap_or_default(),
        ecn: one_of(choices, &["off", "mark", "mark:1p", "mark:2kB"]).unwrap_or_default(),
        mtu: maybe(choices, &["1500", "68"]),
        limit: one_of(choices, &["1000000", "1", "5", "20"]).unwrap_or_default(),
        order: one_of(
            choices,
            &[
                "mtu,loss,corrupt,duplicate,rate,delay,reorder",
                "reorder,delay,rate,duplicate,corrupt,loss,mtu",
                "delay,rate,loss,duplicate,reorder,corrupt,mtu",
            ],
        )
        .unwrap_or_default(),
    };
    match choices.below(4) {
        0 => impairments.rate = one_of(choices, &["1kbit", "10mbit", "7gbit", "1000gbit"]),
        1 => impairments.trace = one_of(choices, &["1", "0\n0\n5", "1\n2\n2\n2\n40\n"]),
        _ => {}
    }
    impairments
}

/// An output, without the packet's content.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Left {
    Released(Departure<Dummy>),
    Dropped(u64, DropReason),
}

struct Pair {
    punctual: Path<Dummy>,
    late: Path<Dummy>,
    /// The outputs of each path.
    expected: Vec<Left>,
    got: Vec<Left>,
    now: Instant,
    /// The arrival time of each packet, by number.
    arrivals: Vec<Instant>,
    /// The allowed number of packets in flight: the limit, or more until packets leave after a lower limit
    /// was set.
    bound: usize,
    limit: usize,
    /// The outcomes that the impairments so far allow.
    may_reorder: bool,
    may_drop: [bool; DropReason::ALL.len()],
    is_backlogged: bool,
}

impl Pair {
    fn new(impairments: &Impairments, seed: u64) -> Result<Self, String> {
        let none = Impairments::default();
        let path = || Path::new(&none, seed).map_err(|error| error.to_string());
        let mut pair = Self {
            punctual: path()?,
            late: path()?,
            expected: Vec::new(),
            got: Vec::new(),
            now: Instant::ZERO,
            arrivals: Vec::new(),
            bound: 0,
            limit: 0,
            may_reorder: false,
            may_drop: [false; DropReason::ALL.len()],
            is_backlogged: false,
        };
        pair.reconfigure(impairments)?;
        Ok(pair)
    }

    fn operate(&mut self, choices: &mut impl Choose) -> Result<(), String> {
        match choices.below(16) {
            0..8 => self.receive(choices),
            8..11 => self.now = self.now.plus_nanos(u64::from(choices.below(1000)) << choices.below(24)),
            11..13 => self.late.handle_timeout(self.now),
            13..15 => self.drain(),
            _ => self.reconfigure(&impairments(choices))?,
        }
        if self.punctual.in_flight() > self.bound || self.late.in_flight() > self.bound {
            return Err(format!("{} packets in flight, {} allowed", self.late.in_flight(), self.bound));
        }
        // The bound falls to the limit as packets leave, and never rises again.
        self.bound = self.limit.max(self.punctual.in_flight().max(self.late.in_flight()));
        Ok(())
    }

    fn receive(&mut self, choices: &mut impl Choose) {
        for _ in 0..=choices.below(4) {
            let len = [0, 14, 60, 100, 1514, 1515, 9014, 70_000][choices.below(8) as usize];
            let ecn = [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce][choices.below(4) as usize];
            let packet = Dummy { len, ecn, corrupt: false, id: self.arrivals.len() as u64 };
            self.arrivals.push(self.now);
            let expected = &mut self.expected;
            deliver(&mut self.punctual, packet, self.now, &mut |_, output| expected.push(left(output)));
            let way = choices.below(3);
            let passed = match way {
                0 if self.late.count_passed([packet.len as usize].into_iter(), self.now) => {
                    Some(Departure { packet, arrived: self.now, due: self.now })
                }
                1 => self.late.receive_at_once(packet, self.now),
                _ => {
                    self.late.receive(packet, self.now);
                    None
                }
            };
            self.got.extend(passed.map(|departure| left(Output::Released(departure))));
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.late.poll() {
            self.got.push(left(output));
        }
    }

    fn reconfigure(&mut self, impairments: &Impairments) -> Result<(), String> {
        let expected = &mut self.expected;
        advance(&mut self.punctual, self.now, &mut |_, output| expected.push(left(output)));
        let results =
            [self.punctual.reconfigure(impairments, self.now), self.late.reconfigure(impairments, self.now)];
        if results != [impairments.validate(); 2] {
            return Err(format!("{results:?} though it is {:?}", impairments.validate()));
        }
        if results[0].is_err() {
            return Ok(());
        }
        let is_changed = !self.arrivals.is_empty();
        let has_free_jitter = impairments.jitter_order == JitterOrder::Reorder;
        // A change may move another stage ahead of the one that holds a packet, so that later packets
        // overtake it.
        self.may_reorder |= has_free_jitter || impairments.reorder.is_some() || is_changed;
        let has_bottleneck = impairments.rate.is_some() || impairments.trace.is_some();
        self.is_backlogged |= has_bottleneck;
        let mut allow = |reason: DropReason, is_allowed: bool| self.may_drop[reason as usize] |= is_allowed;
        allow(DropReason::InFlightLimit, impairments.limit.get() < 1_000_000);
        allow(DropReason::Mtu, impairments.mtu.is_some());
        allow(DropReason::Loss, impairments.loss.is_some());
        allow(DropReason::TailDrop, self.is_backlogged);
        allow(DropReason::CoDel, self.is_backlogged);
        self.limit = impairments.limit.get() as usize;
        self.bound = self.limit.max(self.punctual.in_flight()).max(self.late.in_flight());
        if impairments.order.stages().len() != Stage::ALL.len() {
            return Err("an order lost a stage".into());
        }
        Ok(())
    }

    /// Releases and checks all packets.
    fn finish(mut self) -> Result<(), String> {
        let expected = &mut self.expected;
        advance(&mut self.punctual, Instant::MAX, &mut |_, output| expected.push(left(output)));
        self.late.handle_timeout(Instant::MAX);
        self.drain();
        if let Some(at) = (0..self.expected.len().max(self.got.len()))
            .find(|at| self.expected.get(*at) != self.got.get(*at))
        {
            return Err(format!(
                "output {at} is {:?} by the book, {:?} late",
                self.expected.get(at),
                self.got.get(at)
            ));
        }
        self.check_counts()?;
        self.check_times()?;
        self.check_packets()
    }

    fn check_counts(&self) -> Result<(), String> {
        let (stats, punctual) = (self.late.stats(), self.punctual.stats());
        let released = self.got.iter().filter(|left| matches!(left, Left::Released(_))).count() as u64;
        let counts = [
            (stats.packets_in, self.arrivals.len() as u64),
            (stats.packets_out, released),
            (stats.drops.total(), self.got.len() as u64 - released),
            (stats.packets_in + stats.duplicated, stats.packets_out + stats.drops.total()),
            (stats.delay.count(), released),
            (stats.bytes_in, punctual.bytes_in),
            (stats.bytes_out, punctual.bytes_out),
            (stats.reordered, punctual.reordered),
            (self.late.in_flight() as u64, 0),
        ];
        match counts.iter().position(|(got, expected)| got != expected) {
            Some(nth) => Err(format!("count {nth} is wrong: {counts:?}")),
            None => Ok(()),
        }
    }

    fn check_times(&self) -> Result<(), String> {
        let mut last = (Instant::ZERO, 0);
        for left in &self.got {
            let Left::Released(Departure { packet, arrived, due }) = *left else { continue };
            let mut broken = String::new();
            if due < last.0 {
                let _ = write!(broken, "released before the one before, {}", last.0);
            }
            if due < arrived || self.arrivals.get(packet.id as usize) != Some(&arrived) {
                broken.push_str("released before it arrived, or not when it did");
            }
            if packet.id < last.1 && !self.may_reorder {
                let _ = write!(broken, "overtaken by {}", last.1);
            }
            if !broken.is_empty() {
                return Err(format!("{left:?} is {broken}"));
            }
            last = (due, packet.id.max(last.1));
        }
        Ok(())
    }

    /// Checks that each packet left once, and once more for each copy.
    fn check_packets(&self) -> Result<(), String> {
        let mut times = vec![0u64; self.arrivals.len()];
        for left in &self.got {
            let id = match left {
                Left::Released(departure) => departure.packet.id,
                Left::Dropped(id, reason) if self.may_drop[*reason as usize] => *id,
                Left::Dropped(id, reason) => return Err(format!("packet {id} was dropped for {reason}")),
            };
            times[id as usize] += 1;
        }
        match times.iter().position(|times| *times == 0) {
            Some(id) => Err(format!("packet {id} is lost without a word")),
            None if times.iter().map(|times| times - 1).sum::<u64>() == self.late.stats().duplicated => {
                Ok(())
            }
            None => Err("copies came out that were not counted".into()),
        }
    }
}

fn left(output: Output<Dummy>) -> Left {
    match output {
        Output::Released(departure) => Left::Released(departure),
        Output::Dropped { packet, reason } => Left::Dropped(packet.id, reason),
    }
}
