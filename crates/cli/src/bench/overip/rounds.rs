//! Runs the rounds of all figures.

use anyhow::Context;

use super::kind::Kind;
use super::series::{Figure, Grid};
use super::testbed::Testbed;
use super::{cpu, latency, overlap, progress, rendezvous};

/// Every figure.
pub(super) const FIGURES: [Kind; 10] = [
    latency::BY_SIZE,
    latency::BY_DELAY,
    overlap::BY_COMPUTATION,
    overlap::BY_DELAY,
    progress::BY_LOAD,
    progress::BY_DELAY,
    cpu::BY_SIZE,
    cpu::BY_DELAY,
    latency::ON_LAN,
    rendezvous::BY_DELAY,
];

/// Measures figures. Each round measures each figure once, so that slow changes, and differences between
/// connections, show in the spread of the rounds.
pub(super) fn measure(testbed: &Testbed, kinds: &[Kind]) -> anyhow::Result<Vec<Figure>> {
    let plan = &testbed.plan;
    let mut grids: Vec<Grid> = kinds.iter().map(|kind| Grid::new((kind.places)(plan))).collect();
    let rounds = kinds.iter().map(|kind| (kind.rounds)(plan)).max().unwrap_or(0);
    for round in 0..rounds {
        for (kind, grid) in kinds.iter().zip(&mut grids).filter(|(kind, _)| round < (kind.rounds)(plan)) {
            testbed.progress.set_message(format!("{}, round {} of {rounds}", kind.name, round + 1));
            (kind.measure)(testbed, round, grid).with_context(|| kind.name.to_owned())?;
        }
    }
    let finish = |(kind, grid): (&Kind, Grid)| {
        let Kind { name, paper, title, x, y, .. } = *kind;
        let (rounds, notes) = ((kind.rounds)(plan), (kind.notes)(testbed));
        Figure { name, paper, title, x, y, rounds, series: grid.finish(), notes }
    };
    Ok(kinds.iter().zip(grids).map(finish).collect())
}
