//! Two hosts on this machine and a wide-area path between them, for tests of programs that use the network.
//!
//! A [`Host`] is a network namespace with the kernel's own TCP/IP and one interface, whose wire is this
//! process. A [`Lab`] joins two hosts by a path with the impairments of `nichrome-wan`, seeded;
//! [`Lab::impair`] changes them while the path is in use. [`in_namespaces`] runs a test without root.
//!
//! ```no_run
//! use std::io::{Read, Write};
//! use std::net::{TcpListener, TcpStream};
//! use std::time::{Duration, Instant};
//!
//! use nichrome_lab::{Impairments, Lab, Side};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let slow = Impairments { delay: "30ms".parse()?, ..Impairments::default() };
//! let lab = Lab::new(&[slow.clone(), slow], 1)?;
//! // Sockets, threads and child processes created within `run` belong to that host.
//! let listener = lab.host(Side::Left).run(|| TcpListener::bind(("0.0.0.0", 80)))??;
//! let begun = Instant::now();
//! let mut client = lab.host(Side::Right).run(|| TcpStream::connect((Side::Left.ipv4(), 80)))??;
//! client.write_all(b"hello")?;
//! let mut server = listener.accept()?.0;
//! let mut received = [0; 5];
//! server.read_exact(&mut received)?;
//! // One round trip for the handshake, half a round trip for the data.
//! assert!(&received == b"hello" && begun.elapsed() >= Duration::from_millis(90));
//! lab.stop()?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod error;
mod host;
mod in_namespaces;
mod lab;
mod side;

pub use nichrome_lro as lro;
pub use nichrome_wan as wan;
pub use nichrome_wan::{ConfigError, Impairments, Stats};

pub use error::LabError;
pub use host::{Host, Variables, variables};
pub use in_namespaces::in_namespaces;
pub use lab::{Lab, MTU};
pub use side::{NoSide, Side};
