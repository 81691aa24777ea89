//! The frames of an aggregate after the first.
//!
//! Their places are allocated at start. `Vec::push` would first test whether the vector must grow, with a
//! call that moves the frame through memory.

use std::mem;
use std::vec::IntoIter;

use crate::frame::Frame;

/// The frames after the first.
pub(crate) struct Followers<B> {
    places: Vec<Option<Frame<B>>>,
    len: usize,
}

impl<B> Followers<B> {
    /// Reserves places for this number of frames.
    pub(crate) fn with_room(frames: usize) -> Self {
        Self { places: (0..frames).map(|_| None).collect(), len: 0 }
    }

    /// Adds a frame, if there is one.
    #[inline(always)]
    pub(crate) fn add(&mut self, frame: Option<Frame<B>>) {
        match self.places.get_mut(self.len) {
            // The place holds None: forgetting it saves a test and a drop.
            Some(place) => mem::forget(mem::replace(place, frame)),
            None => self.add_beyond_room(frame),
        }
        self.len += 1;
    }

    /// Adds the first of these frames; there must be one.
    #[inline(always)]
    pub(crate) fn add_first(&mut self, frames: &mut IntoIter<Frame<B>>) {
        match self.places.get_mut(self.len) {
            // As above. The frame moves from the iterator to its place directly.
            Some(place) => mem::forget(mem::replace(place, frames.next())),
            None => self.add_beyond_room(frames.next()),
        }
        self.len += 1;
    }

    /// Adds the first `count` of these frames.
    #[inline]
    pub(crate) fn extend(&mut self, frames: &mut IntoIter<Frame<B>>, count: usize) {
        let end = self.len + count;
        match self.places.get_mut(self.len..end) {
            Some(places) => {
                for place in places {
                    mem::forget(mem::replace(place, frames.next()));
                }
                self.len = end;
            }
            None => frames.take(count).for_each(|frame| self.add(Some(frame))),
        }
    }

    #[cold]
    #[inline(never)]
    fn add_beyond_room(&mut self, frame: Option<Frame<B>>) {
        self.places.push(frame);
    }

    /// Returns the last frame.
    #[inline(always)]
    pub(crate) fn last(&self) -> Option<&Frame<B>> {
        self.places.get(self.len.wrapping_sub(1))?.as_ref()
    }

    /// Returns the frames in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Frame<B>> {
        self.places.iter().take(self.len).flatten()
    }

    /// Drops all frames and keeps the places.
    pub(crate) fn clear(&mut self) {
        self.places.iter_mut().take(self.len).for_each(|place| *place = None);
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_beyond_the_reserved_places_are_kept_in_order() {
        let frame = |nth: u8| Frame::new(vec![nth]);
        let mut followers = Followers::with_room(1);
        for _ in 0..2 {
            followers.add(Some(frame(0)));
            followers.add(Some(frame(1)));
            let mut burst = (2..7).map(frame).collect::<Vec<_>>().into_iter();
            followers.add_first(&mut burst);
            followers.extend(&mut burst, 3);
            assert_eq!(burst.len(), 1);
            let kept: Vec<u8> = followers.iter().map(|frame| frame.bytes()[0]).collect();
            assert_eq!(kept, [0, 1, 2, 3, 4, 5]);
            assert_eq!(followers.last().map(Frame::bytes), Some(&[5][..]));
            followers.clear();
            assert_eq!((followers.iter().count(), followers.last().is_none()), (0, true));
        }
    }
}
