//! Generated traffic in volume: `NICHROME_FRAMES` is the number of frames, `NICHROME_SEED` the first seed.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

#[path = "common/generated/mod.rs"]
mod generated;

use std::collections::BTreeMap;
use std::time::Instant;

use generated::choose::Seeded;
use generated::run;
use nichrome_lro::{DropReason, FlushReason, PassReason};

/// Frames of one run: short enough to try many configurations, long enough to reach every limit.
const FRAMES: u64 = 2000;

/// 300,000 frames by default.
#[test]
fn every_promise_is_kept_by_the_hundred_thousands() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().expect(name));
    let (frames, first) = (number("NICHROME_FRAMES", 300_000), number("NICHROME_SEED", 0));
    let (started, mut done, mut bytes) = (Instant::now(), 0, 0);
    for seed in first.. {
        match run(&mut Seeded::new(seed), (seed % 3) as u32, FRAMES) {
            Ok((verified, _)) => (done, bytes) = (done + verified.frames, bytes + verified.bytes),
            Err(broken) => panic!("NICHROME_SEED={seed}: {broken}"),
        }
        if done >= frames {
            break;
        }
    }
    let per_second = done as f64 / started.elapsed().as_secs_f64();
    println!("{done} frames, {bytes} bytes verified, {per_second:.0} frames a second");
}

/// The other tests prove little if the generated traffic misses a rule.
#[test]
fn the_traffic_reaches_every_rule() {
    let mut reached = BTreeMap::<&str, u64>::new();
    for seed in 0..300 {
        let (_, statistics) = run(&mut Seeded::new(seed), (seed % 3) as u32, FRAMES).unwrap();
        let named =
            statistics.flushes.named().chain(statistics.passes.named()).chain(statistics.drops.named());
        for (name, count) in named.chain([("acks_sent", statistics.acks_sent)]) {
            *reached.entry(name).or_default() += count;
        }
    }
    let all = FlushReason::ALL.iter().map(|reason| reason.name());
    let all = all.chain(PassReason::ALL.iter().map(|reason| reason.name()));
    let all = all.chain(DropReason::ALL.iter().map(|reason| reason.name())).chain(["acks_sent"]);
    // A full table always finds something to evict.
    let missing: Vec<&str> =
        all.filter(|name| !["table_full"].contains(name) && !reached.contains_key(name)).collect();
    assert!(missing.is_empty(), "never reached: {missing:?}\n{reached:#?}");
}
