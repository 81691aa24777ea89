//! Objects that are reserved at start, lent out, and come back by themselves.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

use crate::sync::{Arc, Mutex};

type Returned<T> = Arc<Mutex<Vec<Box<T>>>>;

/// A fixed number of objects. Taking one and getting it back costs no allocation.
pub(crate) struct Recycler<T: Recycle> {
    /// Objects that have not been used yet. They are cold, and taken last.
    reserve: Vec<Box<T>>,
    /// Objects that came back.
    spare: Vec<Box<T>>,
    /// Where objects go when they are dropped, on whichever thread.
    returned: Returned<T>,
}

/// What is done to an object before it is used again.
pub(crate) trait Recycle {
    /// Gives up what the object holds.
    fn clear(&mut self);
}

impl<T: Recycle> Recycler<T> {
    /// As many objects as `objects` gives.
    pub(crate) fn new(objects: impl Iterator<Item = T>) -> Self {
        let reserve: Vec<_> = objects.map(Box::new).collect();
        let spare = Vec::with_capacity(reserve.len());
        let returned = Arc::new(Mutex::new(Vec::with_capacity(reserve.len())));
        Self { reserve, spare, returned }
    }

    /// A clear object, or `None` where all are lent out.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Box<T>> {
        self.spare.pop().or_else(|| self.take_returned())
    }

    #[cold]
    fn take_returned(&mut self) -> Option<Box<T>> {
        std::mem::swap(&mut self.spare, &mut self.returned.lock().unwrap_or_else(PoisonError::into_inner));
        self.spare.pop().or_else(|| self.reserve.pop())
    }

    /// Gets back an object that was taken and never lent, and that is clear.
    #[inline]
    pub(crate) fn give_back(&mut self, object: Box<T>) {
        self.spare.push(object);
    }

    /// Lends an object that was taken.
    #[inline]
    pub(crate) fn lend(&self, object: Box<T>) -> Recycled<T> {
        Recycled { object: Some(object), home: Arc::clone(&self.returned) }
    }
}

/// An object that goes back to its [`Recycler`] when it is dropped.
pub(crate) struct Recycled<T: Recycle> {
    /// Present until drop.
    object: Option<Box<T>>,
    home: Returned<T>,
}

impl<T: Recycle> Deref for Recycled<T> {
    type Target = T;

    #[inline]
    #[expect(clippy::expect_used, reason = "only drop takes the object out")]
    fn deref(&self) -> &T {
        self.object.as_deref().expect("present until drop")
    }
}

impl<T: Recycle> DerefMut for Recycled<T> {
    #[inline]
    #[expect(clippy::expect_used, reason = "only drop takes the object out")]
    fn deref_mut(&mut self) -> &mut T {
        self.object.as_deref_mut().expect("present until drop")
    }
}

impl<T: Recycle> Drop for Recycled<T> {
    fn drop(&mut self) {
        if let Some(mut object) = self.object.take() {
            object.clear();
            self.home.lock().unwrap_or_else(PoisonError::into_inner).push(object);
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
        let lent = recycler.lend(two);
        std::thread::scope(|scope| scope.spawn(|| drop(lent)).join()).unwrap();
        assert!(recycler.take().is_some());
        assert!(recycler.take().unwrap().0.is_empty());
        assert!(recycler.take().is_none());
    }

    #[test]
    fn what_is_lent_outlives_its_recycler() {
        let mut recycler = Recycler::new(std::iter::once(Item(vec![1])));
        let object = recycler.take().unwrap();
        let lent = recycler.lend(object);
        drop(recycler);
        assert_eq!(lent.0, [1]);
    }
}
