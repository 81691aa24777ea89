//! The paper's claims, evaluated from the figures as measured.

use std::fmt;
use std::ops::RangeInclusive;

use serde::Serialize;

use super::bearer::Bearer;
use super::overlap::READINGS;
use super::progress::LOAD;
use super::series::{Estimate, Figure, Series};
use super::table::number;

/// The sockets that the paper compares RDMA with.
const SOCKETS: Bearer = Bearer::SocketsNonblocking;

/// Whether a claim holds over a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    Holds,
    /// The median is outside the allowed range but the spread of the rounds reaches it, or this machine
    /// cannot show the claim.
    CannotBeShown,
    DoesNotHold,
}

impl Verdict {
    /// Returns the CSS class.
    pub(super) const fn class(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::CannotBeShown => "cannot-be-shown",
            Self::DoesNotHold => "does-not-hold",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Holds => "holds",
            Self::CannotBeShown => "cannot be shown",
            Self::DoesNotHold => "does not hold",
        })
    }
}

/// The verdict on one transport, and the value that decided it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Judgement {
    pub(super) transport: Bearer,
    pub(super) verdict: Verdict,
    pub(super) reason: String,
}

/// A claim with its verdicts. The names of the fields are JSON keys.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Claim {
    pub(super) claim: &'static str,
    pub(super) figure: &'static str,
    pub(super) statement: &'static str,
    pub(super) transports: Vec<Judgement>,
}

/// A measured value and its allowed range.
struct Value {
    what: String,
    value: Estimate,
    allowed: RangeInclusive<f64>,
}

impl Value {
    fn new(what: impl Into<String>, value: Estimate, allowed: RangeInclusive<f64>) -> Self {
        Self { what: what.into(), value, allowed }
    }

    fn verdict(&self) -> Verdict {
        let Self { value, allowed, .. } = self;
        if allowed.contains(&value.median) {
            Verdict::Holds
        } else if value.low <= *allowed.end() && value.high >= *allowed.start() {
            Verdict::CannotBeShown
        } else {
            Verdict::DoesNotHold
        }
    }

    /// Returns the distance of the median from the allowed range, 0 within it.
    fn excess(&self) -> f64 {
        let median = self.value.median;
        (self.allowed.start() - median).max(median - self.allowed.end())
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, value: Estimate { median, low, high }, allowed } = self;
        let signed = |value: f64| if value < 0.0 { format!("-{}", number(-value)) } else { number(value) };
        let [median, low, high] = [*median, *low, *high].map(signed);
        write!(f, "{what} {median} ({low} to {high}), allowed ")?;
        match (allowed.start().is_finite(), allowed.end().is_finite()) {
            (true, true) => write!(f, "{} to {}", signed(*allowed.start()), signed(*allowed.end())),
            (true, false) => write!(f, "at least {}", signed(*allowed.start())),
            _ => write!(f, "at most {}", signed(*allowed.end())),
        }
    }
}

/// Returns the range of values of at least `least`.
const fn at_least(least: f64) -> RangeInclusive<f64> {
    least..=f64::INFINITY
}

/// Returns the range of values of at most `most`.
const fn at_most(most: f64) -> RangeInclusive<f64> {
    f64::NEG_INFINITY..=most
}

fn ratio(a: &Estimate, b: &Estimate) -> Estimate {
    Estimate { median: a.median / b.median, low: a.low / b.high, high: a.high / b.low }
}

fn difference(a: &Estimate, b: &Estimate) -> Estimate {
    Estimate { median: a.median - b.median, low: a.low - b.high, high: a.high - b.low }
}

fn scaled(a: &Estimate, by: f64) -> Estimate {
    Estimate { median: a.median * by, low: a.low * by, high: a.high * by }
}

/// Pairs the values of two series at their common places.
fn common<'a>(a: &'a Series, b: &'a Series) -> impl Iterator<Item = (f64, &'a Estimate, &'a Estimate)> {
    a.points.iter().filter_map(|point| {
        let other = b.points.iter().find(|other| other.x == point.x)?;
        Some((point.x, &point.y, &other.y))
    })
}

/// Returns the slope between the first and the last place.
fn slope(series: &Series) -> Option<Estimate> {
    let (first, last) = (series.points.first()?, series.points.last()?);
    (last.x > first.x).then(|| scaled(&difference(&last.y, &first.y), 1.0 / (last.x - first.x)))
}

/// Evaluates the claims on the measured figures, on a machine with `processors` processors.
pub(super) fn evaluate(figures: &[Figure], processors: usize) -> Vec<Claim> {
    type Values = fn(&Figure, Bearer) -> Vec<Value>;
    const CLAIMS: [(&str, &str, &str, Values); 11] = [
        (
            "C1",
            "iwarp-latency",
            "latencies of RDMA and sockets are almost equal at every size (sockets / RDMA, 15 %)",
            c1,
        ),
        (
            "C2",
            "iwarp-latency-delay",
            "latencies are equal at every delay (5 %), and are the delay and a constant",
            c2,
        ),
        ("C3", "iwarp-overlap", "RDMA overlaps better than sockets at every computation", c3),
        (
            "C4",
            "iwarp-overlap-delay",
            "the gap in overlap shrinks with the delay, and RDMA is never below",
            c4,
        ),
        (
            "C5",
            "iwarp-progress",
            "the load does not lengthen a fetch by RDMA (2 %); by sockets it takes the load longer, or more (5 %)",
            c5,
        ),
        ("C6", "iwarp-progress-delay", "sockets stay behind RDMA by the load at every delay (5 %)", c6),
        (
            "C7",
            "iwarp-cpu",
            "the application's time is not above that without traffic (2 %) by RDMA, longer by 20 % at least by sockets",
            c7,
        ),
        (
            "C8",
            "iwarp-cpu-delay",
            "at every delay it is not above that without traffic by RDMA (2 %), longer by sockets",
            c8,
        ),
        (
            "C9",
            "iwarp-lan",
            "RDMA takes half of sockets' time or less for small messages on one wire (10 %)",
            c9,
        ),
        (
            "C10",
            "iwarp-lan",
            "zero copy gains little at an MTU of 1500 bytes: RDMA / sockets at the longest message",
            c10,
        ),
        (
            "C11",
            "iwarp-rendezvous",
            "the data arrives after half a round trip (eager) or one and a half (rendezvous) (2 %)",
            c11,
        ),
    ];
    let claims = CLAIMS.into_iter().filter_map(|(claim, name, statement, values)| {
        let figure = figures.iter().find(|figure| figure.name == name)?;
        let judge = |transport| {
            let (verdict, reason) = judgement(&values(figure, transport));
            let crowded = matches!(claim, "C7" | "C8") && processors < 2;
            if crowded {
                let reason = format!("the card has no processor apart from the application's; {reason}");
                return Judgement { transport, verdict: Verdict::CannotBeShown, reason };
            }
            Judgement { transport, verdict, reason }
        };
        Some(Claim { claim, figure: figure.paper, statement, transports: Bearer::RDMA.map(judge).into() })
    });
    claims.collect()
}

/// Returns the worst verdict on any value, and the value furthest outside its range.
fn judgement(values: &[Value]) -> (Verdict, String) {
    let worst = values.iter().max_by(|a, b| {
        let by_verdict = a.verdict().cmp(&b.verdict());
        by_verdict.then(a.excess().total_cmp(&b.excess()))
    });
    match worst {
        Some(value) => (value.verdict(), value.to_string()),
        None => (Verdict::CannotBeShown, "it was not measured".to_owned()),
    }
}

fn at(what: &str, place: f64, unit: &str) -> String {
    format!("{what} at {} {unit}:", number(place))
}

fn pair(figure: &Figure, transport: Bearer) -> Option<(&Series, &Series)> {
    figure.of(SOCKETS).zip(figure.of(transport))
}

fn c1(figure: &Figure, transport: Bearer) -> Vec<Value> {
    let both = pair(figure, transport).into_iter().flat_map(|(sockets, rdma)| common(sockets, rdma));
    both.map(|(x, sockets, rdma)| Value::new(at("sockets / RDMA", x, "B"), ratio(sockets, rdma), 0.85..=1.15))
        .collect()
}

fn c2(figure: &Figure, transport: Bearer) -> Vec<Value> {
    let Some((sockets, rdma)) = pair(figure, transport) else { return Vec::new() };
    let delayed = common(sockets, rdma).filter(|(x, ..)| *x > 0.0);
    let ratios = delayed.map(|(x, sockets, rdma)| {
        Value::new(at("sockets / RDMA", x, "ms"), ratio(sockets, rdma), 0.95..=1.05)
    });
    let slope = slope(rdma).map(|slope| Value::new("latency / delay:", scaled(&slope, 1e-3), 0.95..=1.05));
    ratios.chain(slope).collect()
}

fn c3(figure: &Figure, transport: Bearer) -> Vec<Value> {
    let both = pair(figure, transport).into_iter().flat_map(|(sockets, rdma)| common(rdma, sockets));
    let computing = both.filter(|(x, ..)| *x > 0.0);
    computing
        .map(|(x, rdma, sockets)| {
            Value::new(at("RDMA - sockets", x, "µs"), difference(rdma, sockets), at_least(0.0))
        })
        .collect()
}

fn c4(figure: &Figure, transport: Bearer) -> Vec<Value> {
    let of_reading = |(reading, _): (&'static str, _)| {
        let both = figure.variant(transport, reading).zip(figure.variant(SOCKETS, reading));
        let gaps: Vec<(f64, Estimate)> = both
            .into_iter()
            .flat_map(|(rdma, sockets)| common(rdma, sockets))
            .map(|(x, rdma, sockets)| (x, difference(rdma, sockets)))
            .collect();
        let growth = gaps.first().zip(gaps.last()).map(|((_, first), (_, last))| {
            let what = format!("gap at the longest delay - gap at the shortest, {reading}:");
            Value::new(what, difference(last, first), at_most(0.0))
        });
        let never_below = gaps.into_iter().map(move |(x, gap)| {
            Value::new(at(&format!("RDMA - sockets, {reading},"), x, "ms"), gap, at_least(0.0))
        });
        never_below.chain(growth).collect::<Vec<_>>()
    };
    READINGS.into_iter().flat_map(of_reading).collect()
}

fn c5(figure: &Figure, transport: Bearer) -> Vec<Value> {
    let Some((sockets, rdma)) = pair(figure, transport) else { return Vec::new() };
    let Some(unloaded) = rdma.points.first() else { return Vec::new() };
    let flat = rdma.points.iter().skip(1).map(|point| {
        Value::new(
            at("fetch / fetch without load", point.x, "ms"),
            ratio(&point.y, &unloaded.y),
            at_most(1.02),
        )
    });
    let slope =
        slope(sockets).map(|slope| Value::new("sockets' time / load:", scaled(&slope, 1e-3), at_least(0.95)));
    flat.chain(slope).collect()
}

fn c6(figure: &Figure, transport: Bearer) -> Vec<Value> {
    let both = pair(figure, transport).into_iter().flat_map(|(sockets, rdma)| common(sockets, rdma));
    both.map(|(x, sockets, rdma)| {
        let behind = scaled(&difference(sockets, rdma), 1e-6 / LOAD.as_secs_f64());
        Value::new(at("(sockets - RDMA) / load", x, "ms"), behind, 0.95..=1.05)
    })
    .collect()
}

fn application(figure: &Figure, transport: Bearer, sockets_at_least: f64, unit: &str) -> Vec<Value> {
    let points = |bearer| figure.of(bearer).into_iter().flat_map(|series| &series.points);
    let alone =
        points(transport).map(|point| Value::new(at("RDMA's time", point.x, unit), point.y, at_most(1.02)));
    let slower = points(Bearer::SocketsBlocking)
        .map(|point| Value::new(at("sockets' time", point.x, unit), point.y, at_least(sockets_at_least)));
    alone.chain(slower).collect()
}

fn c7(figure: &Figure, transport: Bearer) -> Vec<Value> {
    application(figure, transport, 1.2, "B")
}

fn c8(figure: &Figure, transport: Bearer) -> Vec<Value> {
    application(figure, transport, 1.0, "ms")
}

/// Longest of the small messages, in bytes.
const SMALL: f64 = 64.0;

fn c9(figure: &Figure, transport: Bearer) -> Vec<Value> {
    let both = pair(figure, transport).into_iter().flat_map(|(sockets, rdma)| common(rdma, sockets));
    let small = both.filter(|(x, ..)| *x <= SMALL);
    small
        .map(|(x, rdma, sockets)| {
            Value::new(at("RDMA / sockets", x, "B"), ratio(rdma, sockets), at_most(0.55))
        })
        .collect()
}

fn c10(figure: &Figure, transport: Bearer) -> Vec<Value> {
    let longest = pair(figure, transport).and_then(|(sockets, rdma)| common(rdma, sockets).last());
    let value =
        |(x, rdma, sockets)| Value::new(at("RDMA / sockets", x, "B"), ratio(rdma, sockets), at_least(0.85));
    longest.map(value).into_iter().collect()
}

fn c11(figure: &Figure, transport: Bearer) -> Vec<Value> {
    let of_way = |(way, expected): (&'static str, f64)| {
        let points = figure.variant(transport, way).into_iter().flat_map(|series| &series.points);
        let delayed = points.filter(|point| point.x > 0.0);
        delayed.map(move |point| {
            let allowed = expected * 0.98..=expected * 1.02;
            Value::new(at(&format!("{way},"), point.x, "ms"), point.y, allowed)
        })
    };
    [("eager", 0.5), ("write", 1.5), ("read", 1.5)].into_iter().flat_map(of_way).collect()
}

#[cfg(test)]
mod tests {
    use super::super::series::{Axis, Point};
    use super::*;

    fn figure(name: &'static str, lines: &[(Bearer, &[f64])]) -> Figure {
        let estimate = |y: f64| Estimate { median: y, low: y * 0.99, high: y * 1.01 };
        let series = lines.iter().map(|(transport, ys)| Series {
            transport: *transport,
            quantity: "y",
            variant: "",
            rounds: 3,
            points: ys.iter().enumerate().map(|(x, y)| Point { x: x as f64, y: estimate(*y) }).collect(),
        });
        let axis = |quantity| Axis { quantity, label: quantity };
        Figure {
            name,
            paper: "1",
            title: "",
            x: axis("x"),
            y: axis("y"),
            rounds: 3,
            series: series.collect(),
            notes: Vec::new(),
        }
    }

    fn verdicts(figure: Figure, claim: &str, processors: usize) -> [Verdict; 3] {
        let claims = evaluate(&[figure], processors);
        let found = claims.iter().find(|found| found.claim == claim).unwrap();
        [0, 1, 2].map(|nth: usize| found.transports[nth].verdict)
    }

    #[test]
    fn a_median_outside_the_tolerance_but_within_its_spread_gets_no_verdict() {
        let lines: [(Bearer, &[f64]); 4] = [
            (SOCKETS, &[100.0, 100.0]),
            (Bearer::Iwarp, &[100.0, 90.0]),
            (Bearer::Roce, &[100.0, 86.5]),
            (Bearer::Star, &[100.0, 50.0]),
        ];
        let expected = [Verdict::Holds, Verdict::CannotBeShown, Verdict::DoesNotHold];
        assert_eq!(verdicts(figure("iwarp-latency", &lines), "C1", 4), expected);
    }

    #[test]
    fn a_fetch_that_grows_with_the_load_fails() {
        let flat: &[f64] = &[200.0, 200.0];
        let lines: [(Bearer, &[f64]); 4] = [
            (SOCKETS, &[100.0, 1100.0]),
            (Bearer::Iwarp, flat),
            (Bearer::Roce, &[200.0, 1200.0]),
            (Bearer::Star, flat),
        ];
        let expected = [Verdict::Holds, Verdict::DoesNotHold, Verdict::Holds];
        assert_eq!(verdicts(figure("iwarp-progress", &lines), "C5", 4), expected);
    }

    #[test]
    fn a_claim_that_is_exceeded_in_its_favour_holds() {
        let faster: &[f64] = &[200.0, 150.0];
        let lines: [(Bearer, &[f64]); 4] = [
            (SOCKETS, &[100.0, 2100.0]),
            (Bearer::Iwarp, faster),
            (Bearer::Roce, faster),
            (Bearer::Star, &[200.0, 250.0]),
        ];
        let expected = [Verdict::Holds, Verdict::Holds, Verdict::DoesNotHold];
        assert_eq!(verdicts(figure("iwarp-progress", &lines), "C5", 4), expected);
        let lines: [(Bearer, &[f64]); 4] = [
            (Bearer::SocketsBlocking, &[2.0]),
            (Bearer::Iwarp, &[0.9]),
            (Bearer::Roce, &[1.0]),
            (Bearer::Star, &[1.1]),
        ];
        assert_eq!(verdicts(figure("iwarp-cpu", &lines), "C7", 4), expected);
        assert_eq!(verdicts(figure("iwarp-cpu-delay", &lines), "C8", 4), expected);
        let lines: [(Bearer, &[f64]); 4] =
            [(SOCKETS, &[10.0]), (Bearer::Iwarp, &[2.0]), (Bearer::Roce, &[5.0]), (Bearer::Star, &[7.0])];
        assert_eq!(verdicts(figure("iwarp-lan", &lines), "C9", 4), expected);
    }

    #[test]
    fn one_processor_cannot_show_the_processor_time_of_the_card() {
        let lines: [(Bearer, &[f64]); 4] = [
            (Bearer::SocketsBlocking, &[2.0]),
            (Bearer::Iwarp, &[1.0]),
            (Bearer::Roce, &[1.0]),
            (Bearer::Star, &[3.0]),
        ];
        let expected = [Verdict::Holds, Verdict::Holds, Verdict::DoesNotHold];
        assert_eq!(verdicts(figure("iwarp-cpu", &lines), "C7", 2), expected);
        assert_eq!(verdicts(figure("iwarp-cpu", &lines), "C7", 1), [Verdict::CannotBeShown; 3]);
    }

    #[test]
    fn figures_that_were_not_measured_have_no_claim() {
        assert!(evaluate(&[], 2).is_empty());
        let empty = figure("iwarp-lan", &[]);
        assert_eq!(verdicts(empty, "C9", 2), [Verdict::CannotBeShown; 3]);
    }
}
