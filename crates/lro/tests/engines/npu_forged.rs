//! The `npu` profile with an attacker who forges segments of a known connection, and with packets whose end
//! the engine cannot know: the stream and active ACK continue.

use crate::active_ack::{acked, acks_for, behind, connected, host};
use crate::common::{Card, Change, data, first_fragment, ms};
use nichrome_lro::{Config, FlushReason, NpuConfig, PassReason, ProfileConfig};
use nichrome_wire::{IpProtocol, TcpFlags, TcpFrame};

/// Sequence numbers that an attacker may guess: further ahead than the reorder window, within the host's
/// window and beyond it, and behind the stream.
const GUESSES: [u32; 6] = [2 << 20, 1 << 28, 1 << 30, (1 << 31) - 1000, 1 << 31, 3 << 30];

/// Delivers the held segments, and checks that out-of-order segments from `at` on are put in order.
fn check_reordering(card: &mut Card, at: u32, case: &str) {
    card.wait(ms(2)).take();
    for nth in [1, 3, 2, 0] {
        card.receive(&data(at + nth * 100, 100));
    }
    assert_eq!(card.drain().take_lens(), [400], "{case}");
}

#[test]
fn a_forged_segment_far_ahead_does_not_end_reordering() {
    for guess in GUESSES {
        for (case, forged) in [
            ("data", data(guess, 100)),
            ("URG", data(guess, 100).flags(TcpFlags::URG)),
            ("FIN", data(guess, 100).flags(TcpFlags::FIN)),
            ("an unknown option", TcpFrame { options: vec![253, 4, 0, 0], ..data(guess, 100) }),
        ] {
            let mut card = Card::npu();
            card.receive(&data(0, 100)).receive(&forged);
            assert_eq!(card.take_lens(), [100, 100], "{case} at {guess}");
            check_reordering(&mut card, 100, &format!("{case} at {guess}"));
        }
    }
}

#[test]
fn a_stream_that_jumps_goes_on_with_the_second_segment() {
    let mut card = Card::npu();
    let far = 2 << 20;
    card.receive(&data(0, 100)).receive(&data(far, 100));
    assert_eq!((card.take_lens(), card.passes(PassReason::FarAhead)), (vec![100, 100], 1));
    for at in [100, 300, 200] {
        card.receive(&data(far + at, 100));
    }
    assert_eq!(card.drain().take_lens(), [300]);
    check_reordering(&mut card, far + 400, "behind the jump");
    // Control segments, which pass alone.
    for at in [0, 100] {
        card.receive(&data(2 * far + at, 100).flags(TcpFlags::URG));
    }
    check_reordering(&mut card, 2 * far + 200, "behind a jump of control segments");
}

/// An outage of more than the reorder window, and two paths, one of them slower.
#[test]
fn a_stream_that_jumps_goes_on_although_each_two_segments_are_swapped() {
    for first in [0, 1] {
        let mut card = Card::npu();
        card.receive(&data(0, 100)).wait(ms(2)).take();
        for nth in 0..40 {
            card.receive(&data((2 << 20) + 100 * (nth ^ first), 100));
        }
        assert!(card.drain().take_lens().len() <= 3 && card.passes(PassReason::FarAhead) == 1, "{first}");
    }
}

#[test]
fn forged_segments_that_follow_each_other_do_not_end_reordering_for_long() {
    for guess in [2 << 20, 1 << 30] {
        let config = Config { max_segments: 4, ..Config::default() };
        let mut card = Card::new(&config, &ProfileConfig::Npu(NpuConfig::default()));
        for at in [0, guess, guess + 100] {
            card.receive(&data(at, 100)).drain().take();
        }
        (1..80).for_each(|nth| _ = card.receive(&data(nth * 100, 100)));
        check_reordering(&mut card, 8000, &format!("at {guess}"));
    }
}

/// A sender with a large window retransmits the bytes that its receiver lacks, with new data in between.
#[test]
fn retransmissions_far_behind_wait_for_nothing() {
    let mut card = Card::npu();
    (0..40_000).for_each(|nth| _ = card.receive(&data(nth * 100, 100)));
    card.wait(ms(2)).take();
    for hole in 0..20 {
        let at = hole * 1000;
        for at in [at, at + 100, at + 500, 4_000_000 + hole * 100] {
            card.receive(&data(at, 100));
        }
        let delivered: usize = card.take_lens().iter().sum();
        assert!(delivered >= 300, "{delivered} bytes of hole {hole}");
    }
    assert_eq!(card.passes(PassReason::FarAhead), 0);
}

#[test]
fn a_forged_timestamp_does_not_end_merging() {
    let train = |card: &mut Card, nth: u32| {
        for at in [0, 100] {
            card.receive(&data(nth * 200 + at, 100).timestamps(10 + 2 * nth + at / 100, 1));
        }
        card.wait(ms(2)).take_lens()
    };
    for (at, deliveries) in [(2 << 20, 1), (1000, 20)] {
        let mut card = Card::npu();
        assert_eq!(train(&mut card, 0), [200]);
        card.receive(&data(at, 100).timestamps(1 << 30, 1)).wait(ms(2)).take();
        let lens: Vec<_> = (1..=deliveries + 1).map(|nth| train(&mut card, nth)).collect();
        assert_eq!(lens.last(), Some(&vec![200]), "at {at}: {lens:?}");
    }
}

#[test]
fn a_forged_fin_does_not_end_active_ack() {
    for at in [0, 50, 300].into_iter().chain(GUESSES) {
        for len in [0, 10] {
            let mut card = connected();
            card.receive(&data(at, len).flags(TcpFlags::FIN));
            card.host_sends(&host(100, 1000));
            let _ = acks_for(&mut card, &[data(100, 900)]);
            card.host_sends(&host(1000, 1000));
            assert_eq!(acked(&acks_for(&mut card, &[data(1000, 100)])), [1100], "{len} bytes at {at}");
        }
    }
}

#[test]
fn a_fin_that_repeats_the_last_bytes_ends_the_connection() {
    let mut card = connected();
    card.receive(&data(50, 80).flags(TcpFlags::FIN)).host_sends(&host(131, 1000));
    assert_eq!(acks_for(&mut card, &[data(130, 100)]), []);
}

/// RFC 5961 section 5: the host discards data that acknowledges bytes that it has not sent, and data whose
/// ACK number is too old.
#[test]
fn data_with_a_forged_ack_number_is_not_acknowledged_by_the_card() {
    let next = 5000_u32;
    for (ack, is_left) in [(next, false), (next + 1, true), (next.wrapping_sub(3 << 29), true)] {
        for flags in [TcpFlags::NONE, TcpFlags::URG] {
            let mut card = connected();
            let forged = data(100, 100).flags(flags).with(|frame| frame.ack.0 = ack);
            let mut acks = acked(&acks_for(&mut card, &[forged]));
            acks.extend(acked(&acks_for(&mut card, &[data(200, 100)])));
            let expected = if flags == TcpFlags::URG { vec![] } else { vec![200, 300] };
            assert_eq!(acks, if is_left { vec![] } else { expected }, "{ack}, {flags}");
        }
    }
}

/// RFC 9293 section 3.10.7.4: the host discards data beyond its window.
#[test]
fn what_is_forged_beyond_the_window_does_not_end_active_ack() {
    for guess in GUESSES {
        let mut card = connected();
        card.receive(&data(guess, 100)).wait(ms(3)).receive(&data(guess, 100).flags(TcpFlags::URG));
        card.receive_bytes(first_fragment(&data(guess, 100), 28)).take();
        card.host_sends(&host(100, 1000));
        (0..16).for_each(|nth| _ = card.receive(&data(100 + nth * 8000, 8000)));
        card.wait(ms(3)).take();
        card.host_sends(&host(128_100, 1000));
        assert_eq!(acked(&acks_for(&mut card, &[data(128_100, 100)])), [128_200], "at {guess}");
    }
}

#[test]
fn a_probe_of_a_closed_window_is_not_acknowledged_once_it_opens() {
    let mut card = connected();
    card.host_sends(&host(100, 0));
    assert_eq!(acks_for(&mut card, &[data(100, 1)]), []);
    // The host has discarded the probe.
    card.host_sends(&host(100, 0)).host_sends(&host(100, 1000));
    assert_eq!(acks_for(&mut card, &[data(101, 100)]), [], "a byte is missing before it");
}

#[test]
fn what_follows_a_fragmented_packet_does_not_wait_for_it() {
    let routed = |at| behind(IpProtocol::ROUTING, data(at, 1000).over_ipv6());
    let atomic = |at| behind(IpProtocol::FRAGMENT, data(at, 1000).over_ipv6());
    let fragment = first_fragment(&data(100, 1000), 40);
    for (case, frame) in
        [("fragment", fragment), ("routing", routed(100).build()), ("atomic", atomic(100).build())]
    {
        let over = |segment: TcpFrame| if case == "fragment" { segment } else { segment.over_ipv6() };
        let mut card = Card::npu();
        card.receive(&over(data(0, 100))).receive_bytes(frame);
        assert_eq!(card.take().len(), 2, "{case}");
        card.receive(&over(data(1100, 100))).receive(&over(data(1200, 100))).wait(ms(2));
        assert_eq!(card.take_lens(), [200], "{case}");
        assert_eq!(card.flushes(FlushReason::ReorderTimeout), 0, "{case}");
        for at in [1400, 1300] {
            card.receive(&over(data(at, 100)));
        }
        assert_eq!(card.drain().take_lens(), [200], "{case}: a gap is one");
    }
}

#[test]
fn what_a_fragment_contained_may_come_again_as_a_segment() {
    let mut card = Card::npu();
    card.receive(&data(0, 100)).receive_bytes(first_fragment(&data(100, 1000), 40)).take();
    card.receive(&data(100, 1000));
    check_reordering(&mut card, 1100, "a gap is one");
}

#[test]
fn a_fragment_elsewhere_in_the_stream_changes_nothing() {
    for at in [0, 200, 5 << 20] {
        let mut card = Card::npu();
        card.receive(&data(0, 100)).receive_bytes(first_fragment(&data(at, 1000), 40)).take();
        check_reordering(&mut card, 100, &format!("at {at}"));
    }
}
