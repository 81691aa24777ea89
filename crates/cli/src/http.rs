//! A minimal HTTP server (RFC 9112): one request per connection, each on its own thread; clients, bytes and
//! time are bounded.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use nichrome_port::uninterrupted;

use crate::deadline::remaining;

/// Maximum length of a request, in bytes.
const LONGEST: usize = 8192;

/// Stack size of a client's thread, in bytes.
const STACK: usize = 512 * 1024;

/// Timeout for a client's request, and again for the response.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Time until the next attempt to accept a client, after one has failed.
const RETRY_DELAY: Duration = Duration::from_millis(50);

/// Maximum number of bytes read after the request before the connection is closed.
const MAX_DRAINED: usize = 64 << 10;

/// A listening server that does not answer yet.
pub(crate) struct HttpServer(TcpListener);

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: &'static str,
    pub(crate) content_type: &'static str,
    /// Additional header lines, each with its CRLF.
    pub(crate) headers: &'static str,
    pub(crate) body: String,
}

impl HttpServer {
    /// Listens at an address; an error names the command-line option.
    pub(crate) fn listen(address: SocketAddr, option: &str) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address);
        listener.map(Self).with_context(|| format!("cannot listen at {address} for {option}"))
    }

    /// Returns the address that the server listens at.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Answers requests on threads named `name`, for at most `clients` at once: a further client ends the
    /// oldest connection. Closes a connection without a response if `answer` returns `None`.
    pub(crate) fn serve(
        self,
        name: &'static str,
        clients: usize,
        answer: impl Fn(&Request) -> Option<Response> + Send + Sync + 'static,
    ) {
        let answer = Arc::new(answer);
        // Connections in the order of acceptance.
        let mut served: VecDeque<Weak<TcpStream>> = VecDeque::new();
        thread::spawn(move || {
            for stream in self.0.incoming() {
                let Ok(stream) = stream else {
                    // No descriptor is free: the client waits in the backlog.
                    thread::sleep(RETRY_DELAY);
                    continue;
                };
                if served.len() == clients {
                    served.retain(|stream| stream.strong_count() > 0);
                }
                if served.len() == clients
                    && let Some(oldest) = served.pop_front().and_then(|oldest| oldest.upgrade())
                {
                    // Fails if the client has already closed the connection.
                    let _ = oldest.shutdown(Shutdown::Both);
                }
                // Bounds the number of threads: those of ended connections need a moment to exit.
                while Arc::strong_count(&answer) > 2 * clients {
                    thread::sleep(Duration::from_millis(1));
                }
                let (stream, answer) = (Arc::new(stream), Arc::clone(&answer));
                served.push_back(Arc::downgrade(&stream));
                // If no thread can be created, the connection is closed. A client that disconnects misses the
                // response.
                let _ = thread::Builder::new().name(name.into()).stack_size(STACK).spawn(move || {
                    let answered = converse(&stream, &*answer);
                    drop(answer);
                    answered
                });
            }
        });
    }
}

fn converse(stream: &TcpStream, answer: &impl Fn(&Request) -> Option<Response>) -> io::Result<()> {
    let request = read_request(stream, Instant::now() + TIMEOUT)?;
    let is_head = matches!(&request, Ok(request) if request.method == "HEAD");
    let response = match request {
        Ok(request) => answer(&request),
        Err(status) => Some(Response::text(status, "the request is not understood")),
    };
    let Some(response) = response else { return Ok(()) };
    let until = Instant::now() + TIMEOUT;
    write(stream, &response.bytes(is_head), until)?;
    // Closing a socket with unread bytes would send a reset, which may overtake the response.
    stream.shutdown(Shutdown::Write)?;
    let mut piece = [0; 1024];
    for _ in 0..MAX_DRAINED / piece.len() {
        if read(stream, &mut piece, until)? == 0 {
            break;
        }
    }
    Ok(())
}

fn read(mut stream: &TcpStream, piece: &mut [u8], until: Instant) -> io::Result<usize> {
    stream.set_read_timeout(Some(remaining(until)?))?;
    uninterrupted(|| stream.read(piece))
}

/// Writes all bytes until the deadline, however slowly the client reads.
fn write(mut stream: &TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(remaining(until)?))?;
        match uninterrupted(|| stream.write(bytes))? {
            0 => return Err(ErrorKind::WriteZero.into()),
            written => bytes = &bytes[written..],
        }
    }
    Ok(())
}

/// Reads a request; returns the status of the error response if it is malformed or incomplete.
fn read_request(stream: &TcpStream, until: Instant) -> io::Result<Result<Request, &'static str>> {
    let mut bytes = Vec::new();
    let mut piece = [0; 1024];
    loop {
        match Request::parse(&bytes) {
            Parsed::Whole(request) => return Ok(Ok(request)),
            Parsed::Wrong(status) => return Ok(Err(status)),
            Parsed::Part if bytes.len() >= LONGEST => return Ok(Err("413 Content Too Large")),
            Parsed::Part => {}
        }
        match read(stream, &mut piece, until)? {
            0 => return Ok(Err("400 Bad Request")),
            len => bytes.extend_from_slice(&piece[..len]),
        }
    }
}

/// The result of parsing received bytes.
#[derive(Debug, PartialEq, Eq)]
enum Parsed {
    Whole(Request),
    Part,
    Wrong(&'static str),
}

/// Returns the path of a request's target, which is a path or an absolute URI, as in requests to proxies (RFC
/// 9112, section 3.2.2).
fn path_of(target: &str) -> Option<String> {
    let path = match target.strip_prefix("http://") {
        Some(rest) => &rest[rest.find(['/', '?']).unwrap_or(rest.len())..],
        None if target.starts_with('/') || target == "*" => target,
        None => return None,
    };
    let path = path.split('?').next().unwrap_or_default();
    Some(if path.is_empty() { "/".into() } else { path.into() })
}

impl Request {
    fn parse(bytes: &[u8]) -> Parsed {
        const BAD: Parsed = Parsed::Wrong("400 Bad Request");
        const END: &[u8] = b"\r\n\r\n";
        let Some(end) = bytes.windows(END.len()).position(|window| window == END) else {
            return Parsed::Part;
        };
        let (head, rest) = (&bytes[..end], &bytes[end + END.len()..]);
        let Ok(head) = std::str::from_utf8(head) else { return BAD };
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some(_version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return BAD;
        };
        let header = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        let Some(headers) = lines.map(header).collect::<Option<Vec<_>>>() else { return BAD };
        let Some(path) = path_of(target) else { return BAD };
        let mut request = Self { method: method.to_owned(), path, headers, body: Vec::new() };
        if request.headers.iter().any(|(name, _)| name == "transfer-encoding") {
            return Parsed::Wrong("501 Not Implemented");
        }
        let len = match request.header("content-length").map(str::parse::<usize>) {
            None => 0,
            Some(Ok(len)) if len <= LONGEST => len,
            Some(Ok(_)) => return Parsed::Wrong("413 Content Too Large"),
            Some(Err(_)) => return BAD,
        };
        let Some(body) = rest.get(..len) else { return Parsed::Part };
        request.body = body.to_owned();
        Parsed::Whole(request)
    }

    /// Returns the method, such as GET; for HEAD the response has no body.
    pub(crate) fn method(&self) -> &str {
        &self.method
    }

    /// Returns the path without the query.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Returns a header's value by its lower-case name; `None` if the header is repeated, since it is then
    /// ambiguous.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(of, _)| of == name).map(|(_, value)| value.as_str());
        values.next().filter(|_| values.next().is_none())
    }

    /// Returns true if there is a header of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(of, _)| of == name)
    }

    /// Returns the body.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }
}

impl Response {
    /// Creates a plain-text response of one line.
    pub(crate) fn text(status: &'static str, line: &str) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", headers: "", body: format!("{line}\n") }
    }

    fn bytes(&self, is_head: bool) -> Vec<u8> {
        let Self { status, content_type, headers, body } = self;
        let len = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len}\r\n{headers}Connection: close\r\n\r\n"
        );
        if is_head { head.into_bytes() } else { (head + body).into_bytes() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Parsed {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Parsed::Whole(Request {
            method: method.into(),
            path: path.into(),
            headers: headers.iter().map(owned).collect(),
            body: body.into(),
        })
    }

    #[test]
    fn requests_are_read() {
        let get = request("GET", "/metrics", &[("host", "a")], "");
        assert_eq!(Request::parse(b"GET /metrics?a=b HTTP/1.1\r\nHost: a\r\n\r\n"), get);
        for address in ["http://a:1/metrics", "http://a/metrics?b", "http://[::1]:80/metrics"] {
            let bytes = format!("GET {address} HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(Request::parse(bytes.as_bytes()), get, "{address}");
        }
        for address in ["http://a", "http://a?b", "/"] {
            let bytes = format!("GET {address} HTTP/1.1\r\n\r\n");
            assert_eq!(Request::parse(bytes.as_bytes()), request("GET", "/", &[], ""), "{address}");
        }
        assert_eq!(Request::parse(b"HEAD / HTTP/1.1\r\n\r\n"), request("HEAD", "/", &[], ""));
        let post = b"POST /set HTTP/1.1\r\nContent-Length: 2\r\n\r\n[]";
        assert_eq!(Request::parse(post), request("POST", "/set", &[("content-length", "2")], "[]"));
        for end in 0..post.len() {
            assert_eq!(Request::parse(&post[..end]), Parsed::Part, "{end}");
        }
    }

    #[test]
    fn malformed_requests_are_refused() {
        for (bytes, status) in [
            (&b"\r\n\r\n"[..], "400 Bad Request"),
            (b"GET\r\n\r\n", "400 Bad Request"),
            (b"GET / HTTP/1.1 x\r\n\r\n", "400 Bad Request"),
            (b"GET metrics HTTP/1.1\r\n\r\n", "400 Bad Request"),
            (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", "400 Bad Request"),
            (b"GET /\xff HTTP/1.1\r\n\r\n", "400 Bad Request"),
            (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "400 Bad Request"),
            (b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", "400 Bad Request"),
            (b"POST / HTTP/1.1\r\nContent-Length: 8193\r\n\r\n", "413 Content Too Large"),
            (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "501 Not Implemented"),
        ] {
            assert_eq!(Request::parse(bytes), Parsed::Wrong(status), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn a_repeated_header_has_no_value() {
        let Parsed::Whole(request) = Request::parse(b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nX: 1\r\n\r\n")
        else {
            panic!("it is a request")
        };
        assert_eq!(
            (request.header("host"), request.header("x"), request.header("y")),
            (None, Some("1"), None)
        );
    }

    #[test]
    fn a_crowd_of_silent_clients_does_not_shut_others_out() {
        let server = HttpServer::listen(SocketAddr::from(([127, 0, 0, 1], 0)), "--metrics").unwrap();
        let address = server.address().unwrap();
        server.serve("test", 4, |_| Some(Response::text("200 OK", "here")));
        let begun = Instant::now();
        let mut silent = Vec::new();
        for _ in 0..20 {
            silent.push(TcpStream::connect(address).unwrap());
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            let mut response = String::new();
            stream.read_to_string(&mut response).unwrap();
            assert!(
                response.starts_with("HTTP/1.1 200 OK\r\n") && response.ends_with("here\n"),
                "{response}"
            );
        }
        assert!(begun.elapsed() < TIMEOUT, "none waited for the silent ones");
    }
}
