//! A wire with few buffers: the engine releases held frames, so that reception continues.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use nichrome_lro::{Hold, NetfpgaConfig, NpuConfig, ProfileConfig};
use nichrome_nic::{Card, Queue, QueueStats};
use nichrome_port::{Buffer, BufferPool, TransmitError, Waker, WireFrame, WireQueue, WireStats};
use nichrome_wire::{TcpFrame, VirtioNetHeader};

use crate::hosts::{config, host};

const BUFFERS: usize = 64;

/// A wire that delivers these frames while buffers are free.
pub(crate) struct ShortOfMemory {
    frames: VecDeque<Vec<u8>>,
    pool: BufferPool,
    is_starved: bool,
    waker: Waker,
}

impl ShortOfMemory {
    pub(crate) fn new(frames: Vec<Vec<u8>>, buffers: usize) -> Self {
        let pool = BufferPool::growing(buffers, 2048);
        Self { frames: frames.into(), pool, is_starved: false, waker: Waker::new().unwrap() }
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
            batch.push(WireFrame { buffer, virtio: VirtioNetHeader::default() });
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

/// Checks that all of 400 frames reach the engines, although 64 buffers exist and the hold time is a minute.
fn all_frames_arrive(profile: ProfileConfig, workers: usize) {
    const CONNECTIONS: u16 = 200;
    let host = host(1, 1);
    let mut queues = vec![Queue { wire: ShortOfMemory::new(segments(CONNECTIONS), BUFFERS), observer: None }];
    queues.resize_with(workers, || Queue { wire: ShortOfMemory::new(Vec::new(), BUFFERS), observer: None });
    let card = Card::start(queues, &host.taps, &config(Some(profile)), || {}).unwrap();
    counters_after(&card, 2 * u64::from(CONNECTIONS));
    card.stop().unwrap();
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
