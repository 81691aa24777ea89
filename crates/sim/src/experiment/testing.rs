//! An analytic test model and an experiment for it.

use super::{
    Embedded, Library, Measurement, MetricSpec, Outcome, ParameterSpec, Parameters, RunError, Runner,
};

use crate::observe::Observer;

/// `flows` flows share a wire; without offload, each packet costs a setup time.
pub(super) struct Share;

static PARAMETERS: [ParameterSpec; 5] = [
    ParameterSpec::count("flows", "flows", 1..=1000, "flows at once"),
    ParameterSpec::flag("offload", "whether the card coalesces"),
    ParameterSpec::rate("rate", 1_000..=100_000_000_000, "rate of the wire"),
    ParameterSpec::time("setup", 0..=1_000_000, "to start a transfer"),
    ParameterSpec::choice("arbiter", &["stack", "round-robin"], "whose turn it is"),
];

static METRICS: [MetricSpec; 2] = [
    MetricSpec { name: "throughput", unit: "Mb/s", about: "payload received" },
    MetricSpec { name: "latency", unit: "us", about: "time of a packet" },
];

impl Runner for Share {
    fn name(&self) -> &'static str {
        "share"
    }

    fn parameters(&self) -> &'static [ParameterSpec] {
        &PARAMETERS
    }

    fn metrics(&self) -> &'static [MetricSpec] {
        &METRICS
    }

    fn run(&self, parameters: &Parameters, seed: u64, _: &mut Observer) -> Result<Outcome, RunError> {
        let setup = if parameters.flag("offload")? { 0 } else { parameters.nanos("setup")? };
        let nanos = parameters.rate("rate")?.nanos(1500) + setup;
        let flows = parameters.count("flows")?;
        let throughput = Measurement::new("throughput", 1500.0 * 8.0 * 1000.0 / nanos as f64);
        let latency = Measurement::new("latency", (nanos * flows) as f64 / 1000.0);
        Ok(Outcome { measurements: vec![throughput, latency], events: flows, trace_hash: seed })
    }
}

pub(super) static LIBRARY: Library = Library {
    runners: &[&Share],
    experiments: &[Embedded { name: "share", text: EXPERIMENT }],
    parameters: &[Embedded { name: "wire", text: WIRE }],
};

const WIRE: &str = r#"
[parameters]
rate = { value = 1, unit = "Gb/s", source = "data sheet" }
arbiter = { value = "stack", source = "V.B" }
"#;

pub(super) const EXPERIMENT: &str = r#"
name = "share"
title = "Throughput over the number of flows"
paper = "none, Figure 1"
model = "share"
include = "wire"

[x]
parameter = "flows"
values = [1, 2, 4]
scale = "log2"

[[series]]
name = "with offload"
metric = "throughput"
set = { offload = true }

[[series]]
name = "without"
metric = "throughput"
set = { offload = false }

[[derived]]
name = "gain"
rule = "ratio"
of = ["with offload", "without"]

[[expected]]
series = "with offload"
value = 1000
unit = "Mb/s"
tolerance = "1%"
kind = "predicted"
source = "abstract"
sentence = "1 Gb/s"

[[expected]]
series = "gain"
x = [2, 4]
value = 2.5
unit = "times"
tolerance = 0.5
kind = "derived"
source = "abstract"
sentence = "2.5 times"

[parameters]
setup = { value = 12, unit = "us", source = "fitted to the gain" }
"#;
