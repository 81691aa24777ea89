//! The statements of papers/rdma-over-ip hold in the model and fail in wrong models: none of them holds in
//! every model.

use nichrome_sim::experiment::{BUILT_IN, Compared, Definition, Subject, Values, run};
use nichrome_sim::observe::Observer;

/// Settings of parameters.
type Settings = &'static [(&'static str, &'static str)];

/// A statement at one x value, and the settings of a wrong model in which it must not hold.
struct Case {
    claim: &'static str,
    experiment: &'static str,
    line: &'static str,
    /// In the unit of the axis.
    x: f64,
    wrong: Settings,
}

const fn case(
    claim: &'static str,
    experiment: &'static str,
    line: &'static str,
    x: f64,
    wrong: Settings,
) -> Case {
    Case { claim, experiment, line, x, wrong }
}

/// A router that forwards at once.
const FAST_ROUTER: Settings = &[("a-delay", "0us"), ("b-delay", "0us")];
/// System calls that take far longer.
const SLOW_CALLS: Settings = &[("call", "100us")];
/// Verbs that take longer than system calls.
const SLOW_VERBS: Settings = &[("verb", "100us")];
/// RDMA that needs its hosts' processors.
const TWO_SIDED: Settings = &[("transport", "sockets")];
/// Sockets that need none.
const ONE_SIDED: Settings = &[("transport", "rdma")];
/// A kernel that costs nothing.
const FREE_KERNEL: Settings =
    &[("call", "0us"), ("segment-out", "0us"), ("interrupt", "0us"), ("packet-in", "0us"), ("copy", "0ns/B")];
/// A card that takes its time for messages.
const SLOW_CARD: Settings = &[("card-message", "5us")];
/// Copies from slow memory.
const SLOW_COPIES: Settings = &[("copy", "10ns/B")];

const CASES: [Case; 17] = [
    case("C1", "iwarp-latency", "sockets over RDMA", 1.0, FAST_ROUTER),
    case("C2", "iwarp-latency-delay", "sockets over RDMA", 1.0, SLOW_CALLS),
    case("C3", "iwarp-overlap", "RDMA - sockets", 1000.0, SLOW_VERBS),
    case("C4", "iwarp-overlap-delay", "RDMA - sockets", 8.0, SLOW_VERBS),
    case("C5", "iwarp-progress", "RDMA over RDMA without load", 32.0, TWO_SIDED),
    case("C5", "iwarp-progress", "slope of sockets", 32.0, ONE_SIDED),
    case("C6", "iwarp-progress-delay", "sockets - RDMA", 8.0, ONE_SIDED),
    case("C6", "iwarp-progress-delay", "sockets over RDMA", 64.0, &[("load", "160ms")]),
    case("C7", "iwarp-cpu", "RDMA", 16.0, TWO_SIDED),
    case("C7", "iwarp-cpu", "sockets", 16.0, FREE_KERNEL),
    case("C8", "iwarp-cpu-delay", "RDMA", 4.0, TWO_SIDED),
    case("C8", "iwarp-cpu-delay", "sockets", 4.0, FREE_KERNEL),
    case("C9", "iwarp-lan", "RDMA over sockets", 1.0, SLOW_CARD),
    case("C10", "iwarp-lan", "RDMA over sockets", 65_536.0, SLOW_COPIES),
    case("C11", "iwarp-rendezvous", "eager", 8.0, &[("rendezvous", "write")]),
    case("C11", "iwarp-rendezvous", "WRITE", 8.0, &[("rendezvous", "eager")]),
    case("C11", "iwarp-rendezvous", "READ", 8.0, &[("rendezvous", "eager")]),
];

fn definition(name: &str) -> Definition {
    let text = BUILT_IN.experiment(name).unwrap().text;
    Definition::parse(name, text, &BUILT_IN).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns what an experiment measures with these settings, at the x values for which `is_wanted` holds.
fn values(definition: &Definition, settings: Settings, is_wanted: impl Fn(f64) -> bool) -> Values {
    let mut values = Values::default();
    for mut point in definition.points().into_iter().filter(|point| is_wanted(definition.x.number(point.x))) {
        for (key, text) in settings {
            let spec = definition.runner.parameters().iter().find(|spec| spec.key == *key).unwrap();
            point.parameters.set(spec, spec.parse(text).unwrap());
        }
        let outcome =
            run(definition.runner, &point.parameters, definition.seed, &mut Observer::default()).unwrap();
        let metric = definition.series[point.series].metric.name;
        let measured = outcome.measurements.iter().find(|measurement| measurement.metric == metric);
        if let Some(measured) = measured {
            values.add(point.series, point.x, measured.value);
        }
    }
    values
}

/// Returns the value of a case in the model with these settings, compared with the paper.
fn place(case: &Case, settings: Settings) -> Compared {
    let definition = definition(case.experiment);
    let values = values(&definition, settings, |x| x == case.x);
    let places = definition.compare(&values);
    places.into_iter().find(|place| place.series == case.line && place.x == case.x).unwrap()
}

#[test]
fn each_statement_holds_in_the_model_and_not_in_one_that_is_wrong() {
    let mut surprises = Vec::new();
    for case in &CASES {
        for (model, settings, holds) in [("right", &[][..], true), ("wrong", case.wrong, false)] {
            let place = place(case, settings);
            if place.is_near() != Some(holds) {
                surprises.push(format!("{} in the {model} model: {place:?}", case.claim));
            }
        }
    }
    assert!(surprises.is_empty(), "{surprises:#?}");
}

/// C7: an application on both processors would also notice interrupts on the processor that takes them.
#[test]
fn rdma_takes_neither_processor_from_an_application_on_both() {
    let case = case("C7", "iwarp-cpu", "RDMA", 16.0, TWO_SIDED);
    let both = place(&case, &[("application", "2")]);
    assert_eq!(both.is_near(), Some(true), "{both:?}");
}

/// C4: the difference falls with the delay if the computation is as short as an exchange; with the 242 ms
/// that the paper prints, it does not.
#[test]
fn the_gap_in_overlap_shrinks_for_short_computations_only() {
    let definition = definition("iwarp-overlap-delay");
    for (settings, is_falling) in [(&[("computation", "242us")][..], true), (&[], false)] {
        let values = values(&definition, settings, |_| true);
        let statements = definition.judge(&values);
        let fall = statements.iter().find(|statement| statement.expected.subject == Subject::Fall);
        assert_eq!(fall.unwrap().holds(), Some(is_falling), "{settings:?}");
    }
}
