//! An end of a TCP connection.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use nichrome_port::{clock, uninterrupted};

use super::end::{CONTROL, End, TIMEOUT, poll_until};

/// The way in which a program waits for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// Blocks in the system call.
    Blocking,
    /// Polls with a non-blocking system call; after this time yields the processor between calls.
    Nonblocking(Duration),
}

/// Read timeout, after which a receiving program tests whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// An end.
pub(super) struct SocketEnd {
    stream: TcpStream,
    wait: Wait,
    buffer: Vec<u8>,
    /// Bytes of the current pushed message that are not sent yet.
    unsent: usize,
}

impl SocketEnd {
    /// Creates an end for messages of up to `max_len` bytes.
    pub(super) fn new(stream: TcpStream, wait: Wait, max_len: usize) -> anyhow::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.set_nonblocking(wait != Wait::Blocking)?;
        Ok(Self { stream, wait, buffer: vec![0; max_len.max(CONTROL)], unsent: 0 })
    }

    /// Repeats a system call until it has moved bytes.
    fn moved(wait: Wait, mut call: impl FnMut() -> io::Result<usize>) -> anyhow::Result<usize> {
        match wait {
            Wait::Blocking => match uninterrupted(&mut call) {
                Ok(0) => bail!("the peer has closed the connection"),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    bail!("the peer has sent nothing for {TIMEOUT:?}")
                }
                result => result.context("the connection is lost"),
            },
            Wait::Nonblocking(spin) => poll_until(spin, || match uninterrupted(&mut call) {
                Ok(0) => bail!("the peer has closed the connection"),
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
                result => result.map(Some).context("the connection is lost"),
            }),
        }
    }
}

impl End for SocketEnd {
    fn send(&mut self, len: usize) -> anyhow::Result<()> {
        let Self { stream, wait, buffer, .. } = self;
        let mut at = 0;
        while at < len {
            at += Self::moved(*wait, || stream.write(&buffer[at..len]))?;
        }
        Ok(())
    }

    fn receive(&mut self, len: usize) -> anyhow::Result<()> {
        let Self { stream, wait, buffer, .. } = self;
        let mut at = 0;
        while at < len {
            at += Self::moved(*wait, || stream.read(&mut buffer[at..len]))?;
        }
        Ok(())
    }

    fn fetch(&mut self, len: usize) -> anyhow::Result<()> {
        self.send(CONTROL)?;
        self.receive(len)
    }

    fn put(&mut self, len: usize) -> anyhow::Result<()> {
        self.send(len)
    }

    fn await_put(&mut self, len: usize) -> anyhow::Result<()> {
        self.receive(len)
    }

    fn push(&mut self, len: usize) -> anyhow::Result<bool> {
        // Non-blocking: a sender with many connections waits for none of them.
        self.stream.set_nonblocking(true)?;
        if self.unsent == 0 {
            self.unsent = len;
        }
        match self.stream.write(&self.buffer[..self.unsent]) {
            Ok(written) => {
                self.unsent -= written;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error).context("the connection is lost"),
        }
    }

    fn absorb(&mut self, stop: &AtomicBool, taken: &AtomicU64) -> anyhow::Result<()> {
        self.stream.set_read_timeout(Some(POLL_INTERVAL))?;
        while !stop.load(Ordering::Relaxed) {
            if self.wait != Wait::Blocking {
                clock::wait([self.stream.as_fd()], Some(clock::now() + POLL_INTERVAL))?;
            }
            match uninterrupted(|| self.stream.read(&mut self.buffer)) {
                Ok(0) => bail!("the peer has closed the connection"),
                Ok(read) => {
                    taken.fetch_add(read as u64, Ordering::Relaxed);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("the connection is lost"),
            }
        }
        Ok(())
    }

    fn placed(&self) -> u64 {
        0
    }

    fn is_one_sided(&self) -> bool {
        false
    }
}
