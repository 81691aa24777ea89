//! Opens an AF_XDP socket, in this order: UMEM, rings, bind, map entry.

use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::Duration;

use rustix::io::{self, Errno};
use rustix::net::sockopt::{
    set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size,
    set_xdp_umem_fill_ring_size, set_xdp_umem_reg, xdp_mmap_offsets,
};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING,
    XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

use super::config::XdpCopy;
use super::error::{XdpError, refused};
use super::interface::XdpInterface;
use super::ring::{Consumer, Producer};
use super::umem::Umem;
use crate::clock;

/// Time that the kernel may take to release the queue of a closed socket.
const RELEASE_TIME: Duration = Duration::from_millis(500);

/// An open socket.
pub(super) struct XdpSocket {
    pub socket: OwnedFd,
    pub rings: Rings,
    /// Frames may have several chunks.
    pub is_multi_buffer: bool,
}

/// The rings of a socket.
pub(super) struct Rings {
    pub fill: Producer<u64>,
    pub receive: Consumer<XdpDesc>,
    pub transmit: Producer<XdpDesc>,
    pub completion: Consumer<u64>,
}

/// Opens a socket for `queue` with rings for the given numbers of receive and transmit chunks.
pub(super) fn open(
    interface: &XdpInterface,
    queue: u32,
    umem: &Umem,
    chunks: [u32; 2],
    copy: XdpCopy,
) -> Result<XdpSocket, XdpError> {
    let name = interface.interface().name;
    if queue >= interface.queues() {
        return Err(XdpError::NoQueue { name, queue, last: interface.queues() - 1 });
    }
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)
        .map_err(refused(name, "an AF_XDP socket"))?;
    let (_, bytes) = umem.region();
    register(&socket, umem).map_err(|error| XdpError::Memory { bytes, error: error.into() })?;
    let rings = make_rings(&socket, chunks).map_err(refused(name, "the rings of an AF_XDP socket"))?;
    let is_multi_buffer =
        bind_to_queue(&socket, interface.interface().index, queue, copy).map_err(|error| match error {
            Errno::BUSY => XdpError::QueueBusy { name, queue },
            error => refused(name, "to bind an AF_XDP socket")(error),
        })?;
    interface
        .sockets
        .insert(queue, socket.as_fd())
        .map_err(refused(name, "to enter the socket into the map"))?;
    Ok(XdpSocket { socket, rings, is_multi_buffer })
}

/// Registers the UMEM. The kernel keeps the pages until the socket is closed, even if this process unmaps
/// them.
fn register(socket: &OwnedFd, umem: &Umem) -> io::Result<()> {
    let (addr, len) = umem.region();
    let flags = XdpUmemRegFlags::empty();
    let region =
        XdpUmemReg { addr, len, chunk_size: umem.chunk_size(), headroom: 0, flags, tx_metadata_len: 0 };
    set_xdp_umem_reg(socket, region)
}

/// Sets up the rings, with twice as many entries as chunks: the kernel may hand over a chunk before it
/// releases the chunk's previous entry.
fn make_rings(socket: &OwnedFd, [receive, transmit]: [u32; 2]) -> io::Result<Rings> {
    let [receive, transmit] = [receive, transmit].map(|chunks| (2 * chunks).next_power_of_two());
    set_xdp_umem_fill_ring_size(socket, receive)?;
    set_xdp_rx_ring_size(socket, receive)?;
    set_xdp_tx_ring_size(socket, transmit)?;
    set_xdp_umem_completion_ring_size(socket, transmit)?;
    let places = xdp_mmap_offsets(socket)?;
    let socket = socket.as_fd();
    Ok(Rings {
        fill: Producer::map(socket, XDP_UMEM_PGOFF_FILL_RING, places.fr, receive)?,
        receive: Consumer::map(socket, XDP_PGOFF_RX_RING, places.rx, receive)?,
        transmit: Producer::map(socket, XDP_PGOFF_TX_RING, places.tx, transmit)?,
        completion: Consumer::map(socket, XDP_UMEM_PGOFF_COMPLETION_RING, places.cr, transmit)?,
    })
}

/// Binds the socket, with frames of several chunks if kernel (6.6) and driver support them; returns whether
/// they do.
fn bind_to_queue(socket: &OwnedFd, index: u32, queue: u32, copy: XdpCopy) -> io::Result<bool> {
    let copy = match copy {
        XdpCopy::WhereNeeded => SocketAddrXdpFlags::empty(),
        XdpCopy::Always => SocketAddrXdpFlags::XDP_COPY,
    };
    let flags = copy | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
    let bind = |flags| bind_when_free(socket, &SocketAddrXdp::new(flags, index, queue));
    match bind(flags | SocketAddrXdpFlags::XDP_USE_SG) {
        Err(Errno::INVAL | Errno::OPNOTSUPP) => bind(flags).map(|()| false),
        done => done.map(|()| true),
    }
}

/// Binds the socket; retries for a while if the queue is taken: the queue of a closed socket becomes free
/// only after an RCU grace period and a deferred clean-up.
fn bind_when_free(socket: &OwnedFd, address: &SocketAddrXdp) -> io::Result<()> {
    let until = clock::now() + RELEASE_TIME;
    loop {
        match bind(socket, address) {
            Err(Errno::BUSY) if clock::now() < until => thread::sleep(Duration::from_millis(1)),
            done => return done,
        }
    }
}
