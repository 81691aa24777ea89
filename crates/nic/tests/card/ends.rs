//! The end of cards, and configurations that a card refuses.

use std::io::IoSlice;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use nichrome_lro::{ActiveAck, Config, Hold, NpuConfig, ProfileConfig};
use nichrome_nic::{Card, CardConfig, CardError, MemoryWire, Observer, Queue, QueueStats, memory_wire};
use nichrome_port::{Netlink, WireQueue};

use crate::hosts::{FRAME_LEN, Host, config, host, impaired, interface};
use crate::memory::{HEADERS, ShortOfMemory, segments};

/// Removes the host's interface.
fn delete_interface(host: &Host) {
    host.namespace
        .run(|| {
            let netlink = Netlink::open().unwrap();
            netlink.delete(&netlink.interface(interface()).unwrap()).unwrap();
        })
        .unwrap();
}

/// Returns the queues of a card with two workers.
fn two_queues() -> Vec<Queue<MemoryWire>> {
    memory_wire(&impaired(&[]), 1, FRAME_LEN).unwrap().map(|wire| Queue { wire, observer: None }).into()
}

/// Returns true if a thread of a card has the host's queue.
fn is_in_use(host: &Host) -> bool {
    Arc::strong_count(&host.taps[0]) > 1
}

#[test]
fn deleting_the_host_interface_ends_the_card_with_an_error() {
    let host = host(1, 1);
    let [wire, _peer] = memory_wire(&impaired(&[]), 1, FRAME_LEN).unwrap();
    let (ended, end) = mpsc::channel();
    let queues = vec![Queue { wire, observer: None }];
    let card = Card::start(queues, &host.taps, &config(None), move || ended.send(()).unwrap()).unwrap();
    delete_interface(&host);
    end.recv_timeout(Duration::from_secs(5)).unwrap();
    assert!(card.remote().stats().is_none());
    let error = card.stop().unwrap_err();
    assert!(matches!(error, CardError::Host(_)), "{error}");
    assert!(error.to_string().starts_with("the host's interface was removed"), "{error}");
}

#[test]
fn a_dropped_card_ends_its_threads() {
    for queues in [1, 2] {
        let host = host(1, queues);
        let card = Card::start(two_queues(), &host.taps, &config(None), || {}).unwrap();
        assert!(is_in_use(&host));
        drop(card);
        assert!(!is_in_use(&host), "{queues} queues");
    }
}

#[test]
fn the_error_of_one_thread_ends_the_others() {
    let host = host(1, 1);
    // Fails after the start of the delivery thread.
    let engine = Config { max_connections: 0, ..Config::default() };
    let invalid = CardConfig { engine, ..config(Some(ProfileConfig::Gro(Hold::Batch))) };
    let error = Card::start(two_queues(), &host.taps, &invalid, || {}).unwrap_err();
    assert!(matches!(error, CardError::Config(_)), "{error}");
    assert!(!is_in_use(&host));
    let (ended, end) = mpsc::channel();
    let card = Card::start(two_queues(), &host.taps, &config(None), move || ended.send(()).unwrap()).unwrap();
    delete_interface(&host);
    end.recv_timeout(Duration::from_secs(5)).unwrap();
    let error = card.stop().unwrap_err();
    assert!(matches!(error, CardError::Host(_)), "{error}");
    assert!(!is_in_use(&host));
}

#[test]
fn cards_that_cannot_work_are_refused() {
    let one = host(1, 1);
    let start = |queues, profile| Card::start::<MemoryWire>(queues, &one.taps, &config(profile), || {});
    assert!(matches!(start(vec![], None), Err(CardError::Queues)));
    let npu = NpuConfig { active_ack: ActiveAck::Safe, ..NpuConfig::default() };
    assert!(matches!(start(two_queues(), Some(ProfileConfig::Npu(npu))), Err(CardError::ActiveAck)));
    let three = host(2, 3);
    let started = Card::start(two_queues(), &three.taps, &config(None), || {});
    assert!(matches!(started, Err(CardError::Queues)));
}

#[test]
fn frames_on_the_way_between_workers_are_delivered_when_the_card_stops() {
    const FRAMES: u64 = 20_000;
    for profile in [None, Some(ProfileConfig::Gro(Hold::Batch))] {
        let host = host(1, 2);
        let mut frames = segments(1000);
        frames = (0..FRAMES as usize).map(|nth| frames[nth % frames.len()].clone()).collect();
        let queues = [frames, Vec::new()];
        let wires = queues.map(|frames| Queue { wire: ShortOfMemory::new(frames, 4096), observer: None });
        let card = Card::start(wires.into(), &host.taps, &config(profile), || {}).unwrap();
        let remote = card.remote();
        while remote.stats().unwrap()[0].received == 0 {}
        let stats = card.stop().unwrap();
        let all = |count: fn(&QueueStats) -> u64| stats.iter().map(count).sum::<u64>();
        let accepted = all(|of| of.received) - all(|of| of.distribution_dropped);
        let payload = all(|of| of.to_host_bytes) - all(|of| of.to_host) * HEADERS as u64;
        assert!(all(|of| of.distributed) > 0, "{stats:?}");
        assert_eq!(payload, accepted * 100, "{stats:?}");
    }
}

/// Panics at the first frame.
struct Panics;

impl Observer for Panics {
    fn received(&mut self, _: &[u8]) {
        panic!("as the test demands");
    }

    fn delivered(&mut self, _: &mut dyn Iterator<Item = &[u8]>) {}

    fn transmitted(&mut self, _: &[u8]) {}
}

#[test]
fn the_end_of_a_worker_that_panics_is_reported() {
    let host = host(1, 1);
    let [wire, mut peer] = memory_wire(&impaired(&[]), 1, FRAME_LEN).unwrap();
    let (ended, end) = mpsc::channel();
    let queues = vec![Queue { wire, observer: Some(Box::new(Panics) as Box<dyn Observer>) }];
    let card = Card::start(queues, &host.taps, &config(None), move || ended.send(()).unwrap()).unwrap();
    peer.transmit(&[IoSlice::new(&[1; 60])]).unwrap();
    peer.flush().unwrap();
    assert_eq!(end.recv_timeout(Duration::from_secs(5)), Ok(()));
    assert!(matches!(card.stop(), Err(CardError::Panicked)));
}
