//! Data through a card: received data equals sent data, and every frame is accounted for.

use std::sync::LazyLock;

use nichrome_port::Feature;
use rand::{RngCore, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;

use crate::lab::{Direction, Family, Lab, add_addresses, back_ends, name, needs_namespaces, until};

static DATA: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut data = vec![0; 2_000_000];
    Pcg64Mcg::seed_from_u64(1).fill_bytes(&mut data);
    data
});

fn transfer_all(lab: &Lab) {
    for family in [Family::V4, Family::V6] {
        for direction in [Direction::ToHost, Direction::FromHost] {
            lab.transfer(&DATA, direction, family);
        }
    }
}

fn sum(counts: &Value) -> u64 {
    counts.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
}

/// Returns the counters that do not add up.
fn unaccounted(stats: &Value) -> Vec<String> {
    let total = &stats["total"];
    let (card, engine) = (|name: &str| total[name].as_u64().unwrap(), &total["engine"]);
    let of_engine = |name: &str| engine[name].as_u64().unwrap();
    let arrived = card("received") + card("receive_finished")
        - card("receive_unfinished")
        - card("distribution_dropped")
        - card("receive_malformed");
    let delivered = card("to_host") + card("host_refused") + card("delivery_dropped");
    let flushed = sum(&engine["flush_reasons"]) - of_engine("aggregates") + of_engine("segments_aggregated");
    let out = sum(&engine["passes"]) + sum(&engine["drops"]) + flushed;
    let equal = if stats["profile"] == "none" {
        vec![("received, delivered", arrived, delivered)]
    } else {
        vec![
            ("received, to the engine", arrived, of_engine("packets_in")),
            ("to the engine, passed or flushed or dropped", of_engine("packets_in"), out),
            ("from the engine, delivered", of_engine("packets_out"), delivered),
        ]
    };
    equal.into_iter().filter(|(_, a, b)| a != b).map(|(what, a, b)| format!("{what}: {a}, {b}")).collect()
}

/// Waits until no frame is in flight and every received frame is accounted for.
pub(crate) fn check_accounts(lab: &Lab) -> Value {
    until("all frames to be accounted for", || {
        let missing = unaccounted(&lab.stats());
        if !missing.is_empty() {
            println!("{missing:?}");
        }
        missing.is_empty()
    });
    lab.stats()
}

#[test]
fn udp_datagrams_are_coalesced_and_arrive_one_by_one() {
    needs_namespaces!("transfers::udp_datagrams_are_coalesced_and_arrive_one_by_one");
    let lens = [1200, 1200, 1200, 1200, 700, 1200, 1, 1, 1400, 0, 1400];
    let datagrams: Vec<Vec<u8>> =
        (0..9).flat_map(|nth| lens.map(|len| DATA[nth..nth + len].to_vec())).collect();
    for back_end in back_ends() {
        for (udp, merges) in [(&[][..], true), (&["--udp", "off"], false)] {
            let lab = Lab::new();
            let up = lab.up(&[&["--hold", "20ms", "--backend", back_end], udp].concat());
            lab.configure_host();
            for family in [Family::V4, Family::V6] {
                lab.send_datagrams(&datagrams, lens.len(), family);
            }
            let total = check_accounts(&lab)["total"].clone();
            assert_eq!(total["engine"]["aggregates"].as_u64().unwrap() >= 36, merges, "{total}");
            assert_eq!(total["taken_apart"], 0, "{total}");
            up.stop();
        }
    }
}

#[test]
fn received_data_equals_sent_data_with_each_profile_on_each_back_end() {
    needs_namespaces!("transfers::received_data_equals_sent_data_with_each_profile_on_each_back_end");
    let profiles: [&[&str]; 5] = [
        &["--profile", "none"],
        &["--profile", "gro"],
        &["--profile", "netfpga"],
        &["--profile", "npu"],
        &["--profile", "npu", "--active-ack", "safe"],
    ];
    for back_end in back_ends() {
        for profile in profiles {
            println!("{back_end} {profile:?}");
            let lab = Lab::new();
            let up = lab.up(&[profile, &["--backend", back_end]].concat());
            lab.configure_host();
            transfer_all(&lab);
            let stats = check_accounts(&lab);
            assert!(stats["backend"].as_str().unwrap().starts_with(back_end));
            let aggregates = stats["total"]["engine"]["aggregates"].as_u64().unwrap();
            assert_eq!(aggregates > 0, profile != profiles[0], "{stats}");
            up.stop();
            assert!(lab.is_tidy());
        }
    }
}

#[test]
fn frames_with_unfinished_checksums_of_local_senders_arrive_complete() {
    needs_namespaces!("transfers::frames_with_unfinished_checksums_of_local_senders_arrive_complete");
    let lab = Lab::new();
    lab.there.run(|| Feature::TransmitChecksum.enable(name("p0")).unwrap()).unwrap();
    lab.there.run(|| Feature::Tso.enable(name("p0")).unwrap()).unwrap();
    let _up = lab.up(&[]);
    lab.configure_host();
    transfer_all(&lab);
    let stats = check_accounts(&lab);
    assert_eq!(stats["backend"], "packet", "AF_XDP does not show what is unfinished");
    let total = &stats["total"];
    assert!(total["receive_unfinished"].as_u64() > Some(0), "{stats}");
    assert!(total["receive_finished"].as_u64() > total["receive_unfinished"].as_u64(), "{stats}");
}

#[test]
fn several_workers_share_one_host_queue_or_have_one_each() {
    needs_namespaces!("transfers::several_workers_share_one_host_queue_or_have_one_each");
    for host_queues in ["1", "3"] {
        let lab = Lab::new();
        let up = lab.up(&["--queues", "3", "--host-queues", host_queues, "--backend", "packet"]);
        lab.configure_host();
        transfer_all(&lab);
        let stats = check_accounts(&lab);
        assert_eq!(stats["queues"].as_array().unwrap().len(), 3);
        assert_eq!(stats["host_queues"], host_queues.parse::<u64>().unwrap());
        let received = |queue: &Value| queue["received"].as_u64().unwrap();
        let parts: u64 = stats["queues"].as_array().unwrap().iter().map(received).sum();
        assert_eq!(parts, received(&stats["total"]));
        up.stop();
    }
}

#[test]
fn workers_that_never_sleep_do_the_same() {
    needs_namespaces!("transfers::workers_that_never_sleep_do_the_same");
    let lab = Lab::new();
    let up = lab.up(&["--busy-poll"]);
    lab.configure_host();
    transfer_all(&lab);
    check_accounts(&lab);
    up.stop();
}

#[test]
fn jumbo_frames_pass_on_each_back_end() {
    needs_namespaces!("transfers::jumbo_frames_pass_on_each_back_end");
    for back_end in back_ends() {
        let lab = Lab::new();
        lab.ip("link set w0 mtu 9000");
        lab.there
            .run(|| {
                let netlink = nichrome_port::Netlink::open().unwrap();
                let settings = nichrome_port::Settings { mtu: Some(9000), ..Default::default() };
                netlink.configure(&netlink.interface(name("p0")).unwrap(), settings).unwrap();
            })
            .unwrap();
        let _up = lab.up(&["--backend", back_end]);
        assert_eq!(lab.interface("h0").mtu, 9000);
        lab.configure_host();
        transfer_all(&lab);
        check_accounts(&lab);
    }
}

#[test]
fn the_kernel_end_of_a_tap_is_the_wire_in_any_namespace() {
    needs_namespaces!("transfers::the_kernel_end_of_a_tap_is_the_wire_in_any_namespace");
    let lab = Lab::new();
    let arguments = ["nic", "up", "--wire", "t0", "--host", "h0", "--backend", "tap"];
    let up = lab.start(&mut lab.command(env!("CARGO_BIN_EXE_nichrome"), &arguments));
    assert_ne!(lab.interface("t0").mac, lab.interface("h0").mac, "they are two ends of a wire");
    lab.move_there("t0");
    lab.there
        .run(|| {
            let netlink = nichrome_port::Netlink::open().unwrap();
            netlink.set_up(&netlink.interface(name("t0")).unwrap()).unwrap();
            // p0 has an address in the same subnet.
            let status = std::process::Command::new("ip").args(["address", "flush", "dev", "p0"]).status();
            assert!(status.unwrap().success());
            add_addresses("t0", 2);
        })
        .unwrap();
    lab.configure_host();
    transfer_all(&lab);
    check_accounts(&lab);
    up.stop();
    assert!(lab.is_tidy());
}
