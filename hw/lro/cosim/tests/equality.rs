//! The module delivers what the engine delivers, for the captures and for generated frames.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../../../crates/lro/tests/common/generated/mod.rs"]
mod generated;

use std::path::{Path, PathBuf};
use std::time::Duration;

use generated::choose::{Choose, Seeded};
use generated::traffic::{Step, Traffic};
use nichrome_lro::{BadChecksum, Config, Medium};
use nichrome_lro_cosim::compare::{Input, compare};
use nichrome_lro_cosim::{Model, RtlConfig, Stalls};
use nichrome_port::capture;
use nichrome_wire::Instant;

const STALLS: [(u32, u32); 5] = [(0, 0), (30, 30), (70, 70), (0, 70), (70, 0)];

fn captures() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/captures");
    let mut paths: Vec<PathBuf> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "pcap"));
    paths.sort();
    assert!(paths.len() >= 7);
    paths
}

fn frames_of(path: &Path) -> Vec<Input> {
    let mut reader = capture::open(path).unwrap();
    let (mut data, mut now, mut inputs) = (Vec::new(), Instant::ZERO, Vec::new());
    while let Some(record) = reader.next(&mut data).unwrap() {
        now = now.max(record.time);
        inputs.push(Input::Frame(now, data.clone()));
    }
    inputs
}

fn stalls((source, sink): (u32, u32)) -> Stalls {
    Stalls { source, sink }
}

#[test]
fn every_capture_is_the_engines() {
    for path in captures() {
        let inputs = frames_of(&path);
        for (nth, model) in Model::ALL.iter().enumerate() {
            for (max_bytes, timer) in [(65_535, 50), (9000, 1000), (1500, 5)] {
                let config = Config { max_bytes, ..Config::default() };
                let rtl = RtlConfig::new(*model, &config, Duration::from_micros(timer));
                let rtl = RtlConfig { stalls: stalls(STALLS[nth % STALLS.len()]), ..rtl };
                if let Err(difference) = compare(&config, rtl, &inputs) {
                    panic!("{} with {model:?}, {max_bytes} bytes, {timer} us: {difference}", path.display());
                }
            }
        }
    }
}

/// Frames and waits of one seed.
fn traffic(seed: u64, count: usize) -> (Config, Duration, Vec<Input>) {
    let mut choose = Seeded::new(seed);
    let config = Config {
        bad_checksum: choose.one_of(&[None, Some(BadChecksum::Pass)]),
        max_bytes: choose.one_of(&[65_535, 65_535, 576, 3000, 20_000]),
        max_segments: choose.one_of(&[128, 1023, 2, 3, 17]),
        ..Config::default()
    };
    let timer = Duration::from_micros(choose.one_of(&[50, 1000, 0, 5, 20_000]));
    let mut traffic = Traffic::new(&mut choose, Medium::Ethernet);
    let mut now = Instant::from_nanos(1 << 40);
    let mut inputs = Vec::new();
    while inputs.len() < count {
        match traffic.step(&mut choose) {
            Step::Receive(frame) if !frame.is_empty() => inputs.push(Input::Frame(now, frame)),
            Step::Batch(frames) | Step::Part(frames) => {
                let frames = frames.into_iter().filter(|frame| !frame.is_empty());
                inputs.extend(frames.map(|frame| Input::Frame(now, frame)));
            }
            Step::Wait(nanos) if nanos > 0 => {
                now = now.plus_nanos(nanos);
                // A due aggregate is closed while no frame comes, or when the next frame comes.
                if choose.chance(30) {
                    inputs.push(Input::Idle(now));
                }
            }
            _ => {}
        }
    }
    (config, timer, inputs)
}

/// 100, or as many as `NICHROME_SEEDS` says; `NICHROME_SEED` is the first. With `NICHROME_WIDTH`, only on the
/// models of that many bits.
#[test]
fn generated_frames_are_the_engines() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (seeds, first) = (number("NICHROME_SEEDS", 100), number("NICHROME_SEED", 0));
    let width = number("NICHROME_WIDTH", 0);
    let has_width = |model: &&Model| width == 0 || 8 * model.width.bytes() as u64 == width;
    let models: Vec<Model> = Model::ALL.iter().filter(has_width).copied().collect();
    let (mut frames, mut cycles) = (0, 0);
    for seed in first..first + seeds {
        let (config, timer, inputs) = traffic(seed, 300);
        let model = models[seed as usize % models.len()];
        let rtl = RtlConfig::new(model, &config, timer);
        let rtl = RtlConfig { stalls: stalls(STALLS[(seed as usize / 4) % STALLS.len()]), ..rtl };
        match compare(&config, rtl, &inputs) {
            Ok(report) => (frames, cycles) = (frames + report.frames, cycles + report.cycles),
            Err(difference) => {
                panic!("NICHROME_SEED={seed} with {model:?}, {config:?}, {timer:?}: {difference}")
            }
        }
    }
    println!("{frames} frames, {cycles} cycles");
}
