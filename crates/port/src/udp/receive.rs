//! Batched receiving (recvmmsg(2)).

use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::slice::Chunks;

use nichrome_wire::TrafficClass;
use rustix::io::{self, Errno};

use crate::packet_options::last_error;

use super::control::{Ancillary, Control};
use super::raw_address::RawAddress;
use super::socket::UdpSocket;

/// Messages per system call.
const SLOTS: usize = 8;

/// Size of a slot in bytes: the maximum UDP datagram.
const SLOT_LEN: usize = 65_536;

/// Datagrams that one sender sent together or that the kernel coalesced.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The sender.
    pub peer: SocketAddr,
    /// The traffic class, ECN bits included.
    pub traffic_class: TrafficClass,
    pub(super) bytes: &'a [u8],
    pub(super) segment_size: usize,
}

impl<'a> Arrival<'a> {
    /// Iterates over the datagrams in order. Empty datagrams are skipped.
    #[inline]
    pub fn datagrams(&self) -> Chunks<'a, u8> {
        self.bytes.chunks(self.segment_size)
    }
}

/// Receive memory of a fixed size, reused by every call so that it stays in the cache.
#[derive(Debug)]
pub struct ReceiveBatch {
    memory: Vec<u8>,
    slots: Vec<Slot>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    peer: Option<SocketAddr>,
    ancillary: Ancillary,
    len: usize,
}

impl Default for ReceiveBatch {
    fn default() -> Self {
        Self { memory: vec![0; SLOTS * SLOT_LEN], slots: Vec::with_capacity(SLOTS) }
    }
}

impl ReceiveBatch {
    /// Replaces the batch by datagrams of `socket`. Returns true if more may be pending.
    pub fn receive(&mut self, socket: &UdpSocket) -> io::Result<bool> {
        self.slots.clear();
        match self.receive_once(socket) {
            Ok(count) => Ok(count == SLOTS),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            // An ICMP error caused by an earlier send; the next call receives.
            Err(Errno::CONNREFUSED | Errno::HOSTUNREACH | Errno::NETUNREACH) => Ok(true),
            Err(error) => Err(error),
        }
    }

    #[allow(unsafe_code)]
    fn receive_once(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        let mut addresses = [RawAddress::default(); SLOTS];
        let mut controls = [Control::empty(); SLOTS];
        // SAFETY: all zeros are a valid mmsghdr and a valid iovec.
        let (mut headers, mut vectors): ([libc::mmsghdr; SLOTS], [libc::iovec; SLOTS]) =
            unsafe { mem::zeroed() };
        for (nth, memory) in self.memory.chunks_exact_mut(SLOT_LEN).enumerate() {
            vectors[nth] = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() };
            let header = &mut headers[nth].msg_hdr;
            header.msg_name = (&raw mut addresses[nth]).cast();
            header.msg_namelen = RawAddress::CAPACITY as libc::socklen_t;
            header.msg_iov = &raw mut vectors[nth];
            header.msg_iovlen = 1;
            header.msg_control = controls[nth].room().as_mut_ptr().cast();
            header.msg_controllen = Control::CAPACITY;
        }
        let (fd, flags) = (socket.as_fd().as_raw_fd(), libc::MSG_DONTWAIT);
        // recvmmsg(2) as a raw system call: the C library's function is a cancellation point (pthreads(7)),
        // and the caller may hold locks. SAFETY: the headers point to addresses and control buffers in the
        // arrays above and to disjoint parts of `self.memory`, with their lengths; none of it moves or is
        // read before the call returns.
        let received = unsafe {
            let no_timeout = ptr::null_mut::<libc::timespec>();
            libc::syscall(libc::SYS_recvmmsg, fd, headers.as_mut_ptr(), SLOTS, flags, no_timeout)
        };
        let received = usize::try_from(received).map_err(|_| last_error())?;
        for nth in 0..received {
            let header = &headers[nth];
            self.slots.push(Slot {
                peer: addresses[nth].get(),
                ancillary: Ancillary::of(controls[nth].messages(header.msg_hdr.msg_controllen)),
                len: header.msg_len as usize,
            });
        }
        Ok(received)
    }

    /// Iterates over the received messages in order.
    #[inline]
    pub fn arrivals(&self) -> impl Iterator<Item = Arrival<'_>> {
        self.memory.chunks_exact(SLOT_LEN).zip(&self.slots).filter_map(|(memory, slot)| {
            let bytes = memory.get(..slot.len)?;
            let segment_size = slot.ancillary.segment_size.unwrap_or(slot.len).max(1);
            Some(Arrival {
                peer: slot.peer?,
                traffic_class: slot.ancillary.traffic_class,
                bytes,
                segment_size,
            })
        })
    }
}
