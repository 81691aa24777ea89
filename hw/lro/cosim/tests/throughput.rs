//! Cycles per frame at the module's input while its sink is ready; and a check of the simulator's parameters
//! against these measurements.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::time::Duration;

use nichrome_lro::Config;
use nichrome_lro_cosim::compare::{Input, Report, compare};
use nichrome_lro_cosim::{Model, RtlConfig, Width};
use nichrome_wire::Instant;

use common::segment_in_turn;

/// Frames of one measurement.
const FRAMES: u32 = 64;

/// Segments of `len` bytes, Ethernet header included, of `flows` connections in turn; without payload, pure
/// ACKs.
fn segments(len: usize, flows: u32, has_payload: bool) -> Vec<Input> {
    let payload = if has_payload { len - 54 } else { 0 };
    let now = Instant::from_nanos(1000);
    let segment = |nth: u32| {
        let mut bytes = segment_in_turn(nth, payload, flows);
        bytes.resize(len, 0);
        Input::Frame(now, bytes)
    };
    (0..FRAMES).map(segment).collect()
}

fn run(model: Model, inputs: &[Input]) -> Report {
    let config = Config { max_bytes: 49_152, ..Config::default() };
    let rtl = RtlConfig::new(model, &config, Duration::from_millis(1));
    compare(&config, rtl, inputs).unwrap_or_else(|difference| panic!("{model:?}: {difference}"))
}

/// Maximum cycles of a frame. With words of 8 bytes, this is 10 Gb/s at 156.25 MHz: a frame takes (L + 24) /
/// 8 cycles on the wire.
fn most_cycles(width: Width, words: u64) -> u64 {
    match width {
        Width::Bits64 => words + 2,
        Width::Bits128 | Width::Bits256 => (words + 7).max(10),
    }
}

#[test]
fn a_frame_takes_few_cycles_more_than_it_has_words() {
    let lens = (60..=130).chain([256, 512, 590, 1000, 1280, 1514, 1518, 4000, 9018]);
    for len in lens {
        let cases = [("one flow", 1, true), ("two flows", 2, true), ("pure ACKs", 1, false)];
        for (case, flows, has_payload) in cases {
            let inputs = segments(len, flows, has_payload);
            for model in Model::ALL {
                let words = len.div_ceil(model.width.bytes()) as u64;
                let report = run(*model, &inputs);
                // Words are offered without a pause: a cycle is a word that is taken, or one that waits.
                let taken = u64::from(FRAMES) * words + report.refused;
                let per_frame = taken as f64 / f64::from(FRAMES);
                let most = most_cycles(model.width, words) as f64;
                assert!(per_frame <= most, "{case}, {len} bytes, {model:?}: {per_frame:.2}");
            }
        }
    }
}

/// A parameter of the simulator's model of the card.
fn parameter(name: &str) -> u64 {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../experiments/parameters/netfpga.toml");
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} = {{ value = "))).unwrap();
    line.split(',').next().unwrap().parse().unwrap()
}

#[test]
fn the_simulators_card_takes_the_cycles_of_the_module() {
    let (overhead, least) = (parameter("path-overhead"), parameter("path-least"));
    for len in (60..=130).chain([256, 590, 1514, 9018]) {
        let words = (len as u64).div_ceil(8);
        for model in Model::ALL.iter().filter(|model| model.width == Width::Bits64) {
            let report = run(*model, &segments(len, 1, true));
            // Words wait between frames only; between the first two, a cycle less.
            let measured = words as f64 + report.refused as f64 / f64::from(FRAMES - 1);
            assert_eq!(measured.round(), (words + overhead).max(least) as f64, "{len} bytes: {measured}");
        }
    }
}

/// Figure 11 of lro-netfpga: two alternating connections halve the gain of the paper's module.
#[test]
fn two_alternating_flows_aggregate_as_one_does() {
    let segments_per_aggregate = |model: Model, flows| {
        run(model, &segments(1514, flows, true)).statistics.mean_segments_per_aggregate()
    };
    for model in Model::ALL {
        let (one, two) = (segments_per_aggregate(*model, 1), segments_per_aggregate(*model, 2));
        assert!(one > 20.0, "{one}");
        let wanted = if model.flows > 1 { 0.99 * one..=one } else { 0.0..=0.0 };
        assert!(wanted.contains(&two), "{} flows: {two} of {one}", model.flows);
    }
}
