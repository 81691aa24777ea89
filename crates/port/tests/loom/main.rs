//! Explores all interleavings of frames and buffers that other threads return, and of a ring whose reader
//! sleeps:
//!
//!     RUSTFLAGS='--cfg loom' cargo test --release --package nichrome-port --test loom
//!
//! The files of `src` are compiled here with loom's primitives.
#![cfg(loom)]
#![allow(dead_code, unreachable_pub, reason = "the models use a part of the files")]

#[path = "../../src/pool.rs"]
mod pool;
#[path = "../../src/xdp/return_list.rs"]
mod return_list;
#[path = "../../src/udp/ring_positions.rs"]
mod ring_positions;

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub(crate) use loom::sync::{Arc, Mutex, MutexGuard};
}

use std::sync::atomic::AtomicBool;

use loom::cell::UnsafeCell;
use loom::thread;
use pool::BufferPool;
use return_list::ReturnList;
use ring_positions::RingPositions;
use sync::{Arc, AtomicU32, Ordering};

/// The memory of frames, and the list of returned ones.
struct Frames {
    list: ReturnList,
    /// Number of pushed frames. loom compares an access with the previous one only, which in `push` is a load
    /// of the same thread: it does not see the conflict with an earlier take. This counter shows the
    /// conflict, and orders nothing.
    pushed: AtomicU32,
    memory: [UnsafeCell<u32>; 3],
}

// SAFETY: as in the UMEM of AF_XDP, the owner of a number may access its frame. loom checks that no two
// threads do.
unsafe impl Sync for Frames {}

impl Frames {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            list: ReturnList::new(3),
            pushed: AtomicU32::new(0),
            memory: [0; 3].map(UnsafeCell::new),
        })
    }

    /// Writes to the frame; the caller owns its number.
    fn touch(&self, number: u32) {
        self.memory[number as usize].with_mut(|count| {
            // SAFETY: loom reports concurrent accesses.
            unsafe { *count += 1 };
        });
    }
}

/// Drops a frame on another thread.
fn returning(frames: &Arc<Frames>, number: u32) -> thread::JoinHandle<()> {
    let frames = Arc::clone(frames);
    thread::spawn(move || {
        frames.touch(number);
        frames.list.push(number);
        frames.pushed.fetch_add(1, Ordering::Relaxed);
    })
}

#[test]
fn each_frame_returns_once_with_its_writes_visible() {
    static TAKEN_EARLY: AtomicBool = AtomicBool::new(false);
    loom::model(|| {
        let frames = Frames::new();
        let threads = [returning(&frames, 0), returning(&frames, 2)];
        let mut taken: Vec<u32> = Vec::new();
        let take = |taken: &mut Vec<u32>| {
            for number in frames.list.take_all() {
                frames.touch(number);
                taken.push(number);
            }
        };
        frames.pushed.load(Ordering::Relaxed);
        take(&mut taken);
        TAKEN_EARLY.fetch_or(!taken.is_empty(), Ordering::Relaxed);
        for thread in threads {
            thread.join().unwrap();
        }
        take(&mut taken);
        taken.sort_unstable();
        assert_eq!(taken, [0, 2]);
    });
    assert!(TAKEN_EARLY.load(Ordering::Relaxed), "no execution takes a frame while another thread pushes");
}

#[test]
fn a_frame_may_be_sent_out_and_come_back_while_the_others_are_taken() {
    loom::model(|| {
        let frames = Frames::new();
        frames.list.push(0);
        frames.list.push(1);
        let mut thread = None;
        let mut taken = Vec::new();
        for number in frames.list.take_all() {
            frames.touch(number);
            taken.push(number);
            if thread.is_none() {
                thread = Some(returning(&frames, number));
            }
        }
        thread.unwrap().join().unwrap();
        taken.extend(frames.list.take_all());
        assert_eq!(taken, [1, 0, 1]);
    });
}

#[test]
fn buffers_come_back_from_other_threads_and_no_more_are_given_than_there_are() {
    loom::model(|| {
        let mut pool = BufferPool::new(2, 4);
        let threads = [(); 2].map(|()| {
            let mut buffer = pool.take().unwrap();
            thread::spawn(move || {
                buffer.fill(|bytes| bytes.push(7));
                drop(buffer);
            })
        });
        let early = pool.take();
        assert!(early.as_ref().is_none_or(|buffer| buffer.is_empty()));
        for thread in threads {
            thread.join().unwrap();
        }
        let late: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        assert!(late.iter().all(|buffer| buffer.is_empty()));
        assert_eq!(late.len() + usize::from(early.is_some()), 2);
    });
}

#[test]
fn no_message_waits_in_a_ring_whose_reader_sleeps() {
    loom::model(|| {
        // An eventfd: the wake-up of the reader.
        let (ring, wake_up) = (Arc::new(RingPositions::default()), Arc::new(AtomicU32::new(0)));
        let writer = {
            let (ring, wake_up) = (Arc::clone(&ring), Arc::clone(&wake_up));
            thread::spawn(move || {
                for tail in 1..=2 {
                    if ring.publish(tail) {
                        wake_up.swap(1, Ordering::AcqRel);
                    }
                }
            })
        };
        let mut head = 0;
        for _ in 0..2 {
            head = ring.tail();
            wake_up.swap(0, Ordering::AcqRel);
            ring.request_wake_up();
            if ring.tail() != head {
                wake_up.swap(1, Ordering::AcqRel);
            }
        }
        writer.join().unwrap();
        assert!(ring.tail() == head || wake_up.load(Ordering::Acquire) == 1, "a message is forgotten");
    });
}

/// The bytes of a message are written before it is published, and read before they are freed.
#[test]
fn the_bytes_of_a_ring_belong_to_one_side_at_a_time() {
    loom::model(|| {
        struct Byte(UnsafeCell<u64>);
        // SAFETY: the positions determine which side may access the byte. loom reports concurrent accesses.
        unsafe impl Sync for Byte {}
        let (ring, byte) = (Arc::new(RingPositions::default()), Arc::new(Byte(UnsafeCell::new(0))));
        let writer = {
            let (ring, byte) = (Arc::clone(&ring), Arc::clone(&byte));
            thread::spawn(move || {
                for tail in 1..=2 {
                    // The ring has room for one message.
                    if ring.head() + 1 == tail {
                        // SAFETY: as above.
                        byte.0.with_mut(|byte| unsafe { *byte = tail });
                        ring.publish(tail);
                    }
                }
            })
        };
        if ring.tail() == 1 {
            // SAFETY: as above.
            byte.0.with(|byte| assert_eq!(unsafe { *byte }, 1));
            ring.free(1);
        }
        writer.join().unwrap();
    });
}
