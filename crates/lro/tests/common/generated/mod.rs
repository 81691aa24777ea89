//! Generated traffic and configurations, and an engine whose outputs are checked against every guarantee.
//!
//! All choices come from one source: a seeded generator for volume, bytes for tests that shrink and for
//! fuzzing. The fuzz targets include this folder by path; it must not use anything outside of it.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic, clippy::expect_used)]

pub mod acks;
pub mod checked;
pub mod choose;
pub mod configs;
pub mod damage;
pub mod exchange;
pub mod flow;
pub mod ledger;
pub mod traffic;
pub mod tunnel;

pub use self::checked::Checked;
pub use self::choose::Choose;
pub use self::configs::any_configuration;
pub use self::traffic::Traffic;

use nichrome_lro::Statistics;
use nichrome_lro::verify::Verified;

/// Runs generated traffic through an engine of the `nth` profile until `frames` were received, or the choices
/// ran out; an error names the guarantee that was broken.
pub fn run(choose: &mut impl Choose, nth: u32, frames: u64) -> Result<(Verified, Statistics), String> {
    let (config, profile) = any_configuration(choose, nth);
    let mut checked = Checked::new(&config, &profile, choose.chance(50));
    let mut traffic = Traffic::new(choose, config.medium);
    while checked.frames() < frames && !choose.is_exhausted() {
        let step = traffic.step(choose);
        checked.take(step).map_err(|broken| format!("{broken}\nwith {config:?}\n{profile:?}"))?;
    }
    checked.finish().map_err(|broken| format!("{broken}\nwith {config:?}\n{profile:?}"))
}
