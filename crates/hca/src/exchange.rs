//! Out-of-band exchange of connection parameters over TCP.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use nichrome_port::uninterrupted;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest line, in bytes.
const MAX_LINE: usize = 1 << 16;

/// Sends `mine` to the peer and returns the peer's value, each as a line of JSON.
///
/// # Errors
/// The stream fails, or the peer's line is longer than 64 KiB or not a `T`.
pub fn exchange<T: Serialize + DeserializeOwned>(stream: &TcpStream, mine: &T) -> io::Result<T> {
    let mut line = serde_json::to_vec(mine)?;
    line.push(b'\n');
    (&*stream).write_all(&line)?;
    Ok(serde_json::from_slice(&read_line(stream)?)?)
}

/// Reads one line and no byte more: the next belongs to the next exchange.
fn read_line(mut stream: &TcpStream) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut waiting = [0; 4096];
    while line.len() < MAX_LINE {
        let len = uninterrupted(|| stream.peek(&mut waiting))?;
        let end = waiting[..len].iter().position(|byte| *byte == b'\n');
        let taken = &mut waiting[..end.map_or(len.max(1), |end| end + 1)];
        stream.read_exact(taken)?;
        if let [content @ .., b'\n'] = &*taken {
            line.extend(content);
            return Ok(line);
        }
        line.extend(&*taken);
    }
    Err(io::Error::new(ErrorKind::InvalidData, "the peer's line is longer than 64 KiB"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    #[test]
    fn exchanges_in_a_row_keep_their_order() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let talk = |stream: &TcpStream, start: u32| {
            (start..start + 100).map(|number| exchange(stream, &number).unwrap()).collect::<Vec<_>>()
        };
        thread::scope(|scope| {
            let received = scope.spawn(|| talk(&TcpStream::connect(address).unwrap(), 0));
            assert_eq!(talk(&listener.accept().unwrap().0, 1000), Vec::from_iter(0..100));
            assert_eq!(received.join().unwrap(), Vec::from_iter(1000..1100));
        });
    }

    /// The line read from a peer that sends `sent` and closes.
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
    fn a_line_ends_at_its_newline_and_is_bounded() {
        assert_eq!(line_of(b"12\n34").unwrap(), b"12");
        assert_eq!(line_of(b"12").unwrap_err().kind(), ErrorKind::UnexpectedEof);
        let long = [vec![b'1'; 50_000], vec![b'\n']].concat();
        assert_eq!(line_of(&long).unwrap(), long[..50_000]);
        assert_eq!(line_of(&[b'1'; MAX_LINE]).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
