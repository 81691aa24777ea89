//! What two programs tell each other over TCP before they speak RDMA.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes of an answer at most.
const MOST: u64 = 1 << 16;

/// Tells the peer `mine`, and returns what it tells: a line of JSON each.
///
/// # Errors
/// The connection fails, or the peer says something else.
pub fn exchange<T: Serialize + DeserializeOwned>(stream: &TcpStream, mine: &T) -> io::Result<T> {
    let mut line = serde_json::to_vec(mine)?;
    line.push(b'\n');
    (&*stream).write_all(&line)?;
    let mut answer = String::new();
    // One byte at a time would be as good: the peer says nothing more before it is told more.
    BufReader::new(stream.take(MOST)).read_line(&mut answer)?;
    if answer.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_str(&answer)?)
}
