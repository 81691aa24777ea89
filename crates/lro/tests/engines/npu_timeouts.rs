//! The timeouts of the `npu` profile: ten average intervals, floor, ceiling, and the reorder hold.

use std::time::Duration;

use crate::common::{Card, Change, assert_consistent, data, ms, tcp, us};
use nichrome_lro::{Config, FlushReason, Frame, Npu, NpuConfig, PassReason, ProfileConfig, Rules};
use nichrome_wire::engine::{advance, deliver};
use nichrome_wire::{Engine, Instant, TcpFrame};

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
fn segments_behind_a_gap_are_drained_with_their_connection_and_count() {
    for (frames, flushed) in [(2, vec![0, 200]), (3, vec![0, 200, 1000])] {
        let mut card = Card::npu();
        card.receive(&data(0, 100)).receive(&data(200, 100)).wait(us(10));
        card.receive(&TcpFrame { src_port: 5, ..data(1000, 100) });
        let sent = card.drain_oldest(frames).take();
        let seqs: Vec<_> =
            sent.iter().map(|sent| tcp(sent.bytes()).seq.wrapping_sub(data(0, 0).seq.0)).collect();
        assert_eq!(seqs, flushed);
        card.drain();
        assert_consistent(&card.statistics());
    }
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
    // (average + interval) / 2: after a long pause, half of the pause counts.
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
    /// Receives a train of two segments 10 µs apart, 3 ms after the last train. Returns the payload lengths
    /// that leave within 250 µs after it.
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
    // An interval of 300 µs is not within a train: pauses count again.
    safe.receive(&data(2400, 100)).wait(us(300)).receive(&data(2500, 100)).wait(ms(3)).take();
    let early: Vec<_> = (13..17).map(|train| handed_on(&mut safe, train)).collect();
    assert_eq!(early, vec![vec![]; 4]);
    let mut paper = Card::npu_with(NpuConfig { rules: Rules::Paper, ..NpuConfig::default() });
    let of_paper: Vec<_> = (0..12).map(|train| handed_on(&mut paper, train)).collect();
    assert_eq!(of_paper.last(), Some(&vec![]), "every interval counts");
}

/// The four segments of a train of connection `of`.
fn segments(of: u16, train: u32) -> [Vec<u8>; 4] {
    [0, 1, 2, 3].map(|nth| data((train * 4 + nth) * 100, 100).with(|frame| frame.src_port = of).build())
}

/// Receives a train, and ends the batch.
fn receive_train(card: &mut Card, of: u16, train: u32) -> &mut Card {
    card.receive_batch(&segments(of, train))
}

#[test]
fn trains_that_come_further_apart_than_the_timeout_are_delivered_when_the_batch_ends() {
    let mut card = Card::npu();
    // At the start of a connection, and at long intervals after it.
    for train in 0..3 {
        receive_train(&mut card, 1, train);
        assert_eq!(card.take_lens(), [400]);
        card.wait(us(300));
    }
    receive_train(&mut card, 1, 3);
    assert_eq!((card.take_lens(), card.flushes(FlushReason::EndOfBatch)), (vec![400], 4));
    // The next train comes within the timeout and is held; so are others, until four long intervals in a row.
    card.wait(us(19));
    receive_train(&mut card, 1, 4);
    receive_train(&mut card, 1, 5);
    assert!(card.take().is_empty());
    card.wait(us(300));
    assert_eq!((card.take_lens(), card.flushes(FlushReason::Timeout)), (vec![800], 1));
    for train in 6..9 {
        receive_train(&mut card, 1, train);
        assert!(card.take().is_empty(), "fewer than four long intervals may be pauses");
        card.wait(us(300)).take();
    }
    receive_train(&mut card, 1, 9);
    assert_eq!((card.take_lens(), card.flushes(FlushReason::EndOfBatch)), (vec![400], 5));
    // Another connection, whose trains follow each other within the timeout from the start.
    receive_train(&mut card, 2, 0);
    assert_eq!(card.take_lens(), [400]);
    card.wait(us(19));
    receive_train(&mut card, 2, 1);
    assert!(card.take().is_empty());
}

/// A card with the default configuration whose connection 1 has had five trains, 300 µs apart: the end of a
/// batch delivers the next one.
fn card_after_trains() -> Card {
    let mut card = Card::npu();
    (0..5).for_each(|train| _ = receive_train(&mut card, 1, train).wait(us(300)));
    card.take();
    card
}

#[test]
fn without_the_end_of_a_batch_the_timeout_delivers() {
    let mut card = card_after_trains();
    card.receive_all(&segments(1, 5), false);
    card.wait(us(150));
    assert!(card.take().is_empty());
    card.wait(us(55));
    assert_eq!((card.take_lens(), card.flushes(FlushReason::Timeout)), (vec![400], 1));
    // No timer is set, and the end of a batch delivers nothing.
    assert_eq!(card.engine.poll_timeout(), None);
    assert!(card.end_batch().take().is_empty());
}

#[test]
fn what_waits_behind_a_gap_is_held_beyond_the_batch() {
    let mut card = card_after_trains();
    let segments = [20, 21, 23].map(|nth| data(nth * 100, 100).with(|frame| frame.src_port = 1).build());
    card.receive_batch(&segments);
    assert!(card.take().is_empty());
    card.wait(us(10)).receive(&data(2200, 100).with(|frame| frame.src_port = 1)).wait(us(300));
    assert_eq!(card.take_lens(), [400], "the gap was filled in time");
}

#[test]
fn more_connections_than_a_batch_can_end_are_held_until_their_timeout() {
    const CONNECTIONS: u16 = 700;
    let mut card = Card::npu();
    for train in 0..6 {
        card.receive_batch(&(0..CONNECTIONS).flat_map(|of| segments(of, train)).collect::<Vec<_>>());
        card.wait(us(300));
        assert_eq!(card.take_lens(), vec![400; CONNECTIONS.into()]);
    }
    let [ended, timed_out] =
        [FlushReason::EndOfBatch, FlushReason::Timeout].map(|reason| card.flushes(reason));
    assert_eq!(ended + timed_out, 6 * u64::from(CONNECTIONS));
    // At most 256 in `until_end` and 64 of the last burst per batch; and in the first batch, 64 without a
    // descriptor.
    assert!((1..=6 * (256 + 64) + 64).contains(&ended), "{ended}");
}

#[test]
fn drained_is_nothing_held_for_the_end_of_a_batch() {
    let mut card = card_after_trains();
    card.receive(&data(2000, 100).with(|frame| frame.src_port = 1)).drain();
    assert_eq!((card.take_lens(), card.engine.poll_timeout()), (vec![100], None));
    // Also after another connection's burst.
    card.receive_all(&segments(2, 0), false).wait(us(25));
    assert_eq!((card.take_lens(), card.engine.poll_timeout()), (vec![400], None));
}

#[test]
fn the_bursts_of_a_batch_are_delivered_together_when_it_ends() {
    let mut card = card_after_trains();
    card.receive_all(&segments(1, 5), false).receive_all(&segments(1, 6), false);
    assert!(card.take().is_empty());
    card.receive_all(&segments(2, 0), false).end_batch();
    let mut lens = card.take_lens();
    lens.sort_unstable();
    assert_eq!((lens, card.flushes(FlushReason::Timeout)), (vec![400, 800], 0));
}

#[test]
fn the_paper_holds_every_train() {
    let mut card = Card::npu_with(NpuConfig { rules: Rules::Paper, ..NpuConfig::default() });
    for train in 0..7 {
        receive_train(&mut card, 1, train);
        assert!(card.take().is_empty());
        card.wait(ms(2)).take();
    }
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
fn a_list_for_segments_behind_a_gap_serves_another_connection_once_the_gap_is_filled() {
    let config = Config { max_connections: 8, max_aggregates: 8, ..Config::default() };
    let mut card = Card::new(&config, &ProfileConfig::Npu(NpuConfig::default()));
    for port in [1, 2, 3] {
        for at in [0, 200, 100] {
            card.receive(&data(at, 100).with(|frame| frame.src_port = port));
        }
    }
    card.wait(ms(2));
    assert_eq!((card.take_lens(), card.flushes(FlushReason::Timeout)), (vec![300; 3], 3));
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
