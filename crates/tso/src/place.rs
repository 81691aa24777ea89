//! Where a packet stands among those that a frame is cut into.

/// Which of the packets it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) is_first: bool,
    pub(crate) is_last: bool,
}
