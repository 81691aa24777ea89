//! A bounded pool of receive buffers that return when dropped.
//!
//! The owner takes buffers from a private list, without a lock or an atomic operation. A buffer dropped on
//! any thread goes to a shared list behind a lock, which the owner empties once its private list is empty:
//! one lock operation serves many buffers, and the cache line of lock and reference count moves between cores
//! as rarely.

use std::fmt;
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

use crate::sync::{Arc, Mutex, MutexGuard};

/// A bounded number of buffers of one size.
#[derive(Debug)]
pub struct BufferPool {
    at_hand: Vec<Buffer>,
    /// Empty memory for the shared list.
    spare: Vec<Vec<u8>>,
    /// Buffers not allocated yet.
    unallocated: usize,
    home: Arc<Home>,
}

impl BufferPool {
    /// Creates a pool with `buffers` buffers of `size` bytes, allocated now.
    pub fn new(buffers: usize, size: usize) -> Self {
        let mut pool = Self::growing(0, size);
        pool.spare = Vec::with_capacity(buffers);
        pool.home.returned().reserve_exact(buffers);
        pool.at_hand = (0..buffers).map(|_| Buffer::new(&pool.home)).collect();
        pool
    }

    /// Creates a pool of up to `buffers` buffers of `size` bytes, each allocated on first use and then kept.
    pub fn growing(buffers: usize, size: usize) -> Self {
        let home = Home { size, returned: Mutex::default() };
        Self { at_hand: Vec::new(), spare: Vec::new(), unallocated: buffers, home: Arc::new(home) }
    }

    /// Returns an empty buffer; `None` while all are taken.
    #[inline]
    pub fn take(&mut self) -> Option<Buffer> {
        if self.at_hand.is_empty() {
            mem::swap(&mut self.spare, &mut self.home.returned());
            let returned = self.spare.drain(..);
            self.at_hand.extend(returned.map(|bytes| Buffer { bytes, home: Arc::clone(&self.home) }));
        }
        self.at_hand.pop().or_else(|| self.grow())
    }

    #[cold]
    fn grow(&mut self) -> Option<Buffer> {
        self.unallocated = self.unallocated.checked_sub(1)?;
        Some(Buffer::new(&self.home))
    }
}

/// A frame's bytes in memory of a [`BufferPool`], returned to it on drop. May outlive the pool.
pub struct Buffer {
    bytes: Vec<u8>,
    home: Arc<Home>,
}

impl Buffer {
    fn new(home: &Arc<Home>) -> Self {
        Self { bytes: Vec::with_capacity(home.size), home: Arc::clone(home) }
    }

    /// Lets `fill` write the buffer. Content beyond the pool's buffer size is reallocated, and freed when the
    /// buffer returns.
    #[inline]
    pub fn fill<T>(&mut self, fill: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        fill(&mut self.bytes)
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        let mut bytes = mem::take(&mut self.bytes);
        bytes.clear();
        if bytes.capacity() != self.home.size {
            bytes = Vec::with_capacity(self.home.size);
        }
        self.home.returned().push(bytes);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl AsRef<[u8]> for Buffer {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Buffer").field(&self.bytes).finish()
    }
}

/// The shared list of returned buffers of one pool.
#[derive(Debug)]
struct Home {
    size: usize,
    returned: Mutex<Vec<Vec<u8>>>,
}

impl Home {
    /// Locks the list. Ignores poisoning: a push or swap cannot leave the list inconsistent.
    #[inline]
    fn returned(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    #[test]
    fn a_pool_hands_out_as_many_buffers_as_it_has() {
        let mut pool = BufferPool::new(3, 100);
        let mut taken: Vec<Buffer> = (0..3).filter_map(|_| pool.take()).collect();
        assert_eq!(taken.len(), 3);
        assert!(pool.take().is_none());
        taken.pop();
        assert!(pool.take().is_some());
        taken.push(pool.take().unwrap());
        assert!(pool.take().is_none());
        assert!(BufferPool::new(0, 100).take().is_none());
    }

    #[test]
    fn a_growing_pool_allocates_only_what_is_taken_at_once() {
        let mut pool = BufferPool::growing(2, 100);
        drop(pool.take().unwrap());
        drop(pool.take().unwrap());
        assert_eq!(pool.unallocated, 1);
        let taken = [pool.take().unwrap(), pool.take().unwrap()];
        assert!(pool.take().is_none());
        drop(taken);
        assert!(pool.take().is_some());
    }

    #[test]
    fn a_buffer_comes_back_empty_and_in_the_same_memory() {
        let mut pool = BufferPool::new(1, 100);
        let mut buffer = pool.take().unwrap();
        buffer.fill(|bytes| bytes.extend([1, 2, 3]));
        buffer[0] = 9;
        assert_eq!((&buffer[..], buffer.as_ref()), (&[9, 2, 3][..], &[9, 2, 3][..]));
        let memory = buffer.as_ptr();
        drop(buffer);
        let again = pool.take().unwrap();
        assert!(again.is_empty());
        assert_eq!(again.as_ptr(), memory);
    }

    #[test]
    fn buffers_come_back_with_their_size_whatever_was_done_to_them() {
        let mut pool = BufferPool::new(1, 100);
        let fills: [fn(&mut Vec<u8>); 3] =
            [|bytes| bytes.resize(5000, 7), |bytes| drop(mem::take(bytes)), |bytes| bytes.shrink_to_fit()];
        for fill in fills {
            pool.take().unwrap().fill(fill);
            assert_eq!(pool.take().unwrap().fill(|bytes| (bytes.len(), bytes.capacity())), (0, 100));
        }
    }

    #[test]
    fn a_buffer_is_small() {
        assert_eq!(size_of::<Buffer>(), 32);
        assert_eq!(size_of::<Option<Buffer>>(), 32);
    }

    #[test]
    fn buffers_outlive_their_pool() {
        let mut pool = BufferPool::new(2, 100);
        let mut buffer = pool.take().unwrap();
        let home = Arc::downgrade(&pool.home);
        drop(pool);
        buffer.fill(|bytes| bytes.push(1));
        assert_eq!(*buffer, [1]);
        drop(buffer);
        assert!(home.upgrade().is_none());
    }

    #[test]
    fn buffers_dropped_on_other_threads_come_back() {
        let mut pool = BufferPool::new(16, 64);
        let (senders, workers): (Vec<_>, Vec<_>) = (0..3)
            .map(|_| {
                let (sender, receiver) = mpsc::channel::<Buffer>();
                let sum = move || receiver.into_iter().map(|buffer| u64::from(buffer[0])).sum::<u64>();
                (sender, thread::spawn(sum))
            })
            .unzip();
        let deadline = Instant::now() + Duration::from_secs(30);
        let fills = if cfg!(miri) { 300 } else { 30_000 };
        let mut sent = 0;
        for number in (0..=255).cycle().take(fills) {
            let mut buffer = loop {
                if let Some(buffer) = pool.take() {
                    break buffer;
                }
                assert!(Instant::now() < deadline, "buffers are lost");
                thread::yield_now();
            };
            buffer.fill(|bytes| bytes.push(number));
            sent += u64::from(number);
            senders[usize::from(number) % 3].send(buffer).unwrap();
        }
        drop(senders);
        let received: u64 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        assert_eq!(received, sent);
        let all: Vec<Buffer> = (0..20).filter_map(|_| pool.take()).collect();
        assert_eq!(all.len(), 16);
    }
}
