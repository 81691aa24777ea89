//! Rings between workers, for frames of other workers' connections.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nichrome_port::{Waker, WireFrame};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::distribution::Distribution;
use crate::stats::QueueStats;

/// Capacity of a ring, in frames.
const CAPACITY: usize = 2048;

/// A worker's rings to and from the others.
pub(crate) struct Mesh<B> {
    distribution: Distribution,
    /// The ring to each worker, by number; `None` for the worker itself.
    to: Vec<Option<Neighbour<B>>>,
    /// The rings from the other workers.
    from: Vec<Consumer<WireFrame<B>>>,
    /// Index in `from` of the ring that is emptied first. It rotates, so that the frames of a busy worker do
    /// not delay those of the others.
    first: usize,
    /// The worker's own frames while a batch is distributed; otherwise empty.
    own: Vec<WireFrame<B>>,
    /// Set by workers that need the memory of frames that this one holds.
    release_wanted: Arc<AtomicBool>,
}

/// The ring to another worker.
struct Neighbour<B> {
    ring: Producer<WireFrame<B>>,
    waker: Arc<Waker>,
    /// The other worker's [`Mesh::release_wanted`].
    release_wanted: Arc<AtomicBool>,
    /// True if the current batch has frames for that worker.
    has_frames: bool,
}

impl<B> Mesh<B> {
    /// Ends the rings to the other workers, which get no more frames.
    pub(crate) fn leave(&mut self) {
        for Neighbour { ring, waker, .. } in self.to.drain(..).flatten() {
            drop(ring);
            waker.wake();
        }
    }
}

impl<B: AsRef<[u8]>> Mesh<B> {
    /// Returns the mesh of a card's only worker.
    pub(crate) fn alone() -> Self {
        Self::unconnected(1)
    }

    /// Returns the mesh of one of `workers` workers, without rings.
    fn unconnected(workers: usize) -> Self {
        Self {
            distribution: Distribution::new(workers),
            to: Vec::new(),
            from: Vec::new(),
            first: 0,
            own: Vec::new(),
            release_wanted: Arc::default(),
        }
    }

    /// Creates the meshes of all workers, with rings between them; `wakers` wake the receiving workers.
    pub(crate) fn between(wakers: &[Arc<Waker>]) -> Vec<Self> {
        let mut meshes: Vec<Self> = wakers.iter().map(|_| Self::unconnected(wakers.len())).collect();
        for from in 0..wakers.len() {
            for (to, waker) in wakers.iter().enumerate() {
                if from == to {
                    meshes[from].to.push(None);
                    continue;
                }
                let (ring, consumer) = RingBuffer::new(CAPACITY);
                let neighbour = Neighbour {
                    ring,
                    waker: Arc::clone(waker),
                    release_wanted: Arc::clone(&meshes[to].release_wanted),
                    has_frames: false,
                };
                meshes[from].to.push(Some(neighbour));
                meshes[to].from.push(consumer);
            }
        }
        meshes
    }

    /// Passes frames to the workers of their connections; leaves the worker's own in `batch`.
    pub(crate) fn distribute(&mut self, batch: &mut Vec<WireFrame<B>>, stats: &mut QueueStats) {
        if self.from.is_empty() {
            return;
        }
        for frame in batch.drain(..) {
            let worker = self.distribution.worker(frame.buffer.as_ref());
            let Some(Some(neighbour)) = self.to.get_mut(worker) else {
                self.own.push(frame);
                continue;
            };
            match neighbour.ring.push(frame) {
                Ok(()) => {
                    stats.distributed += 1;
                    neighbour.has_frames = true;
                }
                Err(_) => stats.distribution_dropped += 1,
            }
        }
        mem::swap(batch, &mut self.own);
        for neighbour in self.to.iter_mut().flatten() {
            if mem::take(&mut neighbour.has_frames) {
                neighbour.waker.wake();
            }
        }
    }

    /// Asks the other workers to release the frames that they hold: their memory is needed.
    pub(crate) fn request_release(&self) {
        for neighbour in self.to.iter().flatten() {
            if !neighbour.release_wanted.swap(true, Ordering::Relaxed) {
                neighbour.waker.wake();
            }
        }
    }

    /// Returns true if another worker has asked for the release of held frames since the last call.
    pub(crate) fn take_release_request(&self) -> bool {
        self.release_wanted.load(Ordering::Relaxed) && self.release_wanted.swap(false, Ordering::Relaxed)
    }

    /// Returns true if all other workers have [left](Self::leave) or ended, and all their frames were taken.
    pub(crate) fn is_finished(&self) -> bool {
        self.from.iter().all(|from| from.is_abandoned() && from.is_empty())
    }

    /// Takes frames from the other workers until `batch` has `most`.
    pub(crate) fn collect(&mut self, batch: &mut Vec<WireFrame<B>>, most: usize) {
        let (before, behind) = self.from.split_at_mut(self.first);
        for from in behind.iter_mut().chain(before) {
            while batch.len() < most
                && let Ok(frame) = from.pop()
            {
                batch.push(frame);
            }
        }
        self.first = if self.first + 1 < self.from.len() { self.first + 1 } else { 0 };
    }
}

impl<B> Drop for Mesh<B> {
    /// Wakes the workers that wait for this one to leave.
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allocation_counter::measure;
    use nichrome_wire::{TcpFrame, VirtioNetHeader};

    /// A frame of each of so many connections.
    fn frames(connections: u16) -> Vec<WireFrame<Vec<u8>>> {
        let frame = |nth| TcpFrame { src_port: 1024 + nth, ..TcpFrame::default() }.build();
        (0..connections)
            .map(|nth| WireFrame { buffer: frame(nth), virtio: VirtioNetHeader::default() })
            .collect()
    }

    fn meshes(workers: usize) -> Vec<Mesh<Vec<u8>>> {
        let wakers: Vec<_> = (0..workers).map(|_| Arc::new(Waker::new().unwrap())).collect();
        Mesh::between(&wakers)
    }

    #[test]
    fn each_frame_gets_to_the_worker_of_its_connection() {
        let mut meshes = meshes(3);
        let (mut batch, mut stats) = (frames(100), QueueStats::default());
        meshes[1].distribute(&mut batch, &mut stats);
        let mut all = 0;
        for (number, mesh) in meshes.iter_mut().enumerate() {
            let mut received = if number == 1 { mem::take(&mut batch) } else { Vec::new() };
            mesh.collect(&mut received, usize::MAX);
            assert!(!received.is_empty());
            assert!(received.iter().all(|frame| mesh.distribution.worker(&frame.buffer) == number));
            all += received.len();
        }
        assert_eq!((all, stats.distribution_dropped), (100, 0));
    }

    #[test]
    fn a_busy_worker_does_not_keep_anothers_frames_waiting() {
        const BATCH: usize = 10;
        let mut meshes = meshes(3);
        let distribution = meshes[2].distribution.clone();
        let of_third = move |frame: &WireFrame<Vec<u8>>| distribution.worker(&frame.buffer) == 2;
        let mut busy: Vec<_> = frames(1000).into_iter().filter(of_third.clone()).collect();
        let mut other = vec![busy.pop().unwrap()];
        let awaited = other[0].buffer.clone();
        let mut stats = QueueStats::default();
        meshes[0].distribute(&mut busy, &mut stats);
        meshes[1].distribute(&mut other, &mut stats);
        assert!(stats.distributed > 10 * BATCH as u64);
        let has_come = (0..2).any(|_| {
            let mut batch = Vec::new();
            meshes[2].collect(&mut batch, BATCH);
            batch.iter().any(|frame| frame.buffer == awaited)
        });
        assert!(has_come, "it waits until the ring of the busy worker is empty");
    }

    #[test]
    fn distributing_a_batch_allocates_nothing() {
        let mut meshes = meshes(2);
        let mut stats = QueueStats::default();
        let mut batch = Vec::with_capacity(128);
        // `distribute` swaps two vectors: each allocates its capacity once.
        for round in 0..6 {
            batch.clear();
            batch.extend(frames(100));
            let allocated = measure(|| meshes[0].distribute(&mut batch, &mut stats));
            assert!(round < 2 || allocated.count_total == 0, "{allocated:?} in round {round}");
            meshes[1].collect(&mut Vec::new(), usize::MAX);
        }
    }
}
