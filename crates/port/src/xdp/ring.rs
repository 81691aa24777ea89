//! The four rings of an AF_XDP socket: arrays in shared memory, each with one producer and one consumer
//! (Linux Documentation/networking/af_xdp.rst).
//!
//! The producer owns the entries from its index to the consumer's, the consumer the others. Indices are
//! stored with release and loaded with acquire ordering, so that one side's accesses to an entry happen
//! before the other side's. Indices increase without bound; their low bits select the entry.

use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::{self, Errno};
use rustix::net::xdp::{XdpDesc, XdpRingFlags, XdpRingOffset};

use crate::mapping::{Mapping, Plain, plain};

plain!(XdpDesc);

/// A ring of entries `T` in shared memory.
#[derive(Debug)]
struct Ring<T> {
    memory: Arc<Mapping>,
    places: XdpRingOffset,
    /// The number of entries, a power of two, minus 1.
    mask: u32,
    entries: PhantomData<T>,
}

impl<T: Plain> Ring<T> {
    /// Creates a ring of `entries` entries in `memory` at the offsets in `places`.
    fn new(memory: Arc<Mapping>, places: XdpRingOffset, entries: u32) -> io::Result<Self> {
        let fits = |offset: u64, len: usize, align: usize| {
            offset.is_multiple_of(align as u64) && offset.saturating_add(len as u64) <= memory.len() as u64
        };
        let words = [Some(places.producer), Some(places.consumer), places.flags];
        let has_words = words.into_iter().flatten().all(|word| fits(word, 4, 4));
        let has_entries = fits(places.desc, entries as usize * size_of::<T>(), align_of::<T>());
        if !entries.is_power_of_two() || !has_words || !has_entries {
            return Err(Errno::INVAL);
        }
        Ok(Self { memory, places, mask: entries - 1, entries: PhantomData })
    }

    /// Maps the ring of `entries` entries at `page_offset` of `socket`.
    fn map(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        places: XdpRingOffset,
        entries: u32,
    ) -> io::Result<Self> {
        let len = places.desc as usize + entries as usize * size_of::<T>();
        Self::new(Arc::new(Mapping::of(socket, page_offset, len)?), places, entries)
    }

    fn len(&self) -> u32 {
        self.mask + 1
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        self.word(self.places.producer)
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        self.word(self.places.consumer)
    }

    #[allow(unsafe_code)]
    #[inline]
    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: `new` has checked that the words lie in the mapping and are aligned. The other side changes
        // them concurrently, hence atomics.
        unsafe { self.memory.start().add(offset as usize).cast().as_ref() }
    }

    /// Returns the address of the entry with this index.
    #[allow(unsafe_code)]
    #[inline]
    fn entry(&self, index: u32) -> NonNull<T> {
        // SAFETY: `new` has checked that `mask + 1` entries from there lie in the mapping and are aligned.
        unsafe {
            self.memory.start().add(self.places.desc as usize).cast::<T>().add((index & self.mask) as usize)
        }
    }
}

/// A ring that this process produces to: fill and transmit.
#[derive(Debug)]
pub(super) struct Producer<T> {
    ring: Ring<T>,
    /// Index behind the last written entry.
    next: u32,
    /// The last loaded consumer index.
    consumed: u32,
}

impl<T: Plain> Producer<T> {
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        places: XdpRingOffset,
        entries: u32,
    ) -> io::Result<Self> {
        Ring::map(socket, page_offset, places, entries).map(Self::of)
    }

    fn of(ring: Ring<T>) -> Self {
        Self { ring, next: 0, consumed: 0 }
    }

    /// Returns true if `entries` more entries fit.
    #[inline]
    pub(super) fn has_room(&mut self, entries: u32) -> bool {
        self.room() >= entries || {
            self.consumed = self.ring.consumer().load(Ordering::Acquire);
            self.room() >= entries
        }
    }

    #[inline]
    fn room(&self) -> u32 {
        self.ring.len() - self.next.wrapping_sub(self.consumed)
    }

    /// Writes an entry without publishing it. Returns false if the ring is full.
    #[allow(unsafe_code)]
    #[inline]
    #[must_use]
    pub(super) fn push(&mut self, entry: T) -> bool {
        let has_room = self.has_room(1);
        if has_room {
            // SAFETY: the consumer has released this entry, and does not read it before `submit` publishes
            // it.
            unsafe { self.ring.entry(self.next).write(entry) };
            self.next = self.next.wrapping_add(1);
        }
        has_room
    }

    /// Publishes the written entries to the kernel.
    #[inline]
    pub(super) fn submit(&mut self) {
        publish(self.ring.producer(), self.next);
    }

    /// Returns the number of entries that the kernel has not consumed.
    #[inline]
    pub(super) fn unconsumed(&self) -> u32 {
        self.next.wrapping_sub(self.ring.consumer().load(Ordering::Acquire))
    }

    /// Returns true if the kernel needs a system call to notice new entries. Kernels before 5.4 do not report
    /// it.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        let asked = |offset| self.ring.word(offset).load(Ordering::Relaxed);
        self.ring
            .places
            .flags
            .is_none_or(|offset| asked(offset) & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0)
    }
}

/// A ring that this process consumes: completion and receive.
#[derive(Debug)]
pub(super) struct Consumer<T> {
    ring: Ring<T>,
    /// Index of the next entry to read.
    next: u32,
    /// The last loaded producer index.
    produced: u32,
}

impl<T: Plain> Consumer<T> {
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        page_offset: u64,
        places: XdpRingOffset,
        entries: u32,
    ) -> io::Result<Self> {
        Ring::map(socket, page_offset, places, entries).map(Self::of)
    }

    fn of(ring: Ring<T>) -> Self {
        Self { ring, next: 0, produced: 0 }
    }

    /// Returns the next entry without consuming it.
    #[allow(unsafe_code)]
    #[inline]
    pub(super) fn peek(&mut self) -> Option<T> {
        if self.next == self.produced {
            self.produced = self.ring.producer().load(Ordering::Acquire);
        }
        // SAFETY: the producer has published this entry, and does not write it again before `release`.
        (self.next != self.produced).then(|| unsafe { self.ring.entry(self.next).read() })
    }

    /// Consumes the next entry.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        let entry = self.peek()?;
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Releases consumed entries to the kernel.
    #[inline]
    pub(super) fn release(&mut self) {
        publish(self.ring.consumer(), self.next);
    }
}

/// Stores our index if it has changed: a store takes the cache line from the other side.
#[inline]
fn publish(word: &AtomicU32, index: u32) {
    if word.load(Ordering::Relaxed) != index {
        word.store(index, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const PLACES: XdpRingOffset = XdpRingOffset { producer: 0, consumer: 64, desc: 192, flags: Some(128) };

    /// Both ends of a ring of 8 entries.
    fn both_ends() -> (Producer<u64>, Consumer<u64>) {
        let memory = Arc::new(Mapping::zeroed(4096).unwrap());
        let ring = || Ring::new(Arc::clone(&memory), PLACES, 8).unwrap();
        (Producer::of(ring()), Consumer::of(ring()))
    }

    #[test]
    fn an_entry_is_seen_when_submitted_and_its_place_is_free_when_released() {
        let (mut producer, mut consumer) = both_ends();
        assert!((0..8).all(|entry| producer.push(entry)));
        assert!(!producer.push(8) && !producer.has_room(1));
        assert_eq!(consumer.pop(), None);
        producer.submit();
        assert_eq!((consumer.peek(), consumer.pop(), consumer.pop()), (Some(0), Some(0), Some(1)));
        assert!(!producer.push(8));
        consumer.release();
        assert_eq!((producer.has_room(2), producer.has_room(3), producer.unconsumed()), (true, false, 6));
    }

    #[test]
    fn indices_wrap() {
        let (mut producer, mut consumer) = both_ends();
        let start = u32::MAX - 3;
        for word in [PLACES.producer, PLACES.consumer] {
            producer.ring.word(word).store(start, Ordering::Relaxed);
        }
        (producer.next, producer.consumed) = (start, start);
        (consumer.next, consumer.produced) = (start, start);
        for entry in 0..20 {
            assert!(producer.push(entry));
            producer.submit();
            assert_eq!(consumer.pop(), Some(entry));
            consumer.release();
        }
    }

    #[test]
    fn nothing_is_lost_between_two_threads() {
        const ENTRIES: u64 = if cfg!(miri) { 1000 } else { 300_000 };
        let (mut producer, mut consumer) = both_ends();
        let writer = thread::spawn(move || {
            for entry in 0..ENTRIES {
                while !producer.push(entry) {
                    thread::yield_now();
                }
                producer.submit();
            }
        });
        for expected in 0..ENTRIES {
            let entry = loop {
                match consumer.pop() {
                    Some(entry) => break entry,
                    None => thread::yield_now(),
                }
            };
            consumer.release();
            assert_eq!(entry, expected);
        }
        writer.join().unwrap();
    }

    #[test]
    fn the_kernel_is_woken_where_it_asks_for_that() {
        let (producer, _) = both_ends();
        assert!(!producer.needs_wakeup());
        producer.ring.word(128).store(1, Ordering::Relaxed);
        assert!(producer.needs_wakeup());
    }

    #[test]
    fn a_ring_lies_in_its_memory() {
        let memory = Arc::new(Mapping::zeroed(4096).unwrap());
        let ring = |places, entries| Ring::<u64>::new(Arc::clone(&memory), places, entries);
        assert!(ring(PLACES, 256).is_ok());
        assert!(ring(PLACES, 512).is_err(), "longer than the memory");
        assert!(ring(PLACES, 7).is_err(), "no power of two");
        assert!(ring(XdpRingOffset { desc: 196, ..PLACES }, 8).is_err(), "not aligned");
        assert!(ring(XdpRingOffset { consumer: 4096, ..PLACES }, 8).is_err(), "beyond the memory");
    }
}
