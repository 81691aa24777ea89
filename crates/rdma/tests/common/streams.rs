//! Byte streams between two devices: split at random, of limited capacity, with faults.

use std::collections::VecDeque;

use nichrome_rdma::iwarp::Terms;
use nichrome_rdma::*;
use rand::Rng;
use rand_pcg::Pcg64;

use super::{End, Link, Pair};

/// How streams carry bytes.
#[derive(Clone, Copy, Debug)]
pub struct Carriage {
    /// Bytes of the longest piece that arrives at once.
    pub piece: usize,
    /// Bytes that a stream holds before it blocks the sender.
    pub capacity: usize,
    /// Probability that a piece is damaged, 0 to 1.
    pub damage: f64,
}

impl Default for Carriage {
    fn default() -> Self {
        Self { piece: 1 << 20, capacity: 1 << 20, damage: 0.0 }
    }
}

/// One direction of a stream.
pub struct Pipe {
    from: usize,
    source: QpHandle,
    sink: QpHandle,
    /// Bytes that the stream has not accepted.
    kept: VecDeque<u8>,
    is_blocked: bool,
    flights: VecDeque<(u64, Vec<u8>)>,
    /// Bytes that have arrived and were not consumed.
    arrived: Vec<u8>,
    /// The receiver has stopped reading.
    is_stopped: bool,
    ending: Option<StreamShutdown>,
    is_ended: bool,
}

impl Pipe {
    fn new(from: usize, source: QpHandle, sink: QpHandle) -> Self {
        let (kept, flights, arrived) = Default::default();
        Self {
            from,
            source,
            sink,
            kept,
            is_blocked: false,
            flights,
            arrived,
            is_stopped: false,
            ending: None,
            is_ended: false,
        }
    }

    fn held(&self) -> usize {
        self.flights.iter().map(|(_, piece)| piece.len()).sum::<usize>() + self.arrived.len()
    }

    /// Sends what the stream accepts of the bytes that were kept.
    fn advance(&mut self, now: u64, carriage: &Carriage, random: &mut Pcg64) {
        while !self.kept.is_empty() {
            let room = carriage.capacity.saturating_sub(self.held());
            let len = random.random_range(1..=carriage.piece).min(room).min(self.kept.len());
            if len == 0 {
                return;
            }
            let mut piece: Vec<u8> = self.kept.drain(..len).collect();
            if carriage.damage > 0.0 && random.random_bool(carriage.damage) {
                let bit = random.random_range(0..len * 8);
                piece[bit / 8] ^= 1 << (bit % 8);
            }
            let last = self.flights.back().map_or(0, |(due, _)| *due);
            self.flights.push_back((last.max(now) + random.random_range(0..1000), piece));
        }
    }
}

/// All streams between the ends.
#[derive(Default)]
pub struct Streams {
    pub carriage: Carriage,
    /// Bytes sent and their sending end, if `record` is set.
    pub sent: Vec<(usize, Vec<u8>)>,
    pub record: bool,
    /// Ends of streams that queue pairs have requested, with their end.
    pub endings: Vec<(usize, StreamShutdown)>,
    pipes: Vec<Pipe>,
}

impl Streams {
    /// Opens a stream between two queue pairs.
    pub fn open(&mut self, qps: [QpHandle; 2]) {
        self.pipes.extend([0, 1].map(|end| Pipe::new(end, qps[end], qps[1 - end])));
    }

    /// Bytes that wait in the stream of an end.
    pub fn waiting(&self, from: usize) -> usize {
        self.pipes.iter().filter(|pipe| pipe.from == from).map(|pipe| pipe.kept.len() + pipe.held()).sum()
    }

    /// Takes the output of a queue pair.
    pub(super) fn send(
        &mut self,
        end: &mut End,
        from: usize,
        qp: QpHandle,
        bytes: &[u8],
        random: &mut Pcg64,
    ) {
        if self.record {
            self.sent.push((from, bytes.to_vec()));
        }
        let pipe = self.pipes.iter_mut().find(|pipe| pipe.from == from && pipe.source == qp).unwrap();
        assert!(pipe.ending.is_none() && pipe.kept.is_empty(), "sent behind the end, or while blocked");
        pipe.kept.extend(bytes);
        pipe.advance(0, &self.carriage, random);
        if !pipe.kept.is_empty() {
            pipe.is_blocked = true;
            end.device.hold_sends(qp);
        }
    }

    /// Ends the stream of a queue pair.
    pub(super) fn end(&mut self, from: usize, qp: QpHandle, how: StreamShutdown) {
        self.endings.push((from, how));
        let pipe = self.pipes.iter_mut().find(|pipe| pipe.from == from && pipe.source == qp).unwrap();
        assert!(pipe.ending.is_none(), "ended twice");
        pipe.ending = Some(how);
        if how == StreamShutdown::Abort {
            pipe.kept.clear();
            pipe.flights.clear();
        }
    }

    /// Time of the next arrival.
    pub(super) fn next(&self) -> Option<u64> {
        self.pipes.iter().filter_map(|pipe| pipe.flights.front()).map(|(due, _)| *due).min()
    }

    /// Delivers arrived bytes, and continues all work that can continue. Returns true if there was any.
    pub(super) fn deliver(&mut self, ends: &mut [End; 2], now: Instant, random: &mut Pcg64) -> bool {
        let mut has_changed = false;
        for nth in 0..self.pipes.len() {
            let mut closed = None;
            let pipe = &mut self.pipes[nth];
            let (source, sink) = (pipe.from, 1 - pipe.from);
            let mut fresh = false;
            while let Some((_, piece)) = pipe.flights.pop_front_if(|(due, _)| *due <= now.as_nanos()) {
                pipe.arrived.extend(piece);
                fresh = true;
            }
            let device = &mut ends[sink].device;
            if (fresh || pipe.is_stopped) && device.wants_stream(pipe.sink) {
                let consumed =
                    device.receive_stream(pipe.sink, &pipe.arrived, now).unwrap_or(pipe.arrived.len());
                assert!(consumed <= pipe.arrived.len());
                pipe.arrived.drain(..consumed);
                pipe.is_stopped = false;
                has_changed = true;
            }
            pipe.is_stopped |= !pipe.arrived.is_empty() && !device.wants_stream(pipe.sink);
            pipe.advance(now.as_nanos(), &self.carriage, random);
            if pipe.is_blocked && pipe.kept.is_empty() {
                pipe.is_blocked = false;
                ends[source].device.release_sends(pipe.source);
                has_changed = true;
            }
            let is_empty = pipe.kept.is_empty() && pipe.flights.is_empty() && !pipe.is_stopped;
            if !pipe.is_ended
                && is_empty
                && let Some(how) = pipe.ending
            {
                pipe.is_ended = true;
                closed = Some((pipe.sink, how));
            }
            if let Some((qp, how)) = closed {
                let end = match how {
                    StreamShutdown::Orderly => StreamEnd::Closed,
                    StreamShutdown::Abort => StreamEnd::Lost,
                };
                ends[sink].device.stream_closed(qp, end, now);
                self.close(sink, qp);
                has_changed = true;
            }
        }
        has_changed
    }

    /// The driver of an end closes its direction, because the peer has.
    fn close(&mut self, from: usize, qp: QpHandle) {
        for pipe in self.pipes.iter_mut().filter(|pipe| pipe.from == from && pipe.source == qp) {
            pipe.ending.get_or_insert(StreamShutdown::Orderly);
        }
    }

    /// Breaks all streams.
    pub(super) fn break_all(&mut self, ends: &mut [End; 2], now: Instant) {
        for pipe in std::mem::take(&mut self.pipes) {
            ends[1 - pipe.from].device.stream_closed(pipe.sink, StreamEnd::Lost, now);
        }
    }
}

impl Pair {
    /// Creates a queue pair at each end and connects them on iWARP.
    pub fn connect_iwarp(&mut self, link: &Link, terms: [Terms; 2]) -> [QpHandle; 2] {
        let qps = self.connect(QpType::Rc, link);
        self.put_on_iwarp(qps, terms);
        qps
    }

    pub fn put_on_iwarp(&mut self, qps: [QpHandle; 2], terms: [Terms; 2]) {
        for end in 0..2 {
            self.ends[end].device.connect(qps[end], &terms[end]).unwrap();
        }
        self.streams.open(qps);
    }
}
