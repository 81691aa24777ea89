//! Cost of finding a region by its key: in the table of random keys, and in a slab indexed by the key's upper
//! 24 bits, which is the lower bound but has predictable keys.
//!
//! `cargo bench -p nichrome-rdma --bench keys` prints medians in nanoseconds; the two structures alternate.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "../src/core/key_table.rs"]
#[allow(dead_code, unreachable_pub, unused_imports)] // Only lookups are used here, and no tests run.
mod key_table;
#[path = "../src/core/random.rs"]
#[allow(dead_code, unreachable_pub, unused_imports)] // As above.
mod random;
#[path = "../src/core/slab.rs"]
#[allow(dead_code, unreachable_pub, unused_imports)] // As above.
mod slab;

use std::hint::black_box;
use std::time::Instant as Clock;

use key_table::KeyTable;
use random::RandomNumbers;
use slab::{Handle, Slab};

/// Lookups per round.
const LOOKUPS: usize = 4096;
const ROUNDS: usize = 400;
const REGIONS: [usize; 5] = [1, 16, 1000, 30_000, 1 << 20];

/// The low byte of the key, and contents of zeros.
type InSlab = (u8, bool, [u64; 6]);
/// The object's handle, and contents of zeros. A slot is a cache line, as in the device.
type InTable = (Handle<()>, bool, [u64; 5]);
const _: () = assert!(KeyTable::<InTable>::SLOT_BYTES == 64);

#[inline]
fn contents(is_window: bool, words: &[u64]) -> u64 {
    words.iter().fold(u64::from(is_window), |all, word| all | word)
}

/// Nanoseconds per lookup. Each lookup depends on the result of the one before, because the lookups of
/// successive packets do not overlap.
#[inline]
fn timed(keys: impl Iterator<Item = u32>, get: impl Fn(u32) -> Option<u64>) -> f64 {
    let start = Clock::now();
    let mut before = 0;
    for key in keys {
        before = get(key ^ before as u32).unwrap();
    }
    black_box(before);
    start.elapsed().as_nanos() as f64 / LOOKUPS as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    println!("{:>9} {:>10} {:>10}", "regions", "slab, ns", "table, ns");
    for regions in REGIONS {
        let mut slab = Slab::<InSlab, ()>::new(regions);
        let mut table = KeyTable::<InTable>::new(RandomNumbers::new(1, "memory keys"));
        let mut insert = |nth| {
            let byte = nth as u8;
            let handle = slab.insert(|_| (byte, false, [0; 6])).unwrap();
            [handle.index() << 8 | u32::from(byte), table.insert((handle, false, [0; 5]))]
        };
        let keys: Vec<[u32; 2]> = (0..regions).map(&mut insert).collect();
        let mut order = RandomNumbers::new(2, "order");
        let picks: Vec<[u32; 2]> = (0..LOOKUPS).map(|_| keys[order.below(regions as u32) as usize]).collect();
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            times[0].push(timed(picks.iter().map(|keys| keys[0]), |key| {
                let (byte, is_window, words) = slab.at(key >> 8)?;
                (*byte == key as u8).then(|| contents(*is_window, words))
            }));
            times[1].push(timed(picks.iter().map(|keys| keys[1]), |key| {
                table.get(key).map(|(_, is_window, words)| contents(*is_window, words))
            }));
        }
        let [slab, table] = times.map(median);
        println!("{regions:>9} {slab:>10.2} {table:>10.2}");
    }
}
