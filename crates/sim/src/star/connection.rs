//! The state of a connection at both ends.

use std::collections::VecDeque;

use nichrome_wire::Instant;

/// A connection with its operations. Arrays are indexed by client and server.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) nodes: [u32; 2],
    /// The indices of its contexts at the cards; `None` if the side has none.
    pub(super) contexts: [Option<u32>; 2],
    /// True if the server's card has a context on demand for it.
    pub(super) is_open: bool,
    /// True if an operation is under way, its arrival time, and the arrival times of the waiting ones.
    pub(super) is_busy: bool,
    pub(super) started: Instant,
    pub(super) waiting: VecDeque<Instant>,
    /// RECVs that the server posted before the run, if it does not repost.
    pub(super) receives: Option<u32>,
}

impl Connection {
    pub(super) fn new(
        [client, server]: [usize; 2],
        contexts: [Option<u32>; 2],
        receives: Option<u32>,
    ) -> Self {
        Self {
            nodes: [client as u32, server as u32],
            contexts,
            is_open: false,
            is_busy: false,
            started: Instant::ZERO,
            waiting: VecDeque::new(),
            receives,
        }
    }
}
