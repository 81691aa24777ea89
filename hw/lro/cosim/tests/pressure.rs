//! A store that is too small for the aggregates: the module stalls its input, closes the oldest aggregate,
//! and loses nothing.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::time::Duration;

use etherparse::{SlicedPacket, TransportSlice};
use nichrome_lro::{Config, FlushReason, Reason};
use nichrome_lro_cosim::package::COUNTER_FLUSH;
use nichrome_lro_cosim::{Model, Rtl, RtlConfig, Stalls};
use nichrome_wire::{Instant, SeqNumber, TcpFrame};

/// Bytes by the source port of a flow.
type Streams = BTreeMap<u16, Vec<u8>>;

fn received(rtl: &mut Rtl) -> Streams {
    let mut streams = Streams::new();
    while let Some(packet) = rtl.packet() {
        let headers = SlicedPacket::from_ethernet(&packet.bytes).unwrap();
        let Some(TransportSlice::Tcp(tcp)) = headers.transport else { panic!("not TCP") };
        streams.entry(tcp.source_port()).or_default().extend_from_slice(tcp.payload());
    }
    streams
}

/// 128 pages of 128 B hold 16 KB; the two flows may hold up to 48 KB each.
#[test]
fn nothing_is_lost_when_pages_run_out() {
    for (len, source, sink) in [(1448, 0, 0), (8946, 0, 0), (100, 30, 30), (1448, 0, 90), (1, 0, 0)] {
        let config = Config { max_bytes: 49_152, max_segments: 1023, ..Config::default() };
        let rtl = RtlConfig::new(Model::SMALL, &config, Duration::from_secs(1));
        let mut rtl = Rtl::new(RtlConfig { stalls: Stalls { source, sink }, ..rtl });
        let mut sent = Streams::new();
        for nth in 0..400u32 {
            let port = 4000 + (nth % 2) as u16;
            let stream = sent.entry(port).or_default();
            let seq = SeqNumber(stream.len() as u32);
            let payload: Vec<u8> = (0..len).map(|at| (nth * 7 + at) as u8).collect();
            stream.extend_from_slice(&payload);
            let frame = TcpFrame { src_port: port, seq, payload, ..TcpFrame::default() };
            rtl.send(&frame.build(), Instant::from_nanos(1000), false);
        }
        rtl.drain();
        assert!(received(&mut rtl) == sent, "{len} bytes");
        assert!(rtl.counter(COUNTER_FLUSH + FlushReason::Evicted.position()) > 0, "{len} bytes");
    }
}

/// Two flows fill the store; the older one's aggregate leaves, and its pages are enough.
#[test]
fn the_oldest_aggregate_alone_is_evicted() {
    let config = Config { max_bytes: 65_535, max_segments: 1023, ..Config::default() };
    for len in [1448, 100, 3000] {
        let mut rtl = Rtl::new(RtlConfig::new(Model::SMALL, &config, Duration::from_secs(1)));
        let evicted = COUNTER_FLUSH + FlushReason::Evicted.position();
        let segment = |nth: u32| {
            let (src_port, seq) = (4000 + (nth % 2) as u16, SeqNumber(nth / 2 * len));
            let payload = vec![nth as u8; len as usize];
            TcpFrame { src_port, seq, payload, ..TcpFrame::default() }.build()
        };
        let mut sent = 0;
        while rtl.counter(evicted) == 0 {
            rtl.send(&segment(sent), Instant::from_nanos(1000), false);
            rtl.settle();
            sent += 1;
        }
        assert_eq!(rtl.counter(evicted), 1, "{len} bytes");
        let packets: Vec<_> = std::iter::from_fn(|| rtl.packet()).collect();
        let [packet] = &packets[..] else { panic!("{len} bytes: {} packets", packets.len()) };
        assert_eq!(packet.bytes[34..36], 4000u16.to_be_bytes(), "{len} bytes");
    }
}

/// Frames of one page fill the store, and the older aggregate's timer fires in any cycle of the wait for a
/// page: the module evicts no other aggregate in addition.
#[test]
fn nothing_is_evicted_beside_an_aggregate_whose_timer_fires() {
    /// Cycles of a frame, 94 bytes long.
    const FRAME: u64 = 13;
    let (now, timer) = (Instant::from_nanos(1000), Duration::from_micros(1));
    let later = now.plus_nanos(500);
    let config = Config { max_bytes: 65_535, max_segments: 1023, ..Config::default() };
    let mut closed = [0; 2];
    for cycles in 0..100 {
        let mut rtl = Rtl::new(RtlConfig::new(Model::SMALL, &config, timer));
        let segment = |flow: u16, nth: u32| {
            let seq = SeqNumber(nth * 40);
            TcpFrame { src_port: 4000 + flow, seq, payload: vec![7; 40], ..TcpFrame::default() }.build()
        };
        rtl.send(&segment(0, 0), now, false);
        rtl.send(&segment(1, 0), later, false);
        // The module has 128 pages, of which it holds two for the next words.
        rtl.advance_after(126 * FRAME + cycles, now.plus_nanos(1000));
        for nth in 1..=64 {
            rtl.send(&segment(0, nth), later, false);
            rtl.send(&segment(1, nth), later, false);
        }
        rtl.settle();
        let reasons = [FlushReason::Timeout, FlushReason::Evicted];
        let counts = reasons.map(|reason| rtl.counter(COUNTER_FLUSH + reason.position()));
        assert_eq!(counts.iter().sum::<u64>(), 1, "{counts:?} after {cycles} cycles");
        closed = std::array::from_fn(|place| closed[place] + counts[place]);
    }
    assert!(closed.iter().all(|count| *count > 10), "{closed:?}");
}

#[test]
fn bad_frames_of_the_mac_are_counted_and_give_their_pages_back() {
    let rtl = RtlConfig::new(Model::SMALL, &Config::default(), Duration::from_secs(1));
    let mut rtl = Rtl::new(rtl);
    let frame = TcpFrame { payload: vec![7; 5000], ..TcpFrame::default() }.build();
    for _ in 0..100 {
        rtl.send(&frame, Instant::from_nanos(1000), true);
    }
    rtl.drain();
    assert!(rtl.packet().is_none());
    assert_eq!(rtl.counter(nichrome_lro_cosim::package::COUNTER_BAD_FRAMES), 100);
    assert_eq!(rtl.totals(), [0; 8]);
}
