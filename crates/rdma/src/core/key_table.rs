//! A direct-mapped table of objects under random 32-bit keys.
//!
//! The slot of a key is its upper 24 bits, masked to the table's size, a power of two. New keys are drawn at
//! random until the slot is free. The table is at most half full, so this takes at most two draws on average,
//! and a lookup is one masked index and one comparison. Knowing some keys reveals only that other keys have
//! other slots.
//!
//! The low 8 bits do not affect the slot: binding a window changes them without moving the object.

use super::random::RandomNumbers;

/// Maximum number of slots: one per value of a key's upper 24 bits.
const MAX_SLOTS: usize = 1 << 24;

/// Number of slots after the first insertion.
const MIN_SLOTS: usize = 16;

/// Values of the upper 24 bits that are never assigned: programs use 0 for "no key", and small or all-ones
/// keys in requests that must fail. UCX fences with a READ of 0 bytes under the key 0xFF.
const RESERVED: [u32; 2] = [0, 0xFF_FFFF];

/// Aligned to a cache line.
#[repr(align(64))]
struct Slot<T> {
    key: u32,
    value: T,
}

/// Up to [`MAX_KEYS`](Self::MAX_KEYS) objects under random keys. The table doubles when it is half full and
/// never shrinks.
pub(crate) struct KeyTable<T> {
    /// Empty, or a power of two.
    slots: Vec<Option<Slot<T>>>,
    /// Number of slots - 1.
    mask: u32,
    len: usize,
    random: RandomNumbers,
}

impl<T> KeyTable<T> {
    /// Maximum number of objects: half of the slots.
    pub(crate) const MAX_KEYS: usize = MAX_SLOTS / 2;

    /// Size of a slot in bytes.
    pub(crate) const SLOT_BYTES: usize = size_of::<Option<Slot<T>>>();

    /// Creates a table that draws its keys from `random`.
    pub(crate) fn new(random: RandomNumbers) -> Self {
        Self { slots: Vec::new(), mask: 0, len: 0, random }
    }

    /// Returns the number of objects.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn slot_index(&self, key: u32) -> usize {
        (key >> 8 & self.mask) as usize
    }

    #[inline]
    pub(crate) fn get(&self, key: u32) -> Option<&T> {
        match self.slots.get(self.slot_index(key))? {
            Some(slot) if slot.key == key => Some(&slot.value),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: u32) -> Option<&mut T> {
        self.slot_mut(key).map(|slot| &mut slot.value)
    }

    #[inline]
    fn slot_mut(&mut self, key: u32) -> Option<&mut Slot<T>> {
        let index = self.slot_index(key);
        self.slots.get_mut(index)?.as_mut().filter(|slot| slot.key == key)
    }

    /// Adds an object; returns its key. The caller adds no more than [`MAX_KEYS`](Self::MAX_KEYS).
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if (self.len + 1) * 2 > self.slots.len() {
            self.grow();
        }
        let key = self.vacant_key();
        self.put(Slot { key, value });
        self.len += 1;
        key
    }

    pub(crate) fn remove(&mut self, key: u32) -> Option<T> {
        let removed = self.take(key)?;
        self.len -= 1;
        Some(removed.value)
    }

    /// Assigns an object another random key; returns the new key.
    pub(crate) fn renew(&mut self, key: u32) -> Option<u32> {
        // The object still occupies its slot, so the new key differs in the upper 24 bits.
        let renewed = self.vacant_key();
        let Slot { value, .. } = self.take(key)?;
        self.put(Slot { key: renewed, value });
        Some(renewed)
    }

    /// Changes the low 8 bits of an object's key; returns the new key.
    pub(crate) fn change_byte(&mut self, key: u32, byte: u8) -> Option<u32> {
        let slot = self.slot_mut(key)?;
        slot.key = key & !0xFF | u32::from(byte);
        Some(slot.key)
    }

    /// Draws a random key whose slot is free.
    fn vacant_key(&mut self) -> u32 {
        loop {
            let key = self.random.next_u32();
            let vacant = matches!(self.slots.get(self.slot_index(key)), Some(None));
            if vacant && !RESERVED.contains(&(key >> 8)) {
                return key;
            }
        }
    }

    fn put(&mut self, slot: Slot<T>) {
        let index = self.slot_index(slot.key);
        if let Some(empty) = self.slots.get_mut(index) {
            *empty = Some(slot);
        }
    }

    fn take(&mut self, key: u32) -> Option<Slot<T>> {
        let index = self.slot_index(key);
        self.slots.get_mut(index)?.take_if(|slot| slot.key == key)
    }

    /// Doubles the slots. The mask gains a bit, so an object keeps its slot or moves up by the previous
    /// number of slots.
    fn grow(&mut self) {
        let before = self.slots.len();
        let slots = (before * 2).clamp(MIN_SLOTS, MAX_SLOTS);
        self.slots.resize_with(slots, || None);
        self.mask = slots as u32 - 1;
        let (low, high) = self.slots.split_at_mut(before);
        for (from, to) in low.iter_mut().zip(high) {
            if from.as_ref().is_some_and(|slot| slot.key >> 8 & before as u32 != 0) {
                *to = from.take();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn table(seed: u128) -> KeyTable<usize> {
        KeyTable::new(RandomNumbers::new(seed, "keys"))
    }

    #[test]
    fn lookups_survive_growth() {
        let mut table = table(1);
        assert_eq!((table.remove(0), table.get(0), table.get(u32::MAX)), (None, None, None));
        let keys: Vec<u32> = (0..10_000).map(|nth| table.insert(nth)).collect();
        assert!(keys.iter().enumerate().all(|(nth, key)| table.get(*key) == Some(&nth)));
        assert!(table.len() * 2 <= table.slots.len() && table.slots.len() < table.len() * 4);
        for (nth, key) in keys.iter().enumerate() {
            assert_eq!((table.remove(*key), table.remove(*key), table.get(*key)), (Some(nth), None, None));
        }
        assert_eq!((table.len(), table.slots.iter().flatten().count()), (0, 0));
    }

    #[test]
    fn a_key_differs_from_all_others_above_its_low_byte() {
        let mut table = table(2);
        let keys: Vec<u32> = (0..100_000).map(|nth| table.insert(nth)).collect();
        let places: HashSet<u32> = keys.iter().map(|key| key >> 8).collect();
        assert_eq!(places.len(), keys.len());
        assert!(places.is_disjoint(&RESERVED.into()));
    }

    #[test]
    fn reserved_keys_are_not_assigned() {
        // A generator whose next number is a reserved key.
        let mut random = RandomNumbers::new(3, "keys");
        let before = loop {
            let before = random.clone();
            if RESERVED.contains(&(random.next_u32() >> 8)) {
                break before;
            }
        };
        let key = KeyTable::new(before).insert(());
        assert!((0x100..0xFFFF_FF00).contains(&key), "{key:#x}");
    }

    /// Each bit is set in half of the keys, and in half of the keys whose predecessor has it.
    #[test]
    fn every_bit_of_a_key_is_random() {
        let mut table = table(7);
        let keys: Vec<u32> = (0..1 << 14)
            .map(|nth| {
                let key = table.insert(nth);
                table.remove(key);
                key
            })
            .collect();
        let half = keys.len() / 2;
        for bit in 0..32 {
            let set = keys.iter().filter(|key| *key >> bit & 1 == 1).count();
            let kept = keys.windows(2).filter(|pair| (pair[0] ^ pair[1]) >> bit & 1 == 0).count();
            for count in [set, kept] {
                assert!(count.abs_diff(half) < 400, "bit {bit}: {count} of {}", keys.len());
            }
        }
    }

    #[test]
    fn a_byte_is_changed_and_a_key_renewed_without_losing_the_object() {
        let mut table = table(8);
        let others: Vec<u32> = (0..100).map(|nth| table.insert(nth)).collect();
        let key = table.insert(100);
        let changed = table.change_byte(key, !(key as u8)).unwrap();
        assert_eq!((changed ^ key, table.get(key), table.get(changed)), (0xFF, None, Some(&100)));
        assert_eq!((table.change_byte(key, 1), table.renew(key)), (None, None));
        let renewed = table.renew(changed).unwrap();
        assert_ne!(renewed >> 8, changed >> 8);
        assert_eq!((table.get(changed), table.get(renewed), table.len()), (None, Some(&100), 101));
        assert!(others.iter().enumerate().all(|(nth, key)| table.get(*key) == Some(&nth)));
    }

    #[test]
    fn the_table_doubles_when_more_than_half_of_it_is_used() {
        let mut table = table(9);
        let before: Vec<u32> = (0..MIN_SLOTS * 2).map(|nth| table.insert(nth)).collect();
        assert_eq!((table.slots.len(), before.len() * 2), (MIN_SLOTS * 4, MIN_SLOTS * 4));
        table.insert(MIN_SLOTS * 2);
        assert_eq!(table.slots.len(), MIN_SLOTS * 8);
    }
}
