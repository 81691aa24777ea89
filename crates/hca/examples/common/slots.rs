//! The slots of a table of keys and values in registered memory, which readers READ.
//!
//! The hash of a key selects its slot; if it is taken, the next free one is used. Each slot has a checksum of
//! its content, by which a reader detects a concurrent change.

/// A slot: key, value and checksum. An empty one is all zeros.
pub(crate) const SLOT: usize = 64;
const KEY_LEN: usize = 8;
const SUM_LEN: usize = 8;
const VALUE_LEN: usize = SLOT - KEY_LEN - SUM_LEN;

pub(crate) type Value = [u8; VALUE_LEN];

/// FNV-1a followed by the finalizer of MurmurHash3, so that every bit depends on every byte; equal in all
/// processes.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
    let hash = bytes.iter().fold(0xCBF2_9CE4_8422_2325, step);
    let hash = (hash ^ hash >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    let hash = (hash ^ hash >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    hash ^ hash >> 33
}

/// Returns the first slot to try for a key, in a table of `slots` slots.
pub(crate) fn home(key: u64, slots: usize) -> usize {
    hash(&key.to_be_bytes()) as usize % slots
}

pub(crate) fn encode(key: u64, value: &Value) -> [u8; SLOT] {
    let mut slot = [0; SLOT];
    slot[..KEY_LEN].copy_from_slice(&key.to_be_bytes());
    slot[KEY_LEN..SLOT - SUM_LEN].copy_from_slice(value);
    let sum = hash(&slot[..SLOT - SUM_LEN]);
    slot[SLOT - SUM_LEN..].copy_from_slice(&sum.to_be_bytes());
    slot
}

/// The content of a slot.
pub(crate) enum Found {
    Empty,
    Entry(u64, Value),
    /// The slot is being changed, or its bytes are no slot.
    Torn,
}

pub(crate) fn decode(slot: &[u8]) -> Found {
    let Some((key, value, sum)) = parts(slot) else { return Found::Torn };
    if slot.iter().all(|byte| *byte == 0) {
        Found::Empty
    } else if sum == hash(&slot[..SLOT - SUM_LEN]) {
        Found::Entry(key, value)
    } else {
        Found::Torn
    }
}

fn parts(slot: &[u8]) -> Option<(u64, Value, u64)> {
    let (key, rest) = slot.split_first_chunk()?;
    let (value, sum) = rest.split_first_chunk()?;
    Some((u64::from_be_bytes(*key), *value, u64::from_be_bytes(sum.try_into().ok()?)))
}

/// Puts a value into a table; returns false if the table is full.
pub(crate) fn insert(table: &mut [u8], key: u64, value: &Value) -> bool {
    let slots = table.len() / SLOT;
    let in_turn = (0..slots).map(|nth| (home(key, slots) + nth) % slots * SLOT);
    let is_free = |at: &usize| match decode(&table[*at..*at + SLOT]) {
        Found::Entry(other, _) => other == key,
        Found::Empty | Found::Torn => true,
    };
    let free = in_turn.into_iter().find(is_free);
    if let Some(at) = free {
        table[at..at + SLOT].copy_from_slice(&encode(key, value));
    }
    free.is_some()
}

/// Returns the value of a key that tests can recompute.
pub(crate) fn value_of(key: u64) -> Value {
    let mut value = [0; VALUE_LEN];
    value[..8].copy_from_slice(&hash(&key.to_be_bytes()).to_be_bytes());
    value
}
