//! Passes packets to a kernel.

use std::io::IoSlice;
use std::sync::Arc;

use nichrome_lro::{Aggregate, ChecksumStatus, Packet};
use nichrome_port::{Device, OsError};
use nichrome_wire::{ChecksumState, VirtioNetHeader, VirtioNetRepr};
use rustix::io::{self, Errno};
use thiserror::Error;

use crate::partial_checksum::partial_checksum;

/// Maximum slices of a write (`UIO_MAXIOV`): enough for the headers and payloads of the largest aggregate.
const SLICES: usize = 1024;

/// Slices collected on the stack; enough for usual aggregates.
const STACK_SLICES: usize = 66;

/// Maximum length of slices that are copied together for a write, in bytes: in a write to a TAP device, one
/// more slice takes Linux longer than a copy of this many bytes takes.
const SHORT: usize = 2048;

/// A queue of the host.
pub(crate) type Host = Arc<dyn Device + Send + Sync>;

/// A failure to pass a packet to a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum HostError {
    /// The kernel refuses this packet, or has no room; others may succeed.
    #[error("the host refuses a packet ({0})")]
    Refused(OsError),
    /// The interface is down.
    #[error("the host's interface is down")]
    Down,
    /// The interface is gone, or the device failed.
    #[error("the host's interface was removed ({0})")]
    Gone(OsError),
}

impl From<Errno> for HostError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::INVAL | Errno::MSGSIZE | Errno::NOBUFS | Errno::AGAIN | Errno::NOMEM => {
                Self::Refused(error.into())
            }
            Errno::IO | Errno::NETDOWN => Self::Down,
            _ => Self::Gone(error.into()),
        }
    }
}

/// Returns true for the errors of a kernel that does not accept the form of an aggregate.
fn is_about_shape(error: OsError) -> bool {
    [Errno::INVAL, Errno::MSGSIZE].map(OsError::from).contains(&error)
}

/// Iterates over a packet's bytes in pieces.
pub(crate) fn parts<B: AsRef<[u8]>>(packet: &Packet<B>) -> impl Iterator<Item = &[u8]> {
    let (first, aggregate) = match packet {
        Packet::Frame(frame) => (frame.bytes(), None),
        Packet::Aggregate(aggregate) => (aggregate.header(), Some(aggregate)),
    };
    let rest = aggregate.into_iter().flat_map(Aggregate::payloads);
    std::iter::once(first).chain(rest)
}

/// Returns the virtio_net_hdr that describes a packet.
fn virtio_of<B: AsRef<[u8]>>(packet: &Packet<B>) -> VirtioNetHeader {
    let frame = match packet {
        Packet::Frame(frame) => frame,
        Packet::Aggregate(aggregate) => return aggregate.virtio_net_header(),
    };
    let checksum = match frame.checksum {
        ChecksumStatus::Unknown => ChecksumState::Unchecked,
        ChecksumStatus::Verified => ChecksumState::Valid,
        ChecksumStatus::Unfinished => partial_checksum(frame.bytes()).unwrap_or_default(),
    };
    VirtioNetRepr { checksum, gso: None }.emit()
}

/// Passes a packet to the kernel behind `device` with the virtio_net_hdr that describes it.
pub fn send<B: AsRef<[u8]>>(device: &(impl Device + ?Sized), packet: &Packet<B>) -> Result<(), HostError> {
    let virtio = virtio_of(packet).to_bytes();
    let sent = match packet {
        Packet::Frame(frame) => device.send(&[IoSlice::new(&virtio), IoSlice::new(frame.bytes())]),
        Packet::Aggregate(aggregate) if aggregate.segments() + 2 <= STACK_SLICES => {
            let headers = [IoSlice::new(&virtio), IoSlice::new(aggregate.header())];
            send_aggregate::<STACK_SLICES, B>(device, headers, aggregate)
        }
        Packet::Aggregate(aggregate) => {
            let headers = [&virtio[..], aggregate.header()].concat();
            send_aggregate::<SLICES, B>(device, [IoSlice::new(&headers)], aggregate)
        }
    };
    sent.map_err(HostError::from)
}

fn send_aggregate<'a, const N: usize, B: AsRef<[u8]>>(
    device: &(impl Device + ?Sized),
    headers: impl IntoIterator<Item = IoSlice<'a>>,
    aggregate: &'a Aggregate<B>,
) -> io::Result<()> {
    let mut slices = [IoSlice::new(&[]); N];
    let parts = headers.into_iter().chain(aggregate.payloads().map(IoSlice::new));
    let mut len = 0;
    for (slice, part) in slices.iter_mut().zip(parts) {
        *slice = part;
        len += 1;
    }
    device.send(&slices[..len])
}

/// As [`send`], but writes one slice: a copy of the packet in `scratch`.
fn send_together<B: AsRef<[u8]>>(
    device: &(impl Device + ?Sized),
    packet: &Packet<B>,
    scratch: &mut Vec<u8>,
) -> Result<(), HostError> {
    scratch.clear();
    scratch.extend_from_slice(&virtio_of(packet).to_bytes());
    parts(packet).for_each(|part| scratch.extend_from_slice(part));
    device.send_bytes(scratch).map_err(HostError::from)
}

/// Returns true if no slice of a packet is longer than [`SHORT`] bytes.
fn has_short_slices<B: AsRef<[u8]>>(packet: &Packet<B>) -> bool {
    match packet {
        Packet::Frame(frame) => frame.bytes().len() <= SHORT,
        Packet::Aggregate(aggregate) => usize::from(aggregate.mss()) <= SHORT,
    }
}

/// Passes a packet to the kernel. If the kernel refuses an aggregate, as some kernels do, passes its segments
/// one by one and returns true.
pub(crate) fn send_or_segment<B: AsRef<[u8]>>(
    device: &(impl Device + ?Sized),
    packet: &Packet<B>,
    scratch: &mut Vec<u8>,
) -> Result<bool, HostError> {
    let sent =
        if has_short_slices(packet) { send_together(device, packet, scratch) } else { send(device, packet) };
    match (sent, packet) {
        (Err(HostError::Refused(error)), Packet::Aggregate(aggregate)) if is_about_shape(error) => {
            let header = VirtioNetHeader::default().to_bytes();
            for nth in 0..aggregate.segments() {
                aggregate.recreate(nth, scratch);
                device.send(&[IoSlice::new(&header), IoSlice::new(scratch)])?;
            }
            Ok(true)
        }
        (sent, _) => sent.map(|()| false),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::os::fd::{AsFd, BorrowedFd};

    use nichrome_lro::{Config, Frame, Gro, Hold, Output};
    use nichrome_port::{Received, Waker};
    use nichrome_wire::{Engine, Instant, SeqNumber, TcpFrame};

    use super::*;

    /// A kernel that accepts some packets and refuses the others.
    struct Kernel {
        waker: Waker,
        refuses: fn(VirtioNetHeader, usize) -> Option<Errno>,
        taken: RefCell<Vec<Vec<u8>>>,
    }

    impl Kernel {
        fn new(refuses: fn(VirtioNetHeader, usize) -> Option<Errno>) -> Self {
            Self { waker: Waker::new().unwrap(), refuses, taken: RefCell::default() }
        }
    }

    impl AsFd for Kernel {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.waker.as_fd()
        }
    }

    impl Device for Kernel {
        fn receive<'a>(&self, _: &'a mut [u8]) -> io::Result<Option<Received<'a>>> {
            Ok(None)
        }

        fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
            self.send_bytes(&parts.iter().flat_map(|part| part.to_vec()).collect::<Vec<_>>())
        }

        fn send_bytes(&self, bytes: &[u8]) -> io::Result<()> {
            let (header, frame) = bytes.split_first_chunk().unwrap();
            let mut taken = self.taken.borrow_mut();
            if let Some(error) = (self.refuses)(VirtioNetHeader::from_bytes(header), taken.len()) {
                return Err(error);
            }
            taken.push(frame.to_vec());
            Ok(())
        }
    }

    fn segments() -> Vec<Vec<u8>> {
        segments_of(100, 3)
    }

    fn segments_of(payload_len: usize, count: u32) -> Vec<Vec<u8>> {
        let segment = |nth: u32| {
            let (seq, payload) = (SeqNumber(nth * payload_len as u32), vec![nth as u8; payload_len]);
            TcpFrame { seq, payload, ..TcpFrame::default() }.build()
        };
        (0..count).map(segment).collect()
    }

    #[test]
    fn an_unfinished_checksum_is_left_to_the_kernel() {
        let kernel = Kernel::new(|header, _| {
            let VirtioNetHeader { flags, csum_start, csum_offset, .. } = header;
            let is_partial = flags == VirtioNetHeader::NEEDS_CSUM && (csum_start, csum_offset) == (34, 16);
            (!is_partial).then_some(Errno::INVAL)
        });
        let frame = Frame { buffer: segments()[0].clone(), checksum: ChecksumStatus::Unfinished };
        assert_eq!(send(&kernel, &Packet::Frame(frame)), Ok(()));
    }

    /// Returns these segments coalesced into one packet.
    fn merged(segments: Vec<Vec<u8>>) -> Packet<Vec<u8>> {
        let config = Config { max_segments: segments.len(), ..Config::default() };
        let mut engine = Gro::new(&config, Hold::Batch).unwrap();
        for segment in segments {
            engine.receive(Frame::new(segment), Instant::ZERO);
        }
        engine.drain();
        match engine.poll() {
            Some(Output::ToHost(packet @ Packet::Aggregate(_))) => packet,
            _ => panic!("not merged"),
        }
    }

    fn sent(refuses: fn(VirtioNetHeader, usize) -> Option<Errno>) -> (Result<bool, HostError>, Vec<Vec<u8>>) {
        let kernel = Kernel::new(refuses);
        let result = send_or_segment(&kernel, &merged(segments()), &mut Vec::new());
        (result, kernel.taken.into_inner())
    }

    #[test]
    fn a_kernel_that_takes_aggregates_gets_them_whole() {
        let (result, taken) = sent(|_, _| None);
        assert_eq!((result, taken.len()), (Ok(false), 1));
        // Up to the maximum number of segments in an aggregate.
        for count in [2, 64, 65, 1023] {
            let kernel = Kernel::new(|_, _| None);
            let aggregate = merged(segments_of(7, count));
            let whole: Vec<u8> = parts(&aggregate).flatten().copied().collect();
            assert_eq!(send(&kernel, &aggregate), Ok(()));
            assert_eq!(send_or_segment(&kernel, &aggregate, &mut vec![9]), Ok(false));
            assert_eq!(kernel.taken.into_inner(), [&whole[..], &whole], "{count} segments");
        }
        // Up to `SHORT` in one slice, above in several.
        for payload_len in [SHORT, SHORT + 1] {
            let kernel = Kernel::new(|_, _| None);
            let aggregate = merged(segments_of(payload_len, 3));
            assert_eq!(send_or_segment(&kernel, &aggregate, &mut Vec::new()), Ok(false));
            assert_eq!(kernel.taken.into_inner(), [parts(&aggregate).flatten().copied().collect::<Vec<_>>()]);
        }
    }

    #[test]
    fn a_kernel_that_refuses_an_aggregate_gets_its_original_segments() {
        let (result, taken) = sent(|header, _| (header.gso_type != 0).then_some(Errno::INVAL));
        assert_eq!((result, taken), (Ok(true), segments()));
    }

    #[test]
    fn a_kernel_without_room_or_interface_gets_no_segments() {
        for (error, expected) in [
            (Errno::NOBUFS, HostError::Refused(Errno::NOBUFS.into())),
            (Errno::IO, HostError::Down),
            (Errno::BADFD, HostError::Gone(Errno::BADFD.into())),
        ] {
            assert_eq!(HostError::from(error), expected);
        }
        assert_eq!(sent(|_, _| Some(Errno::NOBUFS)), (Err(HostError::Refused(Errno::NOBUFS.into())), vec![]));
    }

    #[test]
    fn a_refusal_within_a_batch_is_reported() {
        let (result, taken) =
            sent(|header, taken| (header.gso_type != 0 || taken == 1).then_some(Errno::INVAL));
        assert_eq!((result, taken.len()), (Err(HostError::Refused(Errno::INVAL.into())), 1));
    }
}
