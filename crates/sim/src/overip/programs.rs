//! The paper's benchmarks as steps of programs, with a shared stopwatch.

use nichrome_wire::Instant;

/// A step of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Starts the stopwatch.
    Start,
    /// Stops the stopwatch and records the time.
    Stop,
    /// Sends bytes: by a system call, or by a WRITE to the peer's memory.
    Send(usize),
    /// Receives bytes: by system calls, or by polling the memory that the peer writes to.
    Await(usize),
    /// Fetches bytes by READ.
    Fetch(usize),
    /// Computes, in nanoseconds.
    Compute(u64),
}

/// The benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// Figures 3 and 8: ping-pong.
    PingPong,
    /// Figures 4a and 5: the client computes before it receives.
    Overlap,
    /// Figures 4b and 6: the client fetches data from a server that computes.
    Fetch,
    /// Figure 7: clients send endlessly.
    Senders,
    /// A message, and a control message in return.
    Transfer,
    /// Figure 9: a message with the negotiation of its buffer.
    Rendezvous(Rendezvous),
}

/// The negotiation of a message's buffer (section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rendezvous {
    /// None: the message goes to a preallocated buffer.
    Eager,
    /// START, REPLY, WRITE, FIN.
    Write,
    /// START, READ, FIN.
    Read,
}

/// The parameters of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Length of a message, in bytes.
    pub(super) message: usize,
    /// Length of a control message, in bytes.
    pub(super) control: usize,
    /// Dependent READs before the data is found.
    pub(super) reads: usize,
    /// The client's computation, in nanoseconds.
    pub(super) computation: u64,
    /// The server's computation before each answer, in nanoseconds.
    pub(super) load: u64,
}

/// Returns the steps that client and server repeat. `fetches`: the transport supports READs.
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
        // RDMA writes to the application's memory; no program waits for the messages.
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

/// Times between [`Step::Start`] and [`Step::Stop`].
#[derive(Clone, Debug)]
pub(super) struct Stopwatch {
    started: Instant,
    /// Number of times to skip first, and then to record.
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

    /// Returns true if enough times are recorded: programs end.
    pub(super) fn is_done(&self) -> bool {
        self.read >= self.skipped + self.most
    }

    /// Returns the mean in nanoseconds; `None` if too few times are recorded.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.is_done() && self.most > 0).then(|| self.total as f64 / self.most as f64)
    }
}

/// The state of a program within a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgramState {
    /// Begins the step.
    Begin,
    /// Computes, or waits for its call to end.
    Work,
    /// In a call that sends this many bytes.
    Sending(usize),
    /// In a call that receives this many bytes.
    Receiving(usize),
    /// Posts a work request.
    Posting,
    /// Waits until it can write.
    AwaitRoom,
    /// Waits until it can read.
    AwaitBytes,
    /// Waits for a message in memory.
    AwaitMessage,
    /// Waits until it can post.
    AwaitCompletion,
    /// Waits for the completion of its READ.
    AwaitRead,
    /// Found what it waited for.
    Found,
}

impl ProgramState {
    /// Returns true if the program waits until a condition holds, other than the completion of its READ.
    pub(super) fn awaits_condition(self) -> bool {
        matches!(self, Self::AwaitRoom | Self::AwaitBytes | Self::AwaitMessage | Self::AwaitCompletion)
    }
}

/// A running program.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// Its node, the connection there, and the peer's node.
    pub(super) node: usize,
    pub(super) connection: usize,
    pub(super) peer: usize,
    steps: Vec<Step>,
    at: usize,
    pub(super) state: ProgramState,
    /// Remaining bytes of the step.
    pub(super) left: usize,
    /// Messages sent and received by RDMA.
    pub(super) sent: u64,
    pub(super) received: u64,
}

impl Program {
    pub(super) fn new(node: usize, connection: usize, peer: usize, steps: Vec<Step>) -> Self {
        let mut program = Self {
            node,
            connection,
            peer,
            steps,
            at: 0,
            state: ProgramState::Begin,
            left: 0,
            sent: 0,
            received: 0,
        };
        program.begin();
        program
    }

    /// Returns the current step, if any.
    pub(super) fn step(&self) -> Option<Step> {
        self.steps.get(self.at).copied()
    }

    /// Returns true if it has one step only.
    pub(super) fn is_single(&self) -> bool {
        self.steps.len() == 1
    }

    /// Advances to the next step, cyclically.
    pub(super) fn next(&mut self) {
        self.at = (self.at + 1) % self.steps.len().max(1);
        self.begin();
    }

    fn begin(&mut self) {
        self.state = ProgramState::Begin;
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

    /// Each side awaits what the other sends, in the same order.
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
