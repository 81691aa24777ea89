//! The `npu` profile: a test for each rule of its table on order, barriers and memory. The verifier also
//! compares all outputs as streams, except under the paper's rules, which break streams.

use crate::common::{Card, Change, Sent, data, ms, tcp, us};
use nichrome_lro::{
    BadChecksum, Coalescer, Config, DropReason, FlushReason, Frame, Npu, NpuConfig, Output, Packet,
    PassReason, ProfileConfig, PshRule, Rules,
};
use nichrome_wire::{Engine, Instant, Network, SeqNumber, TcpFlags, TcpFrame, TrafficClass};

/// An `npu` with the default configuration except for `change`.
fn npu(change: impl FnOnce(&mut Config, &mut NpuConfig)) -> Card {
    let (mut config, mut npu) = (Config::default(), NpuConfig::default());
    change(&mut config, &mut npu);
    Card::new(&config, &ProfileConfig::Npu(npu))
}

/// An `npu` with the paper's rules, which break streams.
fn paper() -> Card {
    npu(|_, npu| npu.rules = Rules::Paper).unverified()
}

/// Connections that have a descriptor.
fn connections(card: &Card) -> usize {
    match &card.engine {
        Coalescer::Npu(npu) => npu.connections(),
        _ => panic!("not an npu"),
    }
}

/// Receives 100 bytes at each of these places.
fn receive_at(card: &mut Card, places: impl IntoIterator<Item = u32>) {
    for at in places {
        card.receive(&data(at, 100));
    }
}

#[test]
fn sixty_four_kilobytes_of_consecutive_payload_leave_at_once() {
    let mut card = npu(|config, _| config.max_segments = 1000);
    receive_at(&mut card, (0..655).map(|nth| nth * 100));
    assert_eq!(card.take_lens(), [65_400], "with 40 bytes of headers, 100 more are beyond 65,535");
    assert_eq!(card.flushes(FlushReason::MaxLength), 1);
    let mut card = npu(|config, _| config.max_segments = 3);
    receive_at(&mut card, [0, 100, 200, 300]);
    assert_eq!(card.take_lens(), [300]);
    assert_eq!((card.flushes(FlushReason::MaxLength), card.flushes(FlushReason::MaxSegments)), (0, 1));
}

#[test]
fn padded_segments_count_with_their_own_lengths() {
    for lens in [[5, 3, 3], [3, 5, 5], [6, 3, 3], [3, 3, 6]] {
        let mut at = 0;
        let frames = lens.map(|len| {
            let mut frame = data(at, len).build();
            at += len as u32;
            frame.resize(60, 0);
            Frame::verified(frame)
        });
        let mut card = Card::npu();
        card.receive_frames(frames.into());
        assert_eq!(card.drain().take_lens(), [lens.iter().sum::<usize>()], "{lens:?}");
    }
}

#[test]
fn sequence_numbers_wrap() {
    let mut card = Card::npu();
    let near_the_end = |at| data(at, 100).with(|frame| frame.seq.0 = frame.seq.0.wrapping_sub(251));
    for at in [0, 400, 200, 100, 300] {
        card.receive(&near_the_end(at));
    }
    assert_eq!(card.drain().take_lens(), [500], "in order, out of order, across the wrap");
}

#[test]
fn a_reordered_gap_is_filled_and_merged() {
    let mut card = Card::npu();
    receive_at(&mut card, [0, 200, 300, 100, 400]);
    let sent = card.drain().take_one();
    assert_eq!(tcp(sent.bytes()).payload, data(0, 500).payload);
}

#[test]
fn a_gap_within_a_burst_is_seen_behind_the_first_segment_of_a_run() {
    let mut card = Card::npu();
    receive_at(&mut card, [0]);
    card.drain().take();
    card.receive_batch(&[100, 300].map(|at| data(at, 100).build()));
    receive_at(&mut card, [200]);
    assert_eq!(card.drain().take_lens(), [300]);
}

#[test]
fn segments_in_reverse_order_are_merged() {
    let mut card = Card::npu();
    receive_at(&mut card, [0, 900, 800, 700, 600, 500, 400, 300, 200, 100]);
    assert_eq!(card.drain().take_lens(), [1000]);
}

#[test]
fn several_gaps_are_filled_one_by_one() {
    let mut card = Card::npu();
    receive_at(&mut card, [0, 200, 400, 600, 300, 100]);
    assert!(card.take().is_empty());
    receive_at(&mut card, [500]);
    assert_eq!(card.drain().take_lens(), [700]);
}

#[test]
fn below_nextseq_is_passed_after_the_flow_is_flushed() {
    let mut card = Card::npu();
    receive_at(&mut card, [0, 100, 300, 0]);
    assert_eq!(card.take_lens(), [200, 100, 100]);
    assert_eq!((card.passes(PassReason::Old), card.flushes(FlushReason::Barrier)), (1, 2));
}

#[test]
fn retransmitted_segments_that_follow_each_other_are_merged_again() {
    let mut card = Card::npu();
    receive_at(&mut card, [0, 100, 200, 300, 400]);
    card.wait(ms(2)).take();
    receive_at(&mut card, [0, 100, 200]);
    assert_eq!(card.take_lens(), [100], "the first old one is passed, the others follow it");
    receive_at(&mut card, [500]);
    assert_eq!(card.take_lens(), [200], "new data goes on where the stream was");
    assert_eq!(card.drain().take_lens(), [100]);
}

#[test]
fn algorithm_1_as_written_drops_below_nextseq() {
    let mut card = paper();
    receive_at(&mut card, [0, 100, 0]);
    assert!(matches!(card.take()[..], [Sent::Dropped(_, DropReason::Duplicate)]));
    receive_at(&mut card, [150]);
    assert_eq!(card.drops(DropReason::Duplicate), 2, "what is partly new, too");
}

#[test]
fn algorithm_2_as_written_drops_what_is_held_already() {
    let mut card = paper();
    receive_at(&mut card, [0, 200, 200]);
    assert!(matches!(card.take()[..], [Sent::Dropped(_, DropReason::Duplicate)]));
    receive_at(&mut card, [100]);
    assert_eq!(card.drain().take_lens(), [300]);
}

#[test]
fn what_is_held_already_is_passed_after_everything_held() {
    let mut card = Card::npu();
    receive_at(&mut card, [0, 200, 200]);
    assert_eq!(card.take_lens(), [100, 100, 100]);
    assert_eq!(card.passes(PassReason::Old), 1);
}

#[test]
fn partial_overlap_is_passed_after_everything_held() {
    let cases: [(&str, &[u32], &[usize]); 5] = [
        ("below nextseq", &[0, 100, 150], &[200, 100]),
        ("below nextseq, before a gap", &[0, 300, 50], &[100, 100, 100]),
        ("with the end of what waits", &[0, 300, 350], &[100, 100, 100]),
        ("with the start of what waits", &[0, 300, 250], &[100, 100, 100]),
        ("with both sides", &[0, 300, 500, 350], &[100, 100, 100, 100]),
    ];
    for (case, places, expected) in cases {
        let mut card = Card::npu();
        receive_at(&mut card, places.iter().copied());
        assert_eq!((card.take_lens(), card.passes(PassReason::Old)), (expected.to_vec(), 1), "{case}");
    }
}

#[test]
fn a_segment_that_fills_more_than_the_gap_lets_everything_go() {
    let mut card = Card::npu();
    card.receive(&data(0, 100)).receive(&data(200, 100)).receive(&data(100, 150));
    assert_eq!(card.take_lens(), [250, 100]);
    assert_eq!(card.flushes(FlushReason::OutOfOrder), 2);
}

#[test]
fn a_segment_that_covers_what_waits_leaves_no_gap_behind_it() {
    let mut card = npu(|_, npu| npu.reorder_hold = ms(50));
    card.receive(&data(0, 100)).receive(&data(200, 100)).receive(&data(100, 400));
    assert_eq!(card.take_lens(), [500, 100]);
    card.receive(&data(500, 100)).wait(ms(2));
    assert_eq!(card.take_lens(), [100], "next in order, not behind a gap");
    assert_eq!(card.flushes(FlushReason::Timeout), 1);
}

#[test]
fn further_ahead_than_reorder_bytes_is_passed_after_everything_held() {
    let mut card = npu(|_, npu| npu.reorder_bytes = 1000);
    receive_at(&mut card, [0, 1100, 1201]);
    assert_eq!(card.take_lens(), [100, 100, 100], "1100 is 1000 ahead, 1201 too far");
    assert_eq!(card.passes(PassReason::FarAhead), 1);
}

#[test]
fn a_full_reorder_list_lets_everything_go() {
    let mut card = npu(|_, npu| npu.reorder_segments = 2);
    receive_at(&mut card, [0, 200, 400, 600]);
    assert_eq!(card.take_lens(), [100, 100, 100, 100]);
    assert_eq!((card.flushes(FlushReason::ReorderFull), card.passes(PassReason::OutOfOrder)), (3, 1));
}

#[test]
fn a_syn_allocates_nothing() {
    let mut card = Card::npu();
    for port in 0..10_000 {
        card.receive(&data(0, 0).with(|frame| (frame.src_port, frame.flags) = (port, TcpFlags::SYN)));
    }
    assert_eq!((connections(&card), card.passes(PassReason::Syn)), (0, 10_000));
    assert!(card.flushes(FlushReason::Evicted) == 0);
}

#[test]
fn a_syn_takes_a_descriptor_under_the_papers_rules() {
    let mut card = paper();
    card.receive(&data(0, 0).with(|frame| frame.flags = TcpFlags::SYN));
    assert_eq!(connections(&card), 1);
    // The connection's data begins after the SYN: segments that overtake the first one wait.
    receive_at(&mut card, [101]);
    assert!(card.take_lens() == [0]);
    receive_at(&mut card, [1]);
    assert_eq!(card.drain().take_lens(), [200]);
}

#[test]
fn a_connection_may_be_joined_mid_stream() {
    let mut card = Card::npu();
    receive_at(&mut card, [777_000, 777_100]);
    assert_eq!((connections(&card), card.drain().take_lens()), (1, vec![200]));
}

#[test]
fn a_syn_on_a_known_four_tuple_begins_a_new_stream() {
    let mut card = Card::npu();
    receive_at(&mut card, [5000, 5100]);
    card.receive(&data(100, 0).with(|frame| frame.flags = TcpFlags::SYN));
    assert_eq!(card.take_lens(), [200, 0]);
    receive_at(&mut card, [201, 101]);
    assert!(card.take().is_empty(), "101 is next after the SYN, 201 waits for it");
    assert_eq!(card.drain().take_lens(), [200]);
}

#[test]
fn a_syn_ack_that_comes_again_changes_nothing() {
    // The stream of 1,200 bytes begins at 1. Behind `reorder_bytes`, a SYN-ACK opens another connection.
    for (at, expected) in [(0, 200), (200, 200), (1200, 200), (199, 100), (1201, 100)] {
        let mut card = npu(|config, npu| {
            (config.max_segments, npu.reorder_bytes) = (2, if at == 0 { 1 << 20 } else { 1000 });
        });
        receive_at(&mut card, (0..12).map(|nth| 1 + nth * 100));
        assert_eq!(card.take_lens(), [200; 6]);
        card.receive(&data(at, 0).flags(TcpFlags::SYN));
        assert_eq!(card.take_lens(), [0]);
        receive_at(&mut card, [1201, 1301]);
        assert_eq!(card.take_lens(), [expected], "{at}");
    }
}

#[test]
fn fin_flushes_and_releases() {
    for len in [0, 50] {
        let mut card = Card::npu();
        receive_at(&mut card, [0, 100]);
        let fin = data(200, len).flags(TcpFlags::FIN);
        card.receive(&fin);
        let sent = card.take();
        assert_eq!((sent[0].merged().payloads.len(), &sent[1]), (2, &Sent::Frame(fin.build())));
        assert_eq!((connections(&card), card.passes(PassReason::Fin)), (0, 1));
    }
}

#[test]
fn a_fin_after_a_gap_is_a_barrier_too() {
    let mut card = Card::npu();
    receive_at(&mut card, [0, 200]);
    card.receive(&data(300, 0).flags(TcpFlags::FIN));
    assert_eq!(card.take_lens(), [100, 100, 0]);
}

#[test]
fn control_is_a_barrier_for_the_out_of_order_list_too_and_the_descriptor_stays() {
    let sack = TcpFrame { options: [&[1, 1, 5, 10][..], &[0; 8]].concat(), ..data(400, 0) };
    let unknown = TcpFrame { options: vec![253, 4, 0, 0], ..data(100, 100) };
    let cases = [
        ("RST", data(100, 0).flags(TcpFlags::RST), PassReason::Rst),
        ("URG", data(100, 50).flags(TcpFlags::URG), PassReason::Urg),
        ("CWR", data(100, 50).flags(TcpFlags::CWR), PassReason::CongestionFlags),
        ("pure ACK", data(400, 0), PassReason::PureAck),
        ("SACK", sack, PassReason::PureAck),
        ("keepalive without a byte", data(99, 0), PassReason::PureAck),
        ("unknown option", unknown, PassReason::TcpOptions),
        ("IP option", with_ip_option(data(100, 50)), PassReason::IpOptions),
    ];
    for (case, frame, reason) in cases {
        let mut card = Card::npu();
        receive_at(&mut card, [0, 200, 300]);
        card.receive(&frame);
        let sent = card.take();
        assert_eq!(sent.len(), 3, "{case}");
        assert_eq!((sent[1].merged().payloads.len(), &sent[2]), (2, &Sent::Frame(frame.build())), "{case}");
        assert_eq!((card.passes(reason), connections(&card)), (1, 1), "{case}");
    }
}

fn with_ip_option(frame: TcpFrame) -> TcpFrame {
    frame.with(|frame| match &mut frame.network {
        Network::Ipv4 { options, .. } => *options = vec![1; 4],
        Network::Ipv6 { .. } => {}
    })
}

#[test]
fn a_keepalive_reaches_the_host_at_once() {
    let mut card = Card::npu();
    receive_at(&mut card, [0]);
    card.wait(ms(2)).take();
    card.receive(&data(99, 1));
    assert_eq!((card.take_lens(), card.passes(PassReason::Old)), (vec![1], 1));
}

#[test]
fn a_zero_window_probe_of_one_byte_is_data_and_its_repetition_is_passed() {
    let mut card = Card::npu();
    receive_at(&mut card, [0]);
    card.wait(ms(2)).take();
    card.receive(&data(100, 1)).wait(ms(2));
    assert_eq!(card.take_lens(), [1]);
    card.receive(&data(100, 1));
    assert_eq!((card.take_lens(), card.passes(PassReason::Old)), (vec![1], 1));
    // The window opens: the sender continues with the byte of the probe.
    card.receive(&data(100, 100));
    assert_eq!(card.take_lens(), [100]);
}

#[test]
fn unequal_marks_and_flags_start_anew() {
    let ce = |at| {
        data(at, 100).with(|frame| match &mut frame.network {
            Network::Ipv4 { tos, .. } => *tos = TrafficClass(3),
            Network::Ipv6 { .. } => {}
        })
    };
    let mut card = Card::npu();
    card.receive(&data(0, 100)).receive(&ce(200)).receive(&ce(100)).receive(&data(300, 100));
    assert_eq!(card.drain().take_lens(), [100, 200, 100]);
    let mut card = Card::npu();
    card.receive(&data(0, 100)).receive(&data(100, 100).flags(TcpFlags::ECE));
    assert_eq!((card.take_lens(), card.flushes(FlushReason::UnequalField)), (vec![100], 1));
}

#[test]
fn an_older_timestamp_is_not_merged() {
    let mut card = Card::npu();
    for (nth, value) in (0..).zip([10, 12, 11, 11, 13]) {
        card.receive(&data(nth * 100, 100).timestamps(value, 1));
    }
    assert_eq!(card.drain().take_lens(), [200, 200, 100], "equal ones merge: PAWS takes or drops both");
    // Also in comparison with timestamps that were delivered to the host.
    card.receive(&data(500, 100).timestamps(9, 1)).receive(&data(600, 100).timestamps(14, 1));
    assert_eq!(card.drain().take_lens(), [100, 100]);
}

#[test]
fn a_timestamp_older_than_that_of_a_passed_segment_is_not_merged() {
    let mut card = Card::npu();
    card.receive(&data(0, 100).timestamps(10, 1)).drain().take();
    card.receive(&data(0, 100).timestamps(30, 1));
    assert_eq!((card.take_lens(), card.passes(PassReason::Old)), (vec![100], 1));
    card.receive(&data(100, 100).timestamps(12, 1)).receive(&data(200, 100).timestamps(31, 1));
    assert_eq!(card.drain().take_lens(), [100, 100], "PAWS drops the first only");
}

#[test]
fn timestamps_are_read_wherever_their_padding_puts_them() {
    for padding in 0..=28 {
        for (second, expected) in [(8, vec![200]), (6, vec![100, 100])] {
            let mut card = Card::npu();
            for (at, value) in [(0, 7), (100, second)] {
                let mut segment = data(at, 100).timestamps(value, 0x0102_0304);
                // Removes the two bytes of padding.
                segment.options.drain(..2);
                segment.options.splice(..0, vec![1; padding]);
                let end = segment.options.len().next_multiple_of(4);
                segment.options.resize(end, 1);
                card.receive(&segment);
            }
            assert_eq!(card.drain().take_lens(), expected, "{padding} bytes of padding, {second} after 7");
        }
    }
}

#[test]
fn rising_timestamps_are_merged() {
    let values = [7, 8, 8, 9, 1 << 20, 1 << 30, 1 << 31, 3 << 30, 0];
    let frames: Vec<Vec<u8>> = (0..)
        .zip(values.into_iter().flat_map(|value| [value; 3]))
        .map(|(nth, value)| data(nth * 100, 100).timestamps(value, 1).build())
        .collect();
    let mut card = Card::npu();
    frames.iter().for_each(|frame| _ = card.receive_bytes(frame.clone()));
    assert_eq!(card.drain().take_lens(), [2700]);
    let mut card = Card::npu();
    assert_eq!(card.receive_batch(&frames).drain().take_lens(), [2700], "together");
}

#[test]
fn the_whole_has_the_latest_ack_with_its_window() {
    let mut card = Card::npu();
    for (at, ack, window) in [(0, 1, 500), (200, 900, 700), (100, 1000, 600)] {
        card.receive(&data(at, 100).with(|frame| (frame.ack, frame.window) = (SeqNumber(ack), window)));
    }
    let whole = tcp(card.drain().take_one().bytes());
    assert_eq!(
        (whole.seq, whole.ack, whole.window),
        (1, 1000, 600),
        "the last in sequence is not the newest"
    );
}

#[test]
fn a_full_table_evicts_and_hands_on_what_was_held() {
    let mut card = npu(|config, _| config.max_connections = 2);
    for (port, at) in [(1, 0), (2, 0), (3, 0), (3, 100)] {
        // If a batch continues, the connections of its last burst take descriptors.
        card.wait(us(1)).receive(&data(at, 100).with(|frame| frame.src_port = port));
    }
    assert_eq!((card.take_lens(), card.flushes(FlushReason::Evicted), connections(&card)), (vec![100], 1, 2));
}

/// The timers of connections that no longer hold anything are still set, and fire earlier.
#[test]
fn the_run_whose_timer_fires_next_is_evicted_where_all_aggregates_are_held() {
    let long = ms(100);
    let mut card = npu(|config, npu| {
        config.max_aggregates = 2;
        *npu = NpuConfig { floor: long, ceiling: long, psh: PshRule::End, rules: Rules::Paper, ..*npu };
    })
    .unverified();
    let of = |port: u16, at: u32| data(at, 100).with(|frame| frame.src_port = port);
    for port in 0..200 {
        card.receive(&of(port, 0)).end_batch();
        card.receive(&of(port, 100).with(|frame| frame.flags = frame.flags | TcpFlags::PSH)).wait(us(10));
    }
    assert_eq!(card.take_lens(), [200; 200]);
    for len in [50, 51, 52] {
        card.receive(&data(0, len).with(|frame| frame.src_port = 1000 + len as u16)).end_batch().wait(us(10));
    }
    assert_eq!((card.flushes(FlushReason::Evicted), card.passes(PassReason::PoolEmpty)), (1, 0));
    assert_eq!(card.take_lens(), [50]);
}

#[test]
fn pool_empty_passes_the_segment() {
    let config = Config { max_aggregates: 1, ..Config::default() };
    let mut npu = Npu::new(&config, &NpuConfig::default()).unwrap();
    for nth in 0..2 {
        npu.receive(Frame::new(data(nth * 100, 100).build()), Instant::ZERO);
    }
    npu.drain();
    let aggregate = npu.poll();
    npu.receive(Frame::new(data(200, 100).build()), Instant::ZERO);
    assert!(matches!(npu.poll(), Some(Output::ToHost(Packet::Frame(_)))));
    drop(aggregate);
    npu.receive(Frame::new(data(300, 100).build()), Instant::ZERO);
    assert!(npu.poll().is_none());
    assert_eq!(npu.statistics().passes.get(PassReason::PoolEmpty), 1);
}

#[test]
fn psh_is_held_by_default_and_ends_the_aggregate_where_the_configuration_says_so() {
    let mut card = Card::npu();
    card.receive(&data(0, 100)).receive(&data(100, 100).flags(TcpFlags::PSH)).receive(&data(200, 100));
    assert!(card.take().is_empty());
    assert!(tcp(card.wait(us(100)).take_one().bytes()).flags.contains(TcpFlags::PSH), "it is not lost");
    let mut card = npu(|_, npu| npu.psh = PshRule::End);
    card.receive(&data(0, 100)).receive(&data(100, 100).flags(TcpFlags::PSH));
    assert_eq!((card.take_lens(), card.flushes(FlushReason::Psh)), (vec![200], 1));
    card.receive(&data(200, 100).flags(TcpFlags::PSH));
    assert_eq!(card.take_lens(), [100], "also where it is alone");
    let with_psh =
        |nth: u32| data(nth * 100, 100).flags(if nth == 5 { TcpFlags::PSH } else { TcpFlags::NONE });
    card.wait(us(10)).receive_batch(&[3, 4, 5, 6, 7].map(|nth| with_psh(nth).build()));
    assert_eq!(card.take_lens(), [300], "also within a train");
    assert_eq!(card.drain().take_lens(), [200]);
}

#[test]
fn what_follows_a_control_segment_with_data_is_in_order() {
    let mut card = npu(|config, _| config.max_segments = 2);
    receive_at(&mut card, [0]);
    card.receive(&data(100, 100).flags(TcpFlags::URG));
    receive_at(&mut card, [200, 300]);
    assert_eq!(card.take_lens(), [100, 100, 200]);
    receive_at(&mut card, [400]);
    card.receive(&data(600, 0));
    receive_at(&mut card, [500, 600]);
    assert_eq!(card.take_lens(), [100, 0, 200], "a pure ACK moves nothing");
}

#[test]
fn data_begins_after_the_syn() {
    let syn = |at| data(at, 0).with(|frame| frame.flags = TcpFlags::SYN);
    let mut card = npu(|config, npu| (config.max_segments, npu.rules) = (2, Rules::Paper)).unverified();
    card.receive(&syn(0)).take();
    receive_at(&mut card, [0, 1, 101]);
    assert_eq!((card.take_lens(), card.drops(DropReason::Duplicate)), (vec![200], 1));
    let mut card = npu(|config, _| config.max_segments = 2);
    receive_at(&mut card, [0]);
    card.receive(&syn(5000)).take();
    receive_at(&mut card, [5001, 5101]);
    assert_eq!(card.take_lens(), [200], "a known connection begins anew");
}

#[test]
fn old_segments_that_do_not_follow_each_other_are_passed_in_their_order() {
    let mut card = Card::npu();
    receive_at(&mut card, [0, 100, 200, 300, 400]);
    card.wait(ms(2)).take();
    receive_at(&mut card, [0, 100, 300]);
    assert_eq!(card.take_lens(), [100; 3]);
    assert_eq!((card.flushes(FlushReason::Barrier), card.flushes(FlushReason::OutOfOrder)), (1, 0));
}

#[test]
fn a_wrong_checksum_is_dropped_and_disturbs_nothing_or_is_a_barrier() {
    let mut corrupt = data(100, 100).build();
    *corrupt.last_mut().unwrap() ^= 1;
    let mut card = Card::npu();
    card.receive(&data(0, 100)).receive_bytes(corrupt.clone()).receive(&data(100, 100));
    assert!(matches!(card.take()[..], [Sent::Dropped(_, DropReason::TcpChecksum)]));
    assert_eq!(card.drain().take_lens(), [200]);
    card.receive_bytes(data(200, 100).build()).drain().take();
    let mut first = data(300, 100).build();
    *first.last_mut().unwrap() ^= 1;
    card.receive_bytes(first);
    assert!(matches!(card.take()[..], [Sent::Dropped(_, DropReason::TcpChecksum)]), "nothing was held");
    let mut card = npu(|config, _| config.bad_checksum = Some(BadChecksum::Pass));
    receive_at(&mut card, [0, 200]);
    card.receive_bytes(corrupt);
    assert_eq!((card.take_lens(), card.passes(PassReason::BadChecksum)), (vec![100, 100, 100], 1));
}
