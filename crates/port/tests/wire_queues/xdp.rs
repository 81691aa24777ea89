//! AF_XDP: attaching, detaching, and refused operations.

use std::env;
use std::os::unix::process::ExitStatusExt;
use std::process::{self, Command};
use std::thread;

use nichrome_port::{
    Interface, Netlink, NetworkNamespace, PacketRing, PacketRingConfig, PacketRingError, WireQueue,
    XdpChoice, XdpConfig, XdpError, XdpInterface, XdpMode, XdpQueue, gain_network_admin, strips_vlan_tags,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::back_end::attach;
use crate::wire::{Wire, assert_same, frame, name, put, take};

#[test]
fn a_detached_interface_is_restored() {
    let wire = Wire::new(1500);
    for mode in [XdpMode::Native, XdpMode::Generic] {
        let attached = wire.on_card(|card| attach(card, XdpChoice::Only(mode)));
        let queue = XdpQueue::open(&attached, 0, XdpConfig::default()).unwrap();
        assert!(wire.card_now().xdp_program.is_some());
        drop(attached);
        assert_eq!(wire.card_now().xdp_program, None);
        drop(queue);
    }
}

#[test]
fn an_interface_is_restored_when_the_process_crashes() {
    let wire = Wire::new(1500);
    wire.on_card(|card| drop(attach(card, XdpChoice::Automatic)));
    let crashed = wire.on_card(|_| {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "xdp::attaches_to_card0_and_crashes", "--ignored"]).output().unwrap()
    });
    assert_eq!(crashed.status.signal(), Some(libc::SIGABRT), "{crashed:?}");
    assert_eq!(wire.card_now().xdp_program, None);
    let attached = wire.on_card(|card| attach(card, XdpChoice::Automatic));
    wire.on_card(|_| XdpQueue::open(&attached, 0, XdpConfig::default()).unwrap());
}

#[test]
#[ignore = "run by an_interface_is_restored_when_the_process_crashes"]
fn attaches_to_card0_and_crashes() {
    let netlink = Netlink::open().unwrap();
    let card = netlink.interface(name("card0")).unwrap();
    let attached = attach(&card, XdpChoice::Automatic);
    let _queue = XdpQueue::open(&attached, 0, XdpConfig::default()).unwrap();
    assert!(netlink.interface(name("card0")).unwrap().xdp_program.is_some());
    process::abort();
}

#[test]
fn interfaces_that_take_vlan_tags_out_of_frames_are_known() {
    let wire = Wire::new(1500);
    let strips = |interface: &'static str| wire.on_card(|_| strips_vlan_tags(name(interface)));
    assert_eq!((strips("card0"), strips("lo")), (Ok(true), Ok(false)));
    assert!(strips("gone0").is_err());
}

#[test]
fn a_second_program_and_a_second_socket_are_refused() {
    let wire = Wire::new(1500);
    let attached = wire.on_card(|card| attach(card, XdpChoice::Automatic));
    assert_eq!(attached.mode(), XdpMode::Native);
    for choice in [XdpChoice::Automatic, XdpChoice::Only(XdpMode::Native), XdpChoice::Only(XdpMode::Generic)]
    {
        let error = wire.on_card(|card| XdpInterface::attach(card, choice)).unwrap_err();
        assert!(matches!(error, XdpError::Busy(_)), "{error}");
        assert!(error.to_string().starts_with("card0 has an XDP program already"), "{error}");
    }
    wire.on_card(|_| {
        let _queue = XdpQueue::open(&attached, 0, XdpConfig::default()).unwrap();
        let error = XdpQueue::open(&attached, 0, XdpConfig::default()).unwrap_err();
        assert!(matches!(error, XdpError::QueueBusy { queue: 0, .. }), "{error}");
        let error = XdpQueue::open(&attached, 1, XdpConfig::default()).unwrap_err();
        assert_eq!(error.to_string(), "card0 has no receive queue 1: they are 0 to 0 ('ethtool -l card0')");
    });
    drop(attached);
    wire.on_card(|card| attach(card, XdpChoice::Only(XdpMode::Generic)));
}

#[test]
fn a_queue_can_be_opened_again() {
    let wire = Wire::new(1500);
    let attached = wire.on_card(|card| attach(card, XdpChoice::Automatic));
    let sender = wire.sender();
    for number in 0..3 {
        let mut queue = wire.on_card(|_| XdpQueue::open(&attached, 0, XdpConfig::default()).unwrap());
        let sent = vec![frame(number, 100, &[])];
        put(&sender, &sent[0]);
        assert_same(&take(&mut queue, 1), &sent);
    }
}

#[test]
fn loopback_takes_a_program_in_generic_mode_only() {
    gain_network_admin().unwrap();
    NetworkNamespace::new()
        .unwrap()
        .run(|| {
            let netlink = Netlink::open().unwrap();
            let lo = netlink.interface(name("lo")).unwrap();
            let attached = attach(&lo, XdpChoice::Automatic);
            assert_eq!(attached.mode(), XdpMode::Generic);
            drop(attached);
            let error = XdpInterface::attach(&lo, XdpChoice::Only(XdpMode::Native)).unwrap_err();
            assert!(matches!(error, XdpError::Mode { mode: XdpMode::Native, .. }), "{error}");
        })
        .unwrap();
}

#[test]
fn an_interface_that_is_not_here_is_named() {
    let wire = Wire::new(1500);
    // Interface indices are specific to a namespace.
    let gone = Interface { index: 4242, ..wire.card.clone() };
    wire.card_side
        .run(|| {
            let error = PacketRing::open(&gone, PacketRingConfig::default()).unwrap_err();
            assert!(matches!(error, PacketRingError::NoInterface(_)), "{error}");
            let error = XdpInterface::attach(&gone, XdpChoice::Automatic).unwrap_err();
            assert_eq!(error.to_string(), "there is no interface called card0 here ('ip link' lists them)");
        })
        .unwrap();
}

#[test]
fn without_capabilities_the_errors_say_which() {
    let wire = Wire::new(1500);
    let without = |dropped: CapabilitySet| {
        let wire = &wire;
        thread::scope(|scope| {
            scope
                .spawn(move || {
                    wire.card_side.enter_permanently().unwrap();
                    let mut sets = capabilities(None).unwrap();
                    sets.effective.remove(dropped);
                    set_capabilities(None, sets).unwrap();
                    let ring = PacketRing::open(&wire.card, PacketRingConfig::default()).map(drop);
                    let xdp = XdpInterface::attach(&wire.card, XdpChoice::Automatic).map(drop);
                    (ring, xdp)
                })
                .join()
                .unwrap()
        })
    };
    let (ring, xdp) = without(CapabilitySet::NET_RAW);
    let (ring, xdp) = (ring.unwrap_err(), xdp.unwrap_err());
    assert!(matches!(ring, PacketRingError::NotPermitted(_)) && ring.to_string().contains("CAP_NET_RAW"));
    assert!(matches!(xdp, XdpError::NotPermitted { .. }) && xdp.to_string().contains("CAP_NET_RAW"));
    let (ring, xdp) = without(CapabilitySet::BPF | CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN);
    ring.unwrap();
    let xdp = xdp.unwrap_err().to_string();
    assert!(xdp.starts_with("the kernel refuses a BPF map of sockets"), "{xdp}");
    assert!(xdp.contains("CAP_BPF") && xdp.contains("AF_PACKET needs less"), "{xdp}");
}

#[test]
fn too_much_memory_is_refused_with_the_limit() {
    let wire = Wire::new(1500);
    let attached = wire.on_card(|card| attach(card, XdpChoice::Automatic));
    let refused = |config| {
        let error = XdpQueue::open(&attached, 0, config).unwrap_err();
        assert!(matches!(error, XdpError::Memory { .. }), "{error}");
        assert!(error.to_string().contains("ulimit -l"), "{error}");
    };
    refused(XdpConfig { receive_chunks: u32::MAX, ..XdpConfig::default() });
    thread::scope(|scope| {
        scope.spawn(|| {
            wire.card_side.enter_permanently().unwrap();
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::IPC_LOCK);
            set_capabilities(None, sets).unwrap();
            // The limit does not apply to threads with the capability.
            let limit = Rlimit { current: Some(1 << 16), ..getrlimit(Resource::Memlock) };
            setrlimit(Resource::Memlock, limit).unwrap();
            refused(XdpConfig::default());
        });
    });
}

#[test]
fn a_queue_with_few_chunks_copies_frames_and_is_low_on_memory_before_it_has_none() {
    let wire = Wire::new(1500);
    let config = XdpConfig { receive_chunks: 64, ..XdpConfig::default() };
    let (_attached, mut queue) = wire.on_card(|card| {
        let attached = attach(card, XdpChoice::Automatic);
        let queue = XdpQueue::open(&attached, 0, config).unwrap();
        (attached, queue)
    });
    let sender = wire.sender();
    let mut held = Vec::new();
    for (all, is_low) in (8..=120).step_by(8).map(|all| (all, all > 96)) {
        let sent: Vec<_> = (all - 8..all).map(|number| frame(number, 100, &[])).collect();
        sent.iter().for_each(|frame| put(&sender, frame));
        held.extend(take(&mut queue, 8));
        assert_eq!((queue.is_low(), queue.is_starved()), (is_low, false), "{all} are held");
        assert_same(&held[all as usize - 8..], &sent);
    }
    held.clear();
    queue.receive(&mut held, 1).unwrap();
    assert!(!queue.is_low());
}
