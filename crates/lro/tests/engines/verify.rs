//! The verifier finds every kind of difference, and none in correct outputs.

use crate::common::{Change, data, ms};
use crate::generated::exchange::datagram;
use crate::generated::tunnel::{Tunnel, Wrapping};
use nichrome_lro::verify::{Difference, Mismatch, Verified, Verifier};
use nichrome_lro::{
    Coalescer, Config, DropReason, Frame, Hold, Medium, NpuConfig, Output, Packet, Profile, ProfileConfig,
};
use nichrome_wire::checksum::checksum;
use nichrome_wire::{Engine, Instant, IpProtocol, Network, SeqNumber, TcpFlags, TcpFrame, TrafficClass};

type Out = Output<Vec<u8>>;

fn passed(frame: &TcpFrame) -> Out {
    passed_bytes(frame.build())
}

fn passed_bytes(frame: Vec<u8>) -> Out {
    Output::ToHost(Packet::Frame(Frame::new(frame)))
}

fn dropped(frame: Vec<u8>, reason: DropReason) -> Out {
    Output::Dropped(Frame::new(frame), reason)
}

/// The outputs of an engine for these frames.
fn outputs(profile: &ProfileConfig, frames: &[TcpFrame]) -> Vec<Out> {
    let mut engine = Coalescer::new(&Config::default(), profile).unwrap();
    for frame in frames {
        engine.receive(Frame::new(frame.build()), Instant::from_nanos(1_000_000));
    }
    engine.drain();
    std::iter::from_fn(|| engine.poll()).collect()
}

/// The verifier's result for the frames `received` and then the outputs `delivered`.
fn verify(profile: Profile, received: &[Vec<u8>], delivered: &[Out]) -> Result<Verified, Difference> {
    let mut verifier = Verifier::new(profile, Medium::Ethernet);
    received.iter().for_each(|frame| verifier.received(frame));
    delivered.iter().for_each(|output| verifier.delivered(output));
    verifier.finish().map_err(|Mismatch { difference, .. }| difference)
}

fn built(frames: &[TcpFrame]) -> Vec<Vec<u8>> {
    frames.iter().map(TcpFrame::build).collect()
}

fn gro() -> ProfileConfig {
    ProfileConfig::Gro(Hold::For(ms(1)))
}

fn npu() -> ProfileConfig {
    ProfileConfig::Npu(NpuConfig::default())
}

/// Three segments, 100 bytes each.
fn three() -> [TcpFrame; 3] {
    [data(0, 100), data(100, 100), data(200, 100)]
}

#[test]
fn what_is_merged_and_what_is_passed_is_accepted() {
    let frames = three();
    let each: Vec<Out> = frames.iter().map(passed).collect();
    for (profile, config) in [(Profile::Gro, gro()), (Profile::Npu, npu())] {
        for delivered in [&each, &outputs(&config, &frames)] {
            let verified = verify(profile, &built(&frames), delivered).unwrap();
            let bytes = if profile == Profile::Gro { 3 * 154 } else { 300 };
            assert_eq!(verified, Verified { frames: 3, flows: 1, bytes });
        }
    }
    let verified = Verified { frames: 3, flows: 1, bytes: 300 };
    assert_eq!(verified.to_string(), "verified: 3 frames of 1 flows were delivered, 300 bytes compared");
}

#[test]
fn ack_numbers_that_are_farthest_apart_are_accepted() {
    const FAR: u32 = 1 << 31;
    for acks in [[7, 7 + FAR, 7], [7 + FAR, 7, 7 + FAR], [7, 7 + FAR, 8 + FAR]] {
        for len in [100, 50] {
            let mut frames = [data(0, 100), data(100, 100), data(200, len)];
            frames.iter_mut().zip(acks).for_each(|(frame, ack)| frame.ack = SeqNumber(ack));
            let outputs = outputs(&npu(), &frames);
            assert!(matches!(&outputs[..], [Output::ToHost(Packet::Aggregate(_))]), "{outputs:?}");
            let verified = verify(Profile::Npu, &built(&frames), &outputs);
            assert!(verified.is_ok(), "{acks:?}: {verified:?}");
        }
    }
}

#[test]
fn a_mismatch_is_told_in_one_line_with_the_flow() {
    let mut verifier = Verifier::new(Profile::Gro, Medium::Ethernet);
    verifier.received(&data(0, 10).build());
    assert_eq!(verifier.outstanding(), 1);
    let told = verifier.finish().unwrap_err().to_string();
    assert_eq!(told, "10.0.0.1:40000 > 10.0.0.2:5201: frame 1 never came out");
    let mut verifier = Verifier::new(Profile::Npu, Medium::Ethernet);
    verifier.delivered(&Out::ToHost(Packet::Frame(Frame::new(vec![0; 60]))));
    let told = verifier.finish().unwrap_err().to_string();
    assert_eq!(told, "outside of any TCP flow: output frame of 60 bytes equals no outstanding input");
}

#[test]
fn the_first_mismatch_is_known_before_the_end() {
    let [one, two, _] = three();
    let mut verifier = Verifier::new(Profile::Gro, Medium::Ethernet);
    verifier.received(&one.build());
    verifier.delivered(&passed(&one));
    assert_eq!(verifier.mismatch(), None);
    verifier.delivered(&passed(&two));
    let first = verifier.mismatch().cloned();
    assert!(first.is_some());
    verifier.delivered(&passed(&one));
    assert_eq!(verifier.finish().err(), first);
}

#[test]
fn the_other_profiles_must_keep_the_order_of_all_that_they_pass() {
    let datagrams =
        [1, 2].map(|port| datagram(&data(0, 50).with(|frame| frame.src_port = port), Medium::Ethernet));
    let tunneled = [1, 2].map(|port| {
        let mut tunnel = Tunnel { wrapping: Wrapping::Ipv4, ident: 0, step: 0 };
        tunnel.wrap(&data(0, 50).with(|frame| frame.src_port = port).build(), Medium::Ethernet, 0)
    });
    for received in [datagrams, tunneled] {
        let mut delivered = received.clone().map(passed_bytes);
        for profile in Profile::ALL {
            assert!(verify(profile, &received, &delivered).is_ok(), "{profile}");
        }
        delivered.reverse();
        for profile in Profile::ALL {
            assert_eq!(verify(profile, &received, &delivered).is_ok(), profile == Profile::Gro, "{profile}");
        }
    }
}

#[test]
fn gro_must_keep_the_order_within_a_flow_only() {
    let other = data(0, 50).with(|frame| frame.src_port = 9);
    let [one, two, _] = three();
    let received = built(&[one.clone(), other.clone(), two.clone()]);
    let kept = [passed(&other), passed(&one), passed(&two)];
    assert!(verify(Profile::Gro, &received, &kept).is_ok());
    let swapped = [passed(&other), passed(&two), passed(&one)];
    let difference = verify(Profile::Gro, &received, &swapped).unwrap_err();
    assert_eq!(difference, Difference::Overtook { frame: 3, overtaken: 1 });
}

#[test]
fn gro_must_give_every_bit_back() {
    let frames = three();
    let delivered = outputs(&gro(), &frames);
    for change in [
        |frame: &mut TcpFrame| frame.payload[7] ^= 1,
        |frame: &mut TcpFrame| frame.window += 1,
        |frame: &mut TcpFrame| frame.src_mac.0[5] ^= 1,
        |frame: &mut TcpFrame| frame.flags = frame.flags | TcpFlags::PSH,
    ] {
        let [one, two, three] = frames.clone();
        let received = built(&[one, two.with(change), three]);
        let difference = verify(Profile::Gro, &received, &delivered).unwrap_err();
        assert_eq!(difference, Difference::Unknown { len: 154, due: 2 });
    }
}

#[test]
fn nothing_may_come_out_twice_or_be_left() {
    let [one, two, _] = three();
    let (received, twice) = (built(std::slice::from_ref(&one)), [passed(&one), passed(&one)]);
    assert_eq!(verify(Profile::Gro, &received, &twice), Err(Difference::Surplus { len: 154 }));
    assert_eq!(verify(Profile::Npu, &received, &twice), Err(Difference::Count { came_in: 1, came_out: 2 }));
    let (received, first) = (built(&[one.clone(), two.clone()]), [passed(&one)]);
    assert_eq!(verify(Profile::Gro, &received, &first), Err(Difference::Missing { frame: 2 }));
    let missing = Difference::MissingBytes { seq: two.seq, len: 100, frame: 2 };
    assert_eq!(verify(Profile::Npu, &received, &first), Err(missing));
}

#[test]
fn a_stream_may_be_put_in_order_and_cut_anywhere() {
    let frames = [data(300, 50), data(0, 300)];
    let delivered = [data(0, 100), data(100, 200), data(300, 50)].map(|frame| passed(&frame));
    // Only the number of frames reveals that segments were cut.
    assert_eq!(
        verify(Profile::Npu, &built(&frames), &delivered),
        Err(Difference::Count { came_in: 2, came_out: 3 })
    );
}

#[test]
fn a_changed_byte_of_a_stream_is_found() {
    let [one, two, _] = three();
    let wrong = two.clone().with(|frame| frame.payload[7] = 0xEE);
    let received = two.payload[7];
    let changed = Difference::Changed { seq: two.seq + 7, frame: 2, received, delivered: 0xEE };
    let delivered = [passed(&one), passed(&wrong)];
    assert_eq!(verify(Profile::Npu, &built(&[one, two]), &delivered), Err(changed));
}

#[test]
fn the_first_copy_of_a_byte_counts() {
    let first = data(0, 100);
    let second = first.clone().with(|frame| frame.payload.fill(9));
    let received = built(&[first.clone(), second.clone()]);
    assert!(verify(Profile::Npu, &received, &[passed(&first), passed(&second)]).is_ok());
    let swapped = verify(Profile::Npu, &received, &[passed(&second), passed(&first)]);
    assert!(matches!(swapped, Err(Difference::Changed { .. })), "{swapped:?}");
}

#[test]
fn bytes_that_never_came_in_are_found() {
    let [one, two, three] = three();
    let received = built(&[one.clone(), three]);
    let unknown = Difference::NotReceived { seq: two.seq, len: 100 };
    assert_eq!(verify(Profile::Npu, &received, &[passed(&one), passed(&two)]), Err(unknown));
}

#[test]
fn a_stream_may_wrap_and_begin_anew() {
    let near_the_end = |at| data(at, 100).with(|frame| frame.seq.0 = frame.seq.0.wrapping_sub(151));
    let frames = [0, 100, 200].map(near_the_end);
    assert!(verify(Profile::Npu, &built(&frames), &outputs(&npu(), &frames)).is_ok());
    // The same four-tuple and the same sequence numbers, after a SYN.
    let syn = data(0, 0).with(|frame| (frame.seq.0, frame.flags) = (0, TcpFlags::SYN));
    let other = data(0, 100).with(|frame| frame.payload.fill(7));
    let mut frames = vec![data(0, 100), syn, other];
    let mut each: Vec<Out> = frames.iter().map(passed).collect();
    assert_eq!(verify(Profile::Npu, &built(&frames), &each).unwrap().bytes, 200);
    // The bytes before the SYN belong to the old connection: no receiver accepts them.
    let old = data(0, 102).with(|frame| frame.seq.0 = u32::MAX - 100);
    each.push(dropped(old.build(), DropReason::Duplicate));
    frames.push(old);
    assert_eq!(verify(Profile::Npu, &built(&frames), &each).unwrap().bytes, 200);
}

#[test]
fn what_comes_later_in_the_stream_must_not_overtake() {
    let [one, two, _] = three();
    let delivered = [passed(&two), passed(&one)];
    let difference = verify(Profile::Npu, &built(&[one.clone(), two.clone()]), &delivered).unwrap_err();
    assert_eq!(difference, Difference::Overtook { frame: 2, overtaken: 1 });
    assert!(verify(Profile::Npu, &built(&[two, one]), &delivered).is_ok(), "as it was received");
}

#[test]
fn control_must_not_overtake_data() {
    let (segment, fin) = (data(0, 100), data(100, 0).flags(TcpFlags::FIN));
    let received = built(&[segment.clone(), fin.clone()]);
    let overtook = Difference::Overtook { frame: 2, overtaken: 1 };
    assert_eq!(verify(Profile::Npu, &received, &[passed(&fin), passed(&segment)]), Err(overtook));
    assert!(verify(Profile::Npu, &received, &[passed(&segment), passed(&fin)]).is_ok());
}

#[test]
fn data_must_not_overtake_control() {
    let (ack, segment) = (data(0, 0), data(0, 100));
    let received = built(&[ack.clone(), segment.clone()]);
    let overtook = Difference::Overtook { frame: 2, overtaken: 1 };
    assert_eq!(verify(Profile::Npu, &received, &[passed(&segment), passed(&ack)]), Err(overtook));
}

#[test]
fn control_must_come_out_untouched() {
    let flags = |flags: TcpFlags| data(0, 100).with(|frame| frame.flags = flags);
    let controls = [
        data(0, 0),
        data(0, 0).flags(TcpFlags::RST),
        data(0, 100).flags(TcpFlags::SYN),
        data(0, 100).flags(TcpFlags::FIN),
        data(0, 100).flags(TcpFlags::URG),
        data(0, 100).flags(TcpFlags::CWR),
        flags(TcpFlags::NONE),
        flags(TcpFlags::PSH),
        data(0, 100).with(|frame| frame.options = vec![5, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1]),
        data(0, 100).with(|frame| {
            if let Network::Ipv4 { options, .. } = &mut frame.network {
                *options = vec![1; 4];
            }
        }),
    ];
    for control in controls {
        let other = control.clone().with(|frame| frame.window += 1);
        let unknown = Difference::Unknown { len: control.build().len(), due: 1 };
        let received = built(std::slice::from_ref(&control));
        assert_eq!(verify(Profile::Npu, &received, &[passed(&other)]), Err(unknown), "{control:?}");
        assert!(verify(Profile::Npu, &received, &[passed(&control)]).is_ok(), "{control:?}");
    }
    let segment = data(0, 100);
    let other = segment.clone().with(|frame| frame.window += 1);
    assert!(verify(Profile::Npu, &built(&[segment]), &[passed(&other)]).is_ok(), "it is no control segment");
}

#[test]
fn the_bytes_of_a_control_segment_may_come_out_before_it() {
    let (segment, fin) = (data(0, 100), data(0, 100).flags(TcpFlags::FIN));
    let received = built(&[fin.clone(), segment.clone()]);
    assert!(verify(Profile::Npu, &received, &[passed(&segment), passed(&fin)]).is_ok());
}

#[test]
fn a_segment_without_new_bytes_may_be_dropped_once() {
    let [one, ..] = three();
    let reason = DropReason::Duplicate;
    let (once, drop) = (passed(&one), || dropped(one.build(), reason));
    let received = |times: usize| vec![one.build(); times];
    assert!(verify(Profile::Npu, &received(3), &[passed(&one), drop(), drop()]).is_ok());
    let unjustified = Err(Difference::Dropped { len: 154, reason });
    let delivered = [passed(&one), drop(), drop(), drop()];
    assert_eq!(verify(Profile::Npu, &received(3), &delivered), unjustified);
    assert_eq!(verify(Profile::Npu, &received(2), &[once, passed(&one), drop()]), unjustified);
}

#[test]
fn a_drop_needs_a_reason_that_holds() {
    let [one, two, _] = three();
    let mut corrupt = two.build();
    *corrupt.last_mut().unwrap() ^= 1;
    for profile in [Profile::Gro, Profile::Npu] {
        let received = [one.build(), corrupt.clone()];
        let delivered = [dropped(corrupt.clone(), DropReason::TcpChecksum), passed(&one)];
        assert!(verify(profile, &received, &delivered).is_ok());
        let (len, reason) = (154, DropReason::TcpChecksum);
        let sound = [dropped(one.build(), reason)];
        assert_eq!(verify(profile, &[one.build()], &sound), Err(Difference::Dropped { len, reason }));
        let reason = DropReason::Duplicate;
        let delivered = [passed(&one), dropped(corrupt.clone(), reason)];
        assert_eq!(verify(profile, &received, &delivered), Err(Difference::Dropped { len, reason }));
    }
    let reason = DropReason::Duplicate;
    let repeated = [passed(&one), dropped(one.build(), reason)];
    assert!(verify(Profile::Npu, &built(&[one.clone(), one.clone()]), &repeated).is_ok());
    let new = Err(Difference::Dropped { len: 154, reason });
    assert_eq!(
        verify(Profile::Npu, &built(std::slice::from_ref(&one)), &[dropped(one.build(), reason)]),
        new
    );
    assert_eq!(
        verify(Profile::Gro, &built(std::slice::from_ref(&one)), &[dropped(one.build(), reason)]),
        new
    );
    // One of its bytes is new.
    let longer = data(0, 101);
    let delivered = [passed(&one), dropped(longer.build(), reason)];
    let difference = verify(Profile::Npu, &built(&[one, longer]), &delivered).unwrap_err();
    assert_eq!(difference, Difference::Dropped { len: 155, reason });
}

#[test]
fn a_duplicate_of_what_was_not_looked_into_may_be_dropped() {
    let plain = data(0, 100).over_ipv6();
    let atomic = plain.clone().with(|frame| {
        if let Network::Ipv6 { next_header, extensions, .. } = &mut frame.network {
            (*next_header, *extensions) =
                (IpProtocol::FRAGMENT, vec![IpProtocol::TCP.0, 0, 0, 0, 0, 0, 0, 0]);
        }
    });
    let reason = DropReason::Duplicate;
    let received = built(&[atomic.clone(), plain.clone()]);
    let drop_of = |frame: &TcpFrame| [passed(&atomic), dropped(frame.build(), reason)];
    assert!(verify(Profile::Npu, &received, &drop_of(&plain)).is_ok());
    assert!(verify(Profile::Npu, &received, &[passed(&atomic), passed(&plain)]).is_ok());
    let changed = passed(&plain.clone().with(|frame| frame.payload[7] ^= 1));
    let difference = verify(Profile::Npu, &received, &[passed(&atomic), changed]).unwrap_err();
    assert!(matches!(difference, Difference::Changed { .. }), "its bytes still count: {difference}");
    let longer = plain.at(0, 101);
    let received = built(&[atomic.clone(), longer.clone()]);
    let difference = verify(Profile::Npu, &received, &drop_of(&longer)).unwrap_err();
    assert_eq!(difference, Difference::Dropped { len: 175, reason });
}

#[test]
fn a_pure_ack_is_no_duplicate_that_may_be_dropped() {
    let (ack, reason) = (data(0, 0), DropReason::Duplicate);
    let difference =
        verify(Profile::Npu, &built(std::slice::from_ref(&ack)), &[dropped(ack.build(), reason)])
            .unwrap_err();
    assert_eq!(difference, Difference::Dropped { len: 54, reason });
}

#[test]
fn old_and_far_segments_do_not_move_the_stream_to_another_turn() {
    let at = |seq: u32| data(0, 100).with(|frame| frame.seq.0 = seq);
    let start = 1 << 30;
    let syn = at(start - 1).with(|frame| (frame.flags, frame.payload) = (TcpFlags::SYN, Vec::new()));
    let frames = [syn, at(start), at(302), at((1 << 31) + 2000), at(1), at(start + 100)];
    let passed: Vec<Out> = frames.iter().map(passed).collect();
    assert!(verify(Profile::Npu, &built(&frames), &passed).is_ok());
    let again = at(start);
    let received = [built(&frames), vec![again.build()]].concat();
    let delivered: Vec<Out> =
        passed.into_iter().chain([dropped(again.build(), DropReason::Duplicate)]).collect();
    assert!(verify(Profile::Npu, &received, &delivered).is_ok());
}

#[test]
fn an_aggregate_must_say_what_its_segments_said() {
    let frames = three();
    let merged = outputs(&npu(), &frames);
    let field = |change: fn(&mut TcpFrame)| {
        let [one, two, three] = frames.clone();
        let received = built(&[one, two.with(change), three]);
        match verify(Profile::Npu, &received, &merged) {
            Err(Difference::Field { field, .. }) => field,
            other => panic!("{other:?}"),
        }
    };
    let marked = |frame: &mut TcpFrame| {
        if let Network::Ipv4 { tos, .. } = &mut frame.network {
            *tos = TrafficClass(3);
        }
    };
    assert_eq!(field(marked), "type of service or ECN mark");
    assert_eq!(field(|frame| frame.flags = frame.flags | TcpFlags::ECE), "set of flags");
    assert_eq!(field(|frame| frame.flags = frame.flags | TcpFlags::PSH), "set of flags");
    assert_eq!(field(|frame| frame.ack += 1), "ACK number");
}

#[test]
fn a_control_segment_must_not_be_merged() {
    let [one, two, _] = three();
    let fin = two.flags(TcpFlags::FIN);
    let frames = [one, fin];
    let difference = verify(Profile::Npu, &built(&frames), &outputs(&gro(), &frames)).unwrap_err();
    assert_eq!(difference, Difference::Field { seq: frames[0].seq, field: "set of flags or options" });
}

#[test]
fn what_came_out_is_not_outstanding() {
    let mut verifier = Verifier::new(Profile::Npu, Medium::Ethernet);
    for nth in 0..100_000 {
        let frame = data(nth * 1000, 1000);
        verifier.received(&frame.build());
        verifier.delivered(&passed(&frame));
        assert_eq!(verifier.outstanding(), 0);
    }
    assert!(verifier.mismatch().is_none());
    assert_eq!(verifier.finish(), Ok(Verified { frames: 100_000, flows: 1, bytes: 100_000_000 }));
}

/// The segment with which the receiver of `frame` acknowledges it.
fn answer(frame: &TcpFrame) -> TcpFrame {
    TcpFrame {
        network: Network::ipv4([10, 0, 0, 2].into(), [10, 0, 0, 1].into()),
        src_port: frame.dst_port,
        dst_port: frame.src_port,
        ack: frame.seq + frame.payload.len() as u32,
        ..TcpFrame::default()
    }
}

#[test]
fn a_new_segment_may_be_dropped_only_if_its_receiver_has_acknowledged_it() {
    let [one, two, three] = three();
    let verify = |answer: Option<TcpFrame>| {
        let mut verifier = Verifier::new(Profile::Npu, Medium::Ethernet);
        for frame in [&one, &three] {
            verifier.received(&frame.build());
            verifier.delivered(&passed(frame));
        }
        if let Some(answer) = answer {
            verifier.observe_transmit(&answer.build());
        }
        verifier.received(&two.build());
        verifier.delivered(&dropped(two.build(), DropReason::Duplicate));
        verifier.finish().map_err(|Mismatch { difference, .. }| difference)
    };
    let unjustified = Err(Difference::Dropped { len: two.build().len(), reason: DropReason::Duplicate });
    assert_eq!(verify(None), unjustified);
    assert_eq!(verify(Some(answer(&one))), unjustified);
    assert!(verify(Some(answer(&two))).is_ok() && verify(Some(answer(&three))).is_ok());
    let aborted = answer(&three).flags(TcpFlags::RST);
    assert_eq!(verify(Some(aborted)), unjustified, "its connection has ended");
    let without = answer(&three).with(|frame| frame.flags = TcpFlags::PSH);
    assert_eq!(verify(Some(without)), unjustified, "its ACK number has no meaning");
}

#[test]
fn an_acknowledged_segment_may_be_dropped_once() {
    let [one, two, three] = three();
    let longer = data(100, 150);
    let reason = DropReason::Duplicate;
    let verify = |received: &[&TcpFrame], delivered: &[Out]| {
        let mut verifier = Verifier::new(Profile::Npu, Medium::Ethernet);
        verifier.received(&one.build());
        verifier.delivered(&passed(&one));
        verifier.observe_transmit(&answer(&three).build());
        received.iter().for_each(|frame| verifier.received(&frame.build()));
        delivered.iter().for_each(|output| verifier.delivered(output));
        verifier.finish().map_err(|Mismatch { difference, .. }| difference)
    };
    let twice = verify(&[&two], &[passed(&two), dropped(two.build(), reason)]);
    assert_eq!(twice, Err(Difference::Dropped { len: 154, reason }));
    // The bytes of `two` came out in `longer`: `two` itself may then come out or be dropped.
    let delivered = [passed(&longer), passed(&two), dropped(two.build(), reason)];
    assert!(verify(&[&two, &longer, &two], &delivered).is_ok());
}

/// Returns true if the two frames may come out in another order than they came in, as frames of different
/// flows.
fn are_of_different_flows(frames: &[Vec<u8>; 2], medium: Medium) -> bool {
    let mut verifier = Verifier::new(Profile::Gro, medium);
    frames.iter().for_each(|frame| verifier.received(frame));
    frames.iter().rev().for_each(|frame| verifier.delivered(&passed_bytes(frame.clone())));
    match verifier.finish().map_err(|Mismatch { difference, .. }| difference) {
        Ok(_) => true,
        Err(difference) => {
            assert_eq!(difference, Difference::Overtook { frame: 2, overtaken: 1 });
            false
        }
    }
}

/// A frame through a tunnel.
fn tunneled(wrapping: Wrapping, frame: &[u8]) -> Vec<u8> {
    Tunnel { wrapping, ident: 0, step: 0 }.wrap(frame, Medium::Ethernet, 0)
}

#[test]
fn in_tunnels_whole_tcp_packets_have_flows() {
    let segments = [1, 2].map(|port| data(0, 50).with(|frame| frame.src_port = port));
    for wrapping in [Wrapping::Ipv4, Wrapping::Ipv6, Wrapping::Pppoe] {
        let wrapped = |frame: &dyn Fn(&TcpFrame) -> Vec<u8>| {
            segments.each_ref().map(|segment| tunneled(wrapping, &frame(segment)))
        };
        let whole = wrapped(&TcpFrame::build);
        assert!(are_of_different_flows(&whole, Medium::Ethernet), "{wrapping:?}");
        let datagrams = wrapped(&|segment| datagram(segment, Medium::Ethernet));
        assert!(!are_of_different_flows(&datagrams, Medium::Ethernet), "{wrapping:?}");
        let trailed = wrapped(&|segment| [segment.build(), vec![0]].concat());
        assert!(!are_of_different_flows(&trailed, Medium::Ethernet), "{wrapping:?}");
        // PPPoE follows an Ethernet header.
        let packets = whole.map(|frame| frame[14..].to_vec());
        assert_eq!(are_of_different_flows(&packets, Medium::Ip), wrapping != Wrapping::Pppoe);
    }
}

#[test]
fn a_wrong_checksum_of_any_header_is_a_reason_to_drop() {
    let segment = data(0, 50);
    let (plain, udp) = (segment.build(), datagram(&segment, Medium::Ethernet));
    let [ipv4, pppoe] = [Wrapping::Ipv4, Wrapping::Pppoe].map(|wrapping| tunneled(wrapping, &plain));
    let with = |frame: &[u8], at: usize, bits: u8| {
        let mut frame = frame.to_vec();
        frame[at] ^= bits;
        frame
    };
    // The checksums of the outer and the inner IPv4 header, and of the segment.
    for (frame, places) in
        [(&plain, &[24, 100][..]), (&udp, &[24, 80]), (&ipv4, &[24, 44, 120]), (&pppoe, &[32, 100])]
    {
        let verify = |frame: &Vec<u8>, reason| {
            verify(Profile::Gro, std::slice::from_ref(frame), &[dropped(frame.clone(), reason)])
        };
        for reason in [DropReason::IpChecksum, DropReason::TcpChecksum, DropReason::UdpChecksum] {
            let unjustified = Err(Difference::Dropped { len: frame.len(), reason });
            assert_eq!(verify(frame, reason), unjustified, "{frame:02x?}");
            for place in places {
                assert!(verify(&with(frame, *place, 1), reason).is_ok(), "{place} of {frame:02x?}");
            }
        }
    }
    // A datagram that has no checksum, or whose checksum covers other bytes: it is a fragment, or its lengths
    // disagree.
    let mut without = with(&udp, 80, 1);
    without[40..42].fill(0);
    let mut fragment = with(&udp, 80, 1);
    fragment[20] |= 0x20;
    fragment[24..26].fill(0);
    let sum = checksum(&fragment[14..34]);
    fragment[24..26].copy_from_slice(&sum.to_be_bytes());
    for datagram in [without, fragment, with(&udp, 39, 1)] {
        let (len, reason) = (datagram.len(), DropReason::UdpChecksum);
        let drop = dropped(datagram.clone(), reason);
        assert_eq!(verify(Profile::Gro, &[datagram], &[drop]), Err(Difference::Dropped { len, reason }));
    }
}
