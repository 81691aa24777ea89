//! The memory of a simulated host's connection. The only test of its process, because it measures the
//! process.
#![allow(clippy::unwrap_used)]

use std::fs;

use nichrome_sim::experiment::{BUILT_IN, Definition, run};
use nichrome_sim::observe::Observer;

/// Returns the peak memory of the process, in bytes (proc_pid_status(5)).
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// Runs `connections` connections of lro-npu-10000 for 0.8 s; returns the process's peak memory so far.
fn peak_with(connections: u64) -> u64 {
    let text = BUILT_IN.experiment("lro-npu-10000").unwrap().text;
    let definition = Definition::parse("lro-npu-10000", text, &BUILT_IN).unwrap();
    let place = definition.series.iter().position(|series| series.name == "with LRO").unwrap();
    let points = definition.points();
    let point = points.iter().find(|point| (point.series, point.x) == (place, connections)).unwrap();
    let mut parameters = point.parameters.clone();
    for (key, text) in [("warm-up", "750ms"), ("duration", "50ms")] {
        let spec = definition.runner.parameters().iter().find(|spec| spec.key == key).unwrap();
        parameters.set(spec, spec.parse(text).unwrap());
    }
    run(definition.runner, &parameters, definition.seed, &mut Observer::default()).unwrap();
    peak()
}

#[test]
fn a_connection_costs_what_the_card_holds_of_it() {
    const FEW: u64 = 1024;
    const MANY: u64 = 10_000;
    // The engines reserve their tables for 10,000 connections in both runs.
    let few = peak_with(FEW);
    let each = (peak_with(MANY) - few) / (MANY - FEW);
    println!("{each} bytes a connection");
    // TCP of both ends, a page of the send buffer, and an aggregate with its places take about 32 KB. 40 KB
    // of each connection's stream have arrived by then, so a receiver that keeps them exceeds the limit.
    assert!((4 << 10..48 << 10).contains(&each), "{each} bytes a connection");
}
