//! The NetFPGA card's experiments.

use nichrome_sim::experiment::{BUILT_IN, Definition, Extent, Outcome, RunError, Value, run};
use nichrome_sim::observe::Observer;

fn definition(name: &str) -> Definition {
    let text = BUILT_IN.experiment(name).unwrap().text;
    Definition::parse(name, text, &BUILT_IN).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs every point of a series; returns the outcomes in the order of the axis.
fn outcomes(definition: &Definition, series: usize) -> Vec<Outcome> {
    let points = definition.points().into_iter().filter(|point| point.series == series);
    let runs =
        points.map(|point| run(definition.runner, &point.parameters, 1, &mut Observer::default()).unwrap());
    runs.collect()
}

fn value(outcome: &Outcome, metric: &str) -> f64 {
    outcome.measurements.iter().find(|measurement| measurement.metric == metric).unwrap().value
}

fn values(name: &str, series: usize, metric: &str) -> Vec<f64> {
    let definition = definition(name);
    let outcomes = outcomes(&definition, series);
    outcomes.iter().map(|outcome| value(outcome, metric)).collect()
}

#[test]
fn the_shorter_the_frames_the_more_the_card_saves() {
    let (nic, lro) = (values("lro-netfpga-cpu", 0, "cpu"), values("lro-netfpga-cpu", 1, "cpu"));
    let saved: Vec<f64> = nic.iter().zip(&lro).map(|(nic, lro)| nic - lro).collect();
    assert!(saved.is_sorted_by(|shorter, longer| shorter > longer), "{saved:?}");
    assert!((25.0..=31.0).contains(&saved[0]), "Figure 9, 64 B: {saved:?}");
    assert!((9.0..=15.0).contains(&saved[saved.len() - 1]), "Figure 9, 1514 B: {saved:?}");
}

#[test]
fn aggregates_leave_the_bus_room_for_what_was_dropped() {
    let (nic, lro) = (values("lro-netfpga-drops", 0, "drops"), values("lro-netfpga-drops", 1, "drops"));
    let fewer: Vec<f64> = nic.iter().zip(&lro).map(|(nic, lro)| nic - lro).collect();
    assert!((12.0..=18.0).contains(&fewer[0]), "Figure 10, 64 B: {fewer:?}");
    assert!((4.0..=10.0).contains(&fewer[fewer.len() - 1]), "Figure 10, 1514 B: {fewer:?}");
}

/// The reasons of two ranges name the tolerance of a statement: the statement holds at both ends of the
/// range, and not at the next values.
#[test]
fn ranges_of_what_is_fitted_end_where_the_fit_ends() {
    for (name, key) in
        [("lro-netfpga-drops", "pci-packet-overhead"), ("lro-netfpga-cpu", "software-lro-cost")]
    {
        let definition = definition(name);
        let parameter = definition.parameters.iter().find(|parameter| parameter.spec.key == key).unwrap();
        let range = parameter.range.as_ref().unwrap();
        assert!(range.reason.starts_with("what keeps "), "{}", range.reason);
        let Extent::Between(least, most) = range.extent else { panic!("{range:?}") };
        let holds = |value: u64| {
            let mut definition = definition.clone();
            definition.set("frame=64B").unwrap();
            definition.set(&format!("{key}={}", parameter.spec.show(Value::Quantity(value)))).unwrap();
            let plan = definition.plan();
            let outcome =
                |parameters| run(definition.runner, parameters, 1, &mut Observer::default()).unwrap();
            let outcomes: Vec<_> = plan.runs.iter().map(outcome).collect();
            let values = definition.values(&plan, |run, metric| Some(self::value(&outcomes[run], metric)));
            definition.judge(&values)[0].holds()
        };
        let found = [least - 1, least, most, most + 1].map(holds);
        assert_eq!(found, [false, true, true, false].map(Some), "{key}");
    }
}

#[test]
fn two_equal_flows_leave_nothing_to_aggregate_and_none_is_one_flow() {
    let segments = values("lro-netfpga-two-flows", 2, "segments-per-packet");
    assert!(segments.is_sorted(), "the less of the second flow, the longer the aggregates: {segments:?}");
    assert!(segments[0] < 1.01, "two flows in turn close each other's aggregates: {segments:?}");
    let alone = values("lro-netfpga-cpu", 1, "segments-per-packet");
    assert_eq!(segments.last(), alone.last());
}

/// Returns the mean number of frames in a packet with `flows` flows in turn and the store block entries of
/// `series`.
fn frames_in_a_packet(series: &str, flows: u64) -> f64 {
    let definition = definition("lro-netfpga-flows");
    let place = definition.series.iter().position(|other| other.name == series).unwrap();
    let point =
        definition.points().into_iter().find(|point| (point.series, point.x) == (place, flows)).unwrap();
    let outcome = run(definition.runner, &point.parameters, 1, &mut Observer::default()).unwrap();
    value(&outcome, "segments-per-packet")
}

#[test]
fn flows_that_send_in_turn_are_aggregated_where_each_has_an_entry() {
    let [few, enough] =
        ["k = 4", "k = 8"].map(|k| frames_in_a_packet(&format!("frames in a packet, {k}"), 8));
    assert!(few < 1.01, "{few} frames in a packet");
    // 81 frames of eight flows arrive in the millisecond of the timer.
    assert!((9.0..11.5).contains(&enough), "{enough} frames in a packet");
}

#[test]
fn the_counters_of_a_run_add_up() {
    let definition = definition("lro-netfpga-drops");
    for point in definition.points().into_iter().filter(|point| point.x == 64) {
        let mut observer = Observer::default();
        run(definition.runner, &point.parameters, 1, &mut observer).unwrap();
        let [arrived, at_port, to_host, segments, packets] =
            ["card.arrived", "card.dropped_at_port", "card.dropped_to_host", "host.segments", "host.packets"]
                .map(|name| observer.counters.get(name));
        assert!(0 < packets && packets <= segments, "{:?}", observer.counters);
        assert!(segments <= arrived - at_port - to_host, "the rest is on its way: {:?}", observer.counters);
    }
}

#[test]
fn a_run_depends_on_nothing_but_parameters_and_seed() {
    let definition = definition("lro-netfpga-cpu");
    let once = outcomes(&definition, 1);
    assert_eq!(once, outcomes(&definition, 1));
    assert_ne!(once[0].trace_hash, once[1].trace_hash);
}

/// Returns the number of datagrams with a wrong checksum that the card dropped, and the load of the core.
fn wrong_datagrams_and_load(series: &str) -> (u64, f64) {
    let definition = definition("lro-netfpga-other");
    let place = definition.series.iter().position(|other| other.name == series).unwrap();
    let point = definition.points().into_iter().rfind(|point| point.series == place).unwrap();
    let mut observer = Observer::default();
    let outcome = run(definition.runner, &point.parameters, 1, &mut observer).unwrap();
    (observer.counters.get("card.wrong"), value(&outcome, "cpu"))
}

#[test]
fn the_card_drops_wrong_datagrams_and_spares_the_core_their_checksums_or_leaves_both_to_the_host() {
    let (dropped, with) = wrong_datagrams_and_load("LRO-enabled NIC, which verifies all");
    let (passed, without) = wrong_datagrams_and_load("LRO-enabled NIC, which verifies TCP");
    // A thousandth of half the frames of 1 Gb/s in 140 ms.
    assert!((3..=6).contains(&dropped), "{dropped}");
    assert_eq!(passed, 0);
    assert!(without - with > 4.0, "{with} and {without}");
}

/// Runs a point of a series with the parameters in `set` changed.
fn attempt(name: &str, series: usize, frame: u64, set: &[(&str, &str)]) -> Result<Outcome, RunError> {
    let definition = definition(name);
    let points = definition.points();
    let point = points.iter().find(|point| (point.series, point.x) == (series, frame)).unwrap();
    let mut parameters = point.parameters.clone();
    for (key, text) in set {
        let spec = definition.runner.parameters().iter().find(|spec| spec.key == *key).unwrap();
        parameters.set(spec, spec.parse(text).unwrap());
    }
    run(definition.runner, &parameters, 1, &mut Observer::default())
}

#[test]
fn a_full_queue_of_small_aggregates_leaves_the_store_block_aggregates() {
    let outcome = attempt("lro-netfpga-cpu", 1, 64, &[("store-segments", "2"), ("line", "2Gb/s")]).unwrap();
    let segments = value(&outcome, "segments-per-packet");
    assert!((segments - 2.0).abs() < 1e-9, "{segments} segments a packet");
}

#[test]
fn a_queue_for_more_aggregates_than_fit_into_memory_is_refused() {
    let error = attempt("lro-netfpga-cpu", 1, 64, &[("queue", "1GiB")]).unwrap_err().to_string();
    let expected = "ring and queue hold up to 14510538 aggregates of store-segments = 1023, for which 486044980848 \
                    bytes are reserved: at most 4294967296 may be";
    assert_eq!(error, expected);
}
