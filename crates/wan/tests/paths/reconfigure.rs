//! Impairments that change while packets are in flight.

use crate::common::{NONE, Outcome, ect, ms, of, packet, us};
use nichrome_wan::{ConfigError, DropReason, Dummy, Impairments, JitterOrder, Path};
use nichrome_wire::Instant;
use nichrome_wire::engine::{advance, deliver};

fn delay(text: &str) -> Impairments {
    Impairments { delay: of(text), ..NONE() }
}

/// Sends a packet each millisecond, and changes the impairments at the given packets.
fn run(first: &Impairments, changes: &[(u64, Impairments)], count: u64) -> (Outcome, Path<Dummy>) {
    let mut path = Path::new(first, 5).unwrap();
    let mut outcome = Outcome::default();
    for id in 0..count {
        for (_, impairments) in changes.iter().filter(|(at, _)| *at == id) {
            path.reconfigure(impairments, ms(id)).unwrap();
        }
        deliver(&mut path, packet(id), ms(id), &mut |_, output| outcome.take(output));
    }
    advance(&mut path, Instant::MAX, &mut |_, output| outcome.take(output));
    assert_eq!(path.in_flight(), 0);
    (outcome, path)
}

#[test]
fn packets_in_flight_keep_their_release_times() {
    let (outcome, path) = run(&delay("40ms"), &[(10, delay("100ms"))], 20);
    let expected = (0..20).map(|id| ms(if id < 10 { id + 40 } else { id + 100 }));
    assert!(outcome.dues().into_iter().eq(expected));
    assert_eq!((path.stats().packets_in, path.stats().packets_out), (20, 20));
}

#[test]
fn a_shorter_delay_overtakes_only_where_it_may() {
    let (outcome, _) = run(&delay("40ms"), &[(10, delay("1ms"))], 20);
    assert!(outcome.ids().is_sorted());
    assert_eq!(outcome.dues()[10], ms(49));
    let free = Impairments { jitter_order: JitterOrder::Reorder, ..delay("1ms") };
    let (outcome, path) = run(&delay("40ms"), &[(10, free)], 20);
    assert_eq!(outcome.ids()[0], 10);
    assert_eq!((outcome.dues()[0], path.stats().reordered), (ms(11), 10));
}

#[test]
fn packets_held_when_everything_is_disabled_leave_as_scheduled() {
    let all = Impairments { reorder: Some(of("100%:7ms")), rate: Some(of("12112kbit")), ..delay("40ms") };
    let (outcome, _) = run(&all, &[(10, NONE())], 20);
    assert_eq!(outcome.released.len(), 20);
    let due = |id: u64| outcome.released.iter().find(|d| d.packet.id == id).unwrap().due;
    // The packets were sent before the change. Later ones have no delay, but do not overtake them in the
    // delay stage.
    assert!((0..9).all(|id| due(id) == ms(id + 1 + 40)), "{:?}", outcome.dues());
    assert!(outcome.ids().is_sorted());
}

#[test]
fn queued_packets_are_sent_at_the_new_rate() {
    let slow = Impairments { rate: Some(of("1211200bit")), ..NONE() };
    let fast = Impairments { rate: Some(of("121120kbit")), ..NONE() };
    // 10 ms each. The first leaves at 10 ms, the second is in transmission at the change at 15 ms; then 0.1
    // ms each.
    let (outcome, _) = run(&slow, &[(15, fast)], 16);
    let expected = [10_000, 20_000].into_iter().chain((1..=14).map(|nth| 20_000 + nth * 100));
    assert!(outcome.dues().into_iter().eq(expected.map(us)));
    let (outcome, _) = run(&slow, &[(15, NONE())], 16);
    assert!(outcome.dues().into_iter().eq([10, 20].into_iter().chain([20; 14]).map(ms)));
}

#[test]
fn queued_packets_get_the_new_delay() {
    let slow = |delay| Impairments { rate: Some(of("1211200bit")), ..self::delay(delay) };
    // 10 ms each: the second is in transmission at the change.
    let (outcome, _) = run(&slow("40ms"), &[(15, slow("100ms"))], 16);
    let expected = [50].into_iter().chain((2..=16).map(|nth| nth * 10 + 100));
    assert!(outcome.dues().into_iter().eq(expected.map(ms)), "{:?}", outcome.dues());
}

#[test]
fn a_trace_takes_over_the_queued_packets() {
    let slow = Impairments { rate: Some(of("1211200bit")), ..NONE() };
    let trace = Impairments { trace: Some(of("3\n")), ..NONE() };
    let (outcome, _) = run(&slow, &[(5, trace.clone())], 6);
    // The trace begins when it sends its first packet.
    assert_eq!(outcome.dues(), [10, 13, 16, 19, 22, 25].map(ms));
    let (outcome, _) = run(&trace, &[(5, slow)], 6);
    assert_eq!(outcome.dues(), [3, 15, 25, 35, 45, 55].map(ms));
}

#[test]
fn smaller_limits_drop_nothing_that_was_accepted() {
    let wide = Impairments { rate: Some(of("1211200bit")), ..delay("40ms") };
    let narrow = Impairments { queue: of("1p"), limit: of("1"), ..wide.clone() };
    let (outcome, path) = run(&wide, &[(10, narrow)], 20);
    assert_eq!(outcome.ids(), (0..10).collect::<Vec<_>>());
    assert_eq!(path.stats().drops.get(DropReason::InFlightLimit), 10);
}

#[test]
fn an_unchanged_impairment_keeps_its_state() {
    let lossy = Impairments { loss: Some(of("packets:3,12")), ..NONE() };
    let more = Impairments { delay: of("1ms"), ..lossy.clone() };
    let (outcome, _) = run(&lossy, &[(5, more)], 20);
    assert_eq!(outcome.dropped_for(DropReason::Loss), [2, 11]);
    let other = Impairments { loss: Some(of("packets:3")), ..NONE() };
    let (outcome, _) = run(&lossy, &[(5, other)], 20);
    assert_eq!(outcome.dropped_for(DropReason::Loss), [2, 7]);
}

#[test]
fn a_change_elsewhere_keeps_the_link_s_place() {
    // 1,730,285 5/7 ns a packet, and a trace of uneven times.
    for link in [
        Impairments { rate: Some(of("7mbit")), ..NONE() },
        Impairments { trace: Some(of("1\n2\n9\n")), ..NONE() },
    ] {
        let (unchanged, _) = run(&link, &[], 30);
        let wider = Impairments { queue: of("2000p"), ..link.clone() };
        let changes: Vec<_> = (1..30).map(|at| (at, wider.clone())).collect();
        let (changed, _) = run(&link, &changes, 30);
        assert_eq!(changed.dues(), unchanged.dues());
    }
}

#[test]
fn another_trace_begins_anew() {
    let trace = |text: &str| Impairments { trace: Some(of(text)), ..NONE() };
    let (outcome, _) = run(&trace("3\n"), &[(5, trace("2\n"))], 6);
    assert_eq!(outcome.dues(), [3, 7, 9, 11, 13, 15].map(ms));
}

#[test]
fn a_change_elsewhere_keeps_codels_drop_rate() {
    let codel = Impairments { rate: Some(of("6mbit")), aqm: of("codel"), queue: of("900p"), ..NONE() };
    let wider = Impairments { queue: of("1000p"), ..codel.clone() };
    let (unchanged, _) = run(&codel, &[], 800);
    let (changed, _) = run(&codel, &[(500, wider)], 800);
    assert!(unchanged.dropped_for(DropReason::CoDel).len() > 20);
    assert_eq!((changed.dues(), changed.dropped), (unchanged.dues(), unchanged.dropped));
    // New parameters reset CoDel: the delay is below the new target, so nothing is dropped.
    let lax = Impairments { aqm: of("codel:60s,60s"), ..codel.clone() };
    let (changed, _) = run(&codel, &[(500, lax)], 800);
    assert!(changed.dropped_for(DropReason::CoDel).iter().all(|id| *id < 500));
}

#[test]
fn a_change_of_ecn_applies_to_a_controller_in_use() {
    let dropping = Impairments { rate: Some(of("6mbit")), aqm: of("codel"), ..NONE() };
    let marking = Impairments { ecn: of("mark"), ..dropping.clone() };
    let mut path = Path::new(&dropping, 0).unwrap();
    let mut outcome = Outcome::default();
    let send = |path: &mut Path<Dummy>, ids: std::ops::Range<u64>, outcome: &mut Outcome| {
        ids.for_each(|id| deliver(path, ect(id), ms(id), &mut |_, output| outcome.take(output)));
    };
    send(&mut path, 0..500, &mut outcome);
    let dropped = path.stats().drops.get(DropReason::CoDel);
    assert!(dropped > 0 && path.stats().ce_marked == 0);
    path.reconfigure(&marking, ms(500)).unwrap();
    send(&mut path, 500..1000, &mut outcome);
    assert_eq!(path.stats().drops.get(DropReason::CoDel), dropped);
    assert!(path.stats().ce_marked > 0);
}

#[test]
fn contradictions_change_nothing() {
    let mut path = Path::new(&delay("40ms"), 0).unwrap();
    deliver(&mut path, packet(1), ms(0), &mut |_, _| panic!("too early"));
    let both = Impairments { rate: Some(of("1mbit")), trace: Some(of("1")), ..NONE() };
    assert_eq!(path.reconfigure(&both, ms(1)), Err(ConfigError::RateAndTrace));
    let mut outcome = Outcome::default();
    deliver(&mut path, packet(2), ms(2), &mut |_, output| outcome.take(output));
    advance(&mut path, ms(100), &mut |_, output| outcome.take(output));
    assert_eq!(outcome.dues(), [40, 42].map(ms));
}
