//! The `npu` profile in time: ten average intervals, floor, ceiling, and the reorder hold.

use std::time::Duration;

use crate::common::{Card, Change, data, ms, us};
use nichrome_lro::{Config, FlushReason, Frame, Npu, NpuConfig, PassReason, Rules};
use nichrome_wire::engine::{advance, deliver};
use nichrome_wire::{Instant, TcpFrame};

/// Receives segments at this interval; waits `quiet` after the last.
fn steady(card: &mut Card, segments: u32, interval: Duration, quiet: Duration) {
    for nth in 0..segments {
        if nth > 0 {
            card.wait(interval);
        }
        card.receive(&data(nth * 100, 100));
    }
    card.wait(quiet);
}

#[test]
fn timeout_is_ten_average_intervals() {
    let mut card = Card::npu();
    steady(&mut card, 12, us(40), us(398));
    assert_eq!(card.take_lens(), [100], "one segment has no interval: it waits for the floor");
    card.wait(us(4));
    assert_eq!((card.take_lens(), card.flushes(FlushReason::Timeout)), (vec![1100], 2));
}

#[test]
fn the_average_follows_the_last_intervals() {
    // (average + interval) / 2: after a long pause, half of it counts.
    let config = NpuConfig { ceiling: ms(60), ..NpuConfig::default() };
    let mut card = Card::npu_with(config);
    card.receive(&data(0, 100)).wait(ms(100)).take();
    card.receive(&data(100, 100)).wait(ms(59));
    assert!(card.take().is_empty(), "ten times half of 100 ms are beyond the ceiling of 60 ms");
    card.wait(ms(2));
    assert_eq!(card.take_lens(), [100]);
}

#[test]
fn the_average_is_half_of_what_it_was_and_half_of_the_last_interval() {
    let mut card = Card::npu();
    steady(&mut card, 12, us(10), us(90));
    card.receive(&data(1200, 100)).wait(us(498));
    assert!(card.take().is_empty(), "(10 + 90) / 2 = 50, and ten of them");
    card.wait(us(4));
    assert_eq!(card.take_lens(), [1300]);
}

#[test]
fn a_connection_never_times_out_before_the_floor() {
    let mut card = Card::npu();
    steady(&mut card, 12, Duration::from_nanos(100), us(19));
    assert!(card.take().is_empty());
    card.wait(us(3));
    assert_eq!(card.take_lens(), [1200]);
}

#[test]
fn a_connection_times_out_at_the_ceiling_however_slow_it_is() {
    let mut card = Card::npu();
    steady(&mut card, 2, us(900), Duration::ZERO);
    card.take();
    card.wait(us(98));
    let before = card.take_lens();
    card.wait(us(905));
    assert_eq!((before.len(), card.take_lens().len()), (0, 1), "1 ms after the first of the run");
}

#[test]
fn nothing_waits_longer_than_the_ceiling_however_steadily_more_comes() {
    let mut card = Card::npu();
    steady(&mut card, 99, us(10), us(11));
    assert!(card.take().is_empty(), "991 µs after the first");
    card.receive(&data(9900, 100)).wait(us(11));
    assert_eq!((card.take_lens(), card.flushes(FlushReason::Timeout)), (vec![10_000], 1));
}

#[test]
fn segments_that_come_further_apart_than_the_ceiling_are_not_held_in_vain() {
    let mut card = Card::npu();
    for nth in 0..2 {
        card.receive(&data(nth * 100, 100));
        assert!(card.take().is_empty(), "one long interval may be a pause");
        card.wait(us(1100)).take();
    }
    for nth in 2..5 {
        card.receive(&data(nth * 100, 100));
        assert_eq!((card.take_lens(), card.flushes(FlushReason::Sparse)), (vec![100], u64::from(nth) - 1));
        card.wait(us(1100));
    }
    card.receive(&data(500, 100)).receive(&data(600, 100)).receive(&data(700, 100)).wait(us(1100));
    assert_eq!(card.take_lens(), [100, 200], "a train: all but its first are merged");
    card.receive(&data(800, 100)).receive(&data(900, 100)).wait(us(1100));
    assert_eq!(card.take_lens(), [200], "and the next train as a whole");
}

#[test]
fn segments_as_far_apart_as_the_ceiling_are_held() {
    let mut card = Card::npu();
    steady(&mut card, 8, ms(1), ms(2));
    assert_eq!(card.flushes(FlushReason::Sparse), 0, "only a longer interval is a pause");
}

#[test]
fn pauses_between_trains_count_for_the_average_twice_only() {
    /// What of a train of two segments 10 µs apart, 3 ms behind the last, is handed on 250 µs after it.
    fn handed_on(card: &mut Card, train: u32) -> Vec<usize> {
        card.receive(&data(train * 200, 100)).wait(us(10));
        card.receive(&data(train * 200 + 100, 100)).wait(us(250));
        let lens = card.take_lens();
        card.wait(ms(3)).take();
        lens
    }
    let mut safe = Card::npu();
    let early: Vec<_> = (0..3).map(|train| handed_on(&mut safe, train)).collect();
    assert_eq!(early, [vec![200], vec![], vec![]], "half of 3 ms is beyond the ceiling");
    let late: Vec<_> = (3..12).map(|train| handed_on(&mut safe, train)).collect();
    assert_eq!(late.last(), Some(&vec![200]), "ten intervals of a train are 100 µs");
    // One of 300 µs is within no train: pauses count again.
    safe.receive(&data(2400, 100)).wait(us(300)).receive(&data(2500, 100)).wait(ms(3)).take();
    let early: Vec<_> = (13..17).map(|train| handed_on(&mut safe, train)).collect();
    assert_eq!(early, vec![vec![]; 4]);
    let mut paper = Card::npu_with(NpuConfig { rules: Rules::Paper, ..NpuConfig::default() });
    let of_paper: Vec<_> = (0..12).map(|train| handed_on(&mut paper, train)).collect();
    assert_eq!(of_paper.last(), Some(&vec![]), "every interval counts");
}

#[test]
fn the_paper_holds_every_segment() {
    let mut card = Card::npu_with(NpuConfig { rules: Rules::Paper, ..NpuConfig::default() });
    for nth in 0..5 {
        card.receive(&data(nth * 100, 100));
        assert!(card.take().is_empty());
        card.wait(us(1100)).take();
    }
}

#[test]
fn what_waited_behind_a_gap_does_not_wait_for_another_ceiling() {
    let hold = ms(1);
    let mut card = Card::npu_with(NpuConfig::with_hold(hold));
    card.receive(&data(0, 100)).wait(us(200));
    card.take();
    card.receive(&data(200, 100)).wait(us(900)).receive(&data(100, 100));
    for nth in 3..30 {
        card.wait(us(20)).receive(&data(nth * 100, 100));
    }
    let lens = card.take_lens();
    assert!(lens.iter().sum::<usize>() >= 300, "the segment at 200 waited for 1440 µs: {lens:?}");
}

#[test]
fn a_gap_is_given_up_after_reorder_hold() {
    let mut card = Card::npu();
    card.receive(&data(0, 100)).receive(&data(200, 100)).receive(&data(300, 100)).wait(us(100));
    assert_eq!(card.take_lens(), [100], "what is before the gap times out by itself");
    card.wait(us(399));
    assert!(card.take().is_empty());
    card.wait(us(3));
    assert_eq!((card.take_lens(), card.flushes(FlushReason::ReorderTimeout)), (vec![200], 1));
}

#[test]
fn the_first_segment_behind_a_gap_sets_its_hold() {
    let mut card = Card::npu();
    card.receive(&data(0, 100));
    for nth in 1..6 {
        card.receive(&data(nth * 200, 100)).wait(us(100));
    }
    card.wait(us(2));
    assert_eq!(card.take_lens(), [100; 6], "later ones, and later gaps, do not prolong it");
}

#[test]
fn a_gap_that_is_filled_in_time_is_merged() {
    let mut card = Card::npu();
    card.receive(&data(0, 100)).receive(&data(200, 100)).wait(us(400)).receive(&data(100, 100));
    assert_eq!(card.drain().take_lens(), [100, 200], "the first had timed out");
    assert_eq!(card.flushes(FlushReason::ReorderTimeout), 0);
}

#[test]
fn what_fills_a_gap_too_late_is_passed() {
    let mut card = Card::npu();
    card.receive(&data(0, 100)).receive(&data(200, 100)).wait(ms(1)).take();
    card.receive(&data(100, 100));
    assert_eq!((card.take_lens(), card.passes(PassReason::Old)), (vec![100], 1));
}

#[test]
fn each_connection_has_its_own_timer() {
    let mut card = Card::npu();
    let flow = |port: u16, at| -> TcpFrame { data(at, 100).with(|frame| frame.src_port = port) };
    for port in 0..20 {
        card.receive(&flow(port, 0)).wait(us(5));
    }
    assert_eq!(card.take().len(), 16, "those that came 20 µs ago and before");
    card.wait(us(25));
    assert_eq!(card.take().len(), 4);
}

#[test]
fn a_hold_beyond_a_turn_of_the_wheel_is_kept() {
    let mut card = Card::npu_with(NpuConfig { floor: ms(50), ceiling: ms(50), ..NpuConfig::default() });
    card.receive(&data(0, 100)).wait(us(49_990));
    assert!(card.take().is_empty());
    card.wait(us(20));
    assert_eq!(card.take_lens(), [100]);
}

#[test]
fn the_end_of_time_is_no_reason_to_panic() {
    let mut npu = Npu::new(&Config::default(), &NpuConfig::default()).unwrap();
    let mut count = 0;
    for (nth, now) in (0..).zip([0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX]) {
        let frame = Frame::new(data(nth * 100, 100).build());
        deliver(&mut npu, frame, Instant::from_nanos(now), &mut |_, _| count += 1);
    }
    npu.drain();
    advance(&mut npu, Instant::MAX, &mut |_, _| count += 1);
    assert!(count >= 3);
}
