//! Every bit of what the module holds, both ways: times of 64 bits, flows whose headers are each other's inverse, long frames,
//! registers.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::Ipv6Addr;
use std::time::Duration;

use nichrome_lro::Config;
use nichrome_lro_cosim::compare::{Input, compare};
use nichrome_lro_cosim::package::REGISTERS;
use nichrome_lro_cosim::{Model, Rtl, RtlConfig};
use nichrome_wire::{
    EtherType, FlowLabel, Instant, IpProtocol, Network, SeqNumber, TcpFlags, TcpFrame, TrafficClass, VlanTag,
};

fn same(case: &str, config: &Config, timer: Duration, inputs: &[Input]) {
    for model in Model::ALL {
        let config = Config { max_aggregates: 64, ..*config };
        let rtl = RtlConfig::new(*model, &config, timer);
        if let Err(difference) = compare(&config, rtl, inputs) {
            panic!("{case} with {model:?}: {difference}");
        }
    }
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
        options: [&[1, 1, 8, 10][..], &value, &value].concat(),
        payload,
        ..TcpFrame::default()
    }
}

#[test]
fn flows_whose_headers_are_each_others_inverse() {
    let mut inputs = Vec::new();
    for round in 0..6 {
        for pattern in [0x55, 0xAA, 0x00, 0xFF, 0x33, 0xCC, 0x0F, 0xF0, 0x66, 0x99] {
            for nth in 0..3 {
                let now = Instant::from_nanos((1 << 20) + inputs.len() as u64);
                inputs.push(Input::Frame(now, patterned(pattern, round * 3 + nth).build()));
            }
        }
    }
    same("inverse headers", &Config::default(), Duration::from_millis(1), &inputs);
}

#[test]
fn times_of_all_bits() {
    let mut inputs = Vec::new();
    for time in [0x5555_5555_5555_0000, 0xAAAA_AAAA_AAAA_0000, 0xCCCC_CCCC_CCCC_0000, 0xFFFF_FFFF_0000_0000] {
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
    for len in [16_000, 21_845, 32_768, 43_690, 65_000, 65_481] {
        for nth in 0..2 {
            let payload = vec![0xA5; len];
            let frame = TcpFrame { seq: SeqNumber(nth * len as u32), payload, ..TcpFrame::default() };
            inputs.push(Input::Frame(Instant::from_nanos(1000), frame.build()));
        }
    }
    for max_bytes in [65_535, 40_000] {
        let config = Config { max_bytes, ..Config::default() };
        same("long frames", &config, Duration::from_millis(1), &inputs);
    }
}

#[test]
fn registers_hold_what_is_written() {
    let config = Config::default();
    for model in Model::WITH_SMALL {
        let mut rtl = Rtl::new(RtlConfig::new(*model, &config, Duration::from_micros(1)));
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
            let address = REGISTERS.iter().find(|register| register.name == name).unwrap().address;
            rtl.write(address, u32::MAX);
            rtl.read(address)
        };
        assert_eq!(read(&mut rtl, "id"), 0x4E4C_524F);
        assert_eq!(read(&mut rtl, "version"), 1);
        let parameters = ((model.flows as u32) << 24) | (8 * model.width.bytes() as u32);
        assert_eq!(read(&mut rtl, "parameters"), parameters);
        for unused in [0x024, 0x0FC, 0x400, 0xFFC] {
            rtl.write(unused, u32::MAX);
            assert_eq!(rtl.read(unused), 0, "{unused:#x}");
        }
    }
}
