//! A slab of objects with generation-checked handles.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

/// A reference to an object of a device. The handle of a destroyed object stays invalid when its index is
/// reused.
pub struct Handle<T> {
    index: u32,
    generation: u32,
    kind: PhantomData<fn() -> T>,
}

impl<T> Handle<T> {
    const fn new(index: u32, generation: u32) -> Self {
        Self { index, generation, kind: PhantomData }
    }

    /// Returns the object's index among those of its kind; reused after the object is destroyed.
    pub const fn index(self) -> u32 {
        self.index
    }
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> PartialEq for Handle<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.index, self.generation) == (other.index, other.generation)
    }
}

impl<T> Eq for Handle<T> {}

impl<T> Hash for Handle<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.index, self.generation).hash(state);
    }
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.index, self.generation)
    }
}

/// Number of freed indices kept before one is reused, so that packets in flight to a destroyed object find
/// none.
const REST: usize = 256;

/// Up to `limit` objects of kind `K`, each at its own index.
pub(crate) struct Slab<T, K = T> {
    entries: Vec<Entry<T>>,
    free: VecDeque<u32>,
    limit: usize,
    kind: PhantomData<fn() -> K>,
}

struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

impl<T, K> Slab<T, K> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { entries: Vec::new(), free: VecDeque::new(), limit, kind: PhantomData }
    }

    /// Returns an upper bound of all indices in use.
    pub(crate) fn entry_count(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Returns the number of objects.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Takes the index of the next object; `None` at the limit.
    fn vacancy(&mut self) -> Option<u32> {
        let rested = self.free.len() > REST || self.entries.len() >= self.limit;
        if rested && let Some(index) = self.free.pop_front() {
            return Some(index);
        }
        if self.entries.len() >= self.limit {
            return None;
        }
        self.entries.push(Entry { generation: 0, value: None });
        u32::try_from(self.entries.len() - 1).ok()
    }

    /// Adds the object that `make` builds from its handle; `None` at the limit.
    pub(crate) fn insert(&mut self, make: impl FnOnce(Handle<K>) -> T) -> Option<Handle<K>> {
        let index = self.vacancy()?;
        let entry = self.entries.get_mut(index as usize)?;
        let handle = Handle::new(index, entry.generation);
        entry.value = Some(make(handle));
        Some(handle)
    }

    #[inline]
    pub(crate) fn get(&self, handle: Handle<K>) -> Option<&T> {
        let entry = self.entries.get(handle.index as usize)?;
        if entry.generation == handle.generation { entry.value.as_ref() } else { None }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, handle: Handle<K>) -> Option<&mut T> {
        let entry = self.entries.get_mut(handle.index as usize)?;
        if entry.generation == handle.generation { entry.value.as_mut() } else { None }
    }

    /// Returns the object at an index, of any generation.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> Option<&T> {
        self.entries.get(index as usize)?.value.as_ref()
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.entries.get_mut(index as usize)?.value.as_mut()
    }

    /// Replaces an object by the one that `make` builds from it.
    pub(crate) fn replace(&mut self, handle: Handle<K>, make: impl FnOnce(T) -> T) {
        if let Some(entry) = self.entries.get_mut(handle.index as usize)
            && entry.generation == handle.generation
        {
            entry.value = entry.value.take().map(make);
        }
    }

    /// Returns the handle of the object at an index.
    pub(crate) fn handle_at(&self, index: u32) -> Option<Handle<K>> {
        let entry = self.entries.get(index as usize).filter(|entry| entry.value.is_some())?;
        Some(Handle::new(index, entry.generation))
    }

    pub(crate) fn remove(&mut self, handle: Handle<K>) -> Option<T> {
        let entry = self.entries.get_mut(handle.index as usize)?;
        if entry.generation != handle.generation {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push_back(handle.index);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

    use super::*;

    #[test]
    fn a_handle_becomes_invalid_with_its_object() {
        let mut slab: Slab<u8> = Slab::new(1);
        let first = slab.insert(|_| 1).unwrap();
        assert_eq!(slab.insert(|_| 2), None);
        assert_eq!(slab.remove(first), Some(1));
        let second = slab.insert(|_| 3).unwrap();
        assert_eq!((first.index(), slab.get(first)), (second.index(), None));
        assert_eq!(slab.remove(first), None);
        assert_eq!((slab.get(second), slab.len()), (Some(&3), 1));
    }

    #[test]
    fn freed_indices_are_kept_before_reuse() {
        let mut slab: Slab<u8> = Slab::new(1000);
        let first = slab.insert(|_| 0).unwrap();
        slab.remove(first);
        let others: Vec<u32> = (0..300)
            .map(|_| {
                let handle = slab.insert(|_| 0).unwrap();
                slab.remove(handle);
                handle.index()
            })
            .collect();
        assert_eq!(others.iter().position(|index| *index == first.index()), Some(REST));
    }

    #[test]
    fn objects_and_indices_are_counted() {
        let mut slab: Slab<u8> = Slab::new(1000);
        let handles: Vec<_> = (0..3).filter_map(|n| slab.insert(|_| n)).collect();
        assert_eq!((slab.len(), slab.entry_count()), (3, 3));
        slab.remove(handles[1]);
        assert_eq!((slab.len(), slab.entry_count()), (2, 3));
    }

    #[test]
    fn handles_of_one_index_have_hashes_of_their_own() {
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let mut slab: Slab<u8> = Slab::new(1);
        let first = slab.insert(|_| 1).unwrap();
        slab.remove(first);
        let second = slab.insert(|_| 2).unwrap();
        assert_eq!(first.index(), second.index());
        assert_ne!(hasher.hash_one(first), hasher.hash_one(second));
    }
}
