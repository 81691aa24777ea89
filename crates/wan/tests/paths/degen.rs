//! degen (papers/rdma-over-ip section 3): each packet leaves at its own timestamp plus the delay.

use std::time::Duration;

use crate::common::{NONE, Outcome, ms, of, packet, send, us};
use nichrome_wan::{Impairments, Path};
use nichrome_wire::{Engine, Instant};

fn delay(text: &str) -> Path<nichrome_wan::Dummy> {
    Path::new(&Impairments { delay: of(text), ..NONE() }, 0).unwrap()
}

#[test]
fn delays_of_a_burst_do_not_cascade() {
    let mut path = delay("40ms");
    let stamps = [0, 0, 0, 1, 5, 5, 90_000];
    let outcome = send(&mut path, stamps.into_iter().enumerate().map(|(id, at)| (us(at), packet(id as u64))));
    assert_eq!(outcome.ids(), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(outcome.dues(), stamps.map(|at| us(at + 40_000)));
    assert!(
        outcome
            .released
            .iter()
            .all(|departure| departure.due - departure.arrived == Duration::from_millis(40))
    );
    assert_eq!(
        (path.stats().delay.max(), path.stats().delay.mean()),
        (Duration::from_millis(40), Duration::from_millis(40))
    );
}

#[test]
fn a_batch_is_stamped_as_a_whole_and_keeps_its_order() {
    let mut path = delay("1ms");
    path.receive_batch(&mut (0..100).map(packet).collect(), ms(3));
    assert_eq!((path.poll(), path.in_flight(), path.poll_timeout()), (None, 100, Some(ms(4))));
    path.handle_timeout(ms(4));
    let mut outcome = Outcome::default();
    while let Some(output) = path.poll() {
        outcome.take(output);
    }
    assert_eq!(outcome.ids(), (0..100).collect::<Vec<_>>());
    assert!(outcome.dues().into_iter().all(|due| due == ms(4)));
}

#[test]
fn a_late_timer_delays_nothing_that_follows() {
    // Three stages with late timers: the bottleneck, the delay, and reordering.
    let impairments = Impairments {
        delay: of("40ms"),
        rate: of::<nichrome_wan::Bandwidth>("10mbit").into(),
        reorder: of::<nichrome_wan::Reorder>("100%:3ms").into(),
        ..NONE()
    };
    let mut punctual = Path::new(&impairments, 0).unwrap();
    let expected = send(&mut punctual, (0..50).map(|id| (us(id * 700), packet(id))));
    for lateness in [1, 777, 10_000, 1_000_000] {
        let mut late = Path::new(&impairments, 0).unwrap();
        let mut outcome = Outcome::default();
        (0..50).for_each(|id| late.receive(packet(id), us(id * 700)));
        while let Some(due) = late.poll_timeout() {
            late.handle_timeout(due.plus_nanos(lateness * 1000));
            while let Some(output) = late.poll() {
                outcome.take(output);
            }
        }
        assert_eq!(outcome.released, expected.released, "{lateness} us late");
    }
}

#[test]
fn a_packet_that_comes_before_an_overdue_timer_ran_changes_nothing() {
    let mut path = delay("1ms");
    path.receive(packet(1), ms(0));
    path.receive(packet(2), ms(10));
    let mut outcome = Outcome::default();
    while let Some(output) = path.poll() {
        outcome.take(output);
    }
    assert_eq!((outcome.ids(), outcome.dues()), (vec![1], vec![ms(1)]));
    assert_eq!(path.poll_timeout(), Some(ms(11)));
}

#[test]
fn without_impairments_packets_pass_at_once() {
    let mut path = delay("0");
    path.receive(packet(1), ms(5));
    let Some(nichrome_wan::Output::Released(departure)) = path.poll() else { panic!("nothing came out") };
    assert_eq!((departure.arrived, departure.due, path.poll_timeout()), (ms(5), ms(5), None));
}

#[test]
fn decreasing_and_maximum_times_do_not_panic() {
    let mut path = delay("3600s");
    path.receive(packet(1), ms(5));
    path.receive(packet(2), ms(3));
    path.receive(packet(3), Instant::MAX);
    let mut outcome = Outcome::default();
    path.handle_timeout(Instant::MAX);
    while let Some(output) = path.poll() {
        outcome.take(output);
    }
    assert_eq!(outcome.ids(), [1, 2, 3]);
    assert_eq!(outcome.released[1].arrived, ms(5));
}

#[test]
fn packets_without_room_are_dropped_with_the_reason() {
    let impairments = Impairments { delay: of("1ms"), limit: of("3"), duplicate: of("100%"), ..NONE() };
    let mut path = Path::new(&impairments, 0).unwrap();
    let outcome = send(&mut path, (1..=4).map(|id| (ms(0), packet(id))));
    assert_eq!(outcome.ids(), [1, 1, 2]);
    assert_eq!(outcome.dropped_for(nichrome_wan::DropReason::InFlightLimit), [3, 4]);
    assert_eq!((path.stats().duplicated, path.stats().duplicates_missed), (1, 1));
}
