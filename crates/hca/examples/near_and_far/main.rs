//! A key-value store of several servers, near and far: one address book, one set of verbs, the transport
//! chosen by the path.
//!
//!     cargo run --release -p nichrome-hca --example near_and_far serve 10.0.0.1:7300
//!     cargo run --release -p nichrome-hca --example near_and_far ask --from 10.0.0.2 --book peers
//!
//! Each line of the book is a name and an address with a port. A server listens there with an adapter of each
//! transport and answers probes; a client probes each server, chooses the transport by `nichrome_hca::reach`,
//! and connects. A key belongs to one of the servers by its hash. PUT is a SEND that the server's program
//! answers, GET is a READ without the server's program.
//!
//! | file | concept |
//! |---|---|
//! | `../common/slots.rs` | the table that is READ |
//! | `messages.rs` | the description of a server's table; PUT and its answer |
//! | `server.rs` | a server |
//! | `peer.rs` | a client's connection to a server |
//! | `book.rs`, `ask.rs`, `server_results.rs`, `report.rs` | the client: addresses, keys, results for one server, latencies |

mod ask;
mod book;
mod messages;
mod peer;
mod report;
mod server;
mod server_results;
#[path = "../common/slots.rs"]
mod slots;

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use nichrome_hca::cm::{CmOptions, TimeExponent};
use nichrome_hca::reach::Policy;
use nichrome_hca::{Adapter, AdapterConfig, OpenError, Place, Transport};

use self::ask::Ask;
use self::server::Server;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A key-value store of several servers, near and far.
#[derive(Parser)]
enum Command {
    /// Serve a table of keys and values until killed.
    Serve {
        /// Address and port, of RoCE, TCP and UDP alike.
        at: SocketAddr,
        /// Slots of the table, of 64 bytes.
        #[arg(long, default_value_t = 1 << 14, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
        slots: u32,
    },
    /// Put keys to the servers of a book, get them again, and print latencies.
    Ask {
        /// The address of this end.
        #[arg(long, value_name = "ADDRESS")]
        from: IpAddr,
        /// A file with a line for each server: NAME ADDRESS:PORT.
        #[arg(long, value_name = "FILE")]
        book: PathBuf,
        /// Keys that are put.
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
        keys: u64,
        /// GETs, of these keys in turn.
        #[arg(long, default_value_t = 10_000)]
        gets: u64,
        /// The longest round trip of a near peer, in microseconds.
        #[arg(long, value_name = "US")]
        near_us: Option<u64>,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
}

/// Timeout of every wait for a peer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens the adapter of a transport. A peer that does not answer is given up after two seconds.
fn open(transport: Transport, address: IpAddr) -> std::result::Result<Adapter, OpenError> {
    let cm = CmOptions {
        response_timeout: TimeExponent::new(16),
        max_retries: 7,
        service_timeout: TimeExponent::new(20),
        ..CmOptions::default()
    };
    let place = Place::Address(address);
    Adapter::open(&AdapterConfig { transport, place, cm, ..AdapterConfig::default() })
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Serve { at, slots } => Server::open(at, slots as usize)?.run(at),
        Command::Ask { from, book, keys, gets, near_us, json } => {
            let near = near_us.map_or(Policy::default().near, Duration::from_micros);
            let policy = Policy { near, ..Policy::default() };
            Ask { from, keys, gets, policy }.run(&book::read(&book)?, json)
        }
    }
}

fn main() -> ExitCode {
    run(Command::parse()).unwrap_or_else(|error| {
        eprintln!("near_and_far: {error}");
        ExitCode::FAILURE
    })
}
