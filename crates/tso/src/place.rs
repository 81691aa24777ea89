//! The position of a packet among those of a frame.

/// Whether a packet is the first or the last of its frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) is_first: bool,
    pub(crate) is_last: bool,
}
