//! Shared by the tests: sends packets at their times through a path, in virtual time.
#![allow(dead_code, unreachable_pub)]

use std::str::FromStr;
use std::time::Duration;

use nichrome_wan::{Departure, DropReason, Dummy, Impairments, Output, Path};
use nichrome_wire::engine::{advance, deliver};
use nichrome_wire::{Ecn, Instant};

pub const NONE: fn() -> Impairments = Impairments::default;

/// Parses a text.
pub fn of<T: FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

pub fn us(micros: u64) -> Instant {
    Instant::from_nanos(micros * 1000)
}

pub fn ms(millis: u64) -> Instant {
    us(millis * 1000)
}

/// A full-sized frame.
pub fn packet(id: u64) -> Dummy {
    Dummy { len: 1514, id, ..Dummy::default() }
}

/// Returns a full-sized frame of an ECN-capable sender.
pub fn ect(id: u64) -> Dummy {
    Dummy { ecn: Ecn::Ect0, ..packet(id) }
}

/// The outputs of a path.
#[derive(Debug, Default)]
pub struct Outcome {
    pub released: Vec<Departure<Dummy>>,
    pub dropped: Vec<(u64, DropReason)>,
}

impl Outcome {
    pub fn take(&mut self, output: Output<Dummy>) {
        match output {
            Output::Released(departure) => self.released.push(departure),
            Output::Dropped { packet, reason } => self.dropped.push((packet.id, reason)),
        }
    }

    pub fn ids(&self) -> Vec<u64> {
        self.released.iter().map(|departure| departure.packet.id).collect()
    }

    pub fn dues(&self) -> Vec<Instant> {
        self.released.iter().map(|departure| departure.due).collect()
    }

    pub fn dropped_for(&self, reason: DropReason) -> Vec<u64> {
        self.dropped.iter().filter(|(_, why)| *why == reason).map(|(id, _)| *id).collect()
    }

    /// Returns the delays in nanoseconds.
    pub fn delays(&self) -> Vec<f64> {
        let delay = |departure: &Departure<Dummy>| (departure.due - departure.arrived).as_nanos() as f64;
        self.released.iter().map(delay).collect()
    }
}

/// Sends packets, each at its time, and runs until all have left.
pub fn send(path: &mut Path<Dummy>, packets: impl IntoIterator<Item = (Instant, Dummy)>) -> Outcome {
    let mut outcome = Outcome::default();
    for (at, packet) in packets {
        deliver(path, packet, at, &mut |_, output| outcome.take(output));
    }
    advance(path, Instant::MAX, &mut |_, output| outcome.take(output));
    assert_eq!(path.in_flight(), 0);
    outcome
}

/// Sends this many full-sized frames, numbered from 1, at equal intervals from time 0.
pub fn send_evenly(impairments: &Impairments, count: u64, distance: Duration) -> (Outcome, Path<Dummy>) {
    let mut path = Path::new(impairments, 42).unwrap();
    let distance = distance.as_nanos() as u64;
    let packets = (0..count).map(|nth| (Instant::from_nanos(nth * distance), packet(nth + 1)));
    let outcome = send(&mut path, packets);
    (outcome, path)
}

/// Returns true if `got` is within 1 % of `asked`.
pub fn is_near(got: f64, asked: f64) -> bool {
    (got / asked - 1.0).abs() < 0.01
}

pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

pub fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
}
