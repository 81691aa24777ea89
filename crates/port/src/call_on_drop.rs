//! Reports the ends of threads.

/// Calls a function when it is dropped: at the end of a thread, also of one that panics.
#[derive(Debug)]
pub struct CallOnDrop<F: Fn()>(pub F);

impl<F: Fn()> Drop for CallOnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
