//! Datagrams between processes of one user on one machine, through memory instead of the kernel's network.
//!
//! Every process listens at an abstract name, which belongs to its address, or to its slot of a shared address. A process that has
//! datagrams for it connects, and passes on a ring of its own and its address: a link has one direction. Both ends check first that the
//! other is of the same user. Where nobody listens, and when a link ends, datagrams go through a socket as before.
//!
//! A byte on the connection wakes the reader. Only calls that never block use the connection: its two ends are sockets of their own,
//! whereas an eventfd that both ends hold blocks its writer as soon as the other end fills it and clears its O_NONBLOCK.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nichrome_wire::{Instant, TrafficClass};
use rustix::io::{self, Errno};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, SocketType, accept_with, listen, recv, send};
use rustix::process::{Uid, getuid};

use crate::epoll::{Epoll, Interest};
use crate::unix_names::{connect_to, named, receive_descriptors, send_descriptors, unix_socket};
use crate::waker::Waker;

use super::receive::Arrival;
use super::shared_ring::{Corrupt, MAX_MESSAGE, Message, Push, RingReader, RingWriter};

/// Links to this process at most, each with a ring of 1 MiB; further peers use sockets.
const MOST_INCOMING: usize = 64;

/// Links from this process at most.
const MOST_OUTGOING: usize = 64;

/// Peers without a link that are remembered.
const MOST_UNREACHABLE: usize = 1024;

/// Messages of one link received by one call at most.
const BATCH: usize = 16;

/// After so many calls that received nothing, links go to rest, and connections are looked at; after so many calls in any case.
const IDLE_CALLS: u32 = 16;
const BUSY_CALLS: u32 = 256;

/// A message for a full ring whose reader has not moved for this time is dropped, as the kernel drops one for a full socket.
const PATIENCE: Duration = Duration::from_millis(50);

/// A link whose reader has not moved for this time ends.
const END: Duration = Duration::from_secs(1);

/// Wake-ups of one link received by one call at most. An honest peer has two on their way at most.
const MOST_WAKE_UPS: usize = 4;

/// How a user is shown that the user namespace of this process does not map (`kernel.overflowuid`).
const UNMAPPED_USER: u32 = 65_534;

/// Time until a peer without a listener is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkSend {
    /// It is on its way.
    Sent,
    /// The link is full: try again.
    Full,
    /// The link has been full for too long, and the message is lost.
    Dropped,
    /// There is no link to the peer: use a socket.
    NoLink,
}

/// The links of one slot at an address. Readable (as a descriptor) while a message waits, or a connection does.
#[derive(Debug)]
pub struct MemoryLinks {
    address: SocketAddr,
    /// `None` if the name is taken: any user can take it. Peers then reach this process through its socket.
    listener: Option<OwnedFd>,
    ready: Epoll,
    /// Signalled if a message came while its link went to rest.
    message_came: Waker,
    /// Connections whose first message has not come.
    greetings: Vec<OwnedFd>,
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
    /// Readable when the peer has sent a wake-up or has closed it.
    connection: OwnedFd,
    is_corrupt: bool,
}

/// What a connection has said.
enum Greeting {
    Link(Incoming),
    /// Nothing yet.
    None(OwnedFd),
}

#[derive(Debug)]
enum Outgoing {
    Link(Link),
    Unreachable { until: Instant },
}

/// The reader does not read, or not as a reader does.
struct HasEnded;

impl From<Corrupt> for HasEnded {
    fn from(_: Corrupt) -> Self {
        Self
    }
}

#[derive(Debug)]
struct Link {
    ring: RingWriter,
    connection: OwnedFd,
    /// Since when it is full, and its reader's position then.
    full: Option<(Instant, u64)>,
}

/// Members of the set; all that matters is that one of them is ready.
const TOKEN: u64 = 0;

impl MemoryLinks {
    /// Listens for links to a slot of an address, or to the whole address, unless another process does.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn listen(address: SocketAddr, slot: Option<usize>) -> io::Result<Self> {
        let (ready, message_came) = (Epoll::new()?, Waker::new()?);
        let listener = match named(&name_of(address, slot), SocketType::SEQPACKET) {
            Err(Errno::ADDRINUSE) => None,
            named => Some(named?),
        };
        if let Some(listener) = &listener {
            io::ioctl_fionbio(listener, true)?;
            listen(listener, 64)?;
            ready.add(listener, TOKEN, Interest::READ)?;
        }
        ready.add(&message_came, TOKEN, Interest::READ)?;
        Ok(Self {
            address,
            listener,
            ready,
            message_came,
            greetings: Vec::new(),
            incoming: Vec::new(),
            outgoing: HashMap::new(),
            buffer: Box::new([0; MAX_MESSAGE]),
            calls: 0,
            idle_calls: 0,
        })
    }

    /// Adds a descriptor to the set.
    ///
    /// # Errors
    /// The kernel's.
    pub fn watch(&self, other: impl AsFd) -> io::Result<()> {
        self.ready.add(other, TOKEN, Interest::READ)
    }

    /// Returns true if a message waits.
    #[inline]
    pub fn has_message(&self) -> bool {
        self.incoming.iter().any(|link| link.ring.has_message())
    }

    /// Returns true if there is a link to any peer.
    #[inline]
    pub fn has_outgoing(&self) -> bool {
        self.outgoing.values().any(|outgoing| matches!(outgoing, Outgoing::Link(_)))
    }

    /// Sends datagrams of `segment_size` bytes each (the last may be shorter), 65,536 bytes at most, to a slot of an address.
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
                self.outgoing.insert((peer, slot), Outgoing::Unreachable { until: now + ASK_AGAIN });
                LinkSend::NoLink
            }
        }
    }

    fn connect(&mut self, peer: SocketAddr, slot: usize, now: Instant) -> &mut Outgoing {
        if self.outgoing.len() >= MOST_UNREACHABLE {
            self.outgoing.retain(|_, outgoing| matches!(outgoing, Outgoing::Link(_)));
        }
        let links = self.outgoing.values().filter(|outgoing| matches!(outgoing, Outgoing::Link(_))).count();
        let link =
            if links < MOST_OUTGOING { Link::to(peer, slot, self.address) } else { Err(Errno::NOBUFS) };
        let link = link.and_then(|link| {
            self.ready.add(&link.connection, TOKEN, Interest::READ)?;
            Ok(link)
        });
        let outgoing = link.map_or(Outgoing::Unreachable { until: now + ASK_AGAIN }, Outgoing::Link);
        self.outgoing.entry((peer, slot)).insert_entry(outgoing).into_mut()
    }

    /// Calls `take` with what waits, a batch of each link; returns true if it was called.
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
            self.look_at_connections();
        }
        has_received
    }

    /// Lets links without messages rest, accepts new ones, and removes those that have ended.
    #[cold]
    fn look_at_connections(&mut self) {
        (self.calls, self.idle_calls) = (0, 0);
        self.message_came.clear();
        self.incoming.retain(|link| {
            if link.is_corrupt || link.ring.has_message() {
                return !link.is_corrupt;
            }
            let has_ended = take_wake_ups(&link.connection) == WakeUps::Ended;
            link.ring.rest();
            // A message may have come meanwhile.
            if link.ring.has_message() {
                self.message_came.wake();
                return true;
            }
            !has_ended
        });
        self.outgoing.retain(|_, outgoing| match outgoing {
            Outgoing::Link(link) => !has_closed(&link.connection),
            Outgoing::Unreachable { .. } => true,
        });
        self.accept();
        for connection in std::mem::take(&mut self.greetings) {
            match Incoming::greeted(connection) {
                Ok(Greeting::Link(link)) => self.incoming.push(link),
                Ok(Greeting::None(connection)) => self.greetings.push(connection),
                Err(_) => {}
            }
        }
    }

    /// Accepts connections of this user.
    fn accept(&mut self) {
        let Some(listener) = &self.listener else { return };
        // Not until none waits: a process that connects again and again, of any user, must not hold this one up.
        for _ in 0..MOST_INCOMING {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let Ok(connection) = accept_with(listener, flags) else { break };
            let has_room = self.greetings.len() + self.incoming.len() < MOST_INCOMING;
            if is_ours(&connection) && has_room && self.ready.add(&connection, TOKEN, Interest::READ).is_ok()
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

/// The abstract name that a slot of an address listens at, or the process that has the whole address.
fn name_of(address: SocketAddr, slot: Option<usize>) -> String {
    match slot {
        Some(slot) => format!("nichrome-memory/{address}/{slot}"),
        None => format!("nichrome-memory/{address}"),
    }
}

/// Returns true if the other end is closed, or sends what no link sends.
fn has_closed(connection: &OwnedFd) -> bool {
    recv(connection, &mut [0; 1][..], RecvFlags::DONTWAIT) != Err(Errno::AGAIN)
}

/// Wakes the reader at the other end of a connection.
///
/// # Errors
/// EAGAIN: it holds no more wake-ups. The connection has ended.
fn send_wake_up(connection: &OwnedFd) -> io::Result<()> {
    send(connection, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL).map(drop)
}

/// What a connection to this process has brought.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WakeUps {
    /// Wake-ups, or nothing.
    Taken,
    /// The other end is closed.
    Ended,
}

/// Takes wake-ups off a connection. Those beyond [`MOST_WAKE_UPS`] keep it readable.
fn take_wake_ups(connection: &OwnedFd) -> WakeUps {
    for _ in 0..MOST_WAKE_UPS {
        match recv(connection, &mut [0; 1][..], RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => break,
            Ok((1.., _)) => {}
            Ok((0, _)) | Err(_) => return WakeUps::Ended,
        }
    }
    WakeUps::Taken
}

fn is_ours(connection: &OwnedFd) -> bool {
    socket_peercred(connection).is_ok_and(|peer| is_same_user(peer.uid, getuid()))
}

/// Returns true if two numbers name one user. The number of unmapped users names none: they are many.
fn is_same_user(peer: Uid, own: Uid) -> bool {
    peer == own && own.as_raw() != UNMAPPED_USER
}

impl Incoming {
    /// Receives the first message of a connection.
    ///
    /// # Errors
    /// It is closed, or has sent something else.
    fn greeted(connection: OwnedFd) -> io::Result<Greeting> {
        let mut name = [0; 64];
        let (len, passed) = match receive_descriptors(&connection, &mut name, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => return Ok(Greeting::None(connection)),
            received => received?,
        };
        let peer = str::from_utf8(&name[..len]).ok().and_then(|name| name.parse().ok());
        let (Some(peer), Ok([ring])) = (peer, <[OwnedFd; 1]>::try_from(passed)) else {
            return Err(Errno::PROTO);
        };
        Ok(Greeting::Link(Self { peer, ring: RingReader::open(&ring)?, connection, is_corrupt: false }))
    }
}

impl Link {
    /// Connects to a slot of an address.
    ///
    /// # Errors
    /// Nobody listens there, or another user does.
    fn to(peer: SocketAddr, slot: usize, own: SocketAddr) -> io::Result<Self> {
        let connection = unix_socket(SocketType::SEQPACKET)?;
        io::ioctl_fionbio(&connection, true)?;
        connect_to(&connection, &name_of(peer, Some(slot)))
            .or_else(|_| connect_to(&connection, &name_of(peer, None)))?;
        if !is_ours(&connection) {
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
                // EAGAIN: as many wake-ups wait as the socket holds. Other errors: the peer has closed it, which the next look finds.
                let _ = send_wake_up(&self.connection);
            }
            return Ok(LinkSend::Sent);
        }
        let head = self.ring.head();
        match self.full {
            Some((since, at)) if at == head && now >= since + END => Err(HasEnded),
            Some((since, at)) if at == head && now >= since + PATIENCE => Ok(LinkSend::Dropped),
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
