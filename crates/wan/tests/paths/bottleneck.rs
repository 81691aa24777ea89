//! The bottleneck: spacing, the queue and its limits, CoDel, marks, traces.

use crate::common::{NONE, ect, is_near, ms, of, packet, send, us};
use etherparse::{NetSlice, SlicedPacket};
use nichrome_wan::{Aqm, DropReason, Dummy, Impairments, Output, Path, Trace};
use nichrome_wire::engine::{advance, deliver};
use nichrome_wire::{Ecn, Engine, Instant, Network, TcpFrame, TrafficClass};

fn rate(text: &str) -> Impairments {
    Impairments { rate: Some(of(text)), queue: of("1000000p"), ..NONE() }
}

#[test]
fn back_to_back_spacing_is_exact_and_does_not_drift() {
    // 1514 bytes at 7 Mbit/s take 1,730,285.714… ns.
    let mut path = Path::new(&rate("7mbit"), 0).unwrap();
    let outcome = send(&mut path, (0..70_000).map(|id| (us(3), packet(id))));
    let expected = (1..=70_000u64).map(|nth| Instant::from_nanos(3000 + nth * 1514 * 8 * 1000 / 7));
    assert!(outcome.dues().into_iter().eq(expected));
}

#[test]
fn an_idle_link_sends_at_once() {
    let mut path = Path::new(&rate("12112kbit"), 0).unwrap();
    let outcome = send(&mut path, [0, 10_000, 10_500, 30_000].map(|at| (us(at), packet(at))));
    assert_eq!(outcome.dues(), [1000, 11_000, 12_000, 31_000].map(us));
}

#[test]
fn the_queue_comes_before_the_delay() {
    let mut path = Path::new(&Impairments { delay: of("40ms"), ..rate("12112kbit") }, 0).unwrap();
    let outcome = send(&mut path, (0..3).map(|id| (us(0), packet(id))));
    assert_eq!(outcome.dues(), [41_000, 42_000, 43_000].map(us));
}

#[test]
fn the_order_of_stages_can_be_changed() {
    let lossy = Impairments { loss: Some(of("packets:2")), queue: of("1p"), ..rate("12112kbit") };
    let outcome = |order: &str| {
        let mut path = Path::new(&Impairments { order: of(order), ..lossy.clone() }, 0).unwrap();
        let outcome = send(&mut path, (1..=4).map(|id| (us(0), packet(id))));
        (outcome.dropped_for(DropReason::Loss), outcome.dropped_for(DropReason::TailDrop))
    };
    assert_eq!(outcome("loss,rate"), (vec![2], vec![4]));
    assert_eq!(outcome("rate,loss"), (vec![2], vec![3, 4]));
}

#[test]
fn a_sent_packet_makes_room_for_one_that_arrives_at_that_time() {
    let impairments =
        Impairments { delay: of("1ms"), queue: of("1p"), order: of("delay,rate"), ..rate("12112kbit") };
    let mut path = Path::new(&impairments, 0).unwrap();
    let outcome = send(&mut path, [0, 0, 1000].map(|at| (us(at), packet(at))));
    assert_eq!(outcome.dues(), [2, 3, 4].map(ms));
}

#[test]
fn a_full_queue_drops_at_its_tail() {
    // One packet is in transmission and does not count.
    for (queue, kept) in [("2p", 3), ("3028B", 3), ("3027B", 2), ("1B", 1)] {
        let mut path = Path::new(&Impairments { queue: of(queue), ..rate("10mbit") }, 0).unwrap();
        let outcome = send(&mut path, (1..=6).map(|id| (us(0), packet(id))));
        assert_eq!(outcome.ids(), (1..=kept).collect::<Vec<_>>(), "{queue}");
        assert_eq!(outcome.dropped_for(DropReason::TailDrop), (kept + 1..=6).collect::<Vec<_>>());
    }
}

#[test]
fn packets_longer_than_the_mtu_are_dropped() {
    let mut path = Path::new(&Impairments { mtu: Some(of("1500")), ..NONE() }, 0).unwrap();
    let outcome =
        send(&mut path, [1514, 1515, 60].map(|len| (us(0), Dummy { len, id: len.into(), ..packet(0) })));
    assert_eq!((outcome.ids(), outcome.dropped_for(DropReason::Mtu)), (vec![1514, 60], vec![1515]));
}

/// RFC 8200 section 5: below an MTU of 1,280 bytes, the link layer fragments and reassembles.
#[test]
fn ipv6_packets_of_1280_bytes_get_through_whatever_the_mtu() {
    let frame = |network: Network, len: usize| {
        let headers = TcpFrame { network: network.clone(), ..TcpFrame::default() }.build().len();
        TcpFrame { network, payload: vec![0; 14 + len - headers], ..TcpFrame::default() }.build()
    };
    let v4 = || Network::ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let v6 = || Network::ipv6([1; 16].into(), [2; 16].into());
    for (mtu, longest_v4, longest_v6) in [("1000", 1000, 1280), ("1280", 1280, 1280), ("1400", 1400, 1400)] {
        let mut path = Path::new(&Impairments { mtu: Some(of(mtu)), ..NONE() }, 0).unwrap();
        for (network, longest) in [(v4(), longest_v4), (v6(), longest_v6)] {
            for (len, gets_through) in [(longest, true), (longest + 1, false)] {
                path.receive(frame(network.clone(), len), us(0));
                assert_eq!(matches!(path.poll(), Some(Output::Released(_))), gets_through, "{mtu}: {len}");
            }
        }
    }
}

/// Sends twice the rate of the link for 20 s, without reaction to loss.
fn overload(impairments: &Impairments, make: fn(u64) -> Dummy) -> (crate::common::Outcome, Path<Dummy>) {
    let mut path = Path::new(impairments, 0).unwrap();
    let outcome = send(&mut path, (0..40_000).map(|id| (us(id * 500), make(id))));
    (outcome, path)
}

#[test]
fn codel_waits_for_an_interval_and_then_drops_more_and_more_often() {
    let codel = Impairments { aqm: of("codel"), ..rate("12112kbit") };
    let (outcome, _) = overload(&codel, packet);
    let dropped = outcome.dropped_for(DropReason::CoDel);
    assert_eq!(outcome.dropped.len(), dropped.len());
    // Packets wait 5 ms from the 10th on (each is sent 0.5 ms later than the previous one). An interval of
    // 100 ms later, CoDel drops the first packet, which is then at the head.
    let first = dropped[0];
    assert!((108..=112).contains(&first), "{first}");
    // Intervals shrink with the square root of the count (RFC 8289 section 5): 100 ms, 71 ms, 58 ms, …, and a
    // packet is sent each millisecond.
    let gaps: Vec<u64> = dropped.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (nth, gap) in gaps.iter().take(20).enumerate() {
        let expected = 100.0 / (nth as f64 + 1.0).sqrt();
        assert!((*gap as f64 - expected).abs() <= 3.0, "{nth}: {gap} for {expected}");
    }
}

#[test]
fn codel_does_not_drop_on_a_link_that_keeps_up() {
    let codel = Impairments { aqm: of("codel:5ms,100ms"), ..rate("12112kbit") };
    let mut path = Path::new(&codel, 0).unwrap();
    // Bursts of 20 that take 20 ms to send, every 25 ms: the queue is empty in every interval.
    let outcome = send(&mut path, (0..20_000).map(|id| (ms(id / 20 * 25), packet(id))));
    assert_eq!((outcome.released.len(), outcome.dropped.len()), (20_000, 0));
}

#[test]
fn codel_never_drops_the_last_queued_packet() {
    // A packet takes 20 ms, and one always waits longer than the target.
    let codel = Impairments { aqm: of("codel"), ..rate("605600bit") };
    let mut path = Path::new(&codel, 0).unwrap();
    let outcome = send(&mut path, (0..1000u64).map(|id| (ms(id.saturating_sub(1) * 20), packet(id))));
    assert_eq!((outcome.released.len(), outcome.dropped.len()), (1000, 0));
}

#[test]
fn codel_resumes_its_drop_rate_if_the_queue_grows_again_soon() {
    let codel = Impairments { aqm: of("codel"), ..rate("12112kbit") };
    let mut path = Path::new(&codel, 0).unwrap();
    // Sends a fifth above the link's rate for 3 s, pauses until the queue is empty, and sends again.
    let busy = |begin: u64| (0..3600).map(move |nth| (us(begin + nth * 833), packet(begin + nth)));
    let outcome = send(&mut path, busy(0).chain(busy(3_700_000)));
    let (before, after): (Vec<_>, Vec<_>) =
        outcome.dropped_for(DropReason::CoDel).into_iter().partition(|id| *id < 3_700_000);
    assert!((80..=120).contains(&(before[1] - before[0])), "{before:?}");
    assert!(after[1] - after[0] < 40, "{after:?}");
}

#[test]
fn codel_keeps_the_delay_of_a_sender_that_reacts_near_its_target() {
    // The sender increases its rate additively, and decreases it multiplicatively at each drop.
    let codel = Impairments { aqm: of("codel"), ..rate("12112kbit") };
    let mut path = Path::new(&codel, 0).unwrap();
    let (mut now, mut rate, mut delays) = (Instant::ZERO, 800.0_f64, Vec::new());
    for id in 0..100_000 {
        let mut is_dropped = false;
        deliver(&mut path, packet(id), now, &mut |_, output| match output {
            Output::Released(departure) => delays.push((departure.due - departure.arrived).as_secs_f64()),
            Output::Dropped { .. } => is_dropped = true,
        });
        rate = if is_dropped { rate * 0.7 } else { rate + 0.5 };
        now = now.plus_nanos((1e9 / rate) as u64);
    }
    let mean = crate::common::mean(&delays[10_000..]);
    assert!(mean < 0.015, "{mean}");
    assert!(path.stats().drops.get(DropReason::CoDel) > 50);
}

#[test]
fn codel_marks_packets_of_ecn_capable_senders_instead_of_dropping() {
    let mark = Impairments { aqm: of("codel"), ecn: of("mark"), ..rate("12112kbit") };
    let (outcome, path) = overload(&mark, ect);
    let marked: Vec<_> =
        outcome.released.iter().filter(|d| d.packet.ecn == Ecn::Ce).map(|d| d.packet.id).collect();
    assert_eq!((outcome.dropped.len(), path.stats().ce_marked), (0, marked.len() as u64));
    assert!((108..=112).contains(&marked[0]) && marked.len() > 100, "{marked:?}");
    let (outcome, path) = overload(&mark, |id| Dummy { ecn: Ecn::Ce, ..packet(id) });
    assert_eq!((outcome.dropped.len(), path.stats().ce_marked), (0, 0));
    let (outcome, path) = overload(&mark, packet);
    assert!(path.stats().ce_marked == 0 && outcome.dropped_for(DropReason::CoDel).len() > 100);
}

#[test]
fn a_queue_marks_above_its_threshold() {
    let mark = Impairments { ecn: of("mark:2p"), ..rate("12112kbit") };
    let mut path = Path::new(&mark, 0).unwrap();
    let outcome = send(&mut path, (0..6).map(|id| (us(0), ect(id))));
    let marks: Vec<_> = outcome.released.iter().map(|departure| departure.packet.ecn == Ecn::Ce).collect();
    // The fifth packet is the first that finds more than two in the queue: one is in transmission, three
    // wait.
    assert_eq!(marks, [false, false, false, false, true, true]);
}

/// etherparse reads marked frames, over IPv4 and IPv6.
#[test]
fn marks_keep_ipv4_checksums_right() {
    let mark = Impairments { ecn: of("mark:1p"), ..rate("10mbit") };
    let mut path = Path::new(&mark, 0).unwrap();
    let tos = TrafficClass(0b1011_1000).with_ecn(Ecn::Ect1);
    let ipv4 = Network::Ipv4 {
        src: [10, 0, 0, 1].into(),
        dst: [10, 0, 0, 2].into(),
        ident: 77,
        dont_fragment: true,
        ttl: 64,
        tos,
        options: vec![],
    };
    let mut ipv6 = Network::ipv6([1; 16].into(), [2; 16].into());
    if let Network::Ipv6 { class, .. } = &mut ipv6 {
        *class = tos;
    }
    let mut marked = 0;
    let mut check = |_, output: Output<Vec<u8>>| {
        let Output::Released(departure) = output else { panic!("dropped") };
        match SlicedPacket::from_ethernet(&departure.packet).unwrap().net {
            Some(NetSlice::Ipv4(ip)) => {
                let header = ip.header().to_header();
                assert_eq!(header.header_checksum, header.calc_header_checksum());
                marked += u64::from(header.ecn.value() == 3);
                assert_eq!(header.dscp.value(), 46);
            }
            Some(NetSlice::Ipv6(ip)) => marked += u64::from(ip.header().traffic_class() & 3 == 3),
            _ => panic!("not IP"),
        }
    };
    for _ in 0..10 {
        for network in [&ipv4, &ipv6] {
            let frame = TcpFrame { network: network.clone(), ..TcpFrame::default() }.build();
            deliver(&mut path, frame, us(0), &mut check);
        }
    }
    advance(&mut path, ms(1000), &mut check);
    assert_eq!((marked, path.stats().ce_marked), (17, 17));
}

fn trace(text: &str) -> Impairments {
    Impairments { trace: Some(of(text)), queue: of("1000000p"), ..NONE() }
}

#[test]
fn a_trace_delivers_at_its_times() {
    let mut path = Path::new(&trace("1\n1\n4\n10\n"), 0).unwrap();
    let outcome = send(&mut path, (0..9).map(|id| (ms(100), packet(id))));
    assert_eq!(outcome.dues(), [101, 101, 104, 110, 111, 111, 114, 120, 121].map(ms));
}

#[test]
fn an_opportunity_without_a_packet_is_wasted() {
    let mut path = Path::new(&trace("10\n"), 0).unwrap();
    let outcome = send(&mut path, [0, 25, 30, 41].map(|at| (ms(at), packet(at))));
    assert_eq!(outcome.dues(), [10, 30, 40, 50].map(ms));
}

#[test]
fn small_packets_share_an_opportunity_and_long_ones_need_several() {
    let mut path = Path::new(&trace("10\n"), 0).unwrap();
    let sized = |len: u32| Dummy { len: len + 14, ..packet(0) };
    // 500 + 500 + 500; 3000; 100 and 1401, whose last byte needs the next opportunity.
    let outcome = send(&mut path, [500, 500, 500, 3000, 100, 1401].map(|len| (ms(0), sized(len))));
    assert_eq!(outcome.dues(), [10, 10, 10, 30, 40, 50].map(ms));
}

#[test]
fn a_trace_carries_its_mean_rate() {
    let text: String = (0..500u64).map(|nth| format!("{}\n", nth * nth / 100 + nth)).collect();
    let trace: Trace = of(&text);
    let rate = trace.mean_rate();
    let mut path = Path::new(&Impairments { trace: Some(trace), queue: of("20p"), ..NONE() }, 0).unwrap();
    let outcome = send(&mut path, (0..1_000_000).map(|id| (us(id * 1000), packet(id))));
    let bits = outcome.released.len() as f64 * 1500.0 * 8.0;
    let measured = bits / (outcome.dues()[outcome.released.len() - 1] - outcome.dues()[0]).as_secs_f64();
    assert!(is_near(measured, rate), "{measured} for {rate}");
}

#[test]
fn codel_works_with_a_trace() {
    let codel = Impairments { aqm: Aqm::CoDel(nichrome_wan::CoDel::default()), ..trace("1") };
    let (outcome, _) = overload(&codel, packet);
    assert!(outcome.dropped_for(DropReason::CoDel).len() > 100);
}
