//! A lock-free list of numbers. Any thread pushes; one thread takes the whole list at once, which avoids the
//! ABA problem.

use std::iter;

use crate::sync::{AtomicU32, Ordering};

/// Marks the end of the list.
const END: u32 = u32::MAX;

/// A list of distinct numbers below its capacity.
#[derive(Debug)]
pub(super) struct ReturnList {
    newest: AtomicU32,
    /// By number: the number pushed before it.
    older: Box<[AtomicU32]>,
}

impl ReturnList {
    /// Creates an empty list for numbers below `capacity`.
    pub(super) fn new(capacity: u32) -> Self {
        Self { newest: AtomicU32::new(END), older: (0..capacity).map(|_| AtomicU32::new(END)).collect() }
    }

    /// Adds a number that is not in the list.
    #[inline]
    pub(super) fn push(&self, number: u32) {
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            self.older[number as usize].store(newest, Ordering::Relaxed);
            // Release: writes before the push are visible to the thread that takes the number.
            match self.newest.compare_exchange_weak(newest, number, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => newest = now,
            }
        }
    }

    /// Empties the list, most recent number first.
    #[inline]
    pub(super) fn take_all(&self) -> impl Iterator<Item = u32> + '_ {
        // A load is cheaper than a swap, and the list is usually empty.
        let is_empty = self.newest.load(Ordering::Relaxed) == END;
        let mut next = if is_empty { END } else { self.newest.swap(END, Ordering::Acquire) };
        iter::from_fn(move || {
            let number = (next != END).then_some(next)?;
            // Read before the number is yielded: it may be pushed again at once.
            next = self.older[number as usize].load(Ordering::Relaxed);
            Some(number)
        })
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn each_pushed_frame_is_taken_once() {
        let list = ReturnList::new(4);
        assert_eq!(list.take_all().count(), 0);
        [2, 0, 3].into_iter().for_each(|number| list.push(number));
        assert_eq!(list.take_all().collect::<Vec<_>>(), [3, 0, 2]);
        assert_eq!(list.take_all().count(), 0);
    }

    #[test]
    fn a_number_may_come_back_while_the_others_are_taken() {
        let list = ReturnList::new(3);
        (0..3).for_each(|number| list.push(number));
        let mut taken = Vec::new();
        for number in list.take_all() {
            list.push(number);
            taken.push(number);
        }
        assert_eq!(taken, [2, 1, 0]);
        assert_eq!(list.take_all().count(), 3);
    }

    #[test]
    fn numbers_pushed_by_many_threads_all_come_back() {
        const NUMBERS: u32 = 64;
        const ROUNDS: u32 = if cfg!(miri) { 10 } else { 1000 };
        let list = ReturnList::new(NUMBERS);
        let mut times = [0; NUMBERS as usize];
        thread::scope(|scope| {
            let lanes: Vec<_> = (0..4)
                .map(|_| {
                    let (sender, numbers) = std::sync::mpsc::channel();
                    let list = &list;
                    scope.spawn(move || numbers.into_iter().for_each(|number| list.push(number)));
                    sender
                })
                .collect();
            (0..NUMBERS).for_each(|number| lanes[number as usize % 4].send(number).unwrap());
            let mut left = NUMBERS * ROUNDS;
            while left > 0 {
                for number in list.take_all() {
                    let count = &mut times[number as usize];
                    *count += 1;
                    left -= 1;
                    if *count < ROUNDS {
                        lanes[(number + *count) as usize % 4].send(number).unwrap();
                    }
                }
                thread::yield_now();
            }
        });
        assert_eq!(times, [ROUNDS; NUMBERS as usize]);
    }
}
