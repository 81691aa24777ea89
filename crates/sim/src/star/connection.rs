//! A connection: both of its ends.

use std::collections::VecDeque;

use nichrome_wire::Instant;

/// A connection and the operation that it carries. Pairs are those of the client and the server.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) nodes: [u32; 2],
    /// The numbers of its contexts at their cards; `None` where there is none.
    pub(super) contexts: [Option<u32>; 2],
    /// Whether an operation is under way, when it came, and those that came since.
    pub(super) is_busy: bool,
    pub(super) started: Instant,
    pub(super) waiting: VecDeque<Instant>,
    /// RECVs of the server that were posted before the run, where it posts none again.
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
            is_busy: false,
            started: Instant::ZERO,
            waiting: VecDeque::new(),
            receives,
        }
    }
}
