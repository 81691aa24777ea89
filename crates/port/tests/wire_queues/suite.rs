//! The suite: rules for all back ends.

use std::io::IoSlice;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nichrome_port::{
    Device, Netlink, NetworkNamespace, Offloads, Tap, TransmitError, WireFrame, WireQueue, clock,
    gain_network_admin,
};
use nichrome_wire::VirtioNetHeader;
use std::os::fd::AsFd;

use crate::back_end::{BackEnd, Ring, Xdp};
use crate::wire::{PATIENCE, Wire, assert_same, frame, is_ours, name, put, tags, take};

fn frames_come_as_they_were_sent<B: BackEnd>() {
    let wire = Wire::new(1500);
    let mut back_end = wire.on_card(|card| B::open(card, 256));
    let sender = wire.sender();
    let sent: Vec<Vec<u8>> =
        (0..1000).map(|number| frame(number, 26 + (number as usize * 7) % 1489, &tags(number))).collect();
    for sent in sent.chunks(100) {
        sent.iter().for_each(|frame| put(&sender, frame));
        let received = take(back_end.queue(), sent.len());
        assert_same(&received, sent);
        let nothing = VirtioNetHeader::default();
        assert!(received.iter().all(|frame| frame.virtio == nothing));
    }
    assert_eq!(back_end.queue().stats().unwrap(), Default::default());
}

fn what_is_transmitted_reaches_the_peer<B: BackEnd>() {
    let wire = Wire::new(1500);
    let mut back_end = wire.on_card(|card| B::open(card, 64));
    let mut receiver = wire.receiver();
    let sent: Vec<Vec<u8>> =
        (0..1000).map(|number| frame(number, 26 + (number as usize * 7) % 1489, &tags(number))).collect();
    for sent in sent.chunks(50) {
        for frame in sent {
            let (header, payload) = frame.split_at(20);
            let parts = [IoSlice::new(header), IoSlice::new(&[]), IoSlice::new(payload)];
            back_end.queue().transmit(&parts).unwrap();
        }
        back_end.queue().flush().unwrap();
        assert_same(&take(&mut receiver, sent.len()), sent);
        assert_eq!(back_end.queue().unsent(), 0);
    }
    let mut batch = Vec::new();
    back_end.queue().receive(&mut batch, 10).unwrap();
    assert!(!batch.iter().any(|frame| is_ours(frame.buffer.as_ref())), "what was sent is received");
    assert_eq!(back_end.queue().stats().unwrap(), Default::default());
}

fn a_full_transmit_queue_says_so_and_takes_more_when_flushed<B: BackEnd>() {
    let wire = Wire::new(1500);
    let mut back_end = wire.on_card(|card| B::open(card, 64));
    let mut receiver = wire.receiver();
    let queue = back_end.queue();
    let sent: Vec<Vec<u8>> = (0..200).map(|number| frame(number, 100, &[])).collect();
    let mut refused = 0;
    for frame in &sent {
        while let Err(error) = queue.transmit(&[IoSlice::new(frame)]) {
            assert_eq!(error, TransmitError::Full);
            refused += 1;
            queue.flush().unwrap();
        }
    }
    queue.flush().unwrap();
    assert_eq!(refused, 3);
    assert_same(&take(&mut receiver, 200), &sent);
    let max = 1514 + 4 * B::VLAN_TAGS;
    let transmitted = [0, 1].map(|more| queue.transmit(&[IoSlice::new(&vec![0; max + more])]));
    assert_eq!(transmitted, [Ok(()), Err(TransmitError::Length { len: max + 1, max })]);
}

fn jumbo_frames_come_and_go_in_one_piece<B: BackEnd>() {
    let wire = Wire::new(9000);
    let mut back_end = wire.on_card(|card| B::open(card, 256));
    let (sender, mut receiver) = (wire.sender(), wire.receiver());
    let lens = [9014, 60, 3840, 3841, 7680, 7681, 4096, 8192, 8193, 1514];
    for round in 0..20 {
        let sent: Vec<Vec<u8>> =
            (0..).zip(lens).map(|(number, len)| frame(round * 10 + number, len, &[])).collect();
        sent.iter().for_each(|frame| put(&sender, frame));
        assert_same(&take(back_end.queue(), sent.len()), &sent);
        for frame in &sent {
            let (header, payload) = frame.split_at(50);
            back_end.queue().transmit(&[IoSlice::new(header), IoSlice::new(payload)]).unwrap();
        }
        back_end.queue().flush().unwrap();
        assert_same(&take(&mut receiver, sent.len()), &sent);
    }
    assert_eq!(back_end.queue().stats().unwrap(), Default::default());
}

/// Receives many times as many frames as there are buffers; two other threads drop them.
fn buffers_dropped_on_other_threads_come_back<B: BackEnd>() {
    const FRAMES: u32 = 200_000;
    const AT_ONCE: u32 = 100;
    let wire = Wire::new(1500);
    let mut back_end = wire.on_card(|card| B::open(card, 1024));
    let sender = wire.sender();
    let queue = back_end.queue();
    thread::scope(|scope| {
        let droppers: Vec<_> = (0..2)
            .map(|_| {
                let (give, frames) = mpsc::sync_channel::<WireFrame<<B::Queue as WireQueue>::Buffer>>(200);
                scope.spawn(move || {
                    for frame in frames {
                        assert_eq!(frame.buffer.as_ref().len(), 64);
                    }
                });
                give
            })
            .collect();
        for start in (0..FRAMES).step_by(AT_ONCE as usize) {
            (start..start + AT_ONCE).for_each(|number| put(&sender, &frame(number, 64, &[])));
            for (number, received) in (start..).zip(take(queue, AT_ONCE as usize)) {
                assert_eq!(received.buffer.as_ref()[14..18], number.to_be_bytes());
                droppers[number as usize % 2].send(received).unwrap();
            }
        }
    });
    assert_eq!(queue.stats().unwrap(), Default::default());
    // All buffers are available again.
    let sent: Vec<Vec<u8>> = (0..1000).map(|number| frame(number, 64, &[])).collect();
    let held: Vec<_> = sent
        .chunks(100)
        .flat_map(|sent| {
            sent.iter().for_each(|frame| put(&sender, frame));
            take(queue, sent.len())
        })
        .collect();
    assert_same(&held, &sent);
}

fn frames_that_find_no_room_are_counted<B: BackEnd>() {
    const FRAMES: u32 = 800;
    let wire = Wire::new(1500);
    let mut back_end = wire.on_card(|card| B::open(card, 64));
    let sender = wire.sender();
    let queue = back_end.queue();
    for number in 0..FRAMES {
        put(&sender, &frame(number, 1500, &[]));
        if number % 100 == 99 {
            // Pauses between bursts: the interface's queue of 256 frames would drop more, without a counter.
            thread::sleep(Duration::from_millis(20));
        }
    }
    let until = clock::now() + PATIENCE;
    let (mut received, mut batch) = (0, Vec::new());
    while received + queue.stats().unwrap().lost() < FRAMES.into() {
        assert!(clock::now() < until, "{received} received, {:?}", queue.stats());
        queue.receive(&mut batch, 1000).unwrap();
        received += batch.drain(..).filter(|frame| is_ours(frame.buffer.as_ref())).count() as u64;
        thread::sleep(Duration::from_millis(1));
    }
    assert!(received >= 64 && received < FRAMES.into(), "{received}");
    assert_eq!(received + queue.stats().unwrap().lost(), FRAMES.into());
    // After losses, later frames arrive once the held buffers are returned.
    queue.receive(&mut batch, 1).unwrap();
    let later = vec![frame(FRAMES, 100, &[])];
    put(&sender, &later[0]);
    assert_same(&take(queue, 1), &later);
}

fn a_queue_whose_buffers_are_all_held_is_starved<B: BackEnd>() {
    let wire = Wire::new(1500);
    let mut back_end = wire.on_card(|card| B::open(card, 16));
    let sender = wire.sender();
    let queue = back_end.queue();
    let mut held = Vec::new();
    let until = clock::now() + PATIENCE;
    while !queue.is_starved() {
        assert!(clock::now() < until);
        put(&sender, &frame(0, 100, &[]));
        clock::wait([queue.as_fd()], Some(clock::now() + Duration::from_millis(2))).unwrap();
        queue.receive(&mut held, 10).unwrap();
    }
    let most = held.len();
    assert!((16..=32).contains(&most), "{most}");
    queue.receive(&mut held, 10).unwrap();
    assert_eq!((held.len(), queue.is_starved()), (most, true));
    held.clear();
    queue.receive(&mut held, 10).unwrap();
    assert!(!queue.is_starved());
}

fn an_idle_queue_cannot_be_read<B: BackEnd>() {
    let wire = Wire::new(1500);
    let mut back_end = wire.on_card(|card| B::open(card, 64));
    let queue = back_end.queue();
    let mut batch = Vec::new();
    let until = clock::now() + Duration::from_millis(50);
    assert_eq!(clock::wait([queue.as_fd()], Some(until)), Ok([false]));
    queue.receive(&mut batch, 10).unwrap();
    assert!(batch.is_empty());
    put(&wire.sender(), &frame(0, 100, &[]));
    assert_eq!(clock::wait([queue.as_fd()], Some(clock::now() + PATIENCE)), Ok([true]));
    queue.receive(&mut batch, 10).unwrap();
    assert_eq!(batch.len(), 1);
    assert_eq!(clock::wait([queue.as_fd()], Some(clock::now())), Ok([false]));
}

fn buffers_outlive_their_queue<B: BackEnd>() {
    let wire = Wire::new(1500);
    let mut back_end = wire.on_card(|card| B::open(card, 64));
    let sent = vec![frame(1, 1000, &[]), frame(2, 1000, &[])];
    let sender = wire.sender();
    sent.iter().for_each(|frame| put(&sender, frame));
    let received = take(back_end.queue(), 2);
    drop(back_end);
    assert_same(&received, &sent);
}

/// Runs a test in a new namespace, with a back end on a TAP device that is up.
fn on_a_tap_device<B: BackEnd>(test: impl FnOnce(Tap, B)) {
    gain_network_admin().unwrap();
    let on_it = || {
        let tap = Tap::new(name("tap0"), Offloads::None).unwrap();
        let netlink = Netlink::open().unwrap();
        let interface = netlink.interface(name("tap0")).unwrap();
        netlink.silence(&interface).unwrap();
        netlink.set_up(&interface).unwrap();
        netlink.wait_until_running(&interface).unwrap();
        test(tap, B::open(&interface, 64));
    };
    NetworkNamespace::new().unwrap().run(on_it).unwrap();
}

fn an_interface_that_goes_is_an_error_and_no_busy_loop<B: BackEnd>() {
    on_a_tap_device::<B>(|tap, mut back_end| {
        drop(tap);
        let queue = back_end.queue();
        let until = clock::now() + PATIENCE;
        let mut calls = 1;
        while queue.receive(&mut Vec::new(), 10).is_ok() {
            assert!(clock::now() < until);
            clock::wait([queue.as_fd()], Some(until)).unwrap();
            calls += 1;
        }
        assert!(calls <= 10, "{calls} calls until the error");
        let mut batch = Vec::new();
        assert!(queue.receive(&mut batch, 10).is_ok(), "the error comes once");
        assert!(batch.is_empty());
        let soon = clock::now() + Duration::from_millis(50);
        assert_eq!(clock::wait([queue.as_fd()], Some(soon)), Ok([false]));
    });
}

fn frames_of_a_tap_device_come_too<B: BackEnd>() {
    on_a_tap_device::<B>(|tap, mut back_end| {
        let sent = vec![frame(1, 1000, &[]), frame(2, 100, &[])];
        for frame in &sent {
            tap.send(&[IoSlice::new(&[0; VirtioNetHeader::LEN]), IoSlice::new(frame)]).unwrap();
        }
        assert_same(&take(back_end.queue(), 2), &sent);
    });
}

/// Runs each test with each back end.
macro_rules! on_all_back_ends {
    ($($test:ident),* $(,)?) => {
        mod xdp_native {
            $(#[test] fn $test() { super::$test::<super::Xdp<false>>(); })*
        }
        mod xdp_generic {
            $(#[test] fn $test() { super::$test::<super::Xdp<true>>(); })*
        }
        mod packet_ring {
            $(#[test] fn $test() { super::$test::<super::Ring>(); })*
        }
    };
}

on_all_back_ends!(
    frames_come_as_they_were_sent,
    what_is_transmitted_reaches_the_peer,
    a_full_transmit_queue_says_so_and_takes_more_when_flushed,
    jumbo_frames_come_and_go_in_one_piece,
    buffers_dropped_on_other_threads_come_back,
    frames_that_find_no_room_are_counted,
    a_queue_whose_buffers_are_all_held_is_starved,
    an_idle_queue_cannot_be_read,
    buffers_outlive_their_queue,
    an_interface_that_goes_is_an_error_and_no_busy_loop,
    frames_of_a_tap_device_come_too,
);
