//! The `npu` profile on all sequences of a few segments: in any order, with any overlap and repetition, the
//! stream is whole, and nothing is held beyond the reorder window and the hold times.

use crate::common::{Card, Change, data, ms, us};
use nichrome_lro::{ActiveAck, Config, NpuConfig, ProfileConfig};
use nichrome_wire::TcpFrame;

/// Number of events in a sequence.
const DEPTH: u32 = 5;

/// Segments of a stream as offset and length: four in order, two that overlap them, one that spans three.
const SEGMENTS: [(u32, usize); 7] = [(0, 2), (2, 2), (4, 2), (6, 2), (1, 2), (3, 3), (2, 5)];

/// The segment, in a stream whose sequence numbers wrap at its fifth byte.
fn segment((at, len): (u32, usize)) -> TcpFrame {
    data(at, len).with(|frame| frame.seq.0 = frame.seq.0.wrapping_sub(5)).at(0, len)
}

/// Calls `check` with each sequence of [`DEPTH`] numbers below `kinds`.
fn all_sequences(kinds: u32, mut check: impl FnMut(&[usize])) {
    for code in 0..kinds.pow(DEPTH) {
        let events: Vec<usize> = (0..DEPTH).map(|nth| (code / kinds.pow(nth) % kinds) as usize).collect();
        check(&events);
    }
}

fn card(npu: NpuConfig) -> Card {
    let config = Config { max_connections: 2, max_aggregates: 8, max_segments: 8, ..Config::default() };
    Card::new(&config, &ProfileConfig::Npu(npu))
}

/// Runs all sequences of the segments, and of waits of 100 us, which is shorter than the reorder hold. The
/// verifier checks that the stream comes out whole and in order.
fn check_all(npu: NpuConfig) {
    let waits = SEGMENTS.len();
    all_sequences(waits as u32 + 1, |events| {
        let mut card = card(npu);
        card.receive(&segment((0, 1)));
        for event in events {
            match SEGMENTS.get(*event) {
                Some(at) => card.receive(&segment(*at)),
                None => card.wait(us(100)),
            };
        }
        card.wait(ms(2));
        let statistics = card.statistics();
        let delivered = statistics.segments_aggregated - statistics.aggregates + statistics.packets_out;
        assert_eq!(delivered + statistics.drops.total(), statistics.packets_in, "held for 2 ms: {events:?}");
    });
}

#[test]
fn every_order_of_a_few_segments_keeps_the_stream() {
    check_all(NpuConfig::default());
}

#[test]
fn every_order_keeps_the_stream_where_the_reorder_window_is_one_segment() {
    check_all(NpuConfig { reorder_segments: 1, ..NpuConfig::default() });
}

#[test]
fn every_order_keeps_the_stream_where_the_reorder_window_is_three_bytes() {
    check_all(NpuConfig { reorder_bytes: 3, ..NpuConfig::default() });
}

#[test]
fn every_order_keeps_the_stream_with_active_ack() {
    check_all(NpuConfig { active_ack: ActiveAck::Safe, ..NpuConfig::default() });
}
