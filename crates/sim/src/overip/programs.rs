//! The paper's benchmarks as steps of programs, and the stopwatch that they share.

use nichrome_wire::Instant;

/// A step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Starts the stopwatch.
    Start,
    /// Reads it.
    Stop,
    /// Sends so many bytes: a system call, or a WRITE to the peer's memory.
    Send(usize),
    /// Waits for so many bytes: system calls, or a look at the memory that the peer writes to.
    Await(usize),
    /// Fetches so many bytes by READ.
    Fetch(usize),
    /// Computes for so many nanoseconds.
    Compute(u64),
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// Figures 3 and 8: a message and one back.
    PingPong,
    /// Figures 4a and 5: the client computes before it receives.
    Overlap,
    /// Figures 4b and 6: the client fetches data from a server that computes.
    Fetch,
    /// Figure 7: clients send without end.
    Senders,
    /// A message, and a control message back.
    Transfer,
    /// Figure 9: a message and how its buffer was agreed on.
    Rendezvous(Rendezvous),
}

/// How the buffer of a message is agreed on (section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rendezvous {
    /// Not at all: the message goes to one that was agreed on before.
    Eager,
    /// START, REPLY, WRITE, FIN.
    Write,
    /// START, READ, FIN.
    Read,
}

/// The numbers of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Bytes of a message.
    pub(super) message: usize,
    /// Bytes of a control message.
    pub(super) control: usize,
    /// READs that follow from each other before the data is found.
    pub(super) reads: usize,
    /// Nanoseconds that the client computes.
    pub(super) computation: u64,
    /// Nanoseconds that the server computes before each answer.
    pub(super) load: u64,
}

/// The steps that a client and the server repeat. `fetches`: the transport has READs.
pub(super) fn programs(pattern: Pattern, sizes: Sizes, fetches: bool) -> [Vec<Step>; 2] {
    use Step::{Await, Compute, Fetch, Send, Start, Stop};
    let Sizes { message, control, reads, computation, load } = sizes;
    match (pattern, fetches) {
        (Pattern::PingPong, _) => {
            [vec![Start, Send(message), Await(message), Stop], vec![Await(message), Send(message)]]
        }
        (Pattern::Overlap, _) => [
            vec![Start, Send(message), Compute(computation), Await(message), Stop],
            vec![Await(message), Send(message)],
        ],
        (Pattern::Fetch, true) => {
            let reads = std::iter::repeat_n(Fetch(message), reads);
            let client = std::iter::once(Start).chain(reads).chain([Stop]);
            [client.collect(), vec![Compute(load)]]
        }
        (Pattern::Transfer, _) => {
            [vec![Start, Send(message), Await(control), Stop], vec![Await(message), Send(control)]]
        }
        (Pattern::Fetch, false) => [
            vec![Start, Send(control), Await(message), Stop],
            vec![Await(control), Compute(load), Send(message)],
        ],
        // The memory that RDMA writes to is the application's, which does not wait for it.
        (Pattern::Senders, true) => [vec![Send(message)], Vec::new()],
        (Pattern::Senders, false) => [vec![Send(message)], vec![Await(message)]],
        (Pattern::Rendezvous(Rendezvous::Eager), _) => {
            [vec![Start, Send(message), Await(control)], vec![Await(message), Stop, Send(control)]]
        }
        (Pattern::Rendezvous(Rendezvous::Write), _) => [
            vec![Start, Send(control), Await(control), Send(message), Send(control), Await(control)],
            vec![Await(control), Send(control), Await(message), Stop, Await(control), Send(control)],
        ],
        (Pattern::Rendezvous(Rendezvous::Read), _) => [
            vec![Start, Send(control), Await(control)],
            vec![Await(control), Fetch(message), Stop, Send(control)],
        ],
    }
}

/// The times between [`Step::Start`] and [`Step::Stop`].
#[derive(Clone, Debug)]
pub(super) struct Stopwatch {
    started: Instant,
    /// So many are left out at first, and then so many are kept.
    skipped: u64,
    most: u64,
    total: u64,
    read: u64,
}

impl Stopwatch {
    pub(super) fn new(skipped: u64, most: u64) -> Self {
        Self { started: Instant::ZERO, skipped, most, total: 0, read: 0 }
    }

    pub(super) fn start(&mut self, now: Instant) {
        self.started = now;
    }

    pub(super) fn stop(&mut self, now: Instant) {
        if self.read >= self.skipped && !self.is_done() {
            self.total += now.nanos_since(self.started);
        }
        self.read += 1;
    }

    /// Returns true if it was read often enough: programs end.
    pub(super) fn is_done(&self) -> bool {
        self.read >= self.skipped + self.most
    }

    /// The mean, in nanoseconds; `None` if it was not read often enough.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.is_done() && self.most > 0).then(|| self.total as f64 / self.most as f64)
    }
}

/// What a program does or waits for within a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// It begins the step.
    Begin,
    /// It computes, or waits for its call to end.
    Work,
    /// It has called to send so many bytes.
    Sending(usize),
    /// It has called to read so many bytes.
    Receiving(usize),
    /// It posts a work request.
    Posting,
    /// It waits until it can write.
    AwaitRoom,
    /// It waits until it can read.
    AwaitBytes,
    /// It waits for a message in its memory.
    AwaitMessage,
    /// It waits until it can post.
    AwaitCompletion,
    /// It waits for the completion of its READ.
    AwaitRead,
    /// It has found what it waited for.
    Found,
}

/// A program at work.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// Its node, the connection there, and the peer's node.
    pub(super) node: usize,
    pub(super) connection: usize,
    pub(super) peer: usize,
    steps: Vec<Step>,
    at: usize,
    pub(super) doing: Doing,
    /// Bytes that are left of the step.
    pub(super) left: usize,
    /// Messages sent and received by RDMA.
    pub(super) sent: u64,
    pub(super) received: u64,
}

impl Program {
    pub(super) fn new(node: usize, connection: usize, peer: usize, steps: Vec<Step>) -> Self {
        let mut program =
            Self { node, connection, peer, steps, at: 0, doing: Doing::Begin, left: 0, sent: 0, received: 0 };
        program.begin();
        program
    }

    /// The step that it is at; `None` if it has none.
    pub(super) fn step(&self) -> Option<Step> {
        self.steps.get(self.at).copied()
    }

    /// Returns true if it has one step only.
    pub(super) fn is_single(&self) -> bool {
        self.steps.len() == 1
    }

    /// Goes on to the next step, after the last to the first.
    pub(super) fn next(&mut self) {
        self.at = (self.at + 1) % self.steps.len().max(1);
        self.begin();
    }

    fn begin(&mut self) {
        self.doing = Doing::Begin;
        self.left = match self.step() {
            Some(Step::Send(bytes) | Step::Await(bytes) | Step::Fetch(bytes)) => bytes,
            _ => 0,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_times_are_left_out() {
        let mut stopwatch = Stopwatch::new(1, 2);
        for (nth, time) in [900, 10, 20].into_iter().enumerate() {
            assert_eq!(stopwatch.mean(), None, "{nth}");
            stopwatch.start(Instant::from_nanos(1000));
            stopwatch.stop(Instant::from_nanos(1000 + time));
        }
        assert_eq!(stopwatch.mean(), Some(15.0));
    }

    /// What one side sends the other awaits, in order.
    #[test]
    fn both_sides_of_a_benchmark_fit() {
        let sizes = Sizes { message: 9, control: 3, reads: 1, computation: 1, load: 1 };
        let rendezvous = [Rendezvous::Eager, Rendezvous::Write, Rendezvous::Read].map(Pattern::Rendezvous);
        let patterns = [Pattern::PingPong, Pattern::Overlap, Pattern::Fetch, Pattern::Transfer]
            .into_iter()
            .chain(rendezvous);
        for pattern in patterns {
            let both = programs(pattern, sizes, false);
            for (from, to) in [(0, 1), (1, 0)] {
                let sent: Vec<_> = both[from]
                    .iter()
                    .filter_map(|step| if let Step::Send(bytes) = step { Some(*bytes) } else { None })
                    .collect();
                let awaited: Vec<_> = both[to]
                    .iter()
                    .filter_map(|step| if let Step::Await(bytes) = step { Some(*bytes) } else { None })
                    .collect();
                assert_eq!(sent, awaited, "{pattern:?}");
            }
        }
    }
}
