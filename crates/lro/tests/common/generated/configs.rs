//! Configurations: mostly with limits so low that the traffic reaches them.

use std::time::Duration;

use nichrome_lro::{
    ActiveAck, BadChecksum, Config, Hold, Medium, NetfpgaConfig, NpuConfig, ProfileConfig, PshRule, Rules,
};

use super::choose::Choose;

/// Hold times in microseconds, from the shortest to the longest.
const HOLDS: [u64; 5] = [50, 1000, 0, 5, 20_000];

/// A configuration of the `nth` profile. Only with rules that keep streams whole.
pub fn any_configuration(choose: &mut impl Choose, nth: u32) -> (Config, ProfileConfig) {
    let config = Config {
        medium: choose.one_of(&[Medium::Ethernet, Medium::Ethernet, Medium::Ip]),
        bad_checksum: choose.one_of(&[None, Some(BadChecksum::Drop), Some(BadChecksum::Pass)]),
        udp: choose.one_of(&[true, false]),
        tunnels: choose.one_of(&[true, false]),
        accurate_ecn: choose.one_of(&[true, false]),
        max_bytes: choose.one_of(&[65_535, 65_535, 576, 3000, 20_000]),
        max_segments: choose.one_of(&[128, 2, 3, 17]),
        max_connections: choose.one_of(&[64, 1, 2, 3]),
        max_aggregates: choose.one_of(&[64, 64, 64, 1, 2, 3]),
        seed: u64::from(choose.below(3)),
    };
    let profile = match nth % 3 {
        0 if choose.chance(25) => ProfileConfig::Gro(Hold::Batch),
        0 => ProfileConfig::Gro(Hold::For(any_hold(choose))),
        1 => ProfileConfig::Netfpga(NetfpgaConfig {
            timer: any_hold(choose),
            flows: choose.one_of(&[1, 2, 4, 8, 16]),
        }),
        _ => ProfileConfig::Npu(any_npu(choose)),
    };
    (config, profile)
}

fn any_hold(choose: &mut impl Choose) -> Duration {
    Duration::from_micros(choose.one_of(&HOLDS))
}

fn any_npu(choose: &mut impl Choose) -> NpuConfig {
    NpuConfig {
        floor: any_hold(choose),
        ceiling: any_hold(choose),
        reorder_hold: any_hold(choose),
        reorder_bytes: choose.one_of(&[1 << 20, 1 << 30, 0, 5000]),
        reorder_segments: choose.one_of(&[256, 1, 2, 9]),
        psh: choose.one_of(&[PshRule::Hold, PshRule::End]),
        active_ack: choose.one_of(&[ActiveAck::Off, ActiveAck::Safe]),
        rules: Rules::Safe,
    }
}
