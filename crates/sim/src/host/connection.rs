//! A connection: its TCP, its program, and counters of both.

use std::fmt;

use nichrome_wire::{Instant, Ipv4Header, LinkHeader, SeqNumber, TcpHeader};
use smoltcp::socket::tcp::State;
use smoltcp::time::Instant as TcpInstant;

use super::application::{ProgramCounters, Reading, Role};
use super::config::HostConfig;
use super::endpoints::Endpoints;
use super::port::Port;
use super::sink::Sink;
use super::stack::Stack;
use crate::HostId;

/// A connection with its program.
pub struct Connection {
    endpoints: Endpoints,
    end: End,
    times: Times,
    sent_until: Option<SeqNumber>,
    retransmitted: u64,
    /// When to poll the connection next.
    pub(super) due: Option<Instant>,
}

/// TCP and the program of a connection.
enum End {
    Stack(Box<Stack>),
    /// For a program that accepts a connection and only reads.
    Sink(Box<Sink>),
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("endpoints", &self.endpoints)
            .field("due", &self.due)
            .finish_non_exhaustive()
    }
}

/// Milestones of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The handshake completed.
    pub established: Option<Instant>,
    /// Last time that bytes were read.
    pub last_read: Option<Instant>,
    /// The program finished.
    pub complete: Option<Instant>,
}

impl Connection {
    /// Creates a connection that [`Self::poll`] opens.
    pub(super) fn connecting(
        host: HostId,
        config: &HostConfig,
        endpoints: Endpoints,
        role: Role,
        seed: u64,
    ) -> Self {
        let mut stack = Stack::new(host, config, endpoints, role, seed);
        stack.connect();
        Self::new(endpoints, End::Stack(Box::new(stack)))
    }

    /// Creates a connection that waits for its SYN.
    pub(super) fn listening(
        host: HostId,
        config: &HostConfig,
        endpoints: Endpoints,
        role: Role,
        seed: u64,
    ) -> Self {
        let end = if role == Role::Receive {
            End::Sink(Box::new(Sink::new(config, endpoints, seed)))
        } else {
            let mut stack = Stack::new(host, config, endpoints, role, seed);
            stack.listen();
            End::Stack(Box::new(stack))
        };
        Self::new(endpoints, end)
    }

    fn new(endpoints: Endpoints, end: End) -> Self {
        Self { endpoints, end, times: Times::default(), sent_until: None, retransmitted: 0, due: None }
    }

    pub(super) fn set_reading(&mut self, reading: Reading) {
        match &mut self.end {
            End::Stack(stack) => stack.set_reading(reading),
            End::Sink(sink) => sink.set_reading(reading),
        }
    }

    /// Passes bytes to TCP; returns the number accepted.
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        match &mut self.end {
            End::Stack(stack) => stack.write(bytes),
            End::Sink(_) => 0,
        }
    }

    /// Appends up to `most` received bytes to `into`; returns the number.
    pub(super) fn read(&mut self, into: &mut Vec<u8>, most: usize) -> usize {
        match &mut self.end {
            End::Stack(stack) => stack.read(into, most),
            End::Sink(_) => 0,
        }
    }

    /// Passes an IP packet to TCP, if any; runs TCP and the program; appends the frames to send to
    /// `port.sent`.
    pub(super) fn poll(&mut self, mut port: Port<'_>, now: Instant, latency: &mut impl FnMut(u64)) {
        let tcp_now = TcpInstant::from_micros((now.as_nanos() / 1000) as i64);
        let sent_before = port.sent.len();
        let stepped = loop {
            let read_before = self.program_counters().received;
            let stepped = match &mut self.end {
                End::Stack(stack) => stack.step(&mut port, tcp_now, now, latency),
                End::Sink(sink) => sink.step(&mut port, tcp_now),
            };
            if self.program_counters().received > read_before {
                self.times.last_read = Some(now);
            }
            if stepped.is_established && self.times.established.is_none() {
                self.times.established = Some(now);
            }
            if !stepped.progressed {
                break stepped;
            }
        };
        if self.times.complete.is_none() && stepped.is_complete {
            self.times.complete = Some(now);
        }
        if let End::Stack(stack) = &mut self.end {
            stack.complete(port.sent, sent_before);
        }
        for frame in port.sent.range(sent_before..) {
            self.count_retransmission(frame);
        }
        self.due = self.next_poll(tcp_now, now);
    }

    /// Returns the next time for TCP's timers or the program, which is after `now`.
    fn next_poll(&mut self, tcp_now: TcpInstant, now: Instant) -> Option<Instant> {
        let (timer, program) = match &mut self.end {
            End::Stack(stack) => (stack.poll_at(tcp_now), stack.resumes()),
            End::Sink(sink) => (sink.poll_at(), None),
        };
        let timer = timer.map(|at| {
            let at = Instant::from_nanos(u64::try_from(at.total_micros()).unwrap_or(0).saturating_mul(1000));
            at.max(now.plus_nanos(1000))
        });
        [timer, program].into_iter().flatten().min()
    }

    fn count_retransmission(&mut self, frame: &[u8]) {
        let Some((seq, len)) = payload_of(frame) else { return };
        let end = seq + len;
        match self.sent_until {
            Some(until) if !end.after(until) => self.retransmitted += 1,
            _ => self.sent_until = Some(end),
        }
    }

    /// Returns its addresses.
    pub fn endpoints(&self) -> Endpoints {
        self.endpoints
    }

    /// Returns its program's counters.
    pub fn program_counters(&self) -> ProgramCounters {
        match &self.end {
            End::Stack(stack) => stack.program_counters(),
            End::Sink(sink) => sink.program_counters(),
        }
    }

    /// Returns its milestones.
    pub fn times(&self) -> Times {
        self.times
    }

    /// Returns the number of retransmitted segments with payload.
    pub fn retransmitted(&self) -> u64 {
        self.retransmitted
    }

    /// Returns the TCP state.
    pub fn state(&self) -> State {
        match &self.end {
            End::Stack(stack) => stack.socket().state(),
            End::Sink(sink) => sink.state(),
        }
    }

    /// Returns the unacknowledged bytes, sent or not.
    pub fn unacknowledged(&self) -> usize {
        match &self.end {
            End::Stack(stack) => stack.socket().send_queue(),
            End::Sink(_) => 0,
        }
    }

    /// Returns the free space of the send buffer, in bytes.
    pub fn writable(&self) -> usize {
        match &self.end {
            End::Stack(stack) => stack.writable(),
            End::Sink(_) => 0,
        }
    }

    /// Returns the received and unread bytes.
    pub fn unread(&self) -> usize {
        match &self.end {
            End::Stack(stack) => stack.socket().recv_queue(),
            End::Sink(sink) => sink.unread(),
        }
    }
}

/// Returns sequence number and length of a segment's payload; `None` if empty.
fn payload_of(frame: &[u8]) -> Option<(SeqNumber, u32)> {
    let packet = LinkHeader::new(frame)?.payload();
    let tcp = TcpHeader::new(Ipv4Header::new(packet)?.payload()?)?;
    let len = tcp.payload()?.len() as u32;
    (len > 0).then(|| (tcp.seq(), len))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use nichrome_wire::{EthernetHeader, Network, TcpFlags, TcpFrame};
    use proptest::prelude::*;

    use super::super::pattern;
    use super::*;

    const HOST: HostId = HostId(1);
    const ENDPOINTS: Endpoints = Endpoints { local_port: 80, remote: HostId(0), remote_port: 40_000 };
    /// The peer's first sequence number: the sequence numbers of the stream wrap.
    const FIRST: u32 = u32::MAX - 5000;

    /// An input of a connection.
    #[derive(Clone, Debug)]
    enum Input {
        /// A segment of the stream that begins `ahead` bytes after the next byte expected.
        Segment { ahead: i32, len: usize, flags: TcpFlags, ack: u32, is_right: bool },
        /// Nanoseconds that pass.
        Time(u64),
        /// Time passes until the connection is due.
        Due,
        /// The program reads from now on, or stops.
        Reads(bool),
    }

    fn segment(flags: impl Strategy<Value = TcpFlags>) -> impl Strategy<Value = Input> {
        let ahead =
            prop_oneof![6 => Just(0), 3 => (-3..20).prop_map(|steps| 500 * steps), 1 => -70_000..75_000];
        let len = prop_oneof![6 => (0..4usize).prop_map(|steps| 500 * steps), 1 => 0..9000usize];
        let ack = prop_oneof![20 => Just(0), 1 => 0..3u32];
        (ahead, len, flags, ack, prop::bool::weighted(0.97)).prop_map(|(ahead, len, flags, ack, is_right)| {
            Input::Segment { ahead, len, flags, ack, is_right }
        })
    }

    fn input() -> impl Strategy<Value = Input> {
        let flags = prop_oneof![
            30 => Just(TcpFlags::ACK),
            10 => Just(TcpFlags::ACK | TcpFlags::PSH),
            2 => Just(TcpFlags::ACK | TcpFlags::FIN),
            1 => Just(TcpFlags::SYN),
            1 => Just(TcpFlags::ACK | TcpFlags::SYN),
            1 => Just(TcpFlags::RST),
            1 => Just(TcpFlags::PSH),
        ];
        prop_oneof![
            10 => segment(flags),
            3 => (0..50_000_000u64).prop_map(Input::Time),
            1 => (0..3_000_000_000u64).prop_map(Input::Time),
            4 => Just(Input::Due),
            1 => any::<bool>().prop_map(Input::Reads),
        ]
    }

    /// A connection, and the frames that it has sent.
    struct Tested {
        connection: Connection,
        sent: VecDeque<Vec<u8>>,
    }

    impl Tested {
        fn pair(config: &HostConfig) -> [Self; 2] {
            let mut stack = Stack::new(HOST, config, ENDPOINTS, Role::Receive, 7);
            stack.listen();
            let ends = [End::Stack(Box::new(stack)), End::Sink(Box::new(Sink::new(config, ENDPOINTS, 7)))];
            ends.map(|end| Self { connection: Connection::new(ENDPOINTS, end), sent: VecDeque::new() })
        }

        fn poll(&mut self, config: &HostConfig, packet: Option<&[u8]>, now: Instant) {
            let port = Port { host: HOST, config, received: packet, sent: &mut self.sent };
            self.connection.poll(port, now, &mut |_| {});
        }

        fn state(&self) -> impl PartialEq + fmt::Debug + use<> {
            let Connection { times, due, .. } = &self.connection;
            let (read, state) = (self.connection.program_counters().received, self.connection.state());
            (self.sent.clone(), *times, *due, read, state, self.connection.unread())
        }
    }

    /// Builds the IP packet of a segment that begins with byte `offset` of the stream. A SYN has `options`
    /// and no payload.
    fn packet(flags: TcpFlags, offset: u64, payload: Vec<u8>, options: &[u8], ack: SeqNumber) -> Vec<u8> {
        let is_syn = flags.contains(TcpFlags::SYN);
        let frame = TcpFrame {
            network: Network::ipv4(ENDPOINTS.remote.ip(), HOST.ip()),
            src_port: ENDPOINTS.remote_port,
            dst_port: ENDPOINTS.local_port,
            seq: if is_syn { SeqNumber(FIRST) } else { SeqNumber(FIRST) + 1 + offset as u32 },
            ack,
            flags,
            options: if is_syn { options.to_vec() } else { Vec::new() },
            payload: if is_syn { Vec::new() } else { payload },
            ..TcpFrame::default()
        };
        frame.build().split_off(EthernetHeader::LEN)
    }

    /// Builds the packet of an input when byte `next` of the stream is expected; empty if the input is no
    /// segment.
    fn packet_of(input: &Input, next: u64, options: &[u8], acknowledges: SeqNumber) -> Vec<u8> {
        let Input::Segment { ahead, len, flags, ack, is_right } = *input else { return Vec::new() };
        let offset = next.saturating_add_signed(i64::from(ahead));
        let mut payload = vec![0; len];
        pattern::fill(offset, &mut payload);
        let mut bytes = packet(flags, offset, payload, options, acknowledges + ack);
        if let Some(last) = bytes.last_mut().filter(|_| !is_right) {
            *last ^= 1;
        }
        bytes
    }

    /// Returns the ACK number for this frame if it is a SYN.
    fn acknowledgment_of_syn(frame: &[u8]) -> Option<SeqNumber> {
        let packet = LinkHeader::new(frame)?.payload();
        let tcp = TcpHeader::new(Ipv4Header::new(packet)?.payload()?)?;
        tcp.flags().contains(TcpFlags::SYN).then(|| tcp.seq() + 1)
    }

    /// Returns the ACK number for the last SYN of these frames; 0 if there is none.
    fn acknowledgment(sent: &VecDeque<Vec<u8>>) -> SeqNumber {
        sent.iter().rev().find_map(|frame| acknowledgment_of_syn(frame)).unwrap_or(SeqNumber(0))
    }

    #[test]
    fn bytes_of_another_stream_are_counted() {
        let config = HostConfig::default();
        for mut tested in Tested::pair(&config) {
            let mut right = vec![0; 1000];
            pattern::fill(0, &mut right);
            let wrong = vec![7; 1000];
            let empty = Vec::new();
            for (flags, offset, payload) in [
                (TcpFlags::SYN, 0, &empty),
                (TcpFlags::ACK, 0, &empty),
                (TcpFlags::ACK, 0, &right),
                (TcpFlags::ACK, 1000, &wrong),
            ] {
                let packet = packet(flags, offset, payload.clone(), &[], acknowledgment(&tested.sent));
                tested.poll(&config, Some(&packet), Instant::ZERO);
            }
            let ProgramCounters { received, wrong_reads, .. } = tested.connection.program_counters();
            assert_eq!((received, wrong_reads), (2000, 1));
        }
    }

    #[test]
    fn no_more_than_the_receive_buffer_is_taken() {
        let receive_buffer = 1 << 16;
        let config = HostConfig { receive_buffer, ..HostConfig::default() };
        let scaled = [2, 4, 5, 180, 3, 3, 7, 0];
        // The first data segment ends two bytes beyond the buffer; the second one has all bytes before it.
        let last = receive_buffer as u64 - 498;
        for mut tested in Tested::pair(&config) {
            tested.connection.set_reading(Reading::Off);
            for (flags, offset, len) in [
                (TcpFlags::SYN, 0, 0),
                (TcpFlags::ACK, 0, 0),
                (TcpFlags::ACK, last, 500),
                (TcpFlags::ACK, 0, last),
            ] {
                let mut payload = vec![0; len as usize];
                pattern::fill(offset, &mut payload);
                let packet = packet(flags, offset, payload, &scaled, acknowledgment(&tested.sent));
                tested.poll(&config, Some(&packet), Instant::ZERO);
            }
            assert_eq!(tested.connection.unread(), receive_buffer);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn a_sink_sends_what_the_stack_would(
            receive_buffer in prop_oneof![Just(1000usize), 1..9000usize, 60_000..75_000usize, 60_000..300_000usize],
            ack_delay in prop_oneof![Just(None), Just(Some(40_000_000u64))],
            options in prop_oneof![
                Just(vec![]),
                Just(vec![2, 4, 5, 180]),
                Just(vec![2, 4, 5, 180, 4, 2, 3, 3, 7, 0, 0, 0]),
                Just(vec![3, 3, 20, 0, 2, 4, 0, 3]),
            ],
            rest in prop::collection::vec(input(), 0..120),
        ) {
            let config = HostConfig { receive_buffer, ack_delay, ..HostConfig::default() };
            let mut tested = Tested::pair(&config);
            let mut now = Instant::from_nanos(1_000_000);
            let opens = |flags| Input::Segment { ahead: 0, len: 0, flags, ack: 0, is_right: true };
            let handshake = [opens(TcpFlags::SYN), Input::Time(20_000_000), opens(TcpFlags::ACK)];
            for input in handshake.iter().chain(&rest) {
                let received = tested[0].connection.program_counters().received + tested[0].connection.unread() as u64;
                let bytes = packet_of(input, received, &options, acknowledgment(&tested[0].sent));
                match input {
                    Input::Time(nanos) => now = now.plus_nanos(*nanos),
                    Input::Due => now = tested[0].connection.due.map_or(now, |due| due.max(now)),
                    Input::Reads(_) | Input::Segment { .. } => {}
                }
                // Skipped: after a RST, the next handshake begins without a measurement of its round-trip
                // time.
                let is_reset = matches!(input, Input::Segment { flags: TcpFlags::RST, .. });
                if is_reset && tested[0].connection.state() == State::SynReceived {
                    continue;
                }
                for tested in &mut tested {
                    if let Input::Reads(reads) = input {
                        tested.connection.set_reading(if *reads { Reading::On } else { Reading::Off });
                    }
                    let packet = Some(&bytes[..]).filter(|bytes| !bytes.is_empty());
                    tested.poll(&config, packet, now);
                }
                let [stack, sink] = &tested;
                prop_assert_eq!(sink.state(), stack.state(), "after {:?}", input);
            }
        }
    }
}
