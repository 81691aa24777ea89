//! TCP for a program that accepts a connection and only reads the stream pattern. Compares bytes when they
//! arrive and keeps only their number, so that a connection takes less than a kilobyte; a receive buffer
//! would keep all memory that was ever written.
//!
//! Sends the same segments at the same times as smoltcp's TCP without data to send; a test compares both.

use std::ops::ControlFlow;

use smoltcp::socket::tcp::State;
use smoltcp::storage::Assembler;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{TcpControl, TcpRepr, TcpSeqNumber};

use super::application::{ProgramCounters, Reading, Stepped};
use super::config::HostConfig;
use super::endpoints::Endpoints;
use super::pattern;
use super::port::Port;
use super::segment;
use super::window::Window;

/// IPv4 and TCP headers without options.
const HEADERS: usize = 40;
const DEFAULT_MSS: usize = 536;
/// The minimum MSS accepted from a peer, as in Linux (TCP_MIN_SND_MSS).
const MIN_MSS: usize = 48;
/// Minimum (RFC 6298 (2.1), (2.4)) and maximum (2.5) retransmission timeout, and clock granularity (2.2), in
/// milliseconds.
const MIN_RTO: u64 = 1000;
const MAX_RTO: u64 = 60_000;
const GRANULARITY: u64 = 5;
/// At most one challenge ACK is sent in this interval (RFC 5961, 7).
const CHALLENGE_INTERVAL: Duration = Duration::from_secs(1);

/// A segment without payload.
type Reply = TcpRepr<'static>;
/// Breaks off the processing of a segment, with the reply to it, if any.
type Flow<T = ()> = ControlFlow<Option<Reply>, T>;

/// TCP's receiving half and its program.
pub(super) struct Sink {
    endpoints: Endpoints,
    capacity: usize,
    local_mss: u16,
    ack_delay: Option<Duration>,
    random: u64,
    state: State,
    /// The sequence number after the last acknowledged one, and after the last that was sent.
    acknowledged: TcpSeqNumber,
    sent_until: TcpSeqNumber,
    /// The sequence number of the first unread byte, and the number of unread bytes.
    read_until: TcpSeqNumber,
    unread: usize,
    /// The ranges that have arrived beyond a gap.
    ahead: Assembler,
    /// ACK number and window of the last segment sent.
    last_ack: Option<TcpSeqNumber>,
    last_window: u16,
    window_shift: u8,
    peer_scales: bool,
    peer_has_sack: bool,
    peer_mss: usize,
    /// The sequence number of the last segment received within the window.
    last_seq: Option<TcpSeqNumber>,
    delayed: DelayedAck,
    retransmits_at: Option<Instant>,
    /// The retransmission timeout in milliseconds, and when the SYN that sets it was sent.
    timeout: u64,
    timed_from: Option<Instant>,
    next_challenge: Instant,
    reading: Reading,
    has_closed: bool,
    counters: ProgramCounters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DelayedAck {
    None,
    Until(Instant),
    /// More than one segment is unacknowledged.
    Now,
}

impl Sink {
    /// Creates a connection that waits for its SYN.
    pub(super) fn new(config: &HostConfig, endpoints: Endpoints, seed: u64) -> Self {
        // smoltcp's interface draws the first number, for identifications.
        let (random, _) = next_random(seed);
        let capacity = config.receive_buffer;
        let bits = (usize::BITS - capacity.leading_zeros()) as u8;
        Self {
            endpoints,
            capacity,
            local_mss: (config.mtu - HEADERS) as u16,
            ack_delay: config.ack_delay.map(|nanos| Duration::from_micros(nanos / 1000)),
            random,
            state: State::Listen,
            acknowledged: TcpSeqNumber::default(),
            sent_until: TcpSeqNumber::default(),
            read_until: TcpSeqNumber::default(),
            unread: 0,
            ahead: Assembler::new(),
            last_ack: None,
            last_window: 0,
            window_shift: bits.saturating_sub(16),
            peer_scales: false,
            peer_has_sack: false,
            peer_mss: DEFAULT_MSS,
            last_seq: None,
            delayed: DelayedAck::None,
            retransmits_at: None,
            timeout: MIN_RTO,
            timed_from: None,
            next_challenge: Instant::ZERO,
            reading: Reading::On,
            has_closed: false,
            counters: ProgramCounters::default(),
        }
    }

    pub(super) fn set_reading(&mut self, reading: Reading) {
        self.reading = reading;
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    pub(super) fn program_counters(&self) -> ProgramCounters {
        self.counters
    }

    pub(super) fn unread(&self) -> usize {
        self.unread
    }

    /// Runs TCP, then the program.
    pub(super) fn step(&mut self, port: &mut Port<'_>, now: Instant) -> Stepped {
        if let Some(packet) = port.received.take() {
            let reply = segment::read(packet, port.host, self.endpoints.remote)
                .and_then(|segment| self.receive(&segment, now));
            if let Some(reply) = reply {
                port.send(&reply, self.endpoints.remote);
            }
        }
        while let Some(segment) = self.next_segment(now) {
            port.send(&segment, self.endpoints.remote);
        }
        let progressed = self.run_program();
        let is_established = matches!(self.state, State::Established | State::CloseWait);
        Stepped { progressed, is_established, is_complete: self.has_closed }
    }

    /// Reads everything, and closes when the peer has; returns true on progress.
    fn run_program(&mut self) -> bool {
        let reads = self.reading == Reading::On && self.unread > 0;
        if reads {
            self.counters.received += self.unread as u64;
            self.read_until += self.unread;
            self.unread = 0;
        }
        let closes = self.state == State::CloseWait && self.unread == 0;
        if closes {
            self.has_closed = true;
            self.state = State::LastAck;
        }
        reads || closes
    }

    /// Returns when TCP's timers are due; time 0 if a segment can be sent now.
    pub(super) fn poll_at(&self) -> Option<Instant> {
        if !self.is_open() {
            return None;
        }
        if self.has_flag_to_send() || self.has_window_to_send() {
            return Some(Instant::ZERO);
        }
        let ack = self.has_ack_to_send().then_some(match self.delayed {
            DelayedAck::Until(at) => at,
            DelayedAck::None | DelayedAck::Now => Instant::ZERO,
        });
        [self.retransmits_at, ack].into_iter().flatten().min()
    }

    /// Returns true if the connection has a peer.
    fn is_open(&self) -> bool {
        !matches!(self.state, State::Listen | State::Closed)
    }

    /// Returns the next sequence number expected.
    fn expected(&self) -> TcpSeqNumber {
        self.read_until + self.unread
    }

    fn window(&self) -> usize {
        self.capacity - self.unread
    }

    fn scaled_window(&self) -> u16 {
        u16::try_from(self.window() >> self.window_shift).unwrap_or(u16::MAX)
    }

    fn receive(&mut self, segment: &TcpRepr<'_>, now: Instant) -> Option<Reply> {
        let is_refused = match self.state {
            State::Closed => true,
            State::Listen => segment.ack_number.is_some() || segment.control == TcpControl::Rst,
            _ => false,
        };
        if is_refused {
            return (segment.control != TcpControl::Rst).then(|| self.reset(segment));
        }
        if self.state == State::Listen {
            self.open(segment, now);
            return None;
        }
        match self.receive_synchronized(segment, now) {
            ControlFlow::Break(reply) => reply,
            ControlFlow::Continue(()) => None,
        }
    }

    /// Answers a SYN.
    fn open(&mut self, syn: &TcpRepr<'_>, now: Instant) {
        if syn.control != TcpControl::Syn {
            return;
        }
        if let Some(mss) = syn.max_seg_size.filter(|mss| *mss > 0) {
            self.peer_mss = usize::from(mss).max(MIN_MSS);
        }
        self.acknowledged = self.initial_sequence_number();
        self.sent_until = self.acknowledged;
        self.read_until = syn.seq_number + 1;
        self.peer_has_sack = syn.sack_permitted;
        self.peer_scales = syn.window_scale.is_some();
        if !self.peer_scales {
            self.window_shift = 0;
        }
        self.state = State::SynReceived;
        self.retransmits_at = None;
        self.timed_from = Some(now);
    }

    fn initial_sequence_number(&mut self) -> TcpSeqNumber {
        let (random, number) = next_random(self.random);
        self.random = random;
        TcpSeqNumber(number as i32)
    }

    fn receive_synchronized(&mut self, segment: &TcpRepr<'_>, now: Instant) -> Flow {
        self.check_ack(segment, now)?;
        let next = self.expected();
        let (payload, offset) = self.cut(segment, now)?;
        // Ignores a FIN behind a gap: the peer retransmits it.
        let is_early = segment.control == TcpControl::Fin && next < segment.seq_number;
        let control = if is_early { TcpControl::None } else { segment.control.quash_psh() };
        self.change_state(control, segment.ack_number, now)?;
        if let Some(ack) = segment.ack_number {
            self.take_round_trip_time(now);
            self.acknowledged = ack;
            self.sent_until = self.sent_until.max(ack);
            if self.sent_until == ack {
                self.retransmits_at = None;
            }
        }
        if payload.is_empty() { ControlFlow::Continue(()) } else { self.take(payload, offset, now) }
    }

    /// Sets the timeout by the first round-trip time (RFC 6298 (2.2)).
    fn take_round_trip_time(&mut self, now: Instant) {
        if let Some(sent) = self.timed_from.take() {
            let millis = (now - sent).total_millis();
            let margin = (millis / 2 * 4).max(GRANULARITY);
            self.timeout = (millis + margin).clamp(MIN_RTO, MAX_RTO);
        }
    }

    /// Rejects a segment without an ACK, with an old one, or with one for bytes that were not sent (RFC 9293,
    /// 3.10.7.4). A RST needs no ACK.
    fn check_ack(&mut self, segment: &TcpRepr<'_>, now: Instant) -> Flow {
        if segment.control == TcpControl::Rst {
            return ControlFlow::Continue(());
        }
        let Some(ack) = segment.ack_number else { return ControlFlow::Break(None) };
        if self.state == State::SynReceived {
            let is_of_syn = ack == self.acknowledged + 1;
            return if is_of_syn {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(Some(self.reset(segment)))
            };
        }
        let has_sent_fin = usize::from(self.state == State::LastAck);
        if ack < self.acknowledged {
            ControlFlow::Break(None)
        } else if ack > self.acknowledged + has_sent_fin {
            ControlFlow::Break(self.challenge(now))
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Returns the payload within the window, and its distance from the next byte expected.
    fn cut<'a>(&mut self, segment: &TcpRepr<'a>, now: Instant) -> Flow<(&'a [u8], usize)> {
        let start = self.expected();
        let end = self.last_ack.map_or(start, |ack| {
            // The window of a SYN ACK is not scaled (RFC 7323, 2.2), so the shifted one can exceed the
            // buffer.
            let end = ack + (usize::from(self.last_window) << self.window_shift);
            end.min(start + self.window())
        });
        let first = segment.seq_number;
        if let Some(range) = (Window { start, end }).cut(first, segment.payload.len()) {
            self.last_seq = Some(first);
            let offset = start.max(first) - start;
            return ControlFlow::Continue((&segment.payload[range], offset));
        }
        ControlFlow::Break(match segment.control {
            TcpControl::Rst => None,
            TcpControl::None | TcpControl::Psh | TcpControl::Fin if !segment.payload.is_empty() => {
                Some(self.ack())
            }
            _ => self.challenge(now),
        })
    }

    fn change_state(&mut self, control: TcpControl, ack: Option<TcpSeqNumber>, now: Instant) -> Flow {
        match (self.state, control) {
            (State::SynReceived, TcpControl::Rst) => {
                self.state = State::Listen;
                return ControlFlow::Break(None);
            }
            (_, TcpControl::Rst) => {
                self.state = State::Closed;
                return ControlFlow::Break(None);
            }
            (State::SynReceived, TcpControl::None) => self.state = State::Established,
            (State::SynReceived | State::Established, TcpControl::Fin) => {
                self.read_until += 1;
                self.state = State::CloseWait;
            }
            (State::LastAck, TcpControl::None) if ack == Some(self.acknowledged) => {
                return ControlFlow::Break(self.challenge(now));
            }
            (State::LastAck, TcpControl::None) => self.state = State::Closed,
            (State::Established | State::CloseWait, TcpControl::None) => {}
            _ => return ControlFlow::Break(None),
        }
        ControlFlow::Continue(())
    }

    /// Accepts payload that begins `offset` bytes after the next byte expected.
    fn take(&mut self, payload: &[u8], offset: usize, now: Instant) -> Flow {
        let had_gap = !self.ahead.is_empty();
        let Ok(in_order) = self.ahead.add_then_remove_front(offset, payload.len()) else {
            return ControlFlow::Break(None);
        };
        let begins = self.counters.received + (self.unread + offset) as u64;
        self.counters.wrong_reads += u64::from(!pattern::matches(begins, payload));
        self.unread += in_order;
        self.delay_ack(now);
        // RFC 5681, 4.2: acknowledges at once if there is a gap, or was one before this segment.
        ControlFlow::Break((had_gap || !self.ahead.is_empty()).then(|| self.ack()))
    }

    fn delay_ack(&mut self, now: Instant) {
        let Some(delay) = self.ack_delay.filter(|_| self.has_ack_to_send()) else { return };
        let is_more_than_a_segment = self.last_ack.is_some_and(|ack| ack + self.peer_mss < self.expected());
        self.delayed = match self.delayed {
            DelayedAck::None => DelayedAck::Until(now + delay),
            DelayedAck::Until(_) if is_more_than_a_segment => DelayedAck::Now,
            delayed => delayed,
        };
    }

    fn has_ack_to_send(&self) -> bool {
        self.last_ack.is_some_and(|ack| ack < self.expected())
    }

    /// Returns true if a SYN or a FIN is to be sent.
    fn has_flag_to_send(&self) -> bool {
        matches!(self.state, State::SynReceived | State::LastAck) && self.sent_until == self.acknowledged
    }

    /// Returns true if the window has at least doubled since it was last sent, as in Linux.
    fn has_window_to_send(&self) -> bool {
        let Some(ack) =
            self.last_ack.filter(|_| matches!(self.state, State::SynReceived | State::Established))
        else {
            return false;
        };
        let left = ack + (usize::from(self.last_window) << self.window_shift) - self.expected();
        let last = u16::try_from(left >> self.window_shift).unwrap_or(u16::MAX);
        let window = self.scaled_window();
        window > 0 && window / 2 >= last
    }

    fn next_segment(&mut self, now: Instant) -> Option<Reply> {
        if !self.is_open() {
            return None;
        }
        if self.retransmits_at.is_some_and(|at| now >= at) {
            self.sent_until = self.acknowledged;
            self.timeout = (self.timeout * 2).min(MAX_RTO);
            self.retransmits_at = None;
            self.timed_from = None;
        }
        let has_flag = self.has_flag_to_send();
        let is_delayed = matches!(self.delayed, DelayedAck::Until(at) if now < at);
        let acknowledges = self.has_ack_to_send() && !is_delayed;
        if !(has_flag || acknowledges || self.has_window_to_send()) {
            return None;
        }
        let mut segment = self.pure_ack();
        match self.state {
            State::SynReceived => self.make_syn(&mut segment),
            State::LastAck if has_flag => segment.control = TcpControl::Fin,
            _ => {}
        }
        self.sent(&segment, now);
        Some(segment)
    }

    fn make_syn(&self, segment: &mut Reply) {
        segment.control = TcpControl::Syn;
        segment.seq_number = self.acknowledged;
        segment.window_len = u16::try_from(self.window()).unwrap_or(u16::MAX);
        segment.sack_permitted = self.peer_has_sack;
        segment.window_scale = self.peer_scales.then_some(self.window_shift);
        segment.max_seg_size = Some(self.local_mss);
    }

    fn sent(&mut self, segment: &Reply, now: Instant) {
        self.delayed = DelayedAck::None;
        self.sent_until = self.sent_until.max(segment.seq_number + segment.segment_len());
        self.last_ack = segment.ack_number;
        self.last_window = segment.window_len;
        if segment.segment_len() > 0 && self.retransmits_at.is_none() {
            self.retransmits_at = Some(now + Duration::from_millis(self.timeout));
        }
    }

    /// Returns an ACK that is not rate limited, and records it as sent.
    fn ack(&mut self) -> Reply {
        let mut reply = self.pure_ack();
        self.last_ack = reply.ack_number;
        self.last_window = reply.window_len;
        if self.peer_has_sack {
            reply.sack_ranges[0] = self.first_sack_block();
        }
        reply
    }

    /// Returns the SACK block that contains the last segment (RFC 2018, 4), else the first block.
    fn first_sack_block(&self) -> Option<(u32, u32)> {
        let next = self.expected();
        let blocks = || self.ahead.iter_data().map(|(left, right)| (next + left, next + right));
        let has_last = |(left, right): &(TcpSeqNumber, TcpSeqNumber)| {
            self.last_seq.is_some_and(|last| *left <= last && *right >= last)
        };
        let first = blocks().find(has_last).or_else(|| blocks().next());
        first.map(|(left, right)| (left.0 as u32, right.0 as u32))
    }

    /// Returns a challenge ACK (RFC 5961), unless one was sent within [`CHALLENGE_INTERVAL`].
    fn challenge(&mut self, now: Instant) -> Option<Reply> {
        if now < self.next_challenge {
            return None;
        }
        self.next_challenge = now + CHALLENGE_INTERVAL;
        Some(self.ack())
    }

    fn pure_ack(&self) -> Reply {
        Reply {
            seq_number: self.sent_until,
            ack_number: Some(self.expected()),
            window_len: self.scaled_window(),
            ..self.empty()
        }
    }

    /// Returns the RST for a segment that belongs to no connection (RFC 9293, 3.10.7.1).
    fn reset(&self, segment: &TcpRepr<'_>) -> Reply {
        let is_syn = segment.control == TcpControl::Syn && segment.ack_number.is_none();
        Reply {
            control: TcpControl::Rst,
            seq_number: segment.ack_number.unwrap_or_default(),
            ack_number: is_syn.then(|| segment.seq_number + segment.segment_len()),
            ..self.empty()
        }
    }

    fn empty(&self) -> Reply {
        Reply {
            src_port: self.endpoints.local_port,
            dst_port: self.endpoints.remote_port,
            control: TcpControl::None,
            seq_number: TcpSeqNumber::default(),
            ack_number: None,
            window_len: 0,
            window_scale: None,
            max_seg_size: None,
            sack_permitted: false,
            sack_ranges: [None; 3],
            timestamp: None,
            payload: &[],
        }
    }
}

/// Returns the next state and number of smoltcp's generator (sPCG32, M. O'Neill).
fn next_random(state: u64) -> (u64, u32) {
    let state = state.wrapping_mul(0xBB2E_FCEC_3C39_611D).wrapping_add(0x7590_EF39);
    (state, (state >> (29 - (state >> 61))) as u32)
}
