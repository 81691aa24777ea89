//! What a connection of a simulated host costs in memory. The only test of its process: it measures the process.
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

#[test]
fn a_connection_costs_its_receive_buffer_and_what_the_card_holds_of_it() {
    const CONNECTIONS: u64 = 1024;
    let text = BUILT_IN.experiment("lro-npu-10000").unwrap().text;
    let definition = Definition::parse("lro-npu-10000", text, &BUILT_IN).unwrap();
    let place = definition.series.iter().position(|series| series.name == "with LRO").unwrap();
    let points = definition.points();
    let point = points.iter().find(|point| (point.series, point.x) == (place, CONNECTIONS)).unwrap();
    let mut parameters = point.parameters.clone();
    for (key, text) in [("warm-up", "400ms"), ("duration", "50ms")] {
        let spec = definition.runner.parameters().iter().find(|spec| spec.key == key).unwrap();
        parameters.set(spec, spec.parse(text).unwrap());
    }
    let before = peak();
    let outcome = run(definition.runner, &parameters, definition.seed, &mut Observer::default()).unwrap();
    let each = (peak() - before) / CONNECTIONS;
    println!("{each} bytes a connection, trace {:x}", outcome.trace_hash);
    // 192 KiB in the receive buffer and, as the card acknowledges a window of 64 KiB, at most as much in an aggregate. The send
    // buffer of 64 KiB and what waits on the wire take next to nothing.
    assert!((64 << 10..320 << 10).contains(&each), "{each} bytes a connection");
}
