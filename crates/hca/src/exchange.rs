//! What two programs tell each other over TCP before they speak RDMA.

use std::io::{self, ErrorKind, Read, Write};
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
fn read_line(mut stream: &TcpStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut waiting = [0; 4096];
    while line.len() < MOST {
        let len = match stream.peek(&mut waiting) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            peeked => peeked?,
        };
        let end = waiting[..len].iter().position(|byte| *byte == b'\n');
        let taken = &mut waiting[..end.map_or(len.max(1), |end| end + 1)];
        stream.read_exact(taken)?;
        if let [content @ .., b'\n'] = &*taken {
            line.extend(content);
            return Ok(line);
        }
        line.extend(&*taken);
    }
    Err(io::Error::new(ErrorKind::InvalidData, "a line without end"))
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

    /// What is read where `sent` was sent, and nothing after it.
    fn line_of(sent: &[u8]) -> io::Result<Vec<u8>> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        thread::scope(|scope| {
            scope.spawn(move || sender.write_all(sent));
            read_line(&stream)
        })
    }

    #[test]
    fn a_line_has_an_end() {
        assert_eq!(line_of(b"12\n34").unwrap(), b"12");
        assert_eq!(line_of(b"12").unwrap_err().kind(), ErrorKind::UnexpectedEof);
        let long = [vec![b'1'; 50_000], vec![b'\n']].concat();
        assert_eq!(line_of(&long).unwrap(), long[..50_000]);
        assert_eq!(line_of(&[b'1'; MOST]).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
