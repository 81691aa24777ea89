//! Cards with several workers.

use std::hint;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nichrome_lro::{Hold, ProfileConfig};
use nichrome_nic::{Card, MemoryWire, Queue, QueueStats, memory_wire};
use nichrome_port::{Device, Received, Waker};

use crate::hosts::{FRAME_LEN, Host, card, config, host, impaired, stop, transfer, v4, v6};
use crate::memory::{ShortOfMemory, segments};

/// Creates a host with `queues` queues, and a card of two workers with a wire each.
fn two_workers(number: u8, queues: usize, wires: Vec<MemoryWire>) -> (Host, Card) {
    let host = host(number, queues);
    let card = card(wires, &host, Some(ProfileConfig::Gro(Hold::Batch)));
    (host, card)
}

/// Checks that `some` is `all` but for the last ACKs, which were in a ring between workers when the card
/// stopped.
fn assert_all_but_few(some: u64, all: u64) {
    assert!((all.saturating_sub(32)..=all).contains(&some), "{some} of {all}");
}

#[test]
fn connections_spread_over_workers_that_share_the_hosts_queue() {
    // Nothing arrives on the second worker's wire: all of its frames come from the first worker.
    let [left, right] = memory_wire(&impaired(&[]), 1, FRAME_LEN).unwrap();
    let [idle, _unconnected] = memory_wire(&impaired(&[]), 1, FRAME_LEN).unwrap();
    let (receiver, spread) = two_workers(1, 1, vec![left, idle]);
    let sender = host(2, 1);
    let plain = card(vec![right], &sender, None);
    transfer(&receiver, &sender, v4(1), 16, 500_000);
    let [spread, _] = stop([spread, plain]);
    assert_eq!(spread[1].received, 0);
    assert!(spread[0].distributed > 0 && spread[0].distribution_dropped == 0, "{:?}", spread[0]);
    assert_all_but_few(spread[1].engine.packets_in, spread[0].distributed);
    assert!(spread.iter().all(|worker| worker.engine.packets_in > 0 && worker.delivery_dropped == 0));
}

#[test]
fn connections_spread_over_workers_with_a_host_queue_each() {
    let ends = [1, 2].map(|seed| memory_wire(&impaired(&[]), seed, FRAME_LEN).unwrap());
    let [[left, right], [other_left, other_right]] = ends;
    let (receiver, left) = two_workers(1, 2, vec![left, other_left]);
    let (sender, right) = two_workers(2, 2, vec![right, other_right]);
    transfer(&receiver, &sender, v4(1), 16, 500_000);
    transfer(&sender, &receiver, v6(2), 16, 500_000);
    for stats in stop([left, right]) {
        assert!(
            stats.iter().all(|worker| worker.to_host > 0 && worker.distribution_dropped == 0),
            "{stats:?}"
        );
        let received: u64 = stats.iter().map(|worker| worker.received).sum();
        let coalesced: u64 = stats.iter().map(|worker| worker.engine.packets_in).sum();
        assert_all_but_few(coalesced, received);
    }
}

/// A host that needs this time for each packet.
struct Slow {
    time: Duration,
    waker: Waker,
}

fn slow(time: Duration) -> Arc<dyn Device + Send + Sync> {
    Arc::new(Slow { time, waker: Waker::new().unwrap() })
}

impl AsFd for Slow {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}

impl Device for Slow {
    fn receive<'a>(&self, _: &'a mut [u8]) -> rustix::io::Result<Option<Received<'a>>> {
        Ok(None)
    }

    fn send(&self, _: &[IoSlice<'_>]) -> rustix::io::Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < self.time {
            hint::spin_loop();
        }
        Ok(())
    }

    fn send_bytes(&self, _: &[u8]) -> rustix::io::Result<()> {
        self.send(&[])
    }
}

#[test]
fn workers_wait_for_a_slow_host_before_they_drop() {
    const CONNECTIONS: u16 = 2000;
    let frames = 2 * u64::from(CONNECTIONS);
    let queues = [segments(CONNECTIONS), Vec::new()]
        .map(|frames| Queue { wire: ShortOfMemory::new(frames, usize::MAX), observer: None });
    let slow = slow(Duration::from_micros(10));
    let card = Card::start(queues.into(), &[slow], &config(None), || {}).unwrap();
    let remote = card.remote();
    let until = Instant::now() + Duration::from_secs(30);
    let waited: u64 = loop {
        let stats = remote.stats().unwrap();
        let ended = |of: &QueueStats| of.to_host + of.delivery_dropped + of.distribution_dropped;
        if stats.iter().map(ended).sum::<u64>() == frames {
            break stats.iter().map(|of| of.delivery_waited).sum();
        }
        assert!(Instant::now() < until, "packets are neither delivered nor counted as dropped");
        thread::sleep(Duration::from_millis(5));
    };
    assert!(waited > 0);
    card.stop().unwrap();
}

#[test]
fn a_busy_worker_reads_its_messages_within_a_few_batches() {
    // The host needs ten seconds for all frames: long enough, even if the answers wait for a processor.
    const FRAMES: u64 = 100_000;
    let wire = ShortOfMemory::new(segments(FRAMES as u16 / 2), usize::MAX);
    let slow = slow(Duration::from_micros(100));
    let queue = Queue { wire, observer: None };
    let card = Card::start(vec![queue], &[slow], &config(None), || {}).unwrap();
    let remote = card.remote();
    let stats = [(); 4].map(|()| remote.stats().unwrap());
    assert!(stats[3][0].received < FRAMES / 2, "{} frames for four answers", stats[3][0].received);
    let [stopped] = &card.stop().unwrap()[..] else { panic!("one worker") };
    assert!(stopped.received < FRAMES, "all frames are received before the card stops");
}
