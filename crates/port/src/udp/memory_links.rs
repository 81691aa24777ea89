//! Datagrams between processes of one user on one machine, through shared memory instead of the kernel's
//! network.
//!
//! Every process listens on an abstract Unix socket, named after its address, or after its slot of a shared
//! address. The sender connects to it, and passes its own address and the descriptor of a new ring: a link
//! has one direction. Both ends check that the other belongs to the same user (SO_PEERCRED). Without a
//! listener, and after a link has ended, senders use UDP sockets.
//!
//! A byte on the connection wakes the reader. A hostile peer cannot block it: each end of the connection is a
//! file of its own with its own O_NONBLOCK. An eventfd is one file for both processes: the peer could clear
//! O_NONBLOCK and fill the counter.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nichrome_wire::{Instant, TrafficClass};
use rustix::io::{self, Errno};
use rustix::net::{RecvFlags, SendFlags, SocketFlags, SocketType, listen, recv, send};

use crate::descriptor::Descriptor;
use crate::epoll::{Epoll, Interest};
use crate::spare_descriptor::SpareDescriptor;
use crate::unix_names::{
    connect_to, is_of_same_user, named, receive_descriptors, send_descriptors, unix_socket,
};
use crate::waker::Waker;

use super::receive::Arrival;
use super::shared_ring::{Corrupt, MAX_MESSAGE, Message, Push, RingReader, RingWriter};

/// Maximum number of links to this process, each with a ring of 1 MiB. Further peers use sockets.
const MAX_INCOMING: usize = 64;

/// Maximum number of links from this process. Datagrams to further peers use sockets.
const MAX_OUTGOING: usize = 64;

/// Number of peers in the table at which peers without a link are removed.
const MAX_UNREACHABLE: usize = 1024;

/// Maximum number of messages that one call receives from a link.
const BATCH: usize = 16;

/// Number of consecutive calls without a message, and of calls altogether, after which links request wake-ups
/// and connections are polled.
const IDLE_CALLS: u32 = 16;
const BUSY_CALLS: u32 = 256;

/// Time without progress of the reader after which messages for a full ring are dropped, as the kernel drops
/// datagrams for a full socket.
const DROP_AFTER: Duration = Duration::from_millis(50);

/// Time without progress of the reader after which a full link ends.
const END_LINK_AFTER: Duration = Duration::from_secs(1);

/// Maximum number of wake-ups that one call receives from a link. A correct peer has at most two in flight.
const MAX_WAKE_UPS: usize = 4;

/// Time after which a connection to a peer without a listener is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The result of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkSend {
    /// The message is in the link's ring.
    Sent,
    /// The ring is full: the caller tries again.
    Full,
    /// The ring is full and its reader makes no progress: the message is dropped.
    Dropped,
    /// There is no link to the peer: the caller uses a socket.
    NoLink,
}

/// The links of one slot at an address. As a descriptor, it is readable while a message or a connection is
/// pending.
#[derive(Debug)]
pub struct MemoryLinks {
    address: SocketAddr,
    /// `None` if the name is in use, which any user can cause. Peers then use this process's UDP socket.
    listener: Option<Descriptor>,
    spare: SpareDescriptor,
    ready: Epoll,
    /// Signalled if a message arrived while its link requested a wake-up.
    message_arrived: Waker,
    /// Accepted connections whose first message has not arrived.
    greetings: Vec<Descriptor>,
    incoming: Vec<Incoming>,
    outgoing: HashMap<(SocketAddr, usize), Outgoing>,
    buffer: Box<[u8; MAX_MESSAGE]>,
    calls: u32,
    idle_calls: u32,
}

#[derive(Debug)]
struct Incoming {
    peer: SocketAddr,
    ring: RingReader,
    /// Readable after a wake-up, or after the peer has closed its end.
    connection: Descriptor,
    is_corrupt: bool,
}

#[derive(Debug)]
enum Outgoing {
    Link(Link),
    Unreachable { until: Instant },
}

/// The reader makes no progress, or its position is invalid.
struct HasEnded;

impl From<Corrupt> for HasEnded {
    fn from(_: Corrupt) -> Self {
        Self
    }
}

#[derive(Debug)]
struct Link {
    ring: RingWriter,
    connection: Descriptor,
    /// Time at which the ring became full, and the reader's position at that time.
    full: Option<(Instant, u64)>,
}

/// Token of every descriptor of the epoll: callers do not distinguish them.
const TOKEN: u64 = 0;

impl MemoryLinks {
    /// Listens for links to a slot of an address, or to the whole address. If another process has the name,
    /// no link is accepted.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn listen(address: SocketAddr, slot: Option<usize>) -> io::Result<Self> {
        let (ready, message_arrived) = (Epoll::new()?, Waker::new()?);
        let listener = match named(&socket_name(address, slot), SocketType::SEQPACKET) {
            Err(Errno::ADDRINUSE) => None,
            named => Some(named?.into()),
        };
        if let Some(listener) = &listener {
            io::ioctl_fionbio(listener, true)?;
            listen(listener, 64)?;
            ready.add(listener, TOKEN, Interest::READ)?;
        }
        ready.add(&message_arrived, TOKEN, Interest::READ)?;
        Ok(Self {
            address,
            listener,
            spare: SpareDescriptor::new(),
            ready,
            message_arrived,
            greetings: Vec::new(),
            incoming: Vec::new(),
            outgoing: HashMap::new(),
            buffer: Box::new([0; MAX_MESSAGE]),
            calls: 0,
            idle_calls: 0,
        })
    }

    /// Adds a descriptor to the epoll: the links are readable while it is.
    ///
    /// # Errors
    /// The errors of epoll_ctl(2).
    pub fn watch(&self, other: impl AsFd) -> io::Result<()> {
        self.ready.add(other, TOKEN, Interest::READ)
    }

    /// Returns true if a ring has a message.
    #[inline]
    pub fn has_message(&self) -> bool {
        self.incoming.iter().any(|link| link.ring.has_message())
    }

    /// Returns true if there is a link to any peer.
    #[inline]
    pub fn has_outgoing(&self) -> bool {
        self.outgoing.values().any(|outgoing| matches!(outgoing, Outgoing::Link(_)))
    }

    /// Sends datagrams of `segment_size` bytes each (the last may be shorter), up to 65,536 bytes in total,
    /// to a slot of an address.
    #[inline]
    pub fn send(
        &mut self,
        (peer, slot): (SocketAddr, usize),
        traffic_class: TrafficClass,
        (bytes, segment_size): (&[u8], usize),
        now: Instant,
    ) -> LinkSend {
        let outgoing = match self.outgoing.get_mut(&(peer, slot)) {
            Some(Outgoing::Unreachable { until }) if now < *until => return LinkSend::NoLink,
            Some(link @ Outgoing::Link(_)) => link,
            _ => self.connect(peer, slot, now),
        };
        let Outgoing::Link(link) = outgoing else { return LinkSend::NoLink };
        match link.send(traffic_class, bytes, segment_size, now) {
            Ok(sent) => sent,
            Err(HasEnded) => {
                let unreachable = Outgoing::Unreachable { until: now + RETRY_AFTER };
                if let Some(Outgoing::Link(link)) = self.outgoing.insert((peer, slot), unreachable) {
                    unwatch(&self.ready, &link.connection);
                }
                LinkSend::NoLink
            }
        }
    }

    fn connect(&mut self, peer: SocketAddr, slot: usize, now: Instant) -> &mut Outgoing {
        if self.outgoing.len() >= MAX_UNREACHABLE {
            self.outgoing.retain(|_, outgoing| matches!(outgoing, Outgoing::Link(_)));
        }
        let links = self.outgoing.values().filter(|outgoing| matches!(outgoing, Outgoing::Link(_))).count();
        let link = if links < MAX_OUTGOING { Link::to(peer, slot, self.address) } else { Err(Errno::NOBUFS) };
        let link = link.and_then(|link| {
            self.ready.add(&link.connection, TOKEN, Interest::READ)?;
            Ok(link)
        });
        let outgoing = link.map_or(Outgoing::Unreachable { until: now + RETRY_AFTER }, Outgoing::Link);
        self.outgoing.entry((peer, slot)).insert_entry(outgoing).into_mut()
    }

    /// Calls `take` with pending messages, up to a batch of each link. Returns true if there was any.
    #[inline]
    pub fn receive(&mut self, mut take: impl FnMut(Arrival<'_>)) -> bool {
        let Self { incoming, buffer, .. } = self;
        let mut has_received = false;
        for link in &mut *incoming {
            for _ in 0..BATCH {
                match link.ring.pop(buffer) {
                    Ok(Some(Message { len, segment_size, class })) => {
                        has_received = true;
                        let (peer, traffic_class) = (link.peer, TrafficClass(class));
                        take(Arrival { peer, traffic_class, bytes: &buffer[..len], segment_size });
                    }
                    Ok(None) => break,
                    Err(Corrupt) => {
                        link.is_corrupt = true;
                        break;
                    }
                }
            }
        }
        self.calls += 1;
        self.idle_calls = if has_received { 0 } else { self.idle_calls + 1 };
        if self.idle_calls >= IDLE_CALLS || self.calls >= BUSY_CALLS {
            self.poll_connections();
        }
        has_received
    }

    /// Requests wake-ups for links without messages, accepts new links, and removes those that have ended.
    #[cold]
    fn poll_connections(&mut self) {
        (self.calls, self.idle_calls) = (0, 0);
        self.message_arrived.clear();
        let Self { ready, message_arrived, .. } = self;
        self.incoming.retain_mut(|link| {
            let is_open = link.request_wake_up(message_arrived);
            if !is_open {
                unwatch(ready, &link.connection);
            }
            is_open
        });
        self.outgoing.retain(|_, outgoing| match outgoing {
            Outgoing::Link(link) if has_closed(&link.connection) => {
                unwatch(ready, &link.connection);
                false
            }
            Outgoing::Link(_) | Outgoing::Unreachable { .. } => true,
        });
        self.accept();
        for connection in std::mem::take(&mut self.greetings) {
            match first_message(&connection) {
                Ok(Some((peer, ring))) => {
                    self.incoming.push(Incoming { peer, ring, connection, is_corrupt: false });
                }
                Ok(None) => self.greetings.push(connection),
                Err(_) => unwatch(&self.ready, &connection),
            }
        }
    }

    /// Accepts connections from the same user.
    fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        // Bounded: a process of any user may connect repeatedly.
        for _ in 0..MAX_INCOMING {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let Ok(connection) = self.spare.accept(listener, flags) else { break };
            let has_room = self.greetings.len() + self.incoming.len() < MAX_INCOMING;
            if has_same_user(&connection)
                && has_room
                && self.ready.add(&connection, TOKEN, Interest::READ).is_ok()
            {
                self.greetings.push(connection);
            }
        }
    }
}

impl AsFd for MemoryLinks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

/// Returns the abstract name of a slot of an address, or of the process that has the whole address.
fn socket_name(address: SocketAddr, slot: Option<usize>) -> String {
    match slot {
        Some(slot) => format!("nichrome-memory/{address}/{slot}"),
        None => format!("nichrome-memory/{address}"),
    }
}

/// Returns true if the reader has closed its end, or has sent anything: readers send nothing.
fn has_closed(connection: &Descriptor) -> bool {
    recv(connection, &mut [0; 1][..], RecvFlags::DONTWAIT) != Err(Errno::AGAIN)
}

/// Wakes the reader at the other end of a connection.
///
/// # Errors
/// EAGAIN if the socket's queue is full; EPIPE or ECONNRESET if the reader has closed its end.
fn send_wake_up(connection: &Descriptor) -> io::Result<()> {
    send(connection, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL).map(drop)
}

/// The state of a connection after its wake-ups were received.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WakeUps {
    /// The connection is open.
    Taken,
    /// The writer has closed its end.
    Ended,
}

/// Receives the wake-ups of a connection. With more than [`MAX_WAKE_UPS`], it is_open readable.
fn take_wake_ups(connection: &Descriptor) -> WakeUps {
    for _ in 0..MAX_WAKE_UPS {
        match recv(connection, &mut [0; 1][..], RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => break,
            Ok((1.., _)) => {}
            Ok((0, _)) | Err(_) => return WakeUps::Ended,
        }
    }
    WakeUps::Taken
}

/// Returns true if the process at the other end of a Unix socket has the same user.
fn has_same_user(connection: &Descriptor) -> bool {
    is_of_same_user(connection).unwrap_or(false)
}

/// Removes a connection from the epoll before the connection is closed: closing it does not remove it while a
/// forked child has the socket, too.
fn unwatch(ready: &Epoll, connection: &Descriptor) {
    let _ = ready.remove(connection);
}

/// Receives the first message of a connection: the peer's address and ring. Returns `None` if it has not
/// arrived.
///
/// # Errors
/// The connection is closed, or the message is invalid.
fn first_message(connection: &Descriptor) -> io::Result<Option<(SocketAddr, RingReader)>> {
    let mut name = [0; 64];
    let (len, passed) = match receive_descriptors(connection, &mut name, RecvFlags::DONTWAIT) {
        Err(Errno::AGAIN) => return Ok(None),
        received => received?,
    };
    let peer = str::from_utf8(&name[..len]).ok().and_then(|name| name.parse().ok());
    let passed: Vec<_> = passed.into_iter().map(Descriptor::from).collect();
    let (Some(peer), [ring]) = (peer, &passed[..]) else {
        return Err(Errno::PROTO);
    };
    Ok(Some((peer, RingReader::open(ring.as_fd())?)))
}

impl Incoming {
    /// Requests a wake-up if there is no message. Returns false if the link has ended.
    fn request_wake_up(&mut self, message_arrived: &Waker) -> bool {
        if self.is_corrupt || self.ring.has_message() {
            return !self.is_corrupt;
        }
        let has_ended = take_wake_ups(&self.connection) == WakeUps::Ended;
        self.ring.request_wake_up();
        // A message may have arrived before the request.
        if self.ring.has_message() {
            message_arrived.wake();
            return true;
        }
        !has_ended
    }
}

impl Link {
    /// Connects to a slot of an address.
    ///
    /// # Errors
    /// There is no listener, or it belongs to another user.
    fn to(peer: SocketAddr, slot: usize, own: SocketAddr) -> io::Result<Self> {
        let connection = Descriptor::from(unix_socket(SocketType::SEQPACKET)?);
        io::ioctl_fionbio(&connection, true)?;
        connect_to(&connection, &socket_name(peer, Some(slot)))
            .or_else(|_| connect_to(&connection, &socket_name(peer, None)))?;
        if !has_same_user(&connection) {
            return Err(Errno::ACCESS);
        }
        let ring = RingWriter::create()?;
        send_descriptors(&connection, own.to_string().as_bytes(), &[ring.descriptor()])?;
        Ok(Self { ring, connection, full: None })
    }

    fn send(
        &mut self,
        traffic_class: TrafficClass,
        bytes: &[u8],
        segment_size: usize,
        now: Instant,
    ) -> Result<LinkSend, HasEnded> {
        if let Push::Done { wakes } = self.ring.push(bytes, segment_size, traffic_class.0)? {
            self.full = None;
            if wakes {
                // EAGAIN: wake-ups are pending already. Other errors: the peer has closed its end, which the
                // next poll of connections detects.
                let _ = send_wake_up(&self.connection);
            }
            return Ok(LinkSend::Sent);
        }
        let head = self.ring.head();
        match self.full {
            Some((since, at)) if at == head && now >= since + END_LINK_AFTER => Err(HasEnded),
            Some((since, at)) if at == head && now >= since + DROP_AFTER => Ok(LinkSend::Dropped),
            Some((_, at)) if at == head => Ok(LinkSend::Full),
            _ => {
                self.full = Some((now, head));
                Ok(LinkSend::Full)
            }
        }
    }
}

#[cfg(test)]
mod tests;
