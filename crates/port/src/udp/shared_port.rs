//! An address and UDP port shared by several processes.
//!
//! The kernel steers by a socket's index in its reuseport group, and moves the last socket to the index of a
//! closed one. So no socket may be closed while the address is in use: the first process opens the sockets of
//! all slots, and every process holds all of them. Every process also passes them on to newcomers over a Unix
//! socket, so that any of them may end. Binding an abstract name claims a slot; the kernel frees the name at
//! exit.

use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::io::{self, Errno};
use rustix::net::sockopt::{Timeout, set_socket_reuseport, set_socket_timeout};
use rustix::net::{RecvFlags, SocketFlags, SocketType, listen, recv};

use crate::clock::wait;
use crate::close_in_child::close_in_child;
use crate::packet_options::accept_all;
use crate::quiet_thread::spawn_quiet;
use crate::spare_descriptor::SpareDescriptor;
use crate::unix_names::{
    connect_to, has_same_user_id, named, receive_descriptors, send_descriptors, unix_socket,
};
use crate::waker::Waker;

use super::service_ports::{ServicePorts, create_table};
use super::socket::{UdpError, UdpSocket, open};
use super::socket_options::coalesce;
use super::steering::Steering;

/// Timeout for receiving the sockets from another process.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Attempts to join the processes at an address.
const MAX_JOIN_ATTEMPTS: u32 = 100;

/// One slot of a shared address: receives the datagrams that contain its slot number.
#[derive(Debug)]
pub struct SharedPort {
    socket: UdpSocket,
    slot: usize,
    steering: Steering,
    group: Arc<Group>,
    /// The bound name that claims the slot.
    claim: OwnedFd,
    /// Passes the sockets on to newcomers.
    _server: DescriptorServer,
}

impl SharedPort {
    /// Claims a free slot at `address`, shared by up to [`Steering::slots`] processes of this user.
    pub fn join(address: SocketAddr, steering: Steering) -> Result<Self, UdpError> {
        Self::join_one_of(address, steering, 0..steering.slots())
    }

    /// Claims the given slot at `address`, which the process already has at another port.
    pub fn join_slot(address: SocketAddr, steering: Steering, slot: usize) -> Result<Self, UdpError> {
        Self::join_one_of(address, steering, slot..slot + 1)
    }

    fn join_one_of(
        address: SocketAddr,
        steering: Steering,
        mut slots: Range<usize>,
    ) -> Result<Self, UdpError> {
        let failed = |error| UdpError::of(address, error);
        let group = Group::join(address, steering).map_err(failed)?;
        let free = slots.find_map(|slot| Some((slot, claim(address, slot).ok()?)));
        let Some((slot, claim)) = free else {
            return Err(UdpError::NoSlot { address, slots: steering.slots() });
        };
        let fd = group.sockets.get(slot).ok_or(failed(Errno::PROTO))?.try_clone();
        let fd = fd.map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::MFILE)))?;
        undo_packet_receiver(&fd).map_err(failed)?;
        drain(&fd);
        let socket = UdpSocket::of(fd, address).map_err(failed)?;
        let group = Arc::new(group);
        let server = DescriptorServer::start(Arc::clone(&group)).map_err(failed)?;
        Ok(Self { socket, slot, steering, group, claim, _server: server })
    }

    /// Returns the slot's socket.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Returns the slot's number, from 0.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// Returns the slot's service ports, and the socket for requests to ports without a listener. All
    /// processes with service ports receive from that socket.
    ///
    /// # Errors
    /// The steering defines no management datagrams, or the kernel's error.
    pub fn open_services(&self) -> Result<(ServicePorts, UdpSocket), UdpError> {
        let address = self.socket.local();
        let open = || {
            let Group { sockets, table, .. } = &*self.group;
            let (Some(table), Some(requests)) = (table, sockets.get(self.steering.slots())) else {
                return Err(Errno::OPNOTSUPP);
            };
            let duplicate =
                || requests.try_clone().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::MFILE));
            let ports = ServicePorts::open(table, duplicate()?, self.steering, self.slot)?;
            if ports.is_alone()? {
                drain(requests);
            }
            Ok((ports, UdpSocket::of(duplicate()?, address)?))
        };
        open().map_err(|error| UdpError::of(address, error))
    }

    /// Leaves the slot to the parent of this process, and the address to other processes once the parent has
    /// ended.
    pub fn close_in_child(&self) {
        self.group.close_in_child();
        close_in_child([self.socket.as_fd(), self.claim.as_fd()]);
    }
}

/// Undoes what a [`PacketReceiver`](super::PacketReceiver) of the slot's previous owner, which may have been
/// killed, did to the socket.
fn undo_packet_receiver(fd: &OwnedFd) -> io::Result<()> {
    match accept_all(fd) {
        // There is no filter.
        Ok(()) | Err(Errno::NOENT) => coalesce(fd),
        error => error,
    }
}

/// Discards datagrams for the slot's previous owner.
fn drain(fd: &OwnedFd) {
    while recv(fd, &mut [0; 1][..], RecvFlags::DONTWAIT | RecvFlags::TRUNC).is_ok() {}
}

fn claim(address: SocketAddr, slot: usize) -> io::Result<OwnedFd> {
    named(&format!("nichrome-udp/{address}/{slot}"), SocketType::DGRAM)
}

/// The sockets of an address and the listener that newcomers connect to.
#[derive(Debug)]
struct Group {
    listener: OwnedFd,
    sockets: Vec<OwnedFd>,
    /// The port table, if management datagrams are steered.
    table: Option<OwnedFd>,
}

impl Group {
    fn join(address: SocketAddr, steering: Steering) -> io::Result<Self> {
        let name = format!("nichrome-udp/{address}");
        for _ in 0..MAX_JOIN_ATTEMPTS {
            match named(&name, SocketType::SEQPACKET) {
                Ok(listener) => return Self::create(listener, address, steering),
                Err(Errno::ADDRINUSE) => {}
                Err(error) => return Err(error),
            }
            match Self::request_descriptors(&name) {
                // The last process of the group has just ended.
                Err(Errno::CONNREFUSED | Errno::CONNRESET) => thread::sleep(Duration::from_millis(10)),
                Ok(passed) => return Self::of(passed, steering),
                Err(error) => return Err(error),
            }
        }
        Err(Errno::ADDRINUSE)
    }

    /// Opens the sockets of all slots, in order.
    fn create(listener: OwnedFd, address: SocketAddr, steering: Steering) -> io::Result<Self> {
        listen(&listener, 64)?;
        let share = |fd: &OwnedFd| set_socket_reuseport(fd, true);
        let sockets = (0..steering.sockets()).map(|_| Ok(open(address, share)?.into_fd()));
        let sockets = sockets.collect::<io::Result<Vec<_>>>()?;
        if let Some(first) = sockets.first() {
            steering.attach(first, &[])?;
        }
        let table = steering.management.map(|_| create_table(address)).transpose()?;
        Ok(Self { listener, sockets, table })
    }

    /// Requests the descriptors from a process of the group, which must have the same user.
    fn request_descriptors(name: &str) -> io::Result<Vec<OwnedFd>> {
        let connection = unix_socket(SocketType::SEQPACKET)?;
        set_socket_timeout(&connection, Timeout::Recv, Some(RECEIVE_TIMEOUT))?;
        connect_to(&connection, name)?;
        // Another user's process would read and write all datagrams.
        if !has_same_user_id(&connection)? {
            return Err(Errno::ADDRINUSE);
        }
        Ok(receive_descriptors(&connection, &mut [0], RecvFlags::empty())?.1)
    }

    /// Builds a group from received descriptors. Processes of other users pass none.
    fn of(mut passed: Vec<OwnedFd>, steering: Steering) -> io::Result<Self> {
        let expected = 1 + steering.sockets() + usize::from(steering.management.is_some());
        if passed.len() != expected {
            return Err(Errno::ADDRINUSE);
        }
        let listener = passed.remove(0);
        let table = steering.management.and_then(|_| passed.pop());
        Ok(Self { listener, sockets: passed, table })
    }

    /// Passes the sockets to one connecting process, if it has the same user.
    fn pass_on(&self, spare: &mut SpareDescriptor) -> io::Result<()> {
        let connection = spare.accept(&self.listener, SocketFlags::CLOEXEC)?;
        if !has_same_user_id(&connection)? {
            return Ok(());
        }
        let descriptors: Vec<_> = self.descriptors().collect();
        send_descriptors(&connection, &[0], &descriptors)
    }

    /// Leaves the descriptors to the parent of this process.
    fn close_in_child(&self) {
        close_in_child(self.descriptors());
    }

    /// The descriptors, in the order in which they are passed on.
    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(&self.listener).chain(&self.sockets).chain(&self.table).map(AsFd::as_fd)
    }
}

/// A thread that passes the sockets on until dropped.
#[derive(Debug)]
struct DescriptorServer {
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl DescriptorServer {
    fn start(group: Arc<Group>) -> io::Result<Self> {
        io::ioctl_fionbio(&group.listener, true)?;
        let waker = Arc::new(Waker::new()?);
        let end = Arc::clone(&waker);
        let mut spare = SpareDescriptor::new();
        let serve = move || {
            while let Ok([ended, _]) = wait([end.as_fd(), group.listener.as_fd()], None)
                && !ended
            {
                // Ignored: the newcomer retries, and another process may have answered.
                let _ = group.pass_on(&mut spare);
            }
        };
        let thread = spawn_quiet("nichrome-udp", serve);
        let thread = thread.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        Ok(Self { waker, thread: Some(thread) })
    }
}

impl Drop for DescriptorServer {
    fn drop(&mut self) {
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // The thread does not panic.
            let _ = thread.join();
        }
    }
}
