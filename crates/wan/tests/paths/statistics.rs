//! Over a long run, measured impairments equal the requested ones within 1 %.

use std::time::Duration;

use crate::common::{NONE, deviation, is_near, mean, of, send, send_evenly};
use nichrome_wan::{DropReason, Dummy, Impairments, Jitter, JitterOrder, Loss, Packet, Path, Samples};
use nichrome_wire::engine::deliver;
use nichrome_wire::{Instant, TcpFrame};

const MANY: u64 = 4_000_000;
const MICROSECOND: Duration = Duration::from_micros(1);
const SECOND: Duration = Duration::from_secs(1);

fn loss(text: &str) -> Impairments {
    Impairments { loss: Some(of::<Loss>(text)), ..NONE() }
}

fn jitter(jitter: Jitter) -> Impairments {
    Impairments { delay: of("100ms"), jitter: Some(jitter), ..NONE() }
}

#[test]
fn independent_loss_is_as_configured() {
    for (asked, share) in [("1%", 0.01), ("0.2%", 0.002), ("30%", 0.3)] {
        let (_, path) = send_evenly(&loss(asked), 4 * MANY, MICROSECOND);
        let lost = path.stats().drops.get(DropReason::Loss) as f64 / (4 * MANY) as f64;
        assert!(is_near(lost, share), "{asked}: {lost}");
    }
}

#[test]
fn gilbert_losses_come_in_bursts_of_the_configured_length() {
    let (outcome, path) = send_evenly(&loss("gilbert:1%,25%"), 2 * MANY, MICROSECOND);
    let lost = outcome.dropped_for(DropReason::Loss);
    let share = lost.len() as f64 / path.stats().packets_in as f64;
    assert!(is_near(share, 0.01 / 0.26), "{share}");
    let bursts = 1 + lost.windows(2).filter(|pair| pair[0] + 1 != pair[1]).count();
    let length = lost.len() as f64 / bursts as f64;
    assert!(is_near(length, 4.0), "{length}");
}

#[test]
fn elliott_loses_in_both_states() {
    let (outcome, _) = send_evenly(&loss("gilbert:1%,3%,0.5%,60%"), 4 * MANY, MICROSECOND);
    let share = outcome.dropped.len() as f64 / (4 * MANY) as f64;
    assert!(is_near(share, 0.75 * 0.005 + 0.25 * 0.6), "{share}");
}

#[test]
fn exactly_the_listed_packets_are_lost() {
    let (outcome, _) = send_evenly(&loss("packets:3,7,10-12"), 20, MICROSECOND);
    assert_eq!(outcome.dropped_for(DropReason::Loss), [3, 7, 10, 11, 12]);
}

#[test]
fn duplication_and_corruption_are_as_configured() {
    let impairments = Impairments { duplicate: of("1%"), corrupt: of("2%"), ..NONE() };
    let (outcome, path) = send_evenly(&impairments, MANY, MICROSECOND);
    let many = MANY as f64;
    let corrupt = outcome.released.iter().filter(|departure| departure.packet.corrupt).count() as u64;
    assert!(is_near(path.stats().duplicated as f64 / many, 0.01), "{:?}", path.stats());
    assert!(is_near(path.stats().corrupted as f64 / many, 0.02), "{:?}", path.stats());
    // Corruption precedes duplication, so that a copy is corrupt like its original.
    assert!(is_near(corrupt as f64 / outcome.released.len() as f64, 0.02), "{corrupt}");
    assert_eq!((outcome.released.len() as u64, path.stats().reordered), (MANY + path.stats().duplicated, 0));
    assert!(outcome.ids().is_sorted());
}

#[test]
fn reordering_has_the_configured_rate_and_time() {
    let impairments = Impairments { delay: of("10ms"), reorder: Some(of("1%:5ms")), ..NONE() };
    let (outcome, path) = send_evenly(&impairments, MANY, Duration::from_micros(100));
    let late = outcome.delays().into_iter().filter(|delay| *delay == 15e6).count() as f64;
    assert!(outcome.delays().into_iter().all(|delay| delay == 10e6 || delay == 15e6));
    assert!(is_near(late / MANY as f64, 0.01), "{late}");
    assert!(is_near(path.stats().reordered as f64, late), "{} of {late}", path.stats().reordered);
}

#[test]
fn jitter_has_the_configured_mean_and_deviation() {
    let scale = 5e6;
    for (asked, expected) in [
        ("5ms", scale / 3.0_f64.sqrt()),
        ("normal:5ms", scale),
        ("pareto:5ms", scale),
        ("pareto-normal:5ms", scale),
    ] {
        let (outcome, path) = send_evenly(&jitter(of(asked)), MANY / 4, SECOND);
        let delays = outcome.delays();
        assert!(is_near(mean(&delays), 100e6), "{asked}: {}", mean(&delays));
        assert!(is_near(deviation(&delays), expected), "{asked}: {}", deviation(&delays));
        assert!(is_near(path.stats().delay.mean().as_nanos() as f64, mean(&delays)));
        assert!(outcome.ids().is_sorted());
    }
}

#[test]
fn jitter_that_may_reorder_gives_each_packet_a_delay_of_its_own() {
    let impairments = Impairments { jitter_order: JitterOrder::Reorder, ..jitter(of("normal:5ms")) };
    let (outcome, path) = send_evenly(&impairments, MANY, MICROSECOND);
    let delays = outcome.delays();
    assert!(is_near(mean(&delays), 100e6) && is_near(deviation(&delays), 5e6), "{:?}", path.stats());
    assert!(!outcome.ids().is_sorted() && path.stats().reordered > MANY / 2);
    assert!(outcome.dues().is_sorted());
}

#[test]
fn jitter_that_keeps_order_holds_packets_up_instead() {
    let (outcome, path) = send_evenly(&jitter(of("5ms")), MANY, MICROSECOND);
    assert!(outcome.ids().is_sorted() && outcome.dues().is_sorted());
    assert_eq!(path.stats().reordered, 0);
    assert!(outcome.delays().into_iter().all(|delay| (95e6..=105e6).contains(&delay)));
}

/// The extra delay to keep the order is not part of the drawn jitter.
#[test]
fn drawn_delay_and_delay_of_order_are_reported_separately() {
    let impairments = Impairments { delay: of("20ms"), ..jitter(of("5ms")) };
    let (outcome, path) = send_evenly(&impairments, MANY / 4, Duration::from_micros(50));
    let given = mean(&outcome.delays());
    assert!(given > 24e6, "{given}");
    let stats = path.stats();
    let [drawn, waited] =
        [&stats.drawn, &stats.kept_in_order].map(|histogram| histogram.mean().as_nanos() as f64);
    assert!(is_near(drawn, 20e6) && is_near(drawn + waited, given), "{drawn} {waited} {given}");
    assert!(is_near(stats.drawn.p50().as_nanos() as f64, 20e6));
}

#[test]
fn a_delay_is_cut_off_at_zero() {
    let impairments = Impairments { delay: of("1ms"), ..jitter(of("5ms")) };
    let (outcome, _) = send_evenly(&impairments, MANY / 4, SECOND);
    let delays = outcome.delays();
    let at_once = delays.iter().filter(|delay| **delay == 0.0).count() as f64 / delays.len() as f64;
    assert!(is_near(at_once, 0.4), "{at_once}");
    // The mean of max(0, x) for x uniform from -4 ms to 6 ms.
    assert!(is_near(mean(&delays), 1.8e6), "{}", mean(&delays));
}

#[test]
fn samples_are_added_to_the_delay() {
    let samples = Samples::parse("0\n10ms\n20ms\n30ms\n").unwrap();
    let (outcome, _) = send_evenly(&jitter(Jitter::Samples(samples)), MANY / 4, SECOND);
    assert!(is_near(mean(&outcome.delays()), 115e6));
    let of_delay = |delay: f64| outcome.delays().into_iter().filter(|other| *other == delay).count() as f64;
    assert!(
        [100e6, 110e6, 120e6, 130e6].into_iter().all(|delay| is_near(of_delay(delay), MANY as f64 / 16.0))
    );
}

/// The checksums of IPv4 and TCP detect every flipped bit; the Ethernet header is not changed.
#[test]
fn a_corrupt_packet_is_found_by_its_checksums() {
    let frame = TcpFrame { payload: b"payload".to_vec(), ..TcpFrame::default() }.build();
    let impairments = Impairments { corrupt: of("100%"), ..NONE() };
    let mut path = Path::new(&impairments, 3).unwrap();
    let mut flipped = vec![false; frame.len() * 8];
    for _ in 0..20_000 {
        deliver(&mut path, frame.clone(), Instant::ZERO, &mut |_, output| {
            let nichrome_wan::Output::Released(departure) = output else { panic!("dropped") };
            let bit = (0..frame.len() * 8).find(|bit| {
                let mut other = frame.clone();
                other.flip_bit(*bit);
                other == departure.packet
            });
            flipped[bit.unwrap()] = true;
        });
    }
    let (link, network) = flipped.split_at(14 * 8);
    assert!(link.iter().all(|flipped| !flipped) && network.iter().all(|flipped| *flipped));
}

#[test]
fn a_busy_link_carries_the_configured_rate() {
    let impairments = Impairments { rate: Some(of("10mbit")), queue: of("20p"), ..NONE() };
    let mut path = Path::new(&impairments, 1).unwrap();
    let sizes =
        (0..1_000_000u64).map(|id| Dummy { len: 60 + (id * 7919 % 1455) as u32, id, ..Dummy::default() });
    let outcome = send(&mut path, sizes.map(|packet| (crate::common::us(packet.id * 300), packet)));
    let (first, last) = (outcome.released[0], outcome.released[outcome.released.len() - 1]);
    let bits = (path.stats().bytes_out - u64::from(first.packet.len)) as f64 * 8.0;
    let rate = bits / (last.due - first.due).as_secs_f64();
    assert!(is_near(rate, 10e6), "{rate}");
    assert!(path.stats().drops.get(DropReason::TailDrop) > 100_000);
}

#[test]
fn a_frame_without_content_is_not_corrupted() {
    let mut path = Path::new(&Impairments { corrupt: of("100%"), ..NONE() }, 3).unwrap();
    for len in [0, 14, 15] {
        deliver(&mut path, vec![7; len], Instant::ZERO, &mut |_, output| {
            let nichrome_wan::Output::Released(departure) = output else { panic!("dropped") };
            assert_eq!(departure.packet != vec![7; len], len == 15);
        });
    }
    assert_eq!(path.stats().corrupted, 1);
}
