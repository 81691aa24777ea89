//! Which CPU runs a thread, and which one received a packet.

use std::os::fd::AsFd;

use rustix::net::sockopt::socket_incoming_cpu;
use rustix::thread::sched_getcpu;

/// Returns the CPU of the calling thread.
pub fn current_processor() -> u32 {
    u32::try_from(sched_getcpu()).unwrap_or(u32::MAX)
}

/// Returns the CPU that processed the last received packet of a connected socket (SO_INCOMING_CPU of
/// socket(7)); for a local sender, the sender's CPU. `None` before the first packet, and for unconnected
/// sockets.
pub fn incoming_processor(socket: impl AsFd) -> Option<u32> {
    socket_incoming_cpu(socket).ok().filter(|processor| i32::try_from(*processor).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_socket_reports_the_processor_of_its_last_packet() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut receiver = listener.accept().unwrap().0;
        sender.write_all(b"x").unwrap();
        receiver.read_exact(&mut [0]).unwrap();
        let processor = incoming_processor(&receiver).unwrap();
        assert!(processor < 1 << 16);
    }
}
