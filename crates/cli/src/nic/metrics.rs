//! A card's counters for Prometheus in the OpenMetrics text format.

use std::fmt;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::report::{CounterMap, Counters, Report, Reporter};
use crate::http::{HttpServer, Request, Response};

/// Maximum concurrent clients.
const CLIENTS: usize = 512;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, String)>;
type Counts = Family<Labels, Counter>;

/// Starts to answer requests, until the card ends.
pub(super) fn serve(server: HttpServer, reporter: Reporter) {
    server.serve("metrics", CLIENTS, move |request| answer(request, &reporter));
}

/// Returns the response to a request; `None` if the card has ended.
fn answer(request: &Request, reporter: &Reporter) -> Option<Response> {
    match (request.method(), request.path()) {
        ("GET" | "HEAD", "/metrics" | "/") => {
            let body = text(&reporter.report()?).ok()?;
            Some(Response { status: "200 OK", content_type: CONTENT_TYPE, headers: "", body })
        }
        ("GET" | "HEAD", _) => Some(Response::text("404 Not Found", "the counters are at /metrics")),
        _ => Some(Response {
            headers: "Allow: GET, HEAD\r\n",
            ..Response::text("405 Method Not Allowed", "only GET and HEAD are understood")
        }),
    }
}

/// Formats all counters of all queues.
fn text(report: &Report) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("nichrome");
    for (name, _) in report.total.card.iter() {
        register(&mut registry, report, name, name, |queue| &queue.card);
    }
    for (name, _) in report.total.wire.iter() {
        register(&mut registry, report, &format!("wire_{name}"), name, |queue| &queue.wire);
    }
    for (name, _) in report.total.engine.plain.iter() {
        register(&mut registry, report, &format!("engine_{name}"), name, |queue| &queue.engine.plain);
    }
    register_reasons(&mut registry, report, "flush_reasons", |queue| &queue.engine.flush_reasons);
    register_reasons(&mut registry, report, "passes", |queue| &queue.engine.passes);
    register_reasons(&mut registry, report, "drops", |queue| &queue.engine.drops);
    let connections = Family::<Labels, Gauge<u64, AtomicU64>>::default();
    for (number, queue) in report.queues.iter().enumerate() {
        connections.get_or_create(&labels(report, number)).set(queue.connections);
    }
    registry.register("connections", "Current flows of the engine", connections);
    let not_captured: Counter = Counter::default();
    not_captured.inc_by(report.not_captured);
    registry.register("not_captured", "Packets that are missing in the captures", not_captured);
    let uptime = Gauge::<f64, AtomicU64>::default();
    uptime.set(report.uptime_s);
    registry.register("uptime_seconds", "Time since the card's start", uptime);
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// Registers a counter of every queue.
fn register(
    registry: &mut Registry,
    report: &Report,
    name: &str,
    key: &str,
    of: impl Fn(&Counters) -> &CounterMap,
) {
    let counts = Counts::default();
    for (number, queue) in report.queues.iter().enumerate() {
        counts.get_or_create(&labels(report, number)).inc_by(of(queue).get(key));
    }
    registry.register(name, format!("As in 'nichrome nic stats --json': {name}"), counts);
}

/// Registers the counters by reason of every queue.
fn register_reasons(
    registry: &mut Registry,
    report: &Report,
    name: &str,
    of: impl Fn(&Counters) -> &CounterMap,
) {
    let counts = Counts::default();
    for (number, queue) in report.queues.iter().enumerate() {
        for (reason, count) in of(queue).iter() {
            let mut labels = labels(report, number);
            labels.push(("reason", reason.to_owned()));
            counts.get_or_create(&labels).inc_by(count);
        }
    }
    let help = format!("As in 'nichrome nic stats --json': engine, {name}, by reason");
    registry.register(format!("engine_{name}"), help, counts);
}

fn labels(report: &Report, queue: usize) -> Labels {
    vec![("host", report.card.host.clone()), ("wire", report.card.wire.clone()), ("queue", queue.to_string())]
}
