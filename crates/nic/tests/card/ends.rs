//! The end of cards, and configurations that a card refuses.

use std::sync::mpsc;
use std::time::Duration;

use nichrome_lro::{ActiveAck, NpuConfig, ProfileConfig};
use nichrome_nic::{Card, CardError, MemoryWire, Queue, memory_wire};
use nichrome_port::Netlink;

use crate::hosts::{FRAME_LEN, config, host, impaired, interface};

#[test]
fn deleting_the_host_interface_ends_the_card_with_an_error() {
    let host = host(1, 1);
    let [wire, _peer] = memory_wire(&impaired(&[]), 1, FRAME_LEN).unwrap();
    let (ended, end) = mpsc::channel();
    let queues = vec![Queue { wire, observer: None }];
    let card = Card::start(queues, &host.taps, &config(None), move || ended.send(()).unwrap()).unwrap();
    host.namespace
        .run(|| {
            let netlink = Netlink::open().unwrap();
            netlink.delete(&netlink.interface(interface()).unwrap()).unwrap();
        })
        .unwrap();
    end.recv_timeout(Duration::from_secs(5)).unwrap();
    assert!(card.remote().stats().is_none());
    let error = card.stop().unwrap_err();
    assert!(matches!(error, CardError::Host(_)), "{error}");
    assert!(error.to_string().starts_with("the host's interface was removed"), "{error}");
}

#[test]
fn cards_that_cannot_work_are_refused() {
    let one = host(1, 1);
    let wires = || {
        memory_wire(&impaired(&[]), 1, FRAME_LEN).unwrap().map(|wire| Queue { wire, observer: None }).into()
    };
    let start = |queues, profile| Card::start::<MemoryWire>(queues, &one.taps, &config(profile), || {});
    assert!(matches!(start(vec![], None), Err(CardError::Queues)));
    let npu = NpuConfig { active_ack: ActiveAck::Safe, ..NpuConfig::default() };
    assert!(matches!(start(wires(), Some(ProfileConfig::Npu(npu))), Err(CardError::ActiveAck)));
    let three = host(2, 3);
    let started = Card::start(wires(), &three.taps, &config(None), || {});
    assert!(matches!(started, Err(CardError::Queues)));
}
