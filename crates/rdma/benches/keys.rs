//! What finding a region by its key costs, as packet after packet does: in the table of random keys, and in a slab whose
//! index is the key's upper 24 bits, which is the fastest there can be and whose keys anyone can guess.
//!
//! `cargo bench -p nichrome-rdma --bench keys` prints nanoseconds, medians of rounds in which all cases take turns.
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
use std::time::{Duration, Instant as Clock};

use key_table::KeyTable;
use random::RandomNumbers;
use slab::{Handle, Slab};

/// Lookups that a case does in its turn.
const LOOKUPS: usize = 4096;
const ROUNDS: usize = 400;
const KEYS: [usize; 5] = [1, 16, 1000, 30_000, 1 << 20];

/// A region or window, whose contents are all looked at; they are 0.
struct Named<const WORDS: usize> {
    is_window: bool,
    words: [u64; WORDS],
}

impl<const WORDS: usize> Named<WORDS> {
    const NEW: Self = Self { is_window: false, words: [0; WORDS] };

    #[inline]
    fn contents(&self) -> u64 {
        self.words.iter().fold(u64::from(self.is_window), |all, word| all | word)
    }
}

/// The slab, in which an object has the key's low byte beside it.
type Sequential = Slab<(u8, Named<6>), ()>;
/// The table, in which it has its handle.
type Random = KeyTable<(Handle<()>, Named<5>)>;

#[inline]
fn in_slab(slab: &Sequential, key: u32) -> Option<u64> {
    let (byte, named) = slab.at(key >> 8)?;
    if *byte == key as u8 { Some(named.contents()) } else { None }
}

#[inline]
fn in_table(table: &Random, key: u32) -> Option<u64> {
    table.get(key).map(|(_, named)| named.contents())
}

/// So many regions in both structures, and the keys that are looked up in turn.
struct Case {
    regions: usize,
    sequential: (Sequential, Vec<u32>),
    random: (Random, Vec<u32>),
    /// Of the slab, of the table.
    times: [Vec<Duration>; 2],
}

impl Case {
    fn new(regions: usize) -> Self {
        let mut slab = Sequential::new(regions);
        let mut table = Random::new(RandomNumbers::new(1, "memory keys"));
        let keys: Vec<(u32, u32)> = (0..regions)
            .map(|nth| {
                let byte = nth as u8;
                let handle = slab.insert(|_| (byte, Named::NEW)).unwrap();
                let key = table.insert((handle, Named::NEW));
                (handle.index() << 8 | u32::from(byte), key)
            })
            .collect();
        let mut order = RandomNumbers::new(2, "order");
        let picks: Vec<usize> = (0..LOOKUPS).map(|_| order.below(regions as u32) as usize).collect();
        let sequential = picks.iter().map(|nth| keys[*nth].0).collect();
        let random = picks.iter().map(|nth| keys[*nth].1).collect();
        let (sequential, random) = ((slab, sequential), (table, random));
        Self { regions, sequential, random, times: Default::default() }
    }

    fn look_up(&mut self) {
        let (slab, keys) = &self.sequential;
        self.times[0].push(timed(keys, |key| in_slab(slab, key)));
        let (table, keys) = &self.random;
        self.times[1].push(timed(keys, |key| in_table(table, key)));
    }

    fn medians_ns(&mut self) -> [f64; 2] {
        self.times.each_mut().map(|times| {
            times.sort_unstable();
            times[times.len() / 2].as_nanos() as f64 / LOOKUPS as f64
        })
    }
}

/// The time of all lookups, each of which waits for the one before: a packet's does not overlap with the next one's.
#[inline]
fn timed(keys: &[u32], get: impl Fn(u32) -> Option<u64>) -> Duration {
    let start = Clock::now();
    let mut before = 0;
    for key in keys {
        before = get(key ^ before as u32).unwrap();
    }
    black_box(before);
    start.elapsed()
}

fn main() {
    let mut cases = KEYS.map(Case::new);
    for _ in 0..ROUNDS {
        cases.iter_mut().for_each(Case::look_up);
    }
    println!("{:>9} {:>10} {:>10}", "regions", "slab, ns", "table, ns");
    for case in &mut cases {
        let [slab, table] = case.medians_ns();
        println!("{:>9} {slab:>10.2} {table:>10.2}", case.regions);
    }
}
