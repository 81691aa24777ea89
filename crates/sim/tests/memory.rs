//! The memory of a simulated host's connection. The only test of its process, because it measures the process.
#![allow(clippy::unwrap_used)]

use std::fs;

use nichrome_sim::experiment::{BUILT_IN, Definition, run};
use nichrome_sim::observe::Observer;

/// The most memory that the process has had, in bytes (proc_pid_status(5)).
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// Runs `connections` connections of lro-npu-10000 for 0.45 s; returns the process's peak then.
fn peak_with(connections: u64) -> u64 {
    let text = BUILT_IN.experiment("lro-npu-10000").unwrap().text;
    let definition = Definition::parse("lro-npu-10000", text, &BUILT_IN).unwrap();
    let place = definition.series.iter().position(|series| series.name == "with LRO").unwrap();
    let points = definition.points();
    let point = points.iter().find(|point| (point.series, point.x) == (place, connections)).unwrap();
    let mut parameters = point.parameters.clone();
    for (key, text) in [("warm-up", "400ms"), ("duration", "50ms")] {
        let spec = definition.runner.parameters().iter().find(|spec| spec.key == key).unwrap();
        parameters.set(spec, spec.parse(text).unwrap());
    }
    run(definition.runner, &parameters, definition.seed, &mut Observer::default()).unwrap();
    peak()
}

#[test]
fn a_connection_costs_its_receive_buffer_and_what_the_card_holds_of_it() {
    const FEW: u64 = 64;
    const MANY: u64 = 1024;
    // The engines reserve their tables for 10,000 connections in both runs.
    let few = peak_with(FEW);
    let each = (peak_with(MANY) - few) / (MANY - FEW);
    println!("{each} bytes a connection");
    // 192 KiB in the receive buffer and, as the card acknowledges a window of 64 KiB, at most as much in an aggregate, for whose
    // frames the engine has places of its own. The send buffer of 64 KiB and the window of 64 KiB on the wire take next to nothing.
    assert!((64 << 10..320 << 10).contains(&each), "{each} bytes a connection");
}
