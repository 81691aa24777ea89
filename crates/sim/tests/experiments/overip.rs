//! The test bed of papers/rdma-over-ip: properties of the model that do not depend on the paper's statements.

use nichrome_sim::experiment::{BUILT_IN, Definition, Outcome, Parameters, Value, run};
use nichrome_sim::observe::Observer;

fn definition(name: &str) -> Definition {
    let text = BUILT_IN.experiment(name).unwrap().text;
    Definition::parse(name, text, &BUILT_IN).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the parameters of a series at `x`, with those in `set` changed.
fn parameters(definition: &Definition, series: &str, x: u64, set: &[(&str, &str)]) -> Parameters {
    let place = definition.series.iter().position(|other| other.name == series).unwrap();
    let mut point = definition.points().into_iter().find(|point| point.series == place).unwrap();
    point.parameters.set(definition.x.parameter, Value::Quantity(x));
    for (key, text) in set {
        let spec = definition.runner.parameters().iter().find(|spec| spec.key == *key).unwrap();
        point.parameters.set(spec, spec.parse(text).unwrap());
    }
    point.parameters
}

fn observe(name: &str, series: &str, x: u64, set: &[(&str, &str)]) -> (Outcome, Observer) {
    let definition = definition(name);
    let parameters = parameters(&definition, series, x, set);
    let mut observer = Observer::default();
    (run(definition.runner, &parameters, definition.seed, &mut observer).unwrap(), observer)
}

fn measure(name: &str, series: &str, x: u64, set: &[(&str, &str)], metric: &str) -> f64 {
    let (outcome, _) = observe(name, series, x, set);
    outcome.measurements.iter().find(|measurement| measurement.metric == metric).unwrap().value
}

#[track_caller]
fn assert_near(value: f64, expected: f64, tolerance: f64) {
    assert!((value / expected - 1.0).abs() < tolerance, "{value}, not {expected}");
}

/// Without other costs, a message takes the time of its bits: a TCP frame with one byte is padded to 60 B,
/// and takes 84 B on the wire, on each of four hops.
#[test]
fn without_costs_a_message_takes_its_bits_on_four_hops() {
    let free = [
        ("call", "0us"),
        ("segment-out", "0us"),
        ("interrupt", "0us"),
        ("packet-in", "0us"),
        ("copy", "0ns/B"),
        ("verb", "0us"),
        ("card-message", "0us"),
        ("card-segment", "0us"),
        ("descriptor", "0B"),
        ("pci-rate", "1000Gb/s"),
        ("pci-latency", "0us"),
        ("cable", "0us"),
        ("switch", "0us"),
        ("forward", "0us"),
        ("router-interrupt", "0us"),
        ("a-delay", "0us"),
        ("b-delay", "0us"),
    ];
    let sockets = measure("iwarp-latency", "sockets", 1, &free, "latency");
    assert!((sockets - 4.0 * 0.672).abs() < 0.01, "{sockets}");
    // The FPDU of one byte has 2 B of length, 14 B of DDP header, 3 B of padding and 4 B of CRC: a frame of
    // 78 B, and 24 B of overhead on the wire.
    let rdma = measure("iwarp-latency", "RDMA", 1, &free, "latency");
    assert!((rdma - 4.0 * 0.816).abs() < 0.01, "{rdma}");
    // 64 KiB are 45 segments of 1,460 B, one after the other on each hop.
    let large = measure("iwarp-latency", "sockets", 65_536, &free, "latency");
    let bits = 65_536.0 + 45.0 * 78.0 + 3.0 * 1538.0;
    assert_near(large, bits * 8.0 / 1000.0, 0.02);
}

/// degen's delay is added once to everything else, but includes the router's 9 us: it begins with the
/// interrupt.
#[test]
fn a_delay_adds_itself() {
    for series in ["sockets", "RDMA"] {
        let [near, far] =
            [0, 8_000_000].map(|delay| measure("iwarp-latency-delay", series, delay, &[], "latency"));
        assert_near(far - near, 8000.0 - 9.0, 0.0001);
    }
}

/// A READ needs no program at the target; sockets wait until the program there has computed.
#[test]
fn only_sockets_wait_for_the_load() {
    let fetch = |series, load| measure("iwarp-progress", series, load, &[], "fetch");
    assert_eq!(fetch("RDMA", 0), fetch("RDMA", 32_000_000));
    assert_near(fetch("sockets", 32_000_000) - fetch("sockets", 0), 32.0, 0.001);
}

/// The link is full, whatever carries the data, until 40 windows are less than it carries in a round trip.
#[test]
fn senders_fill_the_link_until_their_windows_are_too_small() {
    let short = [("warm-up", "100ms"), ("duration", "50ms")];
    for series in ["data received, sockets", "data received, RDMA"] {
        let goodput = measure("iwarp-cpu", series, 16_384, &short, "goodput");
        assert!((0.90..0.95).contains(&goodput), "{series}: {goodput}");
    }
    let long = [("warm-up", "1500ms"), ("duration", "643ms")];
    let goodput = measure("iwarp-cpu-delay", "data received, RDMA", 32_000_000, &long, "goodput");
    // Ten round trips of 64 ms, in each of which no connection sends more than a window of 64 KiB.
    let most = 40.0 * 65_536.0 * 8.0 / 64e6;
    assert!((0.9 * most..most).contains(&goodput), "{goodput}");
}

/// Runs with the same seed are equal, and no frame is lost without a configured loss.
#[test]
fn runs_repeat() {
    for (name, series) in
        [("iwarp-latency", "RDMA"), ("iwarp-overlap", "sockets"), ("iwarp-rendezvous", "READ")]
    {
        let [one, other] = [(); 2].map(|()| observe(name, series, 1024, &[]));
        assert_eq!(one.0, other.0);
        assert!(one.0.events > 1000);
        for counter in ["network.dropped", "network.lost", "network.retransmitted"] {
            assert_eq!(one.1.counters.get(counter), 0, "{name}: {counter}");
        }
    }
}

/// Lost packets are retransmitted, and exchanges end.
#[test]
fn lost_frames_are_sent_again() {
    for series in ["sockets", "RDMA"] {
        let (_, observer) = observe("iwarp-latency", series, 16_384, &[("loss", "1%")]);
        for counter in ["network.lost", "network.retransmitted"] {
            assert!(observer.counters.get(counter) > 0, "{series}: {counter}");
        }
    }
    let few = [("iterations", "10")];
    for series in ["RoCE, go-back-N", "RoCE, selective", "StaR"] {
        let one_percent = 10_000_000;
        let (_, observer) = observe("iwarp-today-loss", series, one_percent, &few);
        for counter in ["network.lost", "network.retransmitted"] {
            assert!(observer.counters.get(counter) > 0, "{series}: {counter}");
        }
    }
}

/// No transport confirms a message sooner than its bits and a round trip take, nor a message with lost
/// packets before it has retransmitted them.
#[test]
fn no_message_is_confirmed_before_it_is_there() {
    const BITS: f64 = 4.0 * 1_048_576.0 * 8.0;
    let few = [("iterations", "10")];
    for series in ["TCP", "iWARP", "RoCE", "StaR"] {
        let rate = measure("iwarp-today", series, 5_000_000, &few, "transfer-rate");
        let round_trips = (BITS / rate - BITS / 100.0) / 1e7;
        assert!((1.0..3.0).contains(&round_trips), "{series}: {round_trips}");
        let lossy = [("loss", "1%"), ("iterations", "10")];
        let with_loss = measure("iwarp-today", series, 5_000_000, &lossy, "transfer-rate");
        let more = (BITS / with_loss - BITS / rate) / 1e7;
        assert!(more > 0.9, "{series}: {more}");
    }
}

/// Dependent READs take a round trip each.
#[test]
fn reads_take_a_round_trip_each() {
    let fetch = |series| measure("iwarp-today-fetch", series, 500_000, &[], "fetch");
    assert_near(fetch("four READs"), 4.0 * fetch("a READ"), 0.001);
    assert_near(fetch("a request, server busy for 10 ms") - fetch("a request, server idle"), 10.0, 0.001);
}

#[test]
fn sockets_send_also_if_a_segment_is_longer_than_the_send_buffer() {
    let set = [("mtu", "9kB"), ("window", "8KiB"), ("duration", "20ms")];
    let goodput = measure("iwarp-cpu", "data received, sockets", 64 << 10, &set, "goodput");
    assert!(goodput > 0.5, "{goodput} Gb/s");
}

#[test]
fn a_network_without_degen_has_no_delay_to_subtract() {
    for (path, beyond) in [("wan", 4000.0), ("lan", 0.0)] {
        let of = |metric| {
            measure("iwarp-latency-delay", "RDMA beyond the delay", 4_000_000, &[("path", path)], metric)
        };
        let [latency, without] = ["latency", "beyond-delay"].map(of);
        assert!((latency - without - beyond).abs() < 1e-6, "{path}: {latency} us, {without} us");
    }
}
