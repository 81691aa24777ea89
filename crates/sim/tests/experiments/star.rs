//! The StaR paper's cards: the results of its experiments, and properties of the model.

use std::num::NonZeroUsize;

use nichrome_sim::experiment::{BUILT_IN, Definition, Outcome, Value, run};
use nichrome_sim::observe::Observer;

fn definition(name: &str) -> Definition {
    let text = BUILT_IN.experiment(name).unwrap().text;
    Definition::parse(name, text, &BUILT_IN).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs a point of a series with the parameters in `set` changed; returns its outcome and counters.
fn observe(name: &str, series: &str, x: u64, set: &[(&str, &str)]) -> (Outcome, Observer) {
    observe_on(NonZeroUsize::MIN, name, series, x, set)
}

/// As [`observe`], on this many threads.
fn observe_on(
    threads: NonZeroUsize,
    name: &str,
    series: &str,
    x: u64,
    set: &[(&str, &str)],
) -> (Outcome, Observer) {
    let definition = definition(name);
    let place = definition.series.iter().position(|other| other.name == series).unwrap();
    let mut point = definition.points().into_iter().find(|point| point.series == place).unwrap();
    let specs = definition.runner.parameters();
    point.parameters.set(definition.x.parameter, Value::Quantity(x));
    for (key, text) in set {
        let spec = specs.iter().find(|spec| spec.key == *key).unwrap();
        point.parameters.set(spec, spec.parse(text).unwrap());
    }
    let mut observer = Observer::default();
    observer.use_threads(threads);
    (run(definition.runner, &point.parameters, definition.seed, &mut observer).unwrap(), observer)
}

fn value(outcome: &Outcome, metric: &str) -> f64 {
    outcome.measurements.iter().find(|measurement| measurement.metric == metric).unwrap().value
}

fn measure(name: &str, series: &str, x: u64, set: &[(&str, &str)], metric: &str) -> f64 {
    value(&observe(name, series, x, set).0, metric)
}

#[track_caller]
fn assert_near(value: f64, expected: f64, tolerance: f64) {
    assert!((value / expected - 1.0).abs() < tolerance, "{value}, not {expected}");
}

/// Section 4.1: an operation takes the base RTT, the delivery of its WQE, and its bits.
#[test]
fn as_long_as_contexts_fit_operations_are_limited_by_their_time() {
    for series in ["RDMA", "StaR"] {
        assert_near(measure("star-stress", series, 300, &[], "operations"), 300.0 / 13.02, 0.002);
        assert_near(measure("star-stress", series, 300, &[], "latency-p50"), 13.02, 0.002);
    }
}

/// Arrival times are whole nanoseconds, and the mean interval is 16.7 ns.
#[test]
fn operations_arrive_at_the_offered_rate() {
    let set = [("duration", "4ms")];
    assert_near(measure("star-baselines-load", "1RMA", 60_000_000, &set, "operations"), 60.0, 0.01);
}

#[test]
fn one_context_too_many_and_every_operation_misses() {
    let (outcome, _) = observe("star-stress", "RDMA", 301, &[]);
    assert_near(value(&outcome, "operations"), 1.0, 0.05);
    assert_near(value(&outcome, "misses"), 1.0, 0.001);
    assert_near(value(&outcome, "pcie-reads"), value(&outcome, "operations"), 0.001);
    assert_eq!(measure("star-stress", "RDMA", 300, &[], "pcie-reads"), 0.0);
}

#[test]
fn star_ends_at_the_wire() {
    let (outcome, _) = observe("star-stress", "StaR", 4000, &[]);
    assert_near(value(&outcome, "operations"), 100e9 / 8.0 / 106.0 / 1e6, 0.001);
    assert_near(value(&outcome, "wire-load"), 100.0, 0.001);
}

/// Section 4.2 with the packets of Figure 3: RDPs, a GD, two CQEPs, an EA for the response's WQEP, and one
/// for the WQEP of a RECV that is posted again.
#[test]
fn an_rpc_of_star_takes_the_bytes_of_its_packets_on_the_wire() {
    let bytes = 2800 + 2 * 98 + 98 + 2 * 82 + 62;
    assert_near(measure("star-rpc", "StaR", 400, &[], "operations"), 12_500.0 / f64::from(bytes), 0.003);
    let again = measure("star-rpc", "StaR", 400, &[("reposts", "true")], "operations");
    assert_near(again, 12_500.0 / f64::from(bytes + 62), 0.003);
}

/// Two packets, and the acknowledgement of the response.
#[test]
fn an_rpc_of_rdma_takes_the_bytes_of_its_packets_on_the_wire() {
    let bytes = 2800 + 2 * 58 + 62;
    assert_near(measure("star-rpc", "RDMA", 200, &[], "operations"), 12_500.0 / f64::from(bytes), 0.001);
}

/// Section 4.2: the response's WQE takes one more round trip before its data, and the request's completion
/// another.
#[test]
fn the_rpc_of_star_takes_two_round_trips_more() {
    let [rdma, star] = ["RDMA", "StaR"].map(|series| measure("star-rpc", series, 1, &[], "latency-p50"));
    assert!((23.5..24.5).contains(&(star - rdma)), "{star} and {rdma} us");
}

#[test]
fn rpcs_beyond_the_cache_miss_once_each() {
    let (outcome, _) = observe("star-rpc", "RDMA", 400, &[]);
    assert_near(value(&outcome, "operations"), 0.9, 0.05);
    assert_near(value(&outcome, "misses"), 1.0, 0.01);
}

/// The engine probes after a few round trips without an answer, and waiting for a context takes many: each
/// probe misses, too.
#[test]
fn the_engines_probes_cost_misses_of_their_own_until_it_has_measured_the_round_trip() {
    let of = |connections, warm_up| observe("star-stress", "RDMA", connections, &[("warm-up", warm_up)]).0;
    let (few, many, later) = (of(400, "5ms"), of(2000, "5ms"), of(2000, "20ms"));
    assert!(value(&many, "repeated") > 0.0 && value(&many, "operations") < 0.95 * value(&few, "operations"));
    assert_eq!([&few, &later].map(|outcome| value(outcome, "repeated")), [0.0; 2]);
    assert_near(value(&later, "operations"), value(&few, "operations"), 0.001);
}

#[test]
fn misses_that_overlap_are_that_much_faster() {
    let of = |overlap| measure("star-stress", "RDMA", 400, &[("overlap", overlap)], "operations");
    assert_near(of("8") / of("1"), 8.0, 0.02);
}

#[test]
fn auto_adaptation_is_rdma_within_the_budget_and_no_collapse_beyond() {
    let of = |series, x| observe("star-auto", series, x, &[]).0;
    assert_eq!(of("auto-adaptation", 300), of("RDMA", 300));
    let [rdma, star, auto] =
        ["RDMA", "StaR", "auto-adaptation"].map(|series| value(&of(series, 600), "operations"));
    assert!(auto > star && star > 4.0 * rdma, "{auto}, {star}, {rdma}");
}

/// Posting takes 1 us, a round trip 12 us; software answers after 0.1 us and 1 us more to post.
#[test]
fn a_write_takes_the_round_trips_of_its_transport() {
    let of = |series| measure("star-baselines", series, 1, &[("card-time", "0")], "latency-p50");
    for (series, micros) in [
        ("UET, contexts on demand", 13.0),
        ("StaR", 13.0),
        ("datagrams, 8 cores", 14.1),
        ("SRNIC, 10,000 contexts", 14.0),
        ("DCT, another peer each time", 25.0),
        ("1RMA", 25.0),
    ] {
        assert_near(of(series), micros, 0.005);
    }
}

#[test]
fn a_card_without_a_free_context_refuses_and_reads_none() {
    for series in ["UET, contexts on demand", "DCT, another peer each time"] {
        let of = |x| observe("star-baselines", series, x, &[]).0;
        assert_eq!(value(&of(300), "refused"), 0.0, "{series}");
        let beyond = of(600);
        assert!(value(&beyond, "refused") > 0.5, "{series}: {}", value(&beyond, "refused"));
        assert_eq!(value(&beyond, "pcie-reads"), 0.0);
        assert!(value(&beyond, "operations") > 0.9 * value(&of(300), "operations"), "{series}");
    }
}

#[test]
fn connections_that_share_contexts_miss_none_until_these_are_too_many() {
    let times = [("warm-up", "2ms"), ("duration", "0.5ms")];
    let misses = |x| measure("star-baselines", "XRC, 8 processes", x, &times, "misses");
    assert_eq!(misses(2400), 0.0);
    assert!(misses(2401) > 0.0);
}

#[test]
fn a_packet_takes_its_time_in_the_cards_pipelines() {
    // A WRITE and its acknowledgement pass two pipelines each.
    let of = |time| measure("star-stress", "StaR", 1, &[("card-time", time)], "latency-p50");
    assert_near(of("1us") - of("0"), 4.0, 0.001);
    let rate = measure("star-stress", "StaR", 4000, &[("card-time", "20ns")], "operations");
    assert_near(rate, 50.0, 0.001);
}

/// An RPC has six elements at the server: the response's WQE, two completions, and their acknowledgements.
#[test]
fn elements_take_their_time_in_the_servers_driver() {
    let rate = measure("star-costs", "the same with one core", 400, &[], "operations");
    assert_near(rate, 1.0 / 0.6, 0.005);
}

/// With loss, every connection continues, and the engines do not retransmit endlessly what was not lost.
#[test]
fn what_is_lost_is_recovered() {
    for operation in ["write", "rpc"] {
        for series in ["RDMA, selective repeat", "StaR"] {
            let set = [("operation", operation), ("response", "20kB"), ("connections", "16")];
            let of = |loss: u64| observe("star-loss", series, loss, &set).0;
            let (clean, lossy) = (of(0), of(10_000_000));
            assert_eq!(value(&clean, "lost"), 0.0);
            assert_eq!(value(&clean, "repeated"), 0.0, "{series}, {operation}");
            assert!((0.8..1.2).contains(&value(&lossy, "lost")), "{series}, {operation}");
            assert!((0.5..20.0).contains(&value(&lossy, "repeated")), "{series}, {operation}");
            let part = value(&lossy, "operations") / value(&clean, "operations");
            assert!((0.05..1.0).contains(&part), "{series}, {operation}: {part}");
            assert!(value(&lossy, "latency-p999") < 20_000.0, "{series}, {operation}: none hangs");
        }
    }
}

#[test]
fn a_short_queue_loses_and_dctcp_keeps_it_from_that() {
    let of = |control: &str, threshold: &str| {
        let set = [
            ("congestion-control", control),
            ("ecn-threshold", threshold),
            ("recovery", "true"),
            ("switch-queue", "1MB"),
        ];
        observe("star-ecn", "StaR, DCTCP", 50, &set).0
    };
    assert!(value(&of("none", "0"), "lost") > 0.1);
    let with = of("dctcp", "95kB");
    assert_eq!(value(&with, "lost"), 0.0);
    assert!(value(&with, "marked") > 0.1 && value(&with, "goodput") > 90.0);
}

#[test]
fn dctcp_keeps_the_queue_short_for_both() {
    for series in ["StaR, DCTCP", "RDMA, DCTCP"] {
        let outcome = observe("star-ecn", series, 50, &[]).0;
        assert!(value(&outcome, "queueing") < 30.0, "{series}: {} us", value(&outcome, "queueing"));
        assert!(value(&outcome, "goodput") > 90.0, "{series}");
    }
}

#[test]
fn the_counters_of_a_run_add_up() {
    let (outcome, observer) = observe("star-stress", "RDMA", 500, &[("warm-up", "0"), ("start", "0.1ms")]);
    let [operations, needed, missed, reads, bytes] =
        ["network.operations", "card.needed", "card.missed", "card.reads", "card.bytes"]
            .map(|name| observer.counters.get(name));
    assert_near(operations as f64, value(&outcome, "operations") * 10_000.0, 1e-9);
    assert_eq!((reads, observer.counters.get("network.lost")), (missed, 0));
    assert!(operations <= needed && missed <= needed, "{:?}", observer.counters);
    // Each context read evicts another one, except for the first 300, which fill the cache.
    assert!((reads * 2 - 302) * 375 <= bytes && bytes <= (reads * 2 - 300) * 375, "{:?}", observer.counters);
}

/// The trace hash of this run when it was written: it changes only with the rules of the model.
const TRACE: u64 = 4_155_155_047_455_491_247;

#[test]
fn a_run_depends_on_nothing_but_parameters_and_seed() {
    let definition = definition("star-loss");
    let place = definition.series.iter().position(|series| series.name == "StaR").unwrap();
    let point = definition.points().into_iter().rfind(|point| point.series == place).unwrap();
    let of = |seed| run(definition.runner, &point.parameters, seed, &mut Observer::default()).unwrap();
    assert_eq!(of(1), of(1));
    assert_ne!(of(1).trace_hash, of(2).trace_hash);
    assert_eq!(of(1).trace_hash, TRACE);
}

#[test]
fn a_run_on_two_threads_is_the_one_on_one() {
    for (name, series, x) in [
        ("star-stress", "RDMA", 400),
        ("star-stress", "StaR", 1000),
        ("star-rpc", "StaR", 200),
        ("star-ecn", "RDMA, DCTCP", 50),
        ("star-baselines", "UET, contexts on demand", 600),
        ("star-baselines", "datagrams, 8 cores", 600),
        ("star-loss", "StaR", 1_000_000),
        ("star-all-to-all", "StaR", 10),
    ] {
        let of = |threads| observe_on(NonZeroUsize::new(threads).unwrap(), name, series, x, &[]).0;
        let (one, two) = (of(1), of(2));
        assert!(one.events > 1000, "{name}, {series}: {} events", one.events);
        assert_eq!(one, two, "{name}, {series}");
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    let definition = definition("star-rpc");
    for (set, message) in [
        (("loss", "1%"), "loss and a switch-queue other than 0 need recovery = true"),
        (("switch-queue", "1MB"), "loss and a switch-queue other than 0 need recovery = true"),
        (("transport", "uet"), "the model has WRITEs of this transport only"),
    ] {
        let mut point = definition.points().remove(0);
        let spec = definition.runner.parameters().iter().find(|spec| spec.key == set.0).unwrap();
        point.parameters.set(spec, spec.parse(set.1).unwrap());
        let error = run(definition.runner, &point.parameters, 1, &mut Observer::default()).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn each_server_of_all_to_all_has_receives_for_its_own_share_of_the_requests() {
    let set = [
        ("pattern", "all-to-all"),
        ("nodes", "8"),
        ("request", "64KiB"),
        ("warm-up", "10ms"),
        ("duration", "4ms"),
    ];
    let goodput = measure("star-rpc", "StaR", 20, &set, "goodput");
    // Of 800 Gb/s; each connection has one request at a time.
    assert!(goodput > 400.0, "{goodput} Gb/s");
}
