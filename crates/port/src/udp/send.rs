//! Batched sending (sendmmsg(2)).

use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use nichrome_wire::TrafficClass;
use rustix::io::Errno;

use crate::os_error::OsError;
use crate::packet_options::last_error;

use super::control::Control;
use super::raw_address::RawAddress;
use super::socket::UdpSocket;

/// Destination and IP header fields of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The destination.
    pub peer: SocketAddr,
    /// The traffic class, ECN bits included.
    pub traffic_class: TrafficClass,
    /// The time to live or hop limit, at least 1; `None` for the system default.
    pub hop_limit: Option<u8>,
}

/// Datagrams sent as one message: all have `segment_size` bytes, the last may be shorter.
#[derive(Clone, Copy, Debug)]
pub struct Staged<'a> {
    /// Destination and IP header fields.
    pub envelope: Envelope,
    /// The concatenated datagrams.
    pub bytes: &'a [u8],
    /// Size of each datagram, in bytes.
    pub segment_size: usize,
}

impl<'a> Staged<'a> {
    /// Iterates over the datagrams.
    pub fn datagrams(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        self.bytes.chunks(self.segment_size)
    }
}

/// The result of sending a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendReport {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams refused by the kernel, and lost.
    pub refused: u64,
    /// The error of the last refused one.
    pub error: Option<OsError>,
    /// True if the rest of the batch stays staged until the socket is writable.
    pub is_full: bool,
}

/// Messages per system call.
const SLOTS: usize = 8;

/// Size of a slot in bytes: the maximum UDP datagram.
const SLOT_LEN: usize = 65_536;

/// Datagrams staged for sending, in memory of a fixed size.
#[derive(Debug)]
pub struct SendBatch {
    memory: Vec<u8>,
    staged: Vec<Slot>,
    /// Sent slots.
    done: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    envelope: Envelope,
    len: usize,
    segment_size: usize,
}

impl Default for SendBatch {
    fn default() -> Self {
        Self { memory: vec![0; SLOTS * SLOT_LEN], staged: Vec::with_capacity(SLOTS), done: 0 }
    }
}

impl SendBatch {
    /// Returns room for the next message, 65,536 bytes; `None` if the batch is full.
    #[inline]
    pub fn room(&mut self) -> Option<&mut [u8]> {
        self.memory.chunks_exact_mut(SLOT_LEN).nth(self.staged.len())
    }

    /// Stages the first `len` bytes of the [`room`](Self::room) as datagrams of `segment_size` bytes; the
    /// last may be shorter. Stages nothing if there is no room or `len` exceeds it.
    #[inline]
    pub fn stage(&mut self, envelope: Envelope, len: usize, segment_size: usize) {
        if self.staged.len() < SLOTS && (1..=SLOT_LEN).contains(&len) {
            self.staged.push(Slot { envelope, len, segment_size: segment_size.clamp(1, len) });
        }
    }

    /// Returns true if nothing is staged.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.staged.is_empty()
    }

    /// Iterates over the staged messages.
    pub fn staged(&self) -> impl Iterator<Item = Staged<'_>> {
        self.memory.chunks_exact(SLOT_LEN).zip(&self.staged).skip(self.done).map(|(memory, slot)| Staged {
            envelope: slot.envelope,
            bytes: &memory[..slot.len],
            segment_size: slot.segment_size,
        })
    }

    /// Discards all staged messages.
    pub fn clear(&mut self) {
        self.staged.clear();
        self.done = 0;
    }

    /// Sends the staged messages from `socket`. Messages that the kernel refuses are lost; messages for which
    /// it has no room stay staged.
    pub fn send(&mut self, socket: &UdpSocket) -> SendReport {
        let mut report = SendReport::default();
        while self.done < self.staged.len() {
            match self.send_once(socket) {
                Ok(count) => {
                    let sent = &self.staged[self.done..][..count];
                    report.sent += sent.iter().map(Slot::datagrams).sum::<u64>();
                    self.done += count;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS) => {
                    report.is_full = true;
                    return report;
                }
                Err(error) => {
                    if error == Errno::IO && self.staged[self.done].datagrams() > 1 {
                        socket.stop_segmenting();
                    }
                    report.refused += self.staged[self.done].datagrams();
                    report.error = Some(error.into());
                    self.done += 1;
                }
            }
        }
        self.clear();
        report
    }

    /// Sends as many messages as the kernel accepts in one call; returns their number.
    #[allow(unsafe_code)]
    fn send_once(&self, socket: &UdpSocket) -> rustix::io::Result<usize> {
        let slots = &self.staged[self.done..];
        let mut addresses = [RawAddress::default(); SLOTS];
        let mut controls = [Control::empty(); SLOTS];
        // SAFETY: all zeros are a valid mmsghdr and a valid iovec.
        let (mut headers, mut vectors): ([libc::mmsghdr; SLOTS], [libc::iovec; SLOTS]) =
            unsafe { mem::zeroed() };
        for (nth, slot) in slots.iter().enumerate() {
            let (address, address_len) = RawAddress::new(&slot.envelope.peer);
            addresses[nth] = address;
            slot.describe(&mut controls[nth]);
            let memory = &self.memory[(self.done + nth) * SLOT_LEN..][..slot.len];
            vectors[nth] = libc::iovec { iov_base: memory.as_ptr().cast_mut().cast(), iov_len: memory.len() };
            let header = &mut headers[nth].msg_hdr;
            header.msg_name = (&raw mut addresses[nth]).cast();
            header.msg_namelen = address_len as libc::socklen_t;
            header.msg_iov = &raw mut vectors[nth];
            header.msg_iovlen = 1;
            header.msg_control = controls[nth].as_slice().as_ptr().cast_mut().cast();
            header.msg_controllen = controls[nth].as_slice().len();
        }
        let fd = socket.as_fd().as_raw_fd();
        // sendmmsg(2) as a raw system call: the C library's function is a cancellation point (pthreads(7)),
        // and the caller may hold locks. SAFETY: the stated number of headers point to addresses, vectors and
        // control messages in the arrays above and in `self.memory`, with their lengths; none of these moves
        // before the call returns. sendmmsg(2) reads them and writes only to `msg_len`.
        let sent = unsafe { libc::syscall(libc::SYS_sendmmsg, fd, headers.as_mut_ptr(), slots.len(), 0) };
        usize::try_from(sent).map_err(|_| last_error())
    }
}

impl Slot {
    fn datagrams(&self) -> u64 {
        self.len.div_ceil(self.segment_size) as u64
    }

    /// Appends the control messages for segment size, traffic class and hop limit.
    #[inline]
    fn describe(&self, control: &mut Control) {
        let Envelope { peer, traffic_class, hop_limit } = self.envelope;
        let (level, class_kind, limit_kind) = if peer.is_ipv4() {
            (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL)
        } else {
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT)
        };
        if traffic_class.0 != 0 {
            control.push(level, class_kind, libc::c_int::from(traffic_class.0).to_ne_bytes());
        }
        if let Some(limit) = hop_limit.filter(|limit| *limit > 0) {
            control.push(level, limit_kind, libc::c_int::from(limit).to_ne_bytes());
        }
        if self.len > self.segment_size {
            control.push(libc::SOL_UDP, libc::UDP_SEGMENT, (self.segment_size as u16).to_ne_bytes());
        }
    }
}
