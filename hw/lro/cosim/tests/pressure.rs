//! A store too small for what is to be held: the module stalls its input, closes the oldest aggregate, and loses nothing.
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

/// 128 pages of 128 B hold 16 KB; two flows are held up to 48 KB each.
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
