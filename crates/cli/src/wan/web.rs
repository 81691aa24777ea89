//! `nichrome wan --web`: a page that shows and changes a running path.
//!
//! Pages of other sites cannot use it: a request's Host must be an address or localhost, which prevents DNS
//! rebinding, and a request that changes the path must have this page as its Origin. At other addresses than
//! loopback, reading and changing the state also need a printed token. Values that name files are rejected:
//! users of the page must not read this machine's files.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use nichrome_wan::DelayHistogram;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::control::{Answer, Controlled, Request as ControlRequest, Unread};
use super::in_force::in_force;
use super::live_path::Remote;
use super::report::Report;
use crate::failure;
use crate::http::{HttpServer, Request, Response};
use crate::page::{SCRIPT, STYLE};

/// Maximum concurrent clients.
const CLIENTS: usize = 32;

/// Time for which a path's state is cached, for all clients.
const CACHE_TIME: Duration = Duration::from_millis(50);

/// Impairments that the page changes.
const CHANGED: [&str; 5] = ["delay", "jitter", "loss", "rate", "queue"];

/// Response headers: other pages cannot embed or read this one, and it loads nothing from elsewhere.
const HEADERS: &str = "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
    img-src data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n\
    X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\
    Cache-Control: no-store\r\n";

const PAGE: &str = include_str!("web.html");
const PAGE_SCRIPT: &str = include_str!("web.js");

/// Parses an address and a port, or a port of 127.0.0.1.
pub(super) fn address(text: &str) -> Result<SocketAddr, &'static str> {
    let port = text.parse().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    port.or_else(|_| text.parse())
        .map_err(|_| "it is a port, or an address and a port, such as 127.0.0.1:8080")
}

/// A page whose server listens but does not answer yet.
pub(super) struct WebPage {
    server: HttpServer,
    token: Option<String>,
}

impl WebPage {
    /// Listens at an address.
    pub(super) fn listen(address: SocketAddr) -> anyhow::Result<Self> {
        let server = HttpServer::listen(address, "--web")?;
        let token = if address.ip().is_loopback() { None } else { Some(token()?) };
        Ok(Self { server, token })
    }

    /// Serves the page and prints its address.
    pub(super) fn serve(
        self,
        controlled: Arc<Mutex<Controlled>>,
        remote: Remote,
        unread: Unread,
    ) -> anyhow::Result<()> {
        let address = self.server.address()?;
        // Browsers do not send a fragment to the server.
        let fragment = self.token.as_ref().map_or_else(String::new, |token| format!("#{token}"));
        failure::notice(format_args!("nichrome: page at http://{address}/{fragment}"));
        let site = Site {
            token: self.token,
            controlled,
            remote,
            unread,
            state: Mutex::new(None),
            begun: Instant::now(),
        };
        self.server.serve("web", CLIENTS, move |request| Some(site.answer(request)));
        Ok(())
    }
}

/// Returns 128 random bits in hexadecimal.
fn token() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    getrandom(&mut bytes, GetRandomFlags::empty()).context("no random numbers")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

struct Site {
    token: Option<String>,
    controlled: Arc<Mutex<Controlled>>,
    remote: Remote,
    unread: Unread,
    /// The cached state and its time.
    state: Mutex<Option<(Instant, String)>>,
    begun: Instant,
}

impl Site {
    fn answer(&self, request: &Request) -> Response {
        if !request.header("host").is_some_and(is_address) {
            return refused("421 Misdirected Request", "name this server by its address, or as localhost");
        }
        match (request.method(), request.path()) {
            ("GET" | "HEAD", "/") => page(),
            ("GET" | "HEAD", "/state") if self.admits(request) => self.state(),
            ("POST", "/set") if !is_own(request) => {
                refused("403 Forbidden", "only this server's own page changes the path")
            }
            ("POST", "/set") if self.admits(request) => self.set(request.body()),
            (_, "/state" | "/set") if !self.admits(request) => {
                refused("401 Unauthorized", "the token that 'nichrome wan --web' has printed is needed")
            }
            (_, "/" | "/state" | "/set") => refused("405 Method Not Allowed", "GET / and /state, POST /set"),
            _ => refused("404 Not Found", "the page is at /"),
        }
    }

    /// Returns true if a request has the token, or none is needed.
    fn admits(&self, request: &Request) -> bool {
        let Some(token) = &self.token else { return true };
        let given = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        given.is_some_and(|given| is_equal(given.as_bytes(), token.as_bytes()))
    }

    fn state(&self) -> Response {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, json)) = &*state
            && at.elapsed() < CACHE_TIME
        {
            return in_json("200 OK", json.clone());
        }
        match self.state_json() {
            Ok(json) => {
                *state = Some((Instant::now(), json.clone()));
                in_json("200 OK", json)
            }
            Err(error) => error_json("503 Service Unavailable", &format!("{error:#}")),
        }
    }

    fn state_json(&self) -> anyhow::Result<String> {
        let [to_left, to_right] = self.remote.reports()?;
        let [unread_left, unread_right] = (self.unread)()?;
        let time_s = self.begun.elapsed().as_secs_f64();
        Ok(serde_json::to_string(&State {
            time_s,
            to_right: Direction::new(&to_right, unread_left),
            to_left: Direction::new(&to_left, unread_right),
        })?)
    }

    /// Changes the impairments that the request's body contains.
    fn set(&self, body: &[u8]) -> Response {
        let Ok(settings) = serde_json::from_slice::<crate::impairment_options::ImpairmentSettings>(body)
        else {
            return error_json(
                "400 Bad Request",
                "a list of objects with direction, name and value is needed",
            );
        };
        if !settings.is_within(&CHANGED) {
            let names = CHANGED.join(", ");
            return error_json("400 Bad Request", &format!("this page changes {names}, and reads no files"));
        }
        let answer = self
            .controlled
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .answer(&ControlRequest::Set(settings));
        match answer {
            Answer::Done(warning) => {
                // The next request reads the changed state.
                *self.state.lock().unwrap_or_else(PoisonError::into_inner) = None;
                in_json("200 OK", json!({ "warning": warning }).to_string())
            }
            Answer::Error(error) => error_json("400 Bad Request", &error),
            Answer::Summary(_) | Answer::Host(_) => {
                error_json("500 Internal Server Error", "the answer is not understood")
            }
        }
    }
}

/// The state that the page draws. Counts and delays are sums since the start, so that each client computes
/// the differences between its own requests. The names of the fields are JSON keys.
#[derive(Serialize)]
struct State {
    time_s: f64,
    to_right: Direction,
    to_left: Direction,
}

#[derive(Serialize)]
struct Direction {
    impairments: Map<String, Value>,
    packets: u64,
    bytes: u64,
    packets_delivered: u64,
    bytes_delivered: u64,
    dropped: u64,
    /// Dropped packets that did not enter the path; `packets` does not include them.
    not_entered: u64,
    /// Packets in the bottleneck's queue or delayed.
    in_flight: u64,
    /// Sum of the delays of the delivered packets, in milliseconds: scheduled, and measured.
    delay_asked_ms: f64,
    delay_given_ms: f64,
}

impl Direction {
    fn new(report: &Report, unread: u64) -> Self {
        let Report { impairments, stats, in_flight, measured, .. } = report;
        let not_entered = measured.malformed + unread;
        let sum_ms = |of: &DelayHistogram| of.mean().as_secs_f64() * 1e3 * of.count() as f64;
        let text = |(name, value): (&str, String)| (name.to_owned(), Value::String(value));
        Self {
            impairments: in_force(impairments).into_iter().map(text).collect(),
            packets: stats.packets_in,
            bytes: stats.bytes_in,
            packets_delivered: measured.packets,
            bytes_delivered: measured.bytes,
            dropped: stats.drops.total() + measured.refused + not_entered,
            not_entered,
            in_flight: *in_flight,
            delay_asked_ms: sum_ms(&measured.scheduled),
            delay_given_ms: sum_ms(&measured.delay),
        }
    }
}

/// Returns true if a request's Host is an IP address or localhost, not the name of another site.
fn is_address(host: &str) -> bool {
    let is_ip = |text: &str| text.parse::<IpAddr>().is_ok();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() && !is_ip(host) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    bare.eq_ignore_ascii_case("localhost") || is_ip(bare)
}

/// Returns true if a request comes from this server's page or from a program that is no browser: browsers
/// state the Origin of a POST.
fn is_own(request: &Request) -> bool {
    let own = request.header("host").map(|host| format!("http://{host}"));
    let same_origin = match request.header("origin") {
        Some(origin) => own.as_deref() == Some(origin),
        None => !request.has("origin"),
    };
    // For this type, browsers ask the server for permission before another site's page may send it (CORS
    // preflight); this server grants none.
    same_origin && request.header("content-type") == Some("application/json")
}

/// Compares in constant time.
fn is_equal(given: &[u8], secret: &[u8]) -> bool {
    given.len() == secret.len()
        && given.iter().zip(secret).fold(0, |differs, (given, secret)| differs | (given ^ secret)) == 0
}

fn page() -> Response {
    let body = PAGE
        .replace("/* STYLE */", STYLE)
        .replace("/* FIGURES */", SCRIPT)
        .replace("/* SCRIPT */", PAGE_SCRIPT);
    Response { status: "200 OK", content_type: "text/html; charset=utf-8", headers: HEADERS, body }
}

fn in_json(status: &'static str, body: String) -> Response {
    Response { status, content_type: "application/json", headers: HEADERS, body }
}

fn error_json(status: &'static str, error: &str) -> Response {
    in_json(status, json!({ "error": error }).to_string())
}

fn refused(status: &'static str, why: &str) -> Response {
    Response { headers: HEADERS, ..Response::text(status, why) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_hosts() {
        for host in
            ["127.0.0.1:8080", "localhost", "LocalHost:1", "[::1]:8080", "[::1]", "192.0.2.7:80", "::1"]
        {
            assert!(is_address(host), "{host}");
        }
        for host in [
            "",
            "example.com:8080",
            "127.0.0.1.example.com",
            "localhost.example.com",
            "[::1",
            "127.0.0.1:x",
            ":80",
        ] {
            assert!(!is_address(host), "{host}");
        }
    }

    #[test]
    fn ports_are_those_of_loopback() {
        assert_eq!(address("8080"), Ok(([127, 0, 0, 1], 8080).into()));
        assert_eq!(address("0.0.0.0:80"), Ok(([0, 0, 0, 0], 80).into()));
        assert_eq!(address("[::1]:80").unwrap().to_string(), "[::1]:80");
        assert!(address("example.com:80").is_err() && address("70000").is_err() && address("").is_err());
    }

    #[test]
    fn tokens_differ_and_are_compared_whole() {
        let (one, other) = (token().unwrap(), token().unwrap());
        assert!(one.len() == 32 && one != other);
        assert!(is_equal(one.as_bytes(), one.as_bytes()) && !is_equal(one.as_bytes(), other.as_bytes()));
        assert!(!is_equal(b"", one.as_bytes()) && !is_equal(&one.as_bytes()[..31], one.as_bytes()));
    }
}
