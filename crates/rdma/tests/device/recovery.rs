//! Recovery from losses, and congestion control, between two devices of this crate and with foreign peers.

use crate::common::{Fate, Faults, Link, Pair, datagram, pattern};
use nichrome_rdma::*;
use nichrome_wire::rdma::{Aeth, Bth, BthFlags, Message, Msn, NakCode, PKey, RcMessage, Repr, Syndrome};

/// Writes a megabyte four times over a path with faults; returns both ends' counters and the nanoseconds.
fn transfer(pair: &mut Pair) -> (Counters, Counters, u64) {
    let [a, _] = pair.connect(QpType::Rc, &Link { timeout: 10, ..Link::default() });
    let (there, data) = (pair.ends[1].remote(0), pattern(1 << 20, 8));
    pair.ends[0].fill(0, &data);
    (0..4).for_each(|wr_id| pair.ends[0].post(a, wr_id, Operation::Write(there), 0, 1 << 20));
    pair.run_until(|pair| pair.ends[0].device.poll_timeout().is_none() && pair.now > Instant::ZERO);
    pair.run();
    let done = pair.ends[0].completions();
    assert_eq!(done.len(), 4);
    assert!(done.iter().all(|wc| wc.status == Status::Success), "{done:?}");
    assert!(pair.ends[1].bytes(0, 1 << 20) == data);
    let took = done.last().unwrap().at.as_nanos();
    (*pair.ends[0].device.counters(), *pair.ends[1].device.counters(), took)
}

fn lossy(selective: [SelectiveRepeat; 2]) -> (Counters, Counters, u64) {
    let faults = Faults { loss: 0.01, ..Faults::default() };
    let change = |config: &mut Config| config.roce.selective_repeat = selective[config.seed as usize];
    transfer(&mut Pair::with(change).seeded(3, faults))
}

#[test]
fn two_ends_of_this_crate_retransmit_little_more_than_the_lost_packets() {
    use SelectiveRepeat::{Never, Offered};
    let (selective, _, fast) = lossy([Offered, Offered]);
    let (back, _, slow) = lossy([Never, Never]);
    // 4096 packets, of which one in a hundred is lost.
    assert!(selective.retransmitted < 200, "{}", selective.retransmitted);
    assert!(back.retransmitted > 2 * selective.retransmitted, "{}", back.retransmitted);
    assert!(fast < slow, "{fast} and {slow}");
    // Losses that no later packet reveals are found by probes, which foreign peers do not support.
    assert!(selective.probes > 0 && selective.probes < selective.retransmitted);
    assert_eq!(back.probes, 0);
}

#[test]
fn selective_repeat_at_one_end_only_is_go_back_n() {
    use SelectiveRepeat::{Never, Offered};
    for ends in [[Offered, Never], [Never, Offered]] {
        let (alone, _, _) = lossy(ends);
        let (neither, _, _) = lossy([Never, Never]);
        assert_eq!(alone, neither);
    }
}

#[test]
fn disorder_alone_is_no_loss_between_two_of_ours() {
    let faults = Faults { reorder: 0.02, ..Faults::default() };
    let (requester, responder, _) = transfer(&mut Pair::new().seeded(5, faults));
    assert!(responder.out_of_sequence > 50);
    assert!(requester.retransmitted < 150, "{}", requester.retransmitted);
}

#[test]
fn selective_repeat_is_offered_in_requests_and_answered() {
    for offered in [SelectiveRepeat::Offered, SelectiveRepeat::Never] {
        let mut pair = Pair::with(|config| config.roce.selective_repeat = offered);
        pair.record = true;
        let [a, _] = pair.connect(QpType::Rc, &Link::default());
        let there = pair.ends[1].remote(0);
        pair.ends[0].post(a, 1, Operation::Write(there), 0, 5000);
        pair.ends[0].post(a, 2, Operation::Read(there), 0, 5000);
        pair.run();
        for (_, bytes) in &pair.sent {
            let (repr, _) = Repr::parse(bytes).unwrap();
            let offer = repr.bth.flags.contains(BthFlags::SELECTIVE);
            assert_eq!(offer, offered == SelectiveRepeat::Offered, "{:?}", repr.message);
        }
    }
}

/// Queue pairs that only read, or that only use atomics, get no acknowledgements.
#[test]
fn lost_requests_and_responses_of_reads_and_atomics_are_found_by_probes() {
    for seed in 0..8 {
        let mut pair = Pair::new().seeded(seed, Faults { loss: 0.05, ..Faults::default() });
        let [a, _] = pair.connect(QpType::Rc, &Link { timeout: 14, ..Link::default() });
        let (there, data) = (pair.ends[1].remote(0), pattern(1 << 16, 8));
        pair.ends[1].fill(0, &data);
        let operations =
            [(Operation::Read(there), 1 << 16), (Operation::FetchAdd { remote: there, add: 0 }, 8)];
        for (operation, len) in operations {
            for wr_id in 0..100 {
                pair.ends[0].post(a, wr_id, operation, 0, len);
                pair.run();
                assert_eq!(pair.ends[0].statuses(), [(wr_id, Status::Success)], "{operation:?}");
            }
        }
        assert!(pair.ends[0].bytes(8, (1 << 16) - 8) == &data[8..]);
        let Counters { probes, timeouts, .. } = *pair.ends[0].device.counters();
        // Only a loss before the first round-trip sample waits for the retransmission timer.
        assert!(probes > 10 && timeouts <= 1, "{probes} probes, {timeouts} timeouts");
    }
}

#[test]
fn the_wait_for_a_receive_is_no_part_of_the_round_trip() {
    let mut pair = Pair::new();
    let [a, b] = pair.connect(QpType::Rc, &Link { timeout: 14, ..Link::default() });
    pair.ends[1].receive(b, 0, 0, 100);
    pair.ends[0].post(a, 0, Operation::Send, 0, 100);
    pair.run();
    pair.ends[0].post(a, 1, Operation::Send, 0, 100);
    pair.run_for(50_000_000);
    assert!(pair.ends[0].device.counters().rnr_naks_received > 100);
    (1..3).for_each(|wr_id| pair.ends[1].receive(b, wr_id, 0, 100));
    pair.run();
    let (began, mut is_first) = (pair.now, true);
    pair.fates =
        Some(Box::new(move |_, _| if std::mem::take(&mut is_first) { Fate::IsLost } else { Fate::Arrives }));
    pair.ends[0].post(a, 2, Operation::Send, 0, 100);
    pair.run();
    let done = pair.ends[0].completions();
    assert_eq!(
        done.iter().map(|wc| (wc.wr_id, wc.status)).collect::<Vec<_>>(),
        [0, 1, 2].map(|id| (id, Status::Success))
    );
    // The shortest time before a probe.
    let took = done[2].at.nanos_since(began);
    assert!((500_000..600_000).contains(&took), "{took}");
    assert_eq!(pair.ends[0].device.counters().timeouts, 0);
}

/// While each answer may be to a probe, the requester cannot measure the round trip (Karn's rule).
#[test]
fn probes_end_when_the_path_has_become_longer() {
    let operations: [fn(Remote) -> Operation; 2] = [Operation::Read, Operation::Write];
    for operation in operations {
        let mut pair = Pair::new();
        let [a, _] = pair.connect(QpType::Rc, &Link { timeout: 18, ..Link::default() });
        let operation = operation(pair.ends[1].remote(0));
        let mut probes_of_messages = |delay, count| {
            pair.delay = delay;
            let before = pair.ends[0].device.counters().probes;
            for wr_id in 0..count {
                pair.ends[0].post(a, wr_id, operation, 0, 1 << 16);
                pair.run();
                assert_eq!(pair.ends[0].statuses(), [(wr_id, Status::Success)]);
            }
            pair.ends[0].device.counters().probes - before
        };
        assert_eq!(probes_of_messages(10_000, 5), 0);
        assert!((1..=16).contains(&probes_of_messages(25_000_000, 10)));
        assert_eq!(probes_of_messages(25_000_000, 20), 0, "{operation:?}");
    }
}

#[test]
fn marks_are_answered_but_not_each() {
    let faults = Faults { mark: 1.0, ..Faults::default() };
    let (requester, responder, _) = transfer(&mut Pair::new().seeded(5, faults));
    assert!(responder.congestion_marks > 4000);
    let cnps_sent = responder.congestion_notifications_sent;
    assert!(cnps_sent > 2 && cnps_sent * 10 < responder.congestion_marks, "{cnps_sent}");
    assert_eq!(requester.congestion_notifications_received, cnps_sent);
}

#[test]
fn dcqcn_slows_down_where_there_are_marks_and_only_there() {
    let dcqcn = Dcqcn { line_rate: 10_000_000_000, ..Dcqcn::default() };
    let run = |mark| {
        let change = |config: &mut Config| config.roce.congestion = Congestion::Dcqcn(dcqcn);
        transfer(&mut Pair::with(change).seeded(5, Faults { mark, ..Faults::default() }))
    };
    let ((_, _, free), (_, _, some), (_, _, many)) = (run(0.0), run(0.001), run(0.2));
    assert!(free * 5 < some * 4 && some < many, "{free} {some} {many}");
}

/// The responder sends the data of a READ, and so its queue pair reacts to the notifications (DCQCN, section
/// 3.1).
#[test]
fn dcqcn_paces_the_responses_of_reads() {
    let dcqcn = Dcqcn { line_rate: 10_000_000_000, ..Dcqcn::default() };
    let run = |mark| {
        let mut pair = Pair::with(|config| config.roce.congestion = Congestion::Dcqcn(dcqcn));
        pair = pair.seeded(5, Faults { mark, ..Faults::default() });
        let [a, _] = pair.connect(QpType::Rc, &Link { timeout: 14, rd_atomic: 16, ..Link::default() });
        let (there, data) = (pair.ends[1].remote(0), pattern(1 << 20, 8));
        pair.ends[1].fill(0, &data);
        (0..4).for_each(|wr_id| pair.ends[0].post(a, wr_id, Operation::Read(there), 0, 1 << 20));
        pair.run();
        let done = pair.ends[0].completions();
        assert!(done.len() == 4 && done.iter().all(|wc| wc.status == Status::Success), "{done:?}");
        assert!(pair.ends[0].bytes(0, 1 << 20) == data);
        let counters = [0, 1].map(|end| *pair.ends[end].device.counters());
        (counters[1].congestion_notifications_received, counters[0].retransmitted, done[3].at.as_nanos())
    };
    let ((_, _, free), (notified, again, some), (_, _, many)) = (run(0.0), run(0.001), run(0.2));
    assert!(notified > 0 && free * 5 < some * 4 && some < many, "{free} {some} {many}");
    assert_eq!(again, 0, "responses that wait for their time are not requested again");
}

/// An ACK of requests behind a READ would tell the requester that the READ's responses are lost.
#[test]
fn no_acknowledgement_overtakes_paced_responses() {
    let dcqcn = Dcqcn { line_rate: 10_000_000_000, ..Dcqcn::default() };
    let mut pair = Pair::with(|config| config.roce.congestion = Congestion::Dcqcn(dcqcn));
    pair = pair.seeded(5, Faults { mark: 0.5, ..Faults::default() });
    let [a, b] = pair.connect(QpType::Rc, &Link { timeout: 14, ..Link::default() });
    for wr_id in 0..50 {
        let (here, there) = (pair.ends[0].remote(0), pair.ends[1].remote(0));
        pair.ends[0].post(a, wr_id, Operation::Read(there), 0, 20_000);
        pair.ends[0].post(a, 100 + wr_id, Operation::Write(there), 0, 100);
        // Requests of the responder's program, behind which an ACK leaves at once.
        pair.ends[1].post(b, wr_id, Operation::Write(here), 0, 100);
        pair.run_for(20_000);
    }
    pair.run();
    assert!(pair.ends[1].device.counters().congestion_notifications_received > 0);
    for end in 0..2 {
        assert!(pair.ends[end].statuses().iter().all(|(_, status)| *status == Status::Success));
        assert_eq!(pair.ends[end].device.counters().retransmitted, 0);
    }
}

/// A retransmitted packet arrives before its receive is posted: a loss in the next retransmission is a new
/// gap.
#[test]
fn a_sequence_nak_after_an_rnr_nak_is_of_a_new_gap() {
    let mut pair = Pair::new();
    pair.record = true;
    pair.fates = Some(Box::new(|_, _| Fate::IsLost));
    let [a, _] = pair.connect(QpType::Rc, &Link { timeout: 0, psn: 100, ..Link::default() });
    let dest_qp = pair.ends[0].device.qp_number(a).unwrap();
    let nak = |syndrome| {
        let bth = Bth { flags: BthFlags::MIGRATED, pkey: PKey::default(), dest_qp, psn: Psn::new(100) };
        let message = Message::Rc(RcMessage::Acknowledge(Aeth { syndrome, msn: Msn::new(0) }));
        datagram(1, &Repr { bth, message }, &[])
    };
    let (gap, not_ready) =
        (nak(Syndrome::Nak(NakCode::PsnSequence)), nak(Syndrome::RnrNak(RnrTimer::new(1).unwrap())));
    (0..2).for_each(|wr_id| pair.ends[0].post(a, wr_id, Operation::Send, 0, 8));
    let mut sent_after = |nak: Option<&Vec<u8>>| {
        nak.into_iter().for_each(|nak| pair.inject(0, nak));
        pair.run_for(1_000_000);
        std::mem::take(&mut pair.sent).len()
    };
    assert_eq!(sent_after(None), 2);
    assert_eq!([sent_after(Some(&gap)), sent_after(Some(&gap))], [2, 0], "repaired once");
    assert_eq!(sent_after(Some(&not_ready)), 2);
    assert_eq!(sent_after(Some(&gap)), 2);
}

fn marked(congestion: Congestion, mark: f64) -> (Counters, Counters, u64) {
    let change = |config: &mut Config| config.roce.congestion = congestion;
    transfer(&mut Pair::with(change).seeded(5, Faults { mark, ..Faults::default() }))
}

#[test]
fn dctcp_echoes_marks_in_acknowledgements_and_shrinks_by_their_share() {
    let ((_, _, free), (some, responder, mild), (_, _, harsh)) =
        (marked(Congestion::Dctcp, 0.0), marked(Congestion::Dctcp, 0.01), marked(Congestion::Dctcp, 0.5));
    assert!(responder.congestion_marks > 20);
    assert_eq!((responder.congestion_notifications_sent, some.congestion_notifications_received), (0, 0));
    assert!(free < mild && mild < harsh, "{free} {mild} {harsh}");
}

#[test]
fn without_congestion_control_marks_change_nothing_at_the_sender() {
    let ((_, _, free), (requester, _, half)) = (marked(Congestion::None, 0.0), marked(Congestion::None, 0.5));
    assert!(requester.congestion_notifications_received > 0);
    assert_eq!(free, half);
}

#[test]
fn the_window_opens_and_closes() {
    let mut pair = Pair::with(|config| config.window = SendWindow { initial: 4, max: 64, read: 4 });
    pair.record = true;
    let [a, _] = pair.connect(QpType::Rc, &Link::default());
    let there = pair.ends[1].remote(0);
    pair.ends[0].post(a, 1, Operation::Write(there), 0, 1 << 20);
    pair.transmit();
    assert_eq!(pair.sent.len(), 4);
    pair.run();
    let done = pair.ends[0].completions();
    // 1024 packets: 4, 8, 16, 32, then 64 in each round trip of 20 µs.
    assert!(done[0].at.as_nanos() < 22 * 20_000, "{}", done[0].at);
}

#[test]
fn reads_are_within_the_window_too() {
    let mut pair = Pair::with(|config| config.window = SendWindow { initial: 8, max: 8, read: 4 });
    pair.record = true;
    let [a, _] = pair.connect(QpType::Rc, &Link { rd_atomic: 16, ..Link::default() });
    let there = pair.ends[1].remote(0);
    pair.ends[1].fill(0, &pattern(100_000, 1));
    pair.ends[0].post(a, 1, Operation::Read(there), 0, 100_000);
    pair.transmit();
    assert_eq!(pair.sent.len(), 2, "two parts of four packets");
    pair.run();
    assert_eq!(pair.ends[0].completions()[0].status, Status::Success);
    assert!(pair.ends[0].bytes(0, 100_000) == pattern(100_000, 1));
}

#[test]
fn kept_packets_are_bounded_and_released() {
    for held in [0, 1, 10] {
        let faults = Faults { loss: 0.02, reorder: 0.1, ..Faults::default() };
        transfer(&mut Pair::with(|config| config.roce.held_packets = held).seeded(7, faults));
    }
    // The first of 20 packets is lost. If not all behind it are kept, all are retransmitted, and those that
    // were kept are duplicates.
    for (held, retransmitted, duplicates) in [(0, 20, 0), (1, 20, 1), (10, 20, 10), (18, 20, 18), (19, 1, 0)]
    {
        let window = SendWindow { initial: 20, max: 20, read: 4 };
        let mut pair = Pair::with(|config| {
            (config.roce.held_packets, config.roce.congestion) = (held, Congestion::None);
            config.window = window;
        });
        let [a, _] = pair.connect(QpType::Rc, &Link { timeout: 10, ..Link::default() });
        let there = pair.ends[1].remote(0);
        for nth in 1..=3 {
            let mut packets = 0;
            pair.fates = Some(Box::new(move |to, _| {
                packets += u32::from(to == 1);
                if to == 1 && packets == 1 { Fate::IsLost } else { Fate::Arrives }
            }));
            pair.ends[0].post(a, nth, Operation::Write(there), 0, 20 * 1024);
            pair.run();
            assert_eq!(pair.ends[0].statuses(), [(nth, Status::Success)]);
            let [requester, responder] = pair.ends.each_ref().map(|end| *end.device.counters());
            let what = format!("{held} kept, message {nth}");
            assert_eq!(requester.retransmitted, nth * retransmitted, "{what}");
            assert_eq!(responder.duplicates, nth * duplicates, "{what}");
        }
    }
}

/// The program at the other end exits: later retransmissions get no answer.
#[test]
fn a_lost_last_ack_is_retransmitted_before_the_queue_pair_is_destroyed() {
    let mut pair = Pair::new();
    let [a, b] = pair.connect(QpType::Rc, &Link { timeout: 10, ..Link::default() });
    let device = &mut pair.ends[1].device;
    device.acknowledge_again(b).unwrap();
    assert_eq!(device.poll_transmit(pair.now, 1, &mut [0; 8192]), None, "nothing has come yet");
    let there = pair.ends[1].remote(0);
    pair.ends[0].post(a, 1, Operation::Write(there), 0, 100);
    pair.transmit();
    pair.faults.loss = 1.0;
    pair.run_until(|pair| pair.ends[1].device.counters().received == 1);
    pair.transmit();
    pair.faults.loss = 0.0;
    pair.ends[1].device.acknowledge_again(b).unwrap();
    pair.transmit();
    pair.ends[1].device.destroy_qp(b).unwrap();
    pair.run();
    assert_eq!(pair.ends[0].completions()[0].status, Status::Success);
    assert_eq!(pair.ends[0].device.counters().retransmitted, 0);
}

/// Returns the nanoseconds from an unanswered send to its completion with `RetryExceeded`.
fn time_to_give_up(timeout: u8, retry_count: u8) -> u64 {
    let mut pair = Pair::new();
    let [a, _] = pair.connect(QpType::Rc, &Link { timeout, retry_count, ..Link::default() });
    pair.faults.loss = 1.0;
    let (there, start) = (pair.ends[1].remote(0), pair.now);
    pair.ends[0].post(a, 1, Operation::Write(there), 0, 100);
    pair.run();
    let completions = pair.ends[0].completions();
    assert_eq!(completions[0].status, Status::RetryExceeded);
    completions[0].at.nanos_since(start)
}

/// The standard: each of the retry count + 1 timers takes 1 to 4 times 4.096 µs × 2^timeout (IBA 9.7.6.1.3).
/// rxe: once.
#[test]
fn a_silent_peer_is_given_up_when_hardware_gives_it_up() {
    for timeout in [8, 10, 12, 14, 16, 18, 20] {
        for retry_count in [0, 1, 3, 5, 7] {
            let (took, shortest) =
                (time_to_give_up(timeout, retry_count), (4096 << timeout) * (u64::from(retry_count) + 1));
            let what = format!("timeout {timeout}, retry count {retry_count}: {took} ns");
            assert!((shortest..=4 * shortest).contains(&took), "{what}");
            if timeout >= 16 {
                assert_eq!(took, shortest, "{what}");
            }
        }
    }
    let milliseconds = |timeout, retry_count| time_to_give_up(timeout, retry_count) / 1_000_000;
    assert_eq!(milliseconds(14, 7), 1811, "perftest: timeout 14, retry count 7");
    assert_eq!(milliseconds(18, 5), 6442);
}

/// A copy of a packet that got an RNR NAK may arrive late, when its receive is posted.
#[test]
fn an_acknowledgement_ends_the_wait_for_the_receiver() {
    let mut pair = Pair::new();
    pair.record = true;
    let [a, b] = pair.connect(QpType::Rc, &Link { timeout: 8, retry_count: 0, ..Link::default() });
    // 655 ms: longer than the retransmission timer.
    let min_rnr_timer = RnrTimer::new(0);
    pair.ends[1].device.modify_qp(b, &QpChange { min_rnr_timer, ..QpChange::to(QpState::Rts) }).unwrap();
    [1, 2].iter().for_each(|wr_id| pair.ends[0].post(a, *wr_id, Operation::Send, 0, 8));
    pair.run_until(|pair| pair.ends[0].device.counters().rnr_naks_received > 0);
    [3, 4].iter().for_each(|wr_id| pair.ends[1].receive(b, *wr_id, 0, 8));
    let (_, first) = pair.sent[0].clone();
    pair.inject(1, &first);
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(pair.ends[0].device.counters().timeouts, 0);
}
