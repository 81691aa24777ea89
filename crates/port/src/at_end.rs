//! Reports the ends of threads.

/// Calls a function when it is dropped: at the end of a thread, also of one that panics.
#[derive(Debug)]
pub struct AtEnd<F: Fn()>(pub F);

impl<F: Fn()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
