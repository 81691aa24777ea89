//! The testbed of a figure: plan, processors, hosts and connections.

use std::time::Duration;

use indicatif::ProgressBar;
use nichrome_wan::Impairments;

use super::bearer::Bearer;
use super::connect::{Connections, Key, Site};
use super::hosts::Hosts;
use super::plan::Plan;
use super::processors::Processors;
use crate::side::Side;

/// Plan, processors, and the path's impairments besides its delay.
pub(super) struct Testbed {
    pub(super) plan: Plan,
    pub(super) processors: Processors,
    pub(super) impairments: [Impairments; 2],
    pub(super) seed: u64,
    pub(super) key: Key,
    pub(super) progress: ProgressBar,
}

/// One connection over each transport, or several.
pub(super) type Everything = Vec<(Bearer, Connections)>;

impl Testbed {
    /// Creates two hosts with a path between them, at first without delay.
    pub(super) fn wan(&self) -> anyhow::Result<Hosts> {
        Hosts::wan(&self.impairments, self.seed, &self.processors)
    }

    /// Returns the connector between `hosts`. The program on `measured` is measured.
    pub(super) fn site<'a>(&'a self, hosts: &'a Hosts, measured: Side) -> Site<'a> {
        Site { hosts, processors: &self.processors, measured, key: &self.key }
    }

    /// Sets up a connection over each transport.
    pub(super) fn connect_all(&self, hosts: &Hosts, measured: Side) -> anyhow::Result<Everything> {
        let site = self.site(hosts, measured);
        let connect = |bearer| Ok((bearer, site.connect(bearer, 1, self.plan.max_len())?));
        Bearer::ALL.into_iter().map(connect).collect()
    }

    /// Calls `measure` with number and value of each place on a figure's axis, and shows the progress.
    pub(super) fn at_each<X: Copy>(
        &self,
        places: &[X],
        mut measure: impl FnMut(usize, X) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for (nth, place) in places.iter().copied().enumerate() {
            measure(nth, place)?;
            self.progress.inc(1);
        }
        Ok(())
    }
}

/// Converts to milliseconds, the unit of the figures.
pub(super) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Converts to microseconds, the unit of the figures.
pub(super) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
