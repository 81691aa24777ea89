//! Calls during which a thread is not cancelled (pthread_setcancelstate(3)).
//!
//! The C library's recv, send, open and close are cancellation points (pthreads(7)). A thread that is
//! cancelled there would leave the device locked and half changed, and unwind through frames that cannot be
//! unwound. A cancellation that is requested during a call takes effect at the program's next cancellation
//! point, as with a device in hardware. Datagrams and shared memory need none of these functions, so a RoCE
//! or StaR device without a capture leaves the cancellation state alone: to change it and back takes 30 ns
//! with glibc 2.36. Verbs that open or close files always change it.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr;

/// `PTHREAD_CANCEL_DISABLE`, of glibc and musl.
const DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Disables cancellation of the calling thread while it exists. May be nested.
pub(crate) struct Uncancelled {
    before: c_int,
    /// Not `Send`: the state belongs to one thread.
    _thread: PhantomData<*const ()>,
}

impl Uncancelled {
    #[inline]
    pub(crate) fn begin() -> Self {
        let mut before = 0;
        // SAFETY: the state is valid, and the pointer is to an integer. The call cannot fail.
        unsafe { pthread_setcancelstate(DISABLE, &raw mut before) };
        Self { before, _thread: PhantomData }
    }
}

impl Drop for Uncancelled {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the state is one that `pthread_setcancelstate` has returned.
        unsafe { pthread_setcancelstate(self.before, ptr::null_mut()) };
    }
}

/// A reference, with cancellation of the thread disabled while it exists if its use may reach a cancellation
/// point.
pub(crate) struct WithoutCancellation<'a, T> {
    value: &'a T,
    _uncancelled: Option<Uncancelled>,
}

impl<'a, T> WithoutCancellation<'a, T> {
    #[inline]
    pub(crate) fn new(value: &'a T, uncancelled: Option<Uncancelled>) -> Self {
        Self { value, _uncancelled: uncancelled }
    }
}

impl<'a, T> Deref for WithoutCancellation<'a, T> {
    type Target = &'a T;

    #[inline]
    fn deref(&self) -> &&'a T {
        &self.value
    }
}
