//! The card: interactions of its threads, DMA engine and messages.

use nichrome_lro::{ConfigError, Packet};
use nichrome_wire::Instant;

use super::config::{CardConfig, DmaOrder, Rings};
use super::cores::{Cores, SENDER, receiver};
use super::distribution::Distribution;
use super::dma::{Direction, Dma, Extent};
use super::receive_thread::{JobKind, Outgoing, ReceiveThread};
use super::ring::DescriptorRing;
use super::timeout_checker::TimeoutChecker;
use crate::host::Compact;
use crate::{Fingerprint, Server, TraceHash};

/// The card between its wire and its host.
pub(super) struct Card {
    config: CardConfig,
    cores: Cores,
    distribution: Distribution,
    receivers: Vec<ReceiveThread>,
    /// Receivers with a scheduled visit of the timeout checking thread, and its time.
    scheduled_visits: Vec<Option<Instant>>,
    /// The lock of the shared descriptor ring.
    ring_lock: Server,
    send_descriptors: DescriptorRing,
    checker: TimeoutChecker<(usize, Outgoing)>,
    dma: Dma<Transfer>,
    counters: CardCounters,
}

/// Counters of the card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CardCounters {
    /// Received frames dropped because their thread's ring was full.
    pub(super) no_room: u64,
    /// Received frames dropped by the engines.
    pub(super) dropped: u64,
    /// Packets passed to the host.
    pub(super) packets: u64,
    /// Received frames in these packets.
    pub(super) segments: u64,
    /// ACKs made by the card.
    pub(super) acks: u64,
    /// Frames of the host dropped because no descriptor was free.
    pub(super) not_sent: u64,
}

impl CardCounters {
    /// Returns the counters with their names.
    pub(super) fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("no_room", self.no_room),
            ("dropped", self.dropped),
            ("packets", self.packets),
            ("segments", self.segments),
            ("acks", self.acks),
            ("not_sent", self.not_sent),
        ]
    }

    /// Returns the increase since `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        self.with(before, |now, before| now - before)
    }

    /// Adds another card's counters.
    pub(super) fn add(&mut self, other: &Self) {
        *self = self.with(other, |ours, theirs| ours + theirs);
    }

    fn with(&self, other: &Self, each: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            no_room: each(self.no_room, other.no_room),
            dropped: each(self.dropped, other.dropped),
            packets: each(self.packets, other.packets),
            segments: each(self.segments, other.segments),
            acks: each(self.acks, other.acks),
            not_sent: each(self.not_sent, other.not_sent),
        }
    }
}

/// A transfer of the DMA engine.
pub(super) enum Transfer {
    /// A packet of this receiver to the host.
    Received(usize, Outgoing),
    /// A frame from the host.
    Sent(Vec<u8>),
}

/// Events within the card.
pub(super) enum CardEvent {
    /// The packet distribution engine passes a frame to this receiver.
    Packet(usize, Compact),
    /// This receiver has completed its job.
    Worked(usize),
    /// The timeout checking thread visits this receiver's connections.
    Visit(usize),
    /// The timeout message has arrived at this receiver.
    Timeout(usize),
    /// A DMA request has arrived at its first stop: the timeout checking thread, or the DMA engine.
    Request(Transfer),
    /// The DMA request of this receiver is in its queue.
    Queued(usize, Outgoing),
    /// The selected DMA request of this receiver has arrived at the DMA engine.
    Chosen(usize, Outgoing),
    /// The DMA engine has completed a transfer.
    Moved,
    /// The completion has arrived at the timeout checking thread.
    EngineDone,
    /// The completion has arrived at this receiver, which sends the ACKs that waited for it.
    Completed(usize, Vec<Vec<u8>>),
    /// A receiver has generated ACKs.
    Acknowledged(Vec<Vec<u8>>),
    /// The sending thread has processed a frame.
    Sent(Vec<u8>),
}

/// Outputs of the card.
pub(super) enum CardOutput {
    /// A frame for the wire.
    ToWire(Vec<u8>),
    /// A packet has been written to the host's memory and an interrupt raised; the driver must refill a
    /// descriptor of this receiver.
    ToHost(usize, Packet<Vec<u8>>),
}

/// The consequences of an event: later events, and outputs now.
#[derive(Default)]
pub(super) struct Effects {
    /// Events and their times.
    pub(super) events: Vec<(Instant, CardEvent)>,
    /// Outputs, in order.
    pub(super) outputs: Vec<CardOutput>,
}

impl Card {
    /// Creates an idle card.
    ///
    /// # Errors
    /// A value of an engine's configuration is out of range.
    pub(super) fn new(config: &CardConfig) -> Result<Self, ConfigError> {
        let receivers = (0..config.receivers).map(|_| ReceiveThread::new(&config.receive));
        let receivers = receivers.collect::<Result<Vec<_>, _>>()?;
        let pass = config.connections.saturating_mul(config.check);
        Ok(Self {
            config: *config,
            cores: Cores::new(config.cores, config.threads_per_core),
            distribution: Distribution::new(config.receivers),
            scheduled_visits: vec![None; receivers.len()],
            checker: TimeoutChecker::new(receivers.len(), pass, config.queue_operation),
            receivers,
            // At most as many wait as there are threads.
            ring_lock: Server::new(usize::MAX),
            send_descriptors: DescriptorRing::new(config.send_descriptors),
            dma: Dma::new(config.dma),
            counters: CardCounters::default(),
        })
    }

    /// Receives a frame from the wire.
    pub(super) fn receive(&mut self, frame: Compact, now: Instant, effects: &mut Effects) {
        let place = self.distribution.place(&frame.with_kept_payload());
        effects.events.push((now.plus_nanos(self.config.message), CardEvent::Packet(place, frame)));
    }

    /// Accepts a frame from the host.
    pub(super) fn transmit(&mut self, frame: Vec<u8>, now: Instant, effects: &mut Effects) {
        if self.send_descriptors.take() {
            self.message(CardEvent::Request(Transfer::Sent(frame)), now, effects);
        } else {
            self.counters.not_sent += 1;
        }
    }

    /// Processes the driver's refill of a receiver's descriptor.
    pub(super) fn refill(&mut self, place: usize, now: Instant, effects: &mut Effects) {
        self.receivers[place].refill();
        self.serve_receiver(place, now, effects);
    }

    /// Processes an event.
    pub(super) fn handle(&mut self, event: CardEvent, now: Instant, effects: &mut Effects) {
        match event {
            CardEvent::Packet(place, frame) => {
                self.counters.no_room += u64::from(!self.receivers[place].packet(frame));
                self.serve_receiver(place, now, effects);
            }
            CardEvent::Worked(place) => self.worked(place, now, effects),
            CardEvent::Visit(place) => self.visit(place, now, effects),
            CardEvent::Timeout(place) => {
                self.receivers[place].timeout();
                self.serve_receiver(place, now, effects);
            }
            CardEvent::Request(transfer) => self.request(transfer, now, effects),
            CardEvent::Queued(place, outgoing) => {
                self.checker.put(place, (place, outgoing));
                self.choose(now, effects);
            }
            CardEvent::Chosen(place, outgoing) => {
                self.start(Transfer::Received(place, outgoing), now, effects);
            }
            CardEvent::Moved => self.moved(now, effects),
            CardEvent::EngineDone => {
                self.checker.engine_is_done();
                self.choose(now, effects);
            }
            CardEvent::Completed(place, acks) => {
                self.receivers[place].completed();
                self.acknowledge(place, acks, now, effects);
                self.serve_receiver(place, now, effects);
            }
            CardEvent::Acknowledged(acks) => {
                effects.outputs.extend(acks.into_iter().map(CardOutput::ToWire));
            }
            CardEvent::Sent(frame) => effects.outputs.push(CardOutput::ToWire(frame)),
        }
    }

    /// Returns the counters.
    pub(super) fn counters(&self) -> CardCounters {
        self.counters
    }

    /// Returns the number of transfers waiting at the DMA engine or in the load balancer's queues.
    pub(super) fn waiting_requests(&self) -> usize {
        self.checker.waiting() + self.dma.waiting()
    }

    /// Returns the number of received frames in the rings of all receiving threads.
    pub(super) fn waiting_frames(&self) -> usize {
        self.receivers.iter().map(ReceiveThread::waiting_frames).sum()
    }

    /// Returns the number of used descriptors of all receiving threads whose packet the host has not taken.
    pub(super) fn descriptors_in_use(&self) -> u64 {
        self.receivers.iter().map(ReceiveThread::descriptors_in_use).sum()
    }

    /// Returns the DMA engine's busy time until `now`, in nanoseconds.
    pub(super) fn dma_busy_nanos(&self, now: Instant) -> u64 {
        self.dma.busy_nanos(now)
    }

    /// Returns the total busy time of all cores until `now`, in nanoseconds.
    pub(super) fn busy_nanos(&self, now: Instant) -> u64 {
        self.cores.busy_nanos(now)
    }

    /// Sends a message within the card.
    fn message(&self, event: CardEvent, now: Instant, effects: &mut Effects) {
        effects.events.push((now.plus_nanos(self.config.message), event));
    }

    /// Ends a receiver's job: routes its results and starts the next one.
    fn worked(&mut self, place: usize, now: Instant, effects: &mut Effects) {
        let result = self.receivers[place].finish(now);
        self.counters.dropped += result.dropped;
        self.acknowledge(place, result.acks, now, effects);
        self.schedule_visit(place, now, effects);
        self.serve_receiver(place, now, effects);
    }

    /// Submits a receiver's packets for the host as far as it has descriptors; starts its next job.
    fn serve_receiver(&mut self, place: usize, now: Instant, effects: &mut Effects) {
        while let Some(outgoing) = self.receivers[place].submit() {
            let timed_out = outgoing.made_by == JobKind::Timeout;
            let nanos = self.descriptor_time(now) + if timed_out { self.config.timeout_time } else { 0 };
            let leaves = self.after_work(place, nanos, now);
            self.message(CardEvent::Request(Transfer::Received(place, outgoing)), leaves, effects);
        }
        if let Some(job) = self.receivers[place].begin() {
            let (core_time, wait) = match job {
                JobKind::Packet => (self.config.packet_time, self.config.memory_wait),
                JobKind::Timeout => (self.config.queue_operation, 0),
            };
            let done = self.cores.work(receiver(place), core_time, now).plus_nanos(wait);
            effects.events.push((done, CardEvent::Worked(place)));
        }
    }

    /// Schedules the visit that finds a receiver's first timeout, unless an earlier one is scheduled.
    fn schedule_visit(&mut self, place: usize, now: Instant, effects: &mut Effects) {
        let Some(deadline) = self.receivers[place].deadline() else { return };
        let notices = self.checker.notices(deadline.max(now));
        if self.scheduled_visits[place].is_none_or(|scheduled| notices < scheduled) {
            self.scheduled_visits[place] = Some(notices);
            effects.events.push((notices, CardEvent::Visit(place)));
        }
    }

    fn visit(&mut self, place: usize, now: Instant, effects: &mut Effects) {
        if self.scheduled_visits[place] != Some(now) {
            // Superseded by an earlier visit.
            return;
        }
        self.scheduled_visits[place] = None;
        match self.receivers[place].deadline() {
            Some(deadline) if deadline <= now => self.message(CardEvent::Timeout(place), now, effects),
            _ => self.schedule_visit(place, now, effects),
        }
    }

    /// Processes a DMA request at its first stop. Only receiving threads use the load balancer (V.B).
    fn request(&mut self, transfer: Transfer, now: Instant, effects: &mut Effects) {
        match (self.config.order, transfer) {
            (DmaOrder::RoundRobin, Transfer::Received(place, outgoing)) => {
                let queued = self.checker.take(now);
                effects.events.push((queued, CardEvent::Queued(place, outgoing)));
            }
            (_, transfer) => self.start(transfer, now, effects),
        }
    }

    fn choose(&mut self, now: Instant, effects: &mut Effects) {
        if let Some((leaves, (place, outgoing))) = self.checker.choose(now) {
            self.message(CardEvent::Chosen(place, outgoing), leaves, effects);
        }
    }

    fn start(&mut self, transfer: Transfer, now: Instant, effects: &mut Effects) {
        if let Some(done) = self.dma.request(extent(&transfer), transfer, now) {
            effects.events.push((done, CardEvent::Moved));
        }
    }

    /// Ends a transfer: interrupt, messages, and the next transfer.
    fn moved(&mut self, now: Instant, effects: &mut Effects) {
        let (finished, next) = self.dma.finish(now);
        if let Some(done) = next {
            effects.events.push((done, CardEvent::Moved));
        }
        match finished {
            Some(Transfer::Received(place, Outgoing { packet, acks, .. })) => {
                if self.config.order == DmaOrder::RoundRobin {
                    self.message(CardEvent::EngineDone, now, effects);
                }
                self.count(&packet);
                effects.outputs.push(CardOutput::ToHost(place, packet));
                self.message(CardEvent::Completed(place, acks), now, effects);
            }
            Some(Transfer::Sent(frame)) => {
                self.send_descriptors.release();
                let place = self.distribution.place(&frame);
                self.receivers[place].observe_transmit(&frame);
                let done = self.cores.work(SENDER, self.config.send_time, now);
                effects.events.push((done, CardEvent::Sent(frame)));
            }
            None => {}
        }
    }

    /// Returns the time to process a descriptor, including the wait for the ring's lock.
    fn descriptor_time(&mut self, now: Instant) -> u64 {
        let nanos = self.config.descriptor_time;
        match self.config.rings {
            Rings::Each => nanos,
            Rings::One => self.ring_lock.serve(nanos, now).map_or(nanos, |done| done.nanos_since(now)),
        }
    }

    /// Occupies a receiver's core outside its job; returns when that ends, `now` for 0 ns.
    fn after_work(&mut self, place: usize, nanos: u64, now: Instant) -> Instant {
        if nanos == 0 { now } else { self.cores.work(receiver(place), nanos, now) }
    }

    fn acknowledge(&mut self, place: usize, acks: Vec<Vec<u8>>, now: Instant, effects: &mut Effects) {
        self.counters.acks += acks.len() as u64;
        let leave = self.after_work(place, self.config.ack_time * acks.len() as u64, now);
        if leave == now {
            effects.outputs.extend(acks.into_iter().map(CardOutput::ToWire));
        } else {
            effects.events.push((leave, CardEvent::Acknowledged(acks)));
        }
    }

    fn count(&mut self, packet: &Packet<Vec<u8>>) {
        self.counters.packets += 1;
        self.counters.segments += packet.segments() as u64;
    }
}

/// Returns direction and length of a transfer.
fn extent(transfer: &Transfer) -> Extent {
    match transfer {
        Transfer::Received(_, outgoing) => {
            let (bytes, pieces) = (outgoing.packet.len() as u64, outgoing.packet.segments() as u64);
            Extent { direction: Direction::ToHost, bytes, pieces }
        }
        Transfer::Sent(frame) => {
            Extent { direction: Direction::FromHost, bytes: frame.len() as u64, pieces: 1 }
        }
    }
}

impl Fingerprint for CardEvent {
    fn fingerprint(&self) -> u64 {
        let outgoing = |kind, place: &usize, outgoing: &Outgoing| {
            TraceHash::of(&[kind, *place as u64, outgoing.packet.len() as u64])
        };
        match self {
            Self::Packet(place, frame) => TraceHash::of(&[1, *place as u64, frame.len() as u64]),
            Self::Worked(place) => TraceHash::of(&[2, *place as u64]),
            Self::Visit(place) => TraceHash::of(&[3, *place as u64]),
            Self::Timeout(place) => TraceHash::of(&[4, *place as u64]),
            Self::Request(Transfer::Received(place, request)) => outgoing(5, place, request),
            Self::Request(Transfer::Sent(frame)) => TraceHash::of(&[12, frame.len() as u64]),
            Self::Queued(place, request) => outgoing(6, place, request),
            Self::Chosen(place, request) => outgoing(7, place, request),
            Self::Moved => 8,
            Self::EngineDone => 9,
            Self::Completed(place, acks) => TraceHash::of(&[10, *place as u64, acks.len() as u64]),
            Self::Sent(frame) => TraceHash::of(&[11, frame.len() as u64]),
            Self::Acknowledged(acks) => TraceHash::of(&[13, acks.len() as u64]),
        }
    }
}
