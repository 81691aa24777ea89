//! The report: figures, claims, and the machine.

use std::fmt;

use serde::Serialize;

use super::claims::Claim;
use super::series::Figure;

/// The machine. The names of the fields are JSON keys.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    pub(super) processors: usize,
    /// True if this build is optimized.
    pub(super) optimized: bool,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processors, optimized } = self;
        let build = if *optimized { "" } else { "; a build without optimizations, whose figures say little" };
        write!(f, "two hosts in one process on a machine with {processors} processors{build}")
    }
}

/// The report. The names of the fields are JSON keys.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) quick: bool,
    pub(super) figures: Vec<Figure>,
    pub(super) claims: Vec<Claim>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.machine)?;
        for figure in &self.figures {
            writeln!(f, "{figure}\n")?;
        }
        write!(f, "claims of the paper")?;
        for Claim { claim, figure, statement, transports } in &self.claims {
            write!(f, "\n\n{claim:<4} {statement} (figure {figure})")?;
            for of in transports {
                write!(f, "\n     {:<6} {:<16} {}", of.transport.name(), of.verdict, of.reason)?;
            }
        }
        Ok(())
    }
}
