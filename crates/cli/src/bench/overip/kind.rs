//! The definition of a figure: its axis, its notes, and its measurement.

use super::plan::Plan;
use super::series::{Axis, Grid};
use super::testbed::Testbed;

/// A figure that can be measured.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    /// The experiment's name, which the simulator uses too.
    pub(super) name: &'static str,
    /// The paper's figure.
    pub(super) paper: &'static str,
    pub(super) title: &'static str,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) rounds: fn(&Plan) -> usize,
    /// Places on the axis.
    pub(super) places: fn(&Plan) -> Vec<f64>,
    /// Measures round `round` and adds its values. Each round has hosts and connections of its own.
    pub(super) measure: fn(&Testbed, usize, &mut Grid) -> anyhow::Result<()>,
    /// Notes on effects that this machine cannot show, or shows differently.
    pub(super) notes: fn(&Testbed) -> Vec<String>,
}

impl Kind {
    /// Number of progress steps.
    pub(super) fn steps(&self, plan: &Plan) -> usize {
        (self.rounds)(plan) * (self.places)(plan).len()
    }
}
