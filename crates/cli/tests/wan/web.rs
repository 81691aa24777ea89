//! The page of a running path: its responses, and its resistance to hostile requests.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use serde_json::{Value, json};

use crate::run::{Room, Started, TIMEOUT, failure, float, number, python};

/// A path with a page, the page's address, and the token in its URL.
pub(crate) struct Site {
    pub(crate) path: Started,
    address: String,
    token: String,
}

impl Site {
    fn new(room: &Room, web: &str) -> Self {
        Self::of(room.start(&["--web", web, "--left", &python("echo"), "--right", &python("ping $PEER")]))
    }

    /// Waits for the page of a path that starts.
    pub(crate) fn of(path: Started) -> Self {
        let url = path.wait_for("nichrome: page at http://");
        let (address, token) = url.split_once('/').unwrap();
        let address = address.replace("0.0.0.0", "127.0.0.1");
        Self { path, address, token: token.trim_start_matches('#').to_owned() }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    }

    /// Returns the response to these bytes.
    fn answer_to(&self, request: &str) -> String {
        let mut stream = self.connect();
        // The server may close the connection before it has read the whole request.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    fn get(&self, path: &str, headers: &str) -> String {
        self.answer_to(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", self.address))
    }

    fn post(&self, headers: &str, body: &str) -> String {
        let (host, len) = (&self.address, body.len());
        self.answer_to(&format!(
            "POST /set HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len}\r\n{headers}\r\n{body}"
        ))
    }

    fn set(&self, name: &str, value: &str) -> String {
        let body = json!([{ "direction": "to_right", "name": name, "value": value }]).to_string();
        self.post("Content-Type: application/json\r\n", &body)
    }

    pub(crate) fn state(&self) -> Value {
        content(&self.get("/state", ""))
    }
}

fn content(answer: &str) -> Value {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(body).unwrap()
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).unwrap_or_default().parse().unwrap_or_default()
}

#[test]
fn the_page_shows_and_changes_a_path() {
    let room = Room::new();
    let site = Site::new(&room, "0");
    assert_eq!(site.token, "", "loopback needs no token");
    assert!(site.get("/", "").contains("<title>nichrome wan</title>"));
    assert_eq!(content(&site.set("delay", "80ms")), json!({ "warning": null }));
    let state = site.state();
    assert_eq!(state["to_right"]["impairments"], json!({ "delay": "80ms" }));
    assert_eq!(state["to_left"]["impairments"], json!({}));
    let until = Instant::now() + TIMEOUT;
    loop {
        let state = site.state();
        let (to_right, packets) = (&state["to_right"], number(&state["to_right"], "packets_delivered"));
        if packets > 0 && float(to_right, "delay_given_ms") > 80.0 {
            assert!(float(to_right, "delay_asked_ms") >= 80.0 && number(to_right, "bytes") > 0, "{state}");
            break;
        }
        assert!(Instant::now() < until, "{state}");
    }
    // A change from another terminal appears on the page.
    assert!(room.run(&["set", "--loss", "1%"]).status.success());
    while site.state()["to_left"]["impairments"] != json!({ "loss": "1%" }) {
        assert!(Instant::now() < until, "the page does not follow");
    }
    let warned = content(&site.set("queue", "5p"));
    assert_eq!(warned["warning"], "--queue does nothing without --rate or --trace");
    for (name, value) in [("loss", "200%"), ("nothing", "1"), ("delay", "")] {
        assert_eq!(status(&site.set(name, value)), 400, "{name} {value}");
    }
}

#[test]
fn pages_of_other_sites_cannot_use_it() {
    let room = Room::new();
    let site = Site::new(&room, "0");
    let port = site.address.rsplit_once(':').unwrap().1;
    for host in ["example.com", &format!("example.com:{port}"), "127.0.0.1.example.com", ""] {
        let answer = site.answer_to(&format!("GET /state HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(status(&answer), 421, "{host}: {answer}");
    }
    assert_eq!(status(&site.answer_to("GET /state HTTP/1.1\r\n\r\n")), 421);
    assert_eq!(status(&site.get("/state", "Host: example.com\r\n")), 421);
    let body = json!([{ "direction": "both", "name": "loss", "value": "100%" }]).to_string();
    for headers in [
        "Content-Type: application/json\r\nOrigin: http://example.com\r\n",
        "Content-Type: application/json\r\nOrigin: null\r\n",
        "Content-Type: text/plain\r\n",
        "",
    ] {
        assert_eq!(status(&site.post(headers, &body)), 403, "{headers}");
    }
    let twice = format!(
        "Content-Type: application/json\r\nOrigin: http://{0}\r\nOrigin: http://{0}\r\n",
        site.address
    );
    assert_eq!(status(&site.post(&twice, &body)), 403);
    assert_eq!(site.state()["to_left"]["impairments"], json!({}));
    for wrong in ["OPTIONS /set", "PUT /set", "DELETE /state"] {
        let answer = site.answer_to(&format!("{wrong} HTTP/1.1\r\nHost: {}\r\n\r\n", site.address));
        assert!(status(&answer) == 405 && !answer.contains("Access-Control"), "{wrong}: {answer}");
    }
    assert_eq!(status(&site.get("/../etc/passwd", "")), 404);
    let page = site.get("/", "");
    assert!(page.contains("frame-ancestors 'none'") && page.contains("connect-src 'self'"), "{page}");
}

#[test]
fn values_that_name_files_are_refused() {
    let room = Room::new();
    let site = Site::new(&room, "0");
    let secret = room.file("secret");
    std::fs::write(&secret, "hidden\n").unwrap();
    for (name, value) in
        [("trace", secret.clone()), ("jitter", format!("file:{secret}")), ("order", "mtu".into())]
    {
        let answer = site.set(name, &value);
        assert!(status(&answer) == 400 && !answer.contains("hidden"), "{answer}");
    }
}

#[test]
fn beyond_loopback_the_token_is_needed() {
    let room = Room::new();
    let site = Site::new(&room, "0.0.0.0:0");
    assert_eq!(site.token.len(), 32);
    assert_eq!(status(&site.get("/", "")), 200, "the page itself has nothing to hide");
    let with = |token: &str| format!("Authorization: Bearer {token}\r\n");
    for wrong in [
        "",
        &with(""),
        &with(&site.token[1..]),
        &with(&site.token.replace(|_| true, "0")),
        "Authorization: Basic x\r\n",
    ] {
        assert_eq!(status(&site.get("/state", wrong)), 401, "{wrong}");
        assert_eq!(status(&site.post(&format!("Content-Type: application/json\r\n{wrong}"), "[]")), 401);
    }
    assert!(!site.get("/", "").contains(&site.token) && !site.get("/state", "").contains(&site.token));
    assert_eq!(status(&site.get("/state", &with(&site.token))), 200);
    let headers = format!("Content-Type: application/json\r\n{}", with(&site.token));
    assert_eq!(status(&site.post(&headers, "[]")), 200);
}

#[test]
fn requests_are_bounded() {
    let room = Room::new();
    let site = Site::new(&room, "0");
    assert_eq!(status(&site.get("/state", &format!("X: {}\r\n", "a".repeat(10_000)))), 413);
    assert_eq!(status(&site.post("Content-Type: application/json\r\n", &" ".repeat(10_000))), 413);
    assert_eq!(status(&site.answer_to(&"\0".repeat(20_000))), 413);
    assert_eq!(status(&site.answer_to("\r\n\r\n")), 400);
    let nested = "[".repeat(8000);
    assert_eq!(status(&site.post("Content-Type: application/json\r\n", &nested)), 400);
    let until = Instant::now() + TIMEOUT;
    while number(&site.state()["to_right"], "packets") == 0 {
        assert!(Instant::now() < until, "the path carries nothing");
    }
}

#[test]
fn silent_slow_and_excess_clients_do_not_block_others() {
    let room = Room::new();
    let site = Site::new(&room, "0");
    let silent: Vec<_> = (0..200).map(|_| site.connect()).collect();
    // Clients that read nothing.
    let greedy: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = site.connect();
            let _ = stream.write_all(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", site.address).as_bytes());
            stream
        })
        .collect();
    let until = Instant::now() + TIMEOUT;
    while status(&site.get("/state", "")) != 200 {
        assert!(Instant::now() < until, "silent clients keep others out");
    }
    drop((silent, greedy));
    // A client that sends a byte from time to time reaches the time limit.
    let mut slow = site.connect();
    slow.write_all(b"GET / HTTP/1.1\r\nX: ").unwrap();
    slow.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
    let mut byte = [0];
    while Instant::now() < until {
        let closed = match slow.read(&mut byte) {
            Ok(read) => read == 0,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        };
        if closed || slow.write_all(b"a").is_err() {
            return;
        }
    }
    panic!("a slow client is still served");
}

#[test]
fn an_address_in_use_is_reported_before_the_programs_start() {
    let room = Room::new();
    let site = Site::new(&room, "0");
    let (line, status) = failure(&room.run(&["--web", &site.address, "--", "true"]));
    let expected =
        format!("cannot listen at {} for --web: Address already in use (os error 98)", site.address);
    assert_eq!((line, status), (expected, 1));
    let (line, status) = failure(&room.run(&["--web", "example.com:80", "--", "true"]));
    assert!(
        line.contains("it is a port, or an address and a port, such as 127.0.0.1:8080") && status == 2,
        "{line}"
    );
}
