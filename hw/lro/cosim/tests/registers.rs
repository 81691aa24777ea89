//! Registers that are read and written while frames arrive.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::time::Duration;

use nichrome_lro::Config;
use nichrome_lro_cosim::package::REGISTERS;
use nichrome_lro_cosim::{Model, Rtl, RtlConfig};
use nichrome_wire::Instant;

use common::segment_in_turn;

const NOW: Instant = Instant::from_nanos(1000);

/// Returns the address of a register.
fn of(name: &str) -> u32 {
    REGISTERS.iter().find(|register| register.name == name).unwrap().address
}

/// Segment `nth` with `len` bytes of `flows` connections in turn, padded to 60 bytes.
fn segment(nth: u32, len: usize, flows: u32) -> Vec<u8> {
    let mut bytes = segment_in_turn(nth, len, flows);
    bytes.resize(bytes.len().max(60), 0);
    bytes
}

/// Frames at line rate, and one register read after the other: each read is answered within `LONGEST` cycles
/// with a value that includes everything counted before it began, and no frame waits for a read.
#[test]
fn counters_are_read_while_small_frames_arrive_at_line_rate() {
    /// Maximum cycles of a read: for the additions that wait, those of the entry that is being added, and the
    /// memory.
    const LONGEST: u64 = 100;
    /// Maximum number of frames on their way to the counters.
    const ON_THE_WAY: u32 = 8;
    const FRAMES: u32 = 500;
    let cases = [("pure ACKs", 0, 1), ("pairs", 6, 1), ("singles", 6, 5), ("pairs of two flows", 6, 2)];
    for model in Model::ALL {
        for (case, len, flows) in cases {
            let config = Config { max_segments: 2, ..Config::default() };
            let rtl = RtlConfig::new(*model, &config, Duration::from_millis(1));
            let frames: Vec<_> = (0..FRAMES).map(|nth| segment(nth, len, flows)).collect();
            let mut unread = Rtl::new(rtl);
            frames.iter().for_each(|frame| unread.send(frame, NOW, false));
            let (mut rtl, mut reads, mut reading) = (Rtl::new(rtl), 0u32, None);
            for (sent, frame) in (0u32..).zip(&frames) {
                let (sent_before, started) = *reading.get_or_insert_with(|| {
                    rtl.start_read(of("totals"));
                    (sent, rtl.cycles())
                });
                rtl.send(frame, NOW, false);
                if let Some(value) = rtl.take_answer() {
                    let wanted = sent_before.saturating_sub(ON_THE_WAY)..=sent + 1;
                    assert!(wanted.contains(&value), "{case}, {model:?}: {value} of {wanted:?}");
                    (reading, reads) = (None, reads + 1);
                } else {
                    let cycles = rtl.cycles() - started;
                    assert!(cycles < LONGEST, "{case}, {model:?}: no answer after {cycles} cycles");
                }
            }
            assert!(reads > FRAMES / 10, "{case}, {model:?}: {reads} reads");
            assert_eq!(rtl.refused(), unread.refused(), "{case}, {model:?}");
            while reading.is_some() {
                rtl.settle();
                reading = reading.filter(|_| rtl.take_answer().is_none());
            }
            rtl.drain();
            unread.drain();
            assert_eq!(rtl.totals(), unread.totals(), "{case}, {model:?}");
        }
    }
}

/// Clear bit 0 of `control`, set bit 2, wait for bit 0 of `status`: then no packet is in the pipeline, even
/// if a frame was taken in the last possible cycle.
#[test]
fn nothing_is_on_its_way_once_a_stop_reads_idle() {
    const STOP: u32 = 4;
    for model in Model::WITH_SMALL {
        let config = RtlConfig::new(*model, &Config::default(), Duration::from_millis(1));
        let mut taken = 0;
        for cycles in 0..16 {
            let mut rtl = Rtl::new(config);
            rtl.settle();
            rtl.offer_word(cycles);
            rtl.write(of("control"), STOP);
            while rtl.read(of("status")) & 1 == 0 {}
            let packets = |rtl: &mut Rtl| std::iter::from_fn(|| rtl.packet()).count();
            taken += packets(&mut rtl);
            rtl.settle();
            assert_eq!(
                packets(&mut rtl),
                0,
                "{model:?}: idle with a packet on its way, offered after {cycles} cycles"
            );
        }
        assert!((1..16).contains(&taken), "{model:?}: {taken} taken");
    }
}
