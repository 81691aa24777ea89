//! The built-in models, experiments and shared parameters.

use std::fmt;

use super::runner::Runner;
use crate::netfpga::NetfpgaRunner;
use crate::overip::OverIp;
use crate::star::Star;
use crate::xls416::Xls416;

/// A file embedded in the program.
#[derive(Clone, Copy, Debug)]
pub struct Embedded {
    /// The name without `.toml`.
    pub name: &'static str,
    /// The content.
    pub text: &'static str,
}

/// Models and embedded files by name.
pub struct Library {
    /// The models.
    pub runners: &'static [&'static dyn Runner],
    /// `experiments/*.toml`.
    pub experiments: &'static [Embedded],
    /// `experiments/parameters/*.toml`: for `include`.
    pub parameters: &'static [Embedded],
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library").finish_non_exhaustive()
    }
}

/// Embeds files below `experiments/`.
macro_rules! embedded {
    ($folder:literal, $($name:literal),* $(,)?) => {
        &[$(Embedded {
            name: $name,
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/", $folder, $name, ".toml")),
        }),*]
    };
}

/// The built-in library.
pub static BUILT_IN: Library = Library {
    runners: &[&NetfpgaRunner, &Xls416, &Star, &OverIp],
    experiments: embedded!(
        "",
        "lro-npu-throughput",
        "lro-npu-dma",
        "lro-npu-dma-seeds",
        "lro-npu-reasons",
        "lro-npu-threshold",
        "lro-npu-costs",
        "lro-npu-rings",
        "lro-npu-pause",
        "lro-npu-latency",
        "lro-npu-software",
        "lro-npu-active-ack",
        "lro-npu-stopped-reader",
        "lro-npu-reorder",
        "lro-npu-10000",
        "lro-npu-100g",
        "lro-netfpga-cpu",
        "lro-netfpga-drops",
        "lro-netfpga-two-flows",
        "lro-netfpga-flows",
        "lro-netfpga-other",
        "lro-netfpga-ttl",
        "star-stress",
        "star-rpc",
        "star-collapse",
        "star-scale",
        "star-latency",
        "star-auto",
        "star-all-to-all",
        "star-loss",
        "star-ecn",
        "star-alternatives",
        "star-baselines",
        "star-baselines-load",
        "star-costs",
        "star-icnp",
        "star-ton",
        "iwarp-latency",
        "iwarp-latency-delay",
        "iwarp-overlap",
        "iwarp-overlap-delay",
        "iwarp-progress",
        "iwarp-progress-delay",
        "iwarp-cpu",
        "iwarp-cpu-delay",
        "iwarp-lan",
        "iwarp-rendezvous",
        "iwarp-today",
        "iwarp-today-loss",
        "iwarp-today-fetch",
    ),
    parameters: embedded!("parameters/", "iwarp", "netfpga", "star", "today", "xls416"),
};

impl Library {
    /// Returns a model by name.
    pub fn runner(&self, name: &str) -> Option<&'static dyn Runner> {
        self.runners.iter().copied().find(|runner| runner.name() == name)
    }

    /// Returns an experiment by name.
    pub fn experiment(&self, name: &str) -> Option<Embedded> {
        self.experiments.iter().copied().find(|experiment| experiment.name == name)
    }

    /// Returns a parameter file by name.
    pub(super) fn parameters(&self, name: &str) -> Option<Embedded> {
        self.parameters.iter().copied().find(|parameters| parameters.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Definition;
    use super::*;

    /// A parameter with an assumed or fitted value has a plausible range.
    #[test]
    fn what_is_assumed_or_fitted_has_a_range() {
        const UNSURE: [&str; 3] = ["assumed", "fitted", "ours, the paper has no number"];
        for experiment in BUILT_IN.experiments {
            let definition = Definition::parse(experiment.name, experiment.text, &BUILT_IN).unwrap();
            for parameter in &definition.parameters {
                let is_unsure = UNSURE.iter().any(|start| parameter.source.starts_with(start));
                assert!(
                    parameter.range.is_some() || !is_unsure,
                    "{}, {}: {}",
                    experiment.name,
                    parameter.spec.key,
                    parameter.source
                );
            }
        }
    }
}
