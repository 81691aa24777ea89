//! The captures of real traffic through every profile: the verifier finds nothing, and every frame is
//! counted.

use std::path::{Path, PathBuf};

use nichrome_lro::verify::{Verified, Verifier};
use nichrome_lro::{
    ActiveAck, Coalescer, Config, Frame, Hold, Medium, NetfpgaConfig, NpuConfig, ProfileConfig, PshRule,
    Statistics,
};
use nichrome_port::capture;
use nichrome_wire::engine::{advance, deliver, end_batch};
use nichrome_wire::{Engine, Instant};

use crate::common::{assert_consistent, ms, us};

/// The captures of TCP; the others have too few TCP segments to coalesce.
fn captures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/captures");
    let entries = folder.read_dir().expect("tests/captures is in the repository");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("tcp-")));
    paths.sort();
    assert!(!paths.is_empty());
    paths
}

/// The profiles, with each option that changes which segments merge.
fn profiles() -> Vec<ProfileConfig> {
    let npu = NpuConfig::default();
    vec![
        ProfileConfig::Gro(Hold::Batch),
        ProfileConfig::Gro(Hold::For(us(50))),
        ProfileConfig::Netfpga(NetfpgaConfig::with_timer(us(50))),
        ProfileConfig::Netfpga(NetfpgaConfig { timer: us(50), flows: 4 }),
        ProfileConfig::Npu(npu),
        ProfileConfig::Npu(NpuConfig::with_hold(ms(5))),
        ProfileConfig::Npu(NpuConfig { psh: PshRule::End, ..npu }),
        ProfileConfig::Npu(NpuConfig { active_ack: ActiveAck::Safe, ..npu }),
    ]
}

/// Runs a capture in its own time, batches ending every 32 frames.
fn run(path: &Path, config: &Config, profile: &ProfileConfig) -> (Verified, Statistics) {
    let mut engine = Coalescer::new(config, profile).unwrap();
    let mut verifier = Verifier::of(profile, config.medium);
    let mut reader = capture::open(path).unwrap();
    let (mut data, mut now, mut count) = (Vec::new(), Instant::ZERO, 0);
    while let Some(record) = reader.next(&mut data).unwrap() {
        now = now.max(record.time);
        let frame = match config.medium {
            Medium::Ethernet => data.clone(),
            Medium::Ip => data[14..].to_vec(),
        };
        advance(&mut engine, now, &mut |_, output| verifier.delivered(&output));
        verifier.received(&frame);
        deliver(&mut engine, Frame::new(frame), now, &mut |_, output| verifier.delivered(&output));
        count += 1;
        if count % 32 == 0 {
            end_batch(&mut engine, now, &mut |_, output| verifier.delivered(&output));
        }
    }
    engine.drain();
    while let Some(output) = engine.poll() {
        verifier.delivered(&output);
    }
    let statistics = *engine.statistics();
    match verifier.finish() {
        Ok(verified) => (verified, statistics),
        Err(mismatch) => panic!("{} with {profile:?}: {mismatch}", path.display()),
    }
}

#[test]
fn every_capture_is_carried_by_every_profile() {
    for path in captures() {
        for profile in profiles() {
            let (verified, statistics) = run(&path, &Config::default(), &profile);
            assert_consistent(&statistics);
            assert_eq!(verified.frames, statistics.packets_in, "{}", path.display());
            assert!(statistics.aggregates > 0, "{} with {profile:?}", path.display());
        }
    }
}

#[test]
fn captures_are_carried_without_ethernet_headers() {
    let config = Config { medium: Medium::Ip, ..Config::default() };
    for path in captures() {
        for profile in profiles() {
            let (with_link, without) =
                (run(&path, &Config::default(), &profile).1, run(&path, &config, &profile).1);
            assert_eq!(with_link.segments_aggregated, without.segments_aggregated, "{profile:?}");
        }
    }
}

#[test]
fn a_small_table_and_few_aggregates_carry_every_capture() {
    let config = Config {
        max_connections: 1,
        max_aggregates: 1,
        max_segments: 3,
        max_bytes: 4000,
        ..Config::default()
    };
    for path in captures() {
        for profile in profiles() {
            run(&path, &config, &profile);
        }
    }
}

/// The benefit of reordering.
#[test]
fn npu_merges_twice_as_much_as_gro_where_segments_are_reordered() {
    let path = captures().into_iter().find(|path| path.ends_with("tcp-reorder.pcap")).unwrap();
    let mean = |profile| run(&path, &Config::default(), &profile).1.mean_segments_per_aggregate();
    let (gro, npu) =
        (mean(ProfileConfig::Gro(Hold::For(ms(5)))), mean(ProfileConfig::Npu(NpuConfig::with_hold(ms(5)))));
    assert!(npu >= 2.0 * gro, "npu {npu:.2}, gro {gro:.2}");
}
