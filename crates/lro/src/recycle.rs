//! Objects that are allocated at start, lent out, and returned when dropped.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

use crate::sync::{Arc, Mutex};

/// A fixed set of objects. Taking and returning one allocates nothing.
pub(crate) struct Recycler<T: Recycle> {
    /// Objects that have not been used yet: cold in the cache, so taken last.
    reserve: Vec<Pooled<T>>,
    /// Objects to take next.
    spare: Vec<Pooled<T>>,
    return_list: Arc<ReturnList<T>>,
}

/// Cleanup of an object before its reuse.
pub(crate) trait Recycle {
    /// Drops what the object holds.
    fn clear(&mut self);
}

/// An object of a [`Recycler`]. It holds a reference to the recycler, so that lending it touches no shared
/// memory.
pub(crate) struct Pooled<T> {
    member: Box<Member<T>>,
}

struct Member<T> {
    object: T,
    return_list: Arc<ReturnList<T>>,
}

/// The list that dropped objects return to, from any thread.
struct ReturnList<T> {
    /// `None` once the recycler is dropped: later returns are freed.
    returned: Mutex<Option<Vec<Pooled<T>>>>,
}

impl<T: Recycle> Recycler<T> {
    /// Creates a recycler of the given objects.
    pub(crate) fn new(objects: impl Iterator<Item = T>) -> Self {
        let return_list = Arc::new(ReturnList { returned: Mutex::new(None) });
        let member =
            |object| Pooled { member: Box::new(Member { object, return_list: Arc::clone(&return_list) }) };
        let reserve: Vec<_> = objects.map(member).collect();
        let spare = Vec::with_capacity(reserve.len());
        *return_list.returned.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Vec::with_capacity(reserve.len()));
        Self { reserve, spare, return_list }
    }

    /// Takes a clear object; `None` if all are lent out.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Pooled<T>> {
        self.spare.pop().or_else(|| self.take_returned())
    }

    #[cold]
    fn take_returned(&mut self) -> Option<Pooled<T>> {
        if let Some(returned) =
            self.return_list.returned.lock().unwrap_or_else(PoisonError::into_inner).as_mut()
        {
            std::mem::swap(&mut self.spare, returned);
        }
        self.spare.pop().or_else(|| self.reserve.pop())
    }

    /// Takes back an object that was taken, not lent, and is clear.
    #[inline]
    pub(crate) fn give_back(&mut self, object: Pooled<T>) {
        self.spare.push(object);
    }
}

impl<T: Recycle> Drop for Recycler<T> {
    /// Frees the returned objects, each of which holds a reference to the list.
    fn drop(&mut self) {
        let returned = self.return_list.returned.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(returned);
    }
}

impl<T> Deref for Pooled<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.member.object
    }
}

impl<T> DerefMut for Pooled<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.member.object
    }
}

/// An object that goes back to its [`Recycler`] when it is dropped.
pub(crate) struct Recycled<T: Recycle> {
    /// Present until drop.
    object: Option<Pooled<T>>,
}

impl<T: Recycle> Recycled<T> {
    /// Lends an object out.
    #[inline]
    pub(crate) fn lend(object: Pooled<T>) -> Self {
        Self { object: Some(object) }
    }
}

impl<T: Recycle> Deref for Recycled<T> {
    type Target = T;

    #[inline]
    #[expect(clippy::expect_used, reason = "only drop takes the object out")]
    fn deref(&self) -> &T {
        self.object.as_deref().expect("present until drop")
    }
}

impl<T: Recycle> Drop for Recycled<T> {
    fn drop(&mut self) {
        if let Some(mut object) = self.object.take() {
            object.clear();
            let list = Arc::clone(&object.member.return_list);
            if let Some(returned) = list.returned.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
                returned.push(object);
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    struct Item(Vec<u8>);

    impl Recycle for Item {
        fn clear(&mut self) {
            self.0.clear();
        }
    }

    #[test]
    fn what_is_lent_comes_back_clear_and_no_more_is_given_than_there_is() {
        let mut recycler = Recycler::new((0..2).map(|n| Item(vec![n])));
        let (one, two) = (recycler.take().unwrap(), recycler.take().unwrap());
        assert!(recycler.take().is_none());
        recycler.give_back(one);
        let lent = Recycled::lend(two);
        std::thread::scope(|scope| scope.spawn(|| drop(lent)).join()).unwrap();
        assert!(recycler.take().is_some());
        assert!(recycler.take().unwrap().0.is_empty());
        assert!(recycler.take().is_none());
    }

    #[test]
    fn what_is_lent_outlives_its_recycler() {
        let mut recycler = Recycler::new(std::iter::once(Item(vec![1])));
        let object = recycler.take().unwrap();
        let return_list = Arc::downgrade(&object.member.return_list);
        let lent = Recycled::lend(object);
        drop(recycler);
        assert_eq!(lent.0, [1]);
        drop(lent);
        assert!(return_list.upgrade().is_none(), "freed with the last object");
    }

    #[test]
    fn what_came_back_is_freed_with_the_recycler() {
        let mut recycler = Recycler::new((0..2).map(|n| Item(vec![n])));
        let object = recycler.take().unwrap();
        let return_list = Arc::downgrade(&object.member.return_list);
        drop(Recycled::lend(object));
        drop(recycler);
        assert!(return_list.upgrade().is_none());
    }
}
