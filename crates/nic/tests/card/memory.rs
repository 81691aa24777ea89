//! Memory for frames: with few buffers the engine releases held frames, so that reception continues, and few
//! segments of a local sender's frames are held at a time.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nichrome_lro::{Hold, NetfpgaConfig, NpuConfig, ProfileConfig};
use nichrome_nic::{Card, Observer, Queue, QueueStats};
use nichrome_port::{
    Buffer, BufferPool, Device, Netlink, PacketSocket, TransmitError, Waker, WireFrame, WireQueue, WireStats,
};
use nichrome_wire::{ChecksumState, Gso, GsoType, TcpFrame, TcpGsoEcn, VirtioNetHeader, VirtioNetRepr};

use crate::hosts::{config, host, interface};

const BUFFERS: usize = 64;

/// Length of the headers of [`TcpFrame::default`], in bytes.
pub(crate) const HEADERS: usize = 54;

/// A wire that delivers these frames while buffers are free.
pub(crate) struct ShortOfMemory {
    frames: VecDeque<Vec<u8>>,
    /// The virtio_net_hdr of each frame.
    virtio: VirtioNetHeader,
    pool: BufferPool,
    is_starved: bool,
    waker: Waker,
}

impl ShortOfMemory {
    pub(crate) fn new(frames: Vec<Vec<u8>>, buffers: usize) -> Self {
        let pool = BufferPool::growing(buffers, 2048);
        let virtio = VirtioNetHeader::default();
        Self { frames: frames.into(), virtio, pool, is_starved: false, waker: Waker::new().unwrap() }
    }
}

impl AsFd for ShortOfMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

impl WireQueue for ShortOfMemory {
    type Buffer = Buffer;

    fn receive(&mut self, batch: &mut Vec<WireFrame<Buffer>>, max: usize) -> rustix::io::Result<()> {
        self.is_starved = false;
        while batch.len() < max && !self.frames.is_empty() {
            let Some(mut buffer) = self.pool.take() else {
                self.is_starved = true;
                return Ok(());
            };
            buffer.fill(|bytes| bytes.extend(self.frames.pop_front().unwrap()));
            batch.push(WireFrame { buffer, virtio: self.virtio });
        }
        Ok(())
    }

    fn is_starved(&self) -> bool {
        self.is_starved
    }

    fn transmit(&mut self, _: &[IoSlice<'_>]) -> Result<(), TransmitError> {
        Ok(())
    }

    fn flush(&mut self) -> rustix::io::Result<()> {
        Ok(())
    }

    fn unsent(&self) -> usize {
        0
    }

    fn stats(&mut self) -> rustix::io::Result<WireStats> {
        Ok(WireStats::default())
    }
}

/// Returns two segments of each of `connections` connections; none of them ends an aggregate.
pub(crate) fn segments(connections: u16) -> Vec<Vec<u8>> {
    let first = |nth| TcpFrame { src_port: 1024 + nth, payload: vec![1; 100], ..TcpFrame::default() };
    let second = |nth| {
        let first = first(nth);
        TcpFrame { seq: first.seq + 100, ..first }
    };
    (0..connections).flat_map(|nth| [first(nth).build(), second(nth).build()]).collect()
}

/// Returns the counters of a card's workers once its engines have received this number of frames.
fn counters_after(card: &Card, frames: u64) -> Vec<QueueStats> {
    let remote = card.remote();
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let counters = remote.stats().unwrap();
        let received: u64 = counters.iter().map(|stats| stats.engine.packets_in).sum();
        if received == frames {
            return counters;
        }
        assert!(Instant::now() < until, "{received} frames were received, then none");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Checks that all of 400 frames reach the engines, although 64 buffers exist and the hold time is a minute,
/// and the host when the card stops.
fn all_frames_arrive(profile: ProfileConfig, workers: usize) {
    const CONNECTIONS: u16 = 200;
    let host = host(1, 1);
    let mut queues = vec![Queue { wire: ShortOfMemory::new(segments(CONNECTIONS), BUFFERS), observer: None }];
    queues.resize_with(workers, || Queue { wire: ShortOfMemory::new(Vec::new(), BUFFERS), observer: None });
    let card = Card::start(queues, &host.taps, &config(Some(profile)), || {}).unwrap();
    counters_after(&card, 2 * u64::from(CONNECTIONS));
    let stats = card.stop().unwrap();
    let payload: u64 = stats.iter().map(|of| of.to_host_bytes - of.to_host * HEADERS as u64).sum();
    assert_eq!(payload, 2 * u64::from(CONNECTIONS) * 100, "{stats:?}");
}

const HOLD: Duration = Duration::from_secs(60);

#[test]
fn held_frames_make_room_in_every_profile() {
    let npu = NpuConfig { floor: HOLD, ceiling: HOLD, ..NpuConfig::default() };
    all_frames_arrive(ProfileConfig::Gro(Hold::For(HOLD)), 1);
    all_frames_arrive(ProfileConfig::Netfpga(NetfpgaConfig::with_timer(HOLD)), 1);
    all_frames_arrive(ProfileConfig::Npu(npu), 1);
}

#[test]
fn frames_that_another_worker_holds_make_room() {
    all_frames_arrive(ProfileConfig::Gro(Hold::For(HOLD)), 3);
}

#[test]
fn only_the_oldest_frames_make_room() {
    const CONNECTIONS: u16 = 610;
    let host = host(1, 1);
    let firsts = segments(CONNECTIONS).into_iter().step_by(2).collect();
    let queue = Queue { wire: ShortOfMemory::new(firsts, 600), observer: None };
    let profile = ProfileConfig::Gro(Hold::For(HOLD));
    let card = Card::start(vec![queue], &host.taps, &config(Some(profile)), || {}).unwrap();
    let counters = counters_after(&card, CONNECTIONS.into());
    assert!(counters[0].connections > 300, "{} connections hold frames", counters[0].connections);
    card.stop().unwrap();
}

/// Counts the bytes of payload that the card has received and not yet delivered.
#[derive(Clone, Default)]
struct Held(Arc<Mutex<HeldBytes>>);

#[derive(Clone, Copy, Default)]
struct HeldBytes {
    now: usize,
    most: usize,
    delivered: usize,
    /// Frames received.
    frames: usize,
    /// Frames received before the host's first packet was transmitted.
    before_transmission: Option<usize>,
}

impl Observer for Held {
    fn received(&mut self, frame: &[u8]) {
        let mut held = self.0.lock().unwrap();
        held.frames += 1;
        held.now += frame.len() - HEADERS;
        held.most = held.most.max(held.now);
    }

    fn delivered(&mut self, parts: &mut dyn Iterator<Item = &[u8]>) {
        let payload = parts.map(<[u8]>::len).sum::<usize>() - HEADERS;
        let mut held = self.0.lock().unwrap();
        held.now -= payload;
        held.delivered += payload;
    }

    fn transmitted(&mut self, _: &[u8]) {
        let mut held = self.0.lock().unwrap();
        held.before_transmission = held.before_transmission.or(Some(held.frames));
    }
}

/// A local sender may ask for segments of one byte, each of which takes a buffer, and time.
#[test]
fn few_segments_of_a_local_senders_frames_are_held_at_a_time_and_between_two_turns_of_the_host() {
    const FRAMES: usize = 8;
    const PAYLOAD: usize = 20_000;
    let host = host(1, 1);
    let frame = TcpFrame { payload: vec![1; PAYLOAD], ..TcpFrame::default() }.build();
    let mut wire = ShortOfMemory::new(vec![frame; FRAMES], FRAMES);
    let gso = Gso {
        gso_type: GsoType::TcpV4(TcpGsoEcn::default()),
        size: 1.try_into().unwrap(),
        hdr_len: HEADERS as u16,
    };
    wire.virtio =
        VirtioNetRepr { checksum: ChecksumState::Partial { start: 34, offset: 16 }, gso: Some(gso) }.emit();
    let held = Held::default();
    let queue = Queue { wire, observer: Some(Box::new(held.clone()) as Box<dyn Observer>) };
    host.namespace
        .run(|| {
            let interface = Netlink::open().unwrap().interface(interface()).unwrap();
            let (header, packet) = (VirtioNetHeader::default().to_bytes(), TcpFrame::default().build());
            let parts = [&header[..], &packet].map(IoSlice::new);
            PacketSocket::open(&interface).unwrap().send(&parts).unwrap();
        })
        .unwrap();
    let profile = ProfileConfig::Gro(Hold::Batch);
    let card = Card::start(vec![queue], &host.taps, &config(Some(profile)), || {}).unwrap();
    counters_after(&card, (FRAMES * PAYLOAD) as u64);
    let stats = card.stop().unwrap();
    assert_eq!(stats[0].receive_finished, (FRAMES * PAYLOAD) as u64);
    let HeldBytes { most, delivered, before_transmission, .. } = *held.0.lock().unwrap();
    assert_eq!(before_transmission, Some(1));
    assert_eq!(delivered, FRAMES * PAYLOAD);
    assert!(most <= PAYLOAD + 8192, "{most} segments of {FRAMES} frames were held");
}
