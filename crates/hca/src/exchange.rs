//! What two programs tell each other over TCP before they speak RDMA.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes of an answer at most.
const MOST: usize = 1 << 16;

/// Tells the peer `mine`, and returns what it tells: a line of JSON each.
///
/// # Errors
/// The connection fails, or the peer says something else.
pub fn exchange<T: Serialize + DeserializeOwned>(stream: &TcpStream, mine: &T) -> io::Result<T> {
    let mut line = serde_json::to_vec(mine)?;
    line.push(b'\n');
    (&*stream).write_all(&line)?;
    Ok(serde_json::from_slice(&read_line(stream)?)?)
}

/// One line, and not a byte more: what follows is for the next exchange.
fn read_line(mut stream: impl Read) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() < MOST {
        stream.read_exact(&mut byte)?;
        if byte == *b"\n" {
            return Ok(line);
        }
        line.extend(byte);
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "a line without end"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    #[test]
    fn what_is_told_in_a_row_is_heard_in_a_row() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let talk = |stream: &TcpStream, start: u32| {
            (start..start + 100).map(|number| exchange(stream, &number).unwrap()).collect::<Vec<_>>()
        };
        thread::scope(|scope| {
            let heard = scope.spawn(|| talk(&TcpStream::connect(address).unwrap(), 0));
            assert_eq!(talk(&listener.accept().unwrap().0, 1000), Vec::from_iter(0..100));
            assert_eq!(heard.join().unwrap(), Vec::from_iter(1000..1100));
        });
    }

    #[test]
    fn a_line_has_an_end() {
        assert_eq!(read_line(&b"12\n34"[..]).unwrap(), b"12");
        assert_eq!(read_line(&b"12"[..]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let endless = io::repeat(b'1');
        assert_eq!(read_line(endless).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
