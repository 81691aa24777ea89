//! Several processes at one address and port.
//!
//! The kernel steers by the place of a socket in its group, and moves the last socket into the place of one that is
//! closed. So no socket ever is while anyone uses the address: the first process opens the sockets of all slots, and each
//! process holds all of them. It hands them to those that come later over a Unix socket, and so does every other, so that
//! none is needed for longer than it wants. A slot is claimed by binding a name, which the kernel frees at exit.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::io::{self, Errno};
use rustix::net::sockopt::{Timeout, set_socket_reuseport, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recv, recvmsg, sendmsg, socket_with,
};
use rustix::process::getuid;

use crate::clock::wait;
use crate::waker::Waker;

use super::service_ports::{ServicePorts, create_table};
use super::socket::{UdpError, UdpSocket, open};
use super::steering::Steering;

/// Descriptors that one message can pass on: the listener, the sockets of 64 slots and of requests, and the ports' file.
const MOST_PASSED: usize = 67;

/// How long a process that hands on the sockets may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often it is tried to join those that use an address.
const TRIES: u32 = 100;

/// One of several sockets at an address: datagrams come to it that name its slot.
#[derive(Debug)]
pub struct SharedPort {
    socket: UdpSocket,
    slot: usize,
    steering: Steering,
    group: Arc<Group>,
    /// The name that stands for the slot.
    _claim: OwnedFd,
    /// Hands the sockets to those that come later.
    _steward: Steward,
}

impl SharedPort {
    /// Takes a free slot at `address`, as one of up to [`Steering::slots`] processes of this user.
    pub fn join(address: SocketAddr, steering: Steering) -> Result<Self, UdpError> {
        Self::join_one_of(address, steering, 0..steering.slots())
    }

    /// Takes this slot at `address`, which a process takes that has it at another port.
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
        discard_what_is_left(&fd);
        let socket = UdpSocket::of(fd, address).map_err(failed)?;
        let group = Arc::new(group);
        let steward = Steward::start(Arc::clone(&group)).map_err(failed)?;
        Ok(Self { socket, slot, steering, group, _claim: claim, _steward: steward })
    }

    /// The socket.
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// The slot, from 0.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// The slot's service ports, and the socket of requests for services that no process has. All processes with service ports
    /// receive from that socket.
    ///
    /// # Errors
    /// The steering has no management datagrams, or the kernel's.
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
                discard_what_is_left(requests);
            }
            Ok((ports, UdpSocket::of(duplicate()?, address)?))
        };
        open().map_err(|error| UdpError::of(address, error))
    }
}

/// What came for the slot's last owner.
fn discard_what_is_left(fd: &OwnedFd) {
    while recv(fd, &mut [0; 1][..], RecvFlags::DONTWAIT | RecvFlags::TRUNC).is_ok() {}
}

/// A Unix socket with an abstract name, which is of this network namespace.
fn named(name: &str, kind: SocketType) -> io::Result<OwnedFd> {
    let socket = unix_socket(kind)?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket)
}

fn unix_socket(kind: SocketType) -> io::Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
}

fn claim(address: SocketAddr, slot: usize) -> io::Result<OwnedFd> {
    named(&format!("nichrome-udp/{address}/{slot}"), SocketType::DGRAM)
}

/// The sockets of an address, and where those who come later ask for them.
#[derive(Debug)]
struct Group {
    listener: OwnedFd,
    sockets: Vec<OwnedFd>,
    /// The file of service ports, if management datagrams are steered.
    table: Option<OwnedFd>,
}

impl Group {
    fn join(address: SocketAddr, steering: Steering) -> io::Result<Self> {
        let name = format!("nichrome-udp/{address}");
        for _ in 0..TRIES {
            match named(&name, SocketType::SEQPACKET) {
                Ok(listener) => return Self::found(listener, address, steering),
                Err(Errno::ADDRINUSE) => {}
                Err(error) => return Err(error),
            }
            match Self::ask(&name) {
                // The last of them has gone just now.
                Err(Errno::CONNREFUSED | Errno::CONNRESET) => thread::sleep(Duration::from_millis(10)),
                Ok(passed) => return Self::of(passed, steering),
                Err(error) => return Err(error),
            }
        }
        Err(Errno::ADDRINUSE)
    }

    /// The sockets of all slots, in order.
    fn found(listener: OwnedFd, address: SocketAddr, steering: Steering) -> io::Result<Self> {
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

    /// The descriptors from whoever has them.
    fn ask(name: &str) -> io::Result<Vec<OwnedFd>> {
        let connection = unix_socket(SocketType::SEQPACKET)?;
        set_socket_timeout(&connection, Timeout::Recv, Some(PATIENCE))?;
        connect(&connection, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        receive_descriptors(&connection)
    }

    /// The group of descriptors that another process has handed on. Another user's process hands on none.
    fn of(mut passed: Vec<OwnedFd>, steering: Steering) -> io::Result<Self> {
        let expected = 1 + steering.sockets() + usize::from(steering.management.is_some());
        if passed.len() != expected {
            return Err(Errno::ADDRINUSE);
        }
        let listener = passed.remove(0);
        let table = steering.management.and_then(|_| passed.pop());
        Ok(Self { listener, sockets: passed, table })
    }

    /// Hands the sockets to whoever asks, if it is a process of this user.
    fn hand_on(&self) -> io::Result<()> {
        let connection = accept_with(&self.listener, SocketFlags::CLOEXEC)?;
        if socket_peercred(&connection)?.uid != getuid() {
            return Ok(());
        }
        let descriptors: Vec<BorrowedFd<'_>> = std::iter::once(&self.listener)
            .chain(&self.sockets)
            .chain(&self.table)
            .map(AsFd::as_fd)
            .collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_PASSED))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(&connection, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

fn receive_descriptors(connection: &OwnedFd) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_PASSED))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(connection, &mut [IoSliceMut::new(&mut [0])], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let rights = |message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    };
    Ok(control.drain().filter_map(rights).flatten().collect())
}

/// A thread that hands the sockets on, until it is dropped.
#[derive(Debug)]
struct Steward {
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Steward {
    fn start(group: Arc<Group>) -> io::Result<Self> {
        io::ioctl_fionbio(&group.listener, true)?;
        let waker = Arc::new(Waker::new()?);
        let end = Arc::clone(&waker);
        let serve = move || {
            while let Ok([ended, _]) = wait([end.as_fd(), group.listener.as_fd()], None)
                && !ended
            {
                // Whoever asked asks again, and someone else may have answered.
                let _ = group.hand_on();
            }
        };
        let thread = thread::Builder::new().name("nichrome-udp".to_owned()).spawn(serve);
        let thread = thread.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        Ok(Self { waker, thread: Some(thread) })
    }
}

impl Drop for Steward {
    fn drop(&mut self) {
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // It cannot have panicked.
            let _ = thread.join();
        }
    }
}
