//! Segmentation of the host's packets, in the memory that they were received to.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nichrome_nic::{Card, Queue, memory_wire, segment};
use nichrome_port::{Device, Received, Waker, WireQueue, clock};
use nichrome_wire::{ChecksumState, Gso, GsoType, TcpFrame, TcpGsoEcn, VirtioNetHeader, VirtioNetRepr};
use rustix::io;

use crate::hosts::{FRAME_LEN, config, impaired};

/// Time limit for the next packets.
const TIMEOUT: Duration = Duration::from_secs(20);

type Packet = (VirtioNetHeader, Vec<u8>);

/// A host that sends packets.
struct Sending {
    waker: Waker,
    packets: Mutex<VecDeque<Packet>>,
}

impl AsFd for Sending {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

impl Device for Sending {
    fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<Received<'a>>> {
        self.waker.clear();
        let Some((virtio, frame)) = self.packets.lock().unwrap().pop_front() else { return Ok(None) };
        let at = frame.len() % 20;
        buffer[at..][..frame.len()].copy_from_slice(&frame);
        Ok(Some(Received { virtio, at, frame: &buffer[at..][..frame.len()] }))
    }

    fn send(&self, _: &[IoSlice<'_>]) -> io::Result<()> {
        Ok(())
    }

    fn send_bytes(&self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// Returns a packet of `payload` bytes with a partial checksum, to be cut to segments of `size`.
fn packet(payload: usize, size: u16) -> Packet {
    let payload = (0..payload).map(|at| (at ^ at >> 8) as u8).collect();
    let frame = TcpFrame { payload, ..TcpFrame::default() }.build();
    let checksum = ChecksumState::Partial { start: 34, offset: 16 };
    let gso_type = GsoType::TcpV4(TcpGsoEcn::default());
    let gso = size.try_into().ok().map(|size| Gso { gso_type, size, hdr_len: 54 });
    (VirtioNetRepr { checksum, gso }.emit(), frame)
}

/// Returns the packets that the wire carries for one packet of the host.
fn packets_of((virtio, frame): &Packet) -> Vec<Vec<u8>> {
    let (mut segments, _) = segment(frame, virtio).unwrap();
    let _ = segments.leave_tcp_checksums();
    std::iter::from_fn(|| {
        let mut packet = Vec::new();
        segments.append_next(&mut packet).then_some(packet)
    })
    .collect()
}

#[test]
fn packets_of_all_sizes_are_cut_to_segments_of_all_sizes() {
    let sent: Vec<Packet> = [0, 1, 100, 1460, 3000, 30_000, 65_000]
        .into_iter()
        .flat_map(|payload| [0, 7, 50, 536, 1448, 1460].map(|size| (payload, size)))
        .filter(|(payload, size)| *payload <= 1460 || *size > 0)
        .map(|(payload, size)| packet(payload, size))
        .collect();
    let expected: Vec<Vec<u8>> = sent.iter().flat_map(packets_of).collect();
    let host = Arc::new(Sending { waker: Waker::new().unwrap(), packets: Mutex::new(sent.into()) });
    let [wire, mut far] = memory_wire(&impaired(&[]), 1, FRAME_LEN).unwrap();
    let queue = Queue { wire, observer: None };
    let card = Card::start(vec![queue], &[Arc::clone(&host) as _], &config(None), || {}).unwrap();
    host.waker.wake();
    let mut came: Vec<Vec<u8>> = Vec::new();
    while came.len() < expected.len() {
        let [readable] = clock::wait([far.as_fd()], Some(clock::now() + TIMEOUT)).unwrap();
        assert!(readable, "only {} of {} packets", came.len(), expected.len());
        let mut batch = Vec::new();
        far.receive(&mut batch, 100).unwrap();
        came.extend(batch.iter().map(|frame| frame.buffer.as_ref().to_vec()));
    }
    let differing = came.iter().zip(&expected).position(|(came, expected)| came != expected);
    assert_eq!((came.len(), differing), (expected.len(), None));
    let stats = card.stop().unwrap();
    assert_eq!((stats[0].transmitted, stats[0].transmit_refused), (expected.len() as u64, 0));
}
