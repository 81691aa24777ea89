//! Inputs that change every bit of the module's state both ways: times of 64 bits, flows whose headers are
//! each other's inverse, long frames, registers.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::Ipv6Addr;
use std::time::Duration;

use nichrome_lro::{BadChecksum, Config};
use nichrome_lro_cosim::compare::{Input, compare};
use nichrome_lro_cosim::package::REGISTERS;
use nichrome_lro_cosim::{Model, Rtl, RtlConfig, Stalls};
use nichrome_wire::{
    EtherType, FlowLabel, Instant, IpProtocol, Network, SeqNumber, TcpFlags, TcpFrame, TrafficClass, VlanTag,
};

fn same(case: &str, config: &Config, timer: Duration, inputs: &[Input]) {
    same_on(Model::ALL, case, config, timer, inputs);
}

fn same_on(models: &[Model], case: &str, config: &Config, timer: Duration, inputs: &[Input]) {
    for model in models {
        let config = Config { max_aggregates: 64, ..*config };
        let rtl = RtlConfig::new(*model, &config, timer);
        if let Err(difference) = compare(&config, rtl, inputs) {
            panic!("{case} with {model:?}: {difference}");
        }
    }
}

/// Returns the address of a register.
fn of(name: &str) -> u32 {
    REGISTERS.iter().find(|register| register.name == name).unwrap().address
}

/// Segment `nth` of a flow whose fields have the bits of `pattern`.
fn patterned(pattern: u8, nth: u32) -> TcpFrame {
    let long = u32::from_be_bytes([pattern; 4]);
    let address = u128::from_be_bytes([pattern; 16]);
    let tag = |tpid| VlanTag { tpid, tci: long as u16 };
    let payload = vec![pattern; 1000];
    let value = long.wrapping_add(nth).to_be_bytes();
    TcpFrame {
        tags: vec![
            tag(if pattern & 1 == 0 { EtherType::QINQ } else { EtherType::VLAN }),
            tag(EtherType::VLAN),
        ],
        network: Network::Ipv6 {
            src: Ipv6Addr::from(address),
            dst: Ipv6Addr::from(!address),
            hop_limit: pattern,
            class: TrafficClass(pattern),
            flow_label: FlowLabel::new(long & 0xF_FFFF).unwrap(),
            next_header: IpProtocol::TCP,
            extensions: Vec::new(),
        },
        src_port: long as u16,
        dst_port: !long as u16,
        seq: SeqNumber(long.wrapping_add(nth * 1000)),
        ack: SeqNumber(long.wrapping_add(nth)),
        flags: if pattern & 2 == 0 { TcpFlags::ACK } else { TcpFlags::ACK | TcpFlags::ECE },
        window: long as u16,
        urgent: long as u16,
        options: [&vec![1; usize::from(pattern >> 2 & 3)][..], &[8, 10], &value, &value].concat(),
        payload,
        ..TcpFrame::default()
    }
}

#[test]
fn flows_whose_headers_are_each_others_inverse() {
    let mut inputs = Vec::new();
    for round in 0..6 {
        // The number of flows is odd, so each of them takes each slot of the store.
        for pattern in [0x55, 0xAA, 0x00, 0xFF, 0x33, 0xCC, 0x0F, 0xF0, 0x66, 0x99, 0xA5] {
            for nth in 0..3 {
                let now = Instant::from_nanos((1 << 20) + inputs.len() as u64);
                inputs.push(Input::Frame(now, patterned(pattern, round * 3 + nth).build()));
            }
        }
    }
    same_on(Model::WITH_SMALL, "inverse headers", &Config::default(), Duration::from_millis(1), &inputs);
}

#[test]
fn times_of_all_bits() {
    let mut inputs = Vec::new();
    // Time does not go back: bits change both ways below the first digit, which grows.
    for digit in 0..16 {
        let time = digit << 60 | if digit % 2 == 0 { 0x0555_5555_5555_0000 } else { 0x0AAA_AAAA_AAAA_0000 };
        for (nth, pattern) in (0u32..).zip([0x55, 0xAA, 0x55, 0xAA, 0x0F, 0xF0, 0x33, 0xCC, 0x66, 0x99, 0x55])
        {
            let now = Instant::from_nanos(time + 10 * u64::from(nth));
            inputs.push(Input::Frame(now, patterned(pattern, nth).build()));
        }
        inputs.push(Input::Idle(Instant::from_nanos(time + 100_000)));
    }
    for timer in [Duration::from_nanos(15), Duration::from_micros(50), Duration::from_nanos(0x5555_5555)] {
        same("times", &Config::default(), timer, &inputs);
    }
}

/// Up to 65,535 bytes, the longest that the module takes.
#[test]
fn long_frames() {
    let mut inputs = Vec::new();
    for len in [16_000, 21_845, 32_768, 1000, 43_690, 65_000, 2000, 65_481, 100] {
        for nth in 0..2 {
            let payload = vec![0xFF; len];
            let frame = TcpFrame { seq: SeqNumber(nth * len as u32), payload, ..TcpFrame::default() };
            inputs.push(Input::Frame(Instant::from_nanos(1000), frame.build()));
        }
    }
    for max_bytes in [65_535, 40_000] {
        let config = Config { max_bytes, ..Config::default() };
        same("long frames", &config, Duration::from_millis(1), &inputs);
    }
}

/// Headers whose sums are as large as sums of headers can be, and lengths beyond the frame's.
#[test]
fn headers_of_ones() {
    let ones = patterned(0xFF, 0);
    let over_ipv4 = TcpFrame { network: Network::ipv4([255; 4].into(), [255; 4].into()), ..ones.clone() };
    let plain = |frame: &TcpFrame| TcpFrame { tags: Vec::new(), ..frame.clone() }.build();
    let options = |frame: &TcpFrame, fill: u8| TcpFrame { options: vec![fill; 40], ..frame.clone() };
    let mut frames = Vec::new();
    for frame in [&ones, &options(&ones, 0xFF), &options(&ones, 1), &options(&over_ipv4, 0xFF)] {
        frames.push(plain(frame));
        let mut bytes = plain(frame);
        let length = if frame.network == over_ipv4.network { 16 } else { 18 };
        for value in [0xFFFFu16, 0xFFF0, 0x8000] {
            bytes[length..length + 2].copy_from_slice(&value.to_be_bytes());
            frames.push(bytes.clone());
        }
    }
    // IPv4 with 40 bytes of options.
    let mut bytes = plain(&over_ipv4);
    bytes[14] = 0x4F;
    bytes[15] = 0xFF;
    bytes[18..34].fill(0xFF);
    bytes.splice(34..34, [0xFF; 40]);
    frames.push(bytes);
    for bad_checksum in [BadChecksum::Drop, BadChecksum::Pass] {
        let config = Config { bad_checksum: Some(bad_checksum), ..Config::default() };
        let at = |nth| Instant::from_nanos(1000 + nth as u64);
        let inputs: Vec<_> =
            frames.iter().enumerate().map(|(nth, frame)| Input::Frame(at(nth), frame.clone())).collect();
        same("ones", &config, Duration::from_millis(1), &inputs);
    }
}

#[test]
fn registers_hold_what_is_written() {
    let config = Config::default();
    for model in Model::WITH_SMALL {
        let rtl = RtlConfig::new(*model, &config, Duration::from_micros(1));
        let mut rtl = Rtl::new(RtlConfig { stalls: Stalls { source: 0, sink: 50 }, ..rtl });
        for register in REGISTERS.iter().filter(|register| register.access == "rw") {
            let mask = match register.name {
                "control" => 0x7,
                "max_bytes" => 0xFFFF,
                "max_segments" => 0x7FF,
                _ => u32::MAX,
            };
            for value in [u32::MAX, 0, 0x5555_5555, 0xAAAA_AAAA] {
                rtl.write(register.address, value);
                assert_eq!(rtl.read(register.address), value & mask, "{}", register.name);
            }
        }
        let read = |rtl: &mut Rtl, name: &str| {
            rtl.write(of(name), u32::MAX);
            rtl.read(of(name))
        };
        assert_eq!(read(&mut rtl, "id"), 0x4E4C_524F);
        assert_eq!(read(&mut rtl, "version"), 1);
        assert!([128, 4096].contains(&read(&mut rtl, "pages")));
        let parameters = ((model.flows as u32) << 24) | (8 * model.width.bytes() as u32);
        assert_eq!(read(&mut rtl, "parameters"), parameters);
    }
}

/// All addresses without a register read as zero, and a write there changes nothing.
#[test]
fn there_is_nothing_at_other_addresses() {
    let is_register = |address: u32| {
        let counters = [("totals", 8 * 8), ("reasons", 64 * 8)];
        address.is_multiple_of(4) && REGISTERS.iter().any(|register| register.address == address)
            || counters.iter().any(|(name, len)| (of(name)..of(name) + len).contains(&address))
    };
    for model in Model::WITH_SMALL {
        let mut rtl = Rtl::new(RtlConfig::new(*model, &Config::default(), Duration::from_micros(1)));
        // The counters are not 0.
        rtl.send(&patterned(0, 0).build(), Instant::from_nanos(1000), false);
        rtl.drain();
        assert_ne!(rtl.totals()[0], 0);
        let written = ["control", "timer_ns", "max_bytes", "max_segments"].map(of);
        let before = written.map(|address| rtl.read(address));
        for unused in (0..0x1000).filter(|address| !is_register(*address)) {
            rtl.write(unused, u32::MAX);
            assert_eq!(rtl.read(unused), 0, "{unused:#x}");
        }
        assert_eq!(written.map(|address| rtl.read(address)), before);
    }
}

#[test]
fn registers_are_written_whole_or_not_at_all() {
    let mut rtl = Rtl::new(RtlConfig::new(Model::ALL[0], &Config::default(), Duration::from_micros(1)));
    for strobe in 0..0xf {
        rtl.write_bytes(of("timer_ns"), u32::MAX, strobe);
        assert_eq!(rtl.read(of("timer_ns")), 1000, "{strobe:#x}");
    }
}

/// Aggregates with the maximum number of segments, and many bytes for the counters.
#[test]
fn many_segments() {
    for len in [1, 37] {
        let mut inputs = Vec::new();
        for nth in 0..1100u32 {
            let payload = vec![nth as u8; len];
            let frame = TcpFrame { seq: SeqNumber(nth * len as u32), payload, ..TcpFrame::default() };
            inputs.push(Input::Frame(Instant::from_nanos(1000), frame.build()));
        }
        for max_segments in [682, 1023] {
            let config = Config { max_segments, max_bytes: 65_535, ..Config::default() };
            same("many segments", &config, Duration::from_millis(1), &inputs);
        }
    }
}
