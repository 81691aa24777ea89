//! A host that sends a frame for every frame that it receives, like a host that acknowledges every frame.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nichrome_nic::{Card, MemoryWire, Queue, memory_wire};
use nichrome_port::{Device, Received, Waker, WireQueue, clock};
use nichrome_wire::VirtioNetHeader;
use rustix::io;

use crate::hosts::{FRAME_LEN, config, impaired};

/// The frame that the host sends.
const ANSWER: [u8; 60] = [7; 60];

/// Number of frames.
const FRAMES: usize = 8000;

/// Packets that the kernel queues for a TAP device (its `txqueuelen`); it drops further ones.
const KEPT: usize = 1000;

/// Time limit for the next answer.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A host whose answers wait until the card reads them.
struct Answering {
    waker: Waker,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    answers: VecDeque<[u8; 60]>,
    most: usize,
}

impl AsFd for Answering {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

impl Device for Answering {
    fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<Option<Received<'a>>> {
        self.waker.clear();
        let Some(answer) = self.waiting.lock().unwrap().answers.pop_front() else { return Ok(None) };
        buffer[..answer.len()].copy_from_slice(&answer);
        Ok(Some(Received { virtio: VirtioNetHeader::default(), at: 0, frame: &buffer[..answer.len()] }))
    }

    fn send(&self, _: &[IoSlice<'_>]) -> io::Result<()> {
        let mut waiting = self.waiting.lock().unwrap();
        waiting.answers.push_back(ANSWER);
        waiting.most = waiting.most.max(waiting.answers.len());
        self.waker.wake();
        Ok(())
    }

    fn send_bytes(&self, bytes: &[u8]) -> io::Result<()> {
        self.send(&[IoSlice::new(bytes)])
    }
}

#[test]
fn the_answers_to_a_burst_are_read_before_the_kernels_queue_is_full() {
    let host = Arc::new(Answering { waker: Waker::new().unwrap(), waiting: Mutex::default() });
    let [wire, mut far] = memory_wire(&impaired(&[]), 1, FRAME_LEN).unwrap();
    let mut sent = 0;
    let mut fill = |far: &mut MemoryWire| {
        while sent < FRAMES && far.transmit(&[IoSlice::new(&[9; FRAME_LEN])]).is_ok() {
            sent += 1;
        }
        far.flush().unwrap();
    };
    fill(&mut far);
    let card =
        Card::start(vec![Queue { wire, observer: None }], &[Arc::clone(&host) as _], &config(None), || {});
    let card = card.unwrap();
    let mut answers = Vec::new();
    while answers.len() < FRAMES {
        let [came] = clock::wait([far.as_fd()], Some(clock::now() + TIMEOUT)).unwrap();
        assert!(came, "only {} answers", answers.len());
        far.receive(&mut answers, FRAMES).unwrap();
        fill(&mut far);
    }
    let stats = card.stop().unwrap();
    assert_eq!((stats[0].received, stats[0].transmitted), (FRAMES as u64, FRAMES as u64));
    let most = host.waiting.lock().unwrap().most;
    assert!(most <= KEPT, "{most} answers were waiting");
}
