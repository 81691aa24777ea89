//! StaR's TCP port, for set-up.

use std::net::{SocketAddr, TcpListener};

use nichrome_port::udp::UdpError;
use nichrome_wire::star::STAR_PORT;
use rustix::io::Errno;

/// Opens the port for set-up at the address of `roce`.
pub(crate) fn listen(roce: SocketAddr) -> Result<TcpListener, UdpError> {
    let address = SocketAddr::new(roce.ip(), STAR_PORT);
    let listener = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|error| match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
        Errno::ADDRINUSE => UdpError::Taken(address),
        error => UdpError::Io { address, error },
    })
}
