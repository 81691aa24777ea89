//! Reads what the peer of a TCP connection has acknowledged (`TCP_INFO` of tcp(7)).

use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::io;

use crate::packet_options::check;

/// The acknowledgements of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledgements {
    /// True if a segment, or a probe of a closed window or of an idle peer, was sent after the peer's last
    /// ACK, and no ACK has covered it.
    pub is_awaited: bool,
    /// Bytes that the kernel has sent or will send, and that are not acknowledged.
    pub queued: u32,
    /// Time since the peer's last ACK, in whole milliseconds.
    pub since_last: Duration,
    /// Number of times that the retransmission timer has expired since an ACK covered new bytes, whether or
    /// not the interface took the segment.
    pub expirations: u8,
}

/// Returns the acknowledgements of a connection.
///
/// # Errors
/// The descriptor is not a TCP socket.
#[allow(unsafe_code)]
pub fn acknowledgements(socket: impl AsFd) -> io::Result<Acknowledgements> {
    // SAFETY: the structure has integers only.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: getsockopt(2) writes at most `len` bytes to `info`, which has that length and accepts any
    // bytes.
    check(unsafe {
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut len)
    })?;
    let mut queued: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (tcp(7)) writes an int.
    check(unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut queued) })?;
    let is_outstanding = info.tcpi_unacked > 0 && info.tcpi_last_data_sent < info.tcpi_last_ack_recv;
    Ok(Acknowledgements {
        is_awaited: is_outstanding || info.tcpi_probes > 0,
        queued: u32::try_from(queued).unwrap_or_default(),
        since_last: Duration::from_millis(info.tcpi_last_ack_recv.into()),
        expirations: info.tcpi_retransmits,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::thread;

    #[test]
    fn what_a_peer_has_acknowledged_is_not_outstanding() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _receiver = listener.accept().unwrap().0;
        sender.write_all(b"x").unwrap();
        thread::sleep(Duration::from_millis(100));
        let Acknowledgements { is_awaited, queued, since_last, expirations } =
            acknowledgements(&sender).unwrap();
        assert_eq!((is_awaited, queued, expirations), (false, 0, 0));
        assert!((Duration::from_millis(50)..Duration::from_secs(60)).contains(&since_last), "{since_last:?}");
        assert!(acknowledgements(UdpSocket::bind("127.0.0.1:0").unwrap()).is_err());
    }
}
