//! A card's counters for Prometheus in the OpenMetrics text format, over a minimal HTTP server (RFC 9112): one request
//! per connection, each on its own thread.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::report::{Counters, Named, Report, Reporter};

/// Maximum length of a request, in bytes.
const LONGEST: usize = 8192;

/// Maximum concurrent clients; further connections are closed.
const CLIENTS: usize = 512;

/// Stack size of a client's thread, in bytes.
const STACK: usize = 512 * 1024;

/// Timeout for a client's request.
const PATIENCE: Duration = Duration::from_secs(2);

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, String)>;
type Counts = Family<Labels, Counter>;

/// A listening server, which answers once the card exists.
pub(super) struct MetricsServer(TcpListener);

impl MetricsServer {
    pub(super) fn listen(address: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address);
        listener.map(Self).with_context(|| format!("cannot listen at {address} for --metrics"))
    }

    /// Answers on a separate thread until the card ends.
    pub(super) fn serve(self, reporter: Reporter) {
        let served = Arc::new(());
        thread::spawn(move || {
            for stream in self.0.incoming().flatten() {
                if Arc::strong_count(&served) > CLIENTS {
                    continue;
                }
                let (reporter, client) = (reporter.clone(), Arc::clone(&served));
                // If no thread can be created, the connection is closed. A client that disconnects misses the answer.
                let _ = thread::Builder::new().name("metrics".into()).stack_size(STACK).spawn(move || {
                    let answered = answer(&stream, &reporter);
                    drop(client);
                    answered
                });
            }
        });
    }
}

/// Answers a client; closes the connection if the card has ended.
fn answer(mut stream: &TcpStream, reporter: &Reporter) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = read_request(stream)?;
    let asked = Asked::read(&request);
    let (status, content_type, body) = match asked.map(|asked| asked.path) {
        Some("/metrics" | "/") => {
            let Some(report) = reporter.report() else { return Ok(()) };
            ("200 OK", CONTENT_TYPE, text(&report).map_err(io::Error::other)?)
        }
        Some(_) => ("404 Not Found", "text/plain", "the counters are at /metrics\n".into()),
        None => ("400 Bad Request", "text/plain", "only GET and HEAD are understood\n".into()),
    };
    let len = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    if asked.is_some_and(|asked| asked.is_head) { Ok(()) } else { stream.write_all(body.as_bytes()) }
}

/// Reads a request up to the end of its headers, or the maximum length.
fn read_request(mut stream: &TcpStream) -> io::Result<String> {
    let until = Instant::now() + PATIENCE;
    let mut request = Vec::new();
    let mut piece = [0; 1024];
    while request.len() < LONGEST && !request.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece)? {
            0 => break,
            len => request.extend_from_slice(&piece[..len]),
        }
    }
    Ok(String::from_utf8_lossy(&request).into_owned())
}

/// A parsed request line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked<'a> {
    path: &'a str,
    /// True for HEAD.
    is_head: bool,
}

impl<'a> Asked<'a> {
    /// Parses the request line; `None` for other methods than GET and HEAD.
    fn read(request: &'a str) -> Option<Self> {
        let mut words = request.lines().next()?.split_whitespace();
        let is_head = match words.next()? {
            "GET" => false,
            "HEAD" => true,
            _ => return None,
        };
        Some(Self { path: words.next()?.split('?').next()?, is_head })
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
    registry.register("connections", "Flows that the engine knows now", connections);
    let not_captured: Counter = Counter::default();
    not_captured.inc_by(report.not_captured);
    registry.register("not_captured", "Packets that are missing in the captures", not_captured);
    let uptime = Gauge::<f64, AtomicU64>::default();
    uptime.set(report.uptime_s);
    registry.register("uptime_seconds", "How long the card has been up", uptime);
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
    of: impl Fn(&Counters) -> &Named,
) {
    let counts = Counts::default();
    for (number, queue) in report.queues.iter().enumerate() {
        counts.get_or_create(&labels(report, number)).inc_by(of(queue).get(key));
    }
    registry.register(name, format!("As in 'nichrome nic stats --json': {name}"), counts);
}

/// Registers the counters by reason of every queue.
fn register_reasons(registry: &mut Registry, report: &Report, name: &str, of: impl Fn(&Counters) -> &Named) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_request_is_found() {
        let asked = |is_head| Some(Asked { path: "/metrics", is_head });
        assert_eq!(Asked::read("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), asked(false));
        assert_eq!(Asked::read("GET /metrics?a=b HTTP/1.1\r\n\r\n"), asked(false));
        assert_eq!(Asked::read("HEAD /metrics HTTP/1.1\r\n\r\n"), asked(true));
        for wrong in ["", "POST /metrics HTTP/1.1\r\n\r\n", "GET", "\r\n\r\n"] {
            assert_eq!(Asked::read(wrong), None, "{wrong}");
        }
    }
}
