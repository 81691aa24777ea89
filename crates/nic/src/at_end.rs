//! Reports the end of a thread.

/// Calls a function when it is dropped: at the end of a thread, also of one that panics.
pub(crate) struct AtEnd<F: Fn()>(pub(crate) F);

impl<F: Fn()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
