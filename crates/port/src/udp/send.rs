//! Sending in batches (sendmmsg(2)).

use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};

use nichrome_wire::TrafficClass;
use rustix::io::Errno;

use crate::packet_options::last_error;

use super::control::Control;
use super::raw_address::RawAddress;
use super::socket::UdpSocket;

/// Where datagrams go, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// The receiver.
    pub peer: SocketAddr,
    /// The traffic class, ECN bits included.
    pub traffic_class: TrafficClass,
    /// The time to live or hop limit, from 1 on; `None` for the system's own.
    pub hop_limit: Option<u8>,
}

/// Datagrams that are sent as one: all of `segment_size` bytes, but for the last, which may be shorter.
#[derive(Clone, Copy, Debug)]
pub struct Staged<'a> {
    /// Where they go.
    pub envelope: Envelope,
    /// The datagrams, one after the other.
    pub bytes: &'a [u8],
    /// Bytes of each.
    pub segment_size: usize,
}

impl<'a> Staged<'a> {
    /// The datagrams.
    pub fn datagrams(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        self.bytes.chunks(self.segment_size)
    }
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendReport {
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams that the kernel refused, and that are lost.
    pub refused: u64,
    /// Why it refused the last of them.
    pub error: Option<Errno>,
    /// Whether the rest of the batch waits until the socket can be written.
    pub is_full: bool,
}

/// Sends of one system call.
const SLOTS: usize = 8;

/// Bytes of a slot: a UDP datagram's at most.
const SLOT_LEN: usize = 65_536;

/// Datagrams that are about to be sent, in memory of a fixed size.
#[derive(Debug)]
pub struct SendBatch {
    memory: Vec<u8>,
    staged: Vec<Slot>,
    /// How many of those that were staged have been sent.
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
    /// Room for the next datagrams, 65,536 bytes; `None` where the batch is full.
    #[inline]
    pub fn room(&mut self) -> Option<&mut [u8]> {
        self.memory.chunks_exact_mut(SLOT_LEN).nth(self.staged.len())
    }

    /// Stages the first `len` bytes of the [`room`](Self::room), datagrams of `segment_size` bytes each, but for the last,
    /// which may be shorter. Nothing is staged where there was no room or `len` is beyond it.
    #[inline]
    pub fn stage(&mut self, envelope: Envelope, len: usize, segment_size: usize) {
        if self.staged.len() < SLOTS && (1..=SLOT_LEN).contains(&len) {
            self.staged.push(Slot { envelope, len, segment_size: segment_size.clamp(1, len) });
        }
    }

    /// Whether nothing is staged.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.staged.is_empty()
    }

    /// What is staged.
    pub fn staged(&self) -> impl Iterator<Item = Staged<'_>> {
        self.memory.chunks_exact(SLOT_LEN).zip(&self.staged).skip(self.done).map(|(memory, slot)| Staged {
            envelope: slot.envelope,
            bytes: &memory[..slot.len],
            segment_size: slot.segment_size,
        })
    }

    /// Unstages everything.
    pub fn clear(&mut self) {
        self.staged.clear();
        self.done = 0;
    }

    /// Sends what is staged, from `socket`. What the kernel refuses is lost, as it may be on a network; what it has no
    /// room for stays staged.
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
                    report.error = Some(error);
                    self.done += 1;
                }
            }
        }
        self.clear();
        report
    }

    /// Sends what the kernel takes at once: how many slots.
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
        // SAFETY: as many headers as are announced point to addresses, vectors and control messages in the arrays above and
        // in `self.memory`, with their lengths, none of which moves before the call returns. sendmmsg(2) reads all of
        // them and writes to `msg_len` only.
        let sent = unsafe { libc::sendmmsg(fd, headers.as_mut_ptr(), slots.len() as libc::c_uint, 0) };
        usize::try_from(sent).map_err(|_| last_error())
    }
}

impl Slot {
    fn datagrams(&self) -> u64 {
        self.len.div_ceil(self.segment_size) as u64
    }

    /// The control messages that say how it is to be sent.
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
