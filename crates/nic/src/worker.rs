//! A worker of the card: one thread with a queue of the wire, a queue of the host, and an engine.

use std::collections::VecDeque;
use std::mem;
use std::os::fd::AsFd;

use nichrome_lro::{Coalescer, Frame, Output, Packet};
use nichrome_port::{
    Arena, MAX_RECEIVE, Onset, Piece, RealTime, Received as FromHost, TransmitError, Unsent, WireFrame,
    WireQueue, clock,
};
use nichrome_tso::{InPlace, Placed};
use nichrome_wire::engine::{Engine, advance, deliver_batch_into};
use nichrome_wire::{ChecksumState, Instant, VirtioNetHeader, VirtioNetRepr};
use rustix::io::Errno;

use crate::config::CardConfig;
use crate::control::{ControlMessage, Inbox};
use crate::delivery_thread::Delivery;
use crate::error::CardError;
use crate::host::{Host, HostError};
use crate::mesh::Mesh;
use crate::outputs::Outputs;
use crate::partial_checksum::partial_checksum;
use crate::queue::Queue;
use crate::received::Received;
use crate::segment::segment;
use crate::stats::QueueStats;

/// Maximum frames of a receive batch.
const BATCH: usize = 256;

/// Maximum frames passed to the engine at once. Also the number of segments of local senders' frames after
/// which the worker postpones the rest of a batch until it has served the host: such a frame may have as many
/// segments as bytes of payload, each in a buffer.
const MAX_ENGINE_BATCH: usize = 4096;

/// Number of the host's packets that the worker sends before it serves the wire again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn(usize);

impl Turn {
    /// For the host that the worker also delivers to: as many as [`Worker::receive`] takes from the wire,
    /// since the host may acknowledge each of them, and its queue drops packets that are not read in time.
    pub(crate) const SAME_HOST: Self = Self(2 * BATCH);
    /// For a worker that delivers to another host ([`Card::between`](crate::Card::between)): few, so that the
    /// packets are still in the nearest cache when it delivers them.
    pub(crate) const OTHER_HOST: Self = Self(64);
}

/// Time without sleep after which a worker reads its control messages, in nanoseconds.
const CONTROL_INTERVAL: u64 = 1_000_000;

/// Room before a frame of the host for the headers of its segments, in bytes: enough for 46 segments of 1,448
/// bytes of payload with headers of 89 bytes.
const HEADROOM: usize = 4096;

/// Length of a block of memory for frames, in bytes: enough for the packets of [`Turn::OTHER_HOST`] and for
/// receiving one more frame.
const BLOCK: usize = 1 << 18;

/// Longest wait at the end for other workers that pass frames to this one, in nanoseconds.
const DRAIN_TIMEOUT: u64 = 1_000_000_000;

/// Delay before retrying a full wire, in nanoseconds.
const RETRY: u64 = 50_000;

/// Delay before retrying a wire that is down, in nanoseconds.
const RETRY_DOWN: u64 = 10_000_000;

/// The parts of a worker.
pub(crate) struct Parts<W: WireQueue> {
    pub(crate) queue: Queue<W>,
    pub(crate) host: HostSide<W::Buffer>,
    /// `None`: no receive offload.
    pub(crate) offload: Option<Offload<Received<W::Buffer>>>,
    pub(crate) mesh: Mesh<W::Buffer>,
    pub(crate) inbox: Inbox,
}

/// A worker's side towards the host.
pub(crate) struct HostSide<B> {
    /// The host queue that the worker reads; `None` if another worker reads it.
    pub(crate) source: Option<Host>,
    pub(crate) turn: Turn,
    pub(crate) delivery: Delivery<B>,
}

/// A worker's receive offload.
pub(crate) struct Offload<B: AsRef<[u8]>> {
    pub(crate) engine: Coalescer<B>,
    /// True if the engine observes the host's transmissions and refusals.
    pub(crate) observes_host: bool,
}

/// A worker.
pub(crate) struct Worker<W: WireQueue> {
    parts: Parts<W>,
    busy_poll: bool,
    batch: Vec<WireFrame<W::Buffer>>,
    /// Frames of a batch behind [`MAX_ENGINE_BATCH`] segments of local senders' frames; processed before the
    /// wire is read again.
    postponed: VecDeque<WireFrame<W::Buffer>>,
    frames: Vec<Frame<Received<W::Buffer>>>,
    /// Outputs of the engine.
    outputs: Vec<Output<Received<W::Buffer>>>,
    /// Memory for the frames of the host, and for segments of local senders' frames.
    arena: Arena,
    /// Packets from the host that found the wire full; the host's next frame is not read before they are
    /// sent.
    unsent: VecDeque<(Piece, ChecksumState)>,
    /// True if the wire was down at its last use.
    wire_is_down: bool,
    scratch: Vec<u8>,
    stats: QueueStats,
}

impl<W: WireQueue> Worker<W> {
    pub(crate) fn new(parts: Parts<W>, config: &CardConfig) -> Self {
        Self {
            parts,
            busy_poll: config.busy_poll,
            arena: Arena::new(BLOCK),
            batch: Vec::with_capacity(BATCH),
            postponed: VecDeque::new(),
            frames: Vec::with_capacity(BATCH),
            outputs: Vec::new(),
            unsent: VecDeque::new(),
            wire_is_down: false,
            scratch: Vec::with_capacity(MAX_RECEIVE),
            stats: QueueStats::default(),
        }
    }

    /// Runs until [`ControlMessage::Stop`]; then delivers the frames that other workers have passed to this
    /// one, and those that the engine holds.
    pub(crate) fn run(mut self) -> Result<QueueStats, CardError> {
        // On failure, timers are up to 50 µs late.
        let _ = clock::sleep_precisely();
        // A thread that never sleeps keeps ordinary priority, so that other threads can use its CPU.
        let mut real_time = match self.busy_poll {
            true => RealTime::default(),
            false => RealTime::if_permitted(Onset::Working),
        };
        let mut next_control_read = Instant::ZERO;
        loop {
            let received = self.receive()?;
            let transmitted = self.transmit()?;
            let is_busy = received || transmitted || self.busy_poll;
            let woken =
                if is_busy { clock::now() >= next_control_read } else { real_time.sleep(|| self.sleep())? };
            real_time.worked();
            if woken {
                if self.execute_messages() {
                    break;
                }
                next_control_read = clock::now().plus_nanos(CONTROL_INTERVAL);
            }
        }
        self.finish_others()?;
        self.coalesce_and_drain(clock::now(), usize::MAX)?;
        is_up(self.parts.queue.wire.flush())?;
        Ok(self.report())
    }

    /// Processes the frames of the other workers until these have stopped, too.
    fn finish_others(&mut self) -> Result<(), CardError> {
        let until = clock::now().plus_nanos(DRAIN_TIMEOUT);
        self.parts.mesh.leave();
        while !self.postponed.is_empty() || (!self.parts.mesh.is_finished() && clock::now() < until) {
            self.parts.inbox.clear();
            self.batch.extend(self.postponed.drain(..));
            self.parts.mesh.collect(&mut self.batch, BATCH);
            if !self.process()? && !self.parts.mesh.is_finished() {
                clock::wait([self.parts.inbox.as_fd()], Some(until))
                    .map_err(|error| CardError::Wire(error.into()))?;
            }
        }
        Ok(())
    }

    /// Processes one receive batch; returns false if there was none.
    fn receive(&mut self) -> Result<bool, CardError> {
        if !self.postponed.is_empty() {
            self.batch.extend(self.postponed.drain(..));
            return self.process();
        }
        let Parts { queue, mesh, .. } = &mut self.parts;
        is_up(queue.wire.receive(&mut self.batch, BATCH))?;
        self.stats.received += self.batch.len() as u64;
        self.stats.received_bytes +=
            self.batch.iter().map(|frame| frame.buffer.as_ref().len() as u64).sum::<u64>();
        mesh.distribute(&mut self.batch, &mut self.stats);
        mesh.collect(&mut self.batch, 2 * BATCH);
        self.process()
    }

    /// Passes the batch to the engine and routes the engine's outputs; returns false if the batch is empty.
    /// Postpones the frames behind [`MAX_ENGINE_BATCH`] segments, which would delay the host's packets.
    fn process(&mut self) -> Result<bool, CardError> {
        let now = clock::now();
        let busy = !self.batch.is_empty();
        let mut batch = mem::take(&mut self.batch);
        let finished = self.stats.receive_finished;
        let prepared = batch.drain(..).try_for_each(|frame| {
            if self.stats.receive_finished - finished < MAX_ENGINE_BATCH as u64 {
                return self.prepare(frame, now);
            }
            self.postponed.push_back(frame);
            Ok(())
        });
        self.batch = batch;
        prepared?;
        self.coalesce(now)?;
        Ok(busy)
    }

    /// Converts a frame from the wire to frames for the engine. Passes these on whenever there are
    /// [`MAX_ENGINE_BATCH`].
    #[inline]
    fn prepare(&mut self, frame: WireFrame<W::Buffer>, now: Instant) -> Result<(), CardError> {
        let WireFrame { buffer, virtio } = frame;
        if let Some(observer) = &mut self.parts.queue.observer {
            observer.received(buffer.as_ref());
        }
        if let Some(checksum) = checksum_of_segment(buffer.as_ref(), &virtio) {
            self.frames.push(Frame { buffer: Received::Wire(buffer), checksum: checksum.into() });
            return Ok(());
        }
        // A local sender left segmentation or the checksum pending.
        let Ok((mut segments, checksum)) = segment(buffer.as_ref(), &virtio) else {
            self.stats.receive_malformed += 1;
            return Ok(());
        };
        self.stats.receive_unfinished += 1;
        while segments.remaining() > 0 {
            if self.frames.len() >= MAX_ENGINE_BATCH {
                self.coalesce(now)?;
            }
            let len = segments.write_next(self.arena.room(segments.packet_len()));
            self.stats.receive_finished += 1;
            let buffer = Received::Cut(self.arena.take(len));
            self.frames.push(Frame { buffer, checksum: checksum.into() });
        }
        Ok(())
    }

    /// Passes the frames to the engine and routes its outputs. If the wire of this or another worker is low
    /// on memory, also flushes the oldest [`BATCH`] held frames: the kernel would drop frames for lack of
    /// their memory. Flushing all would take so long that the kernel drops frames meanwhile.
    fn coalesce(&mut self, now: Instant) -> Result<(), CardError> {
        let Parts { queue, mesh, .. } = &mut self.parts;
        let is_low = queue.wire.is_low();
        if is_low {
            mesh.request_release();
        }
        let releases = mesh.take_release_request() || is_low;
        self.coalesce_and_drain(now, if releases { BATCH } else { 0 })
    }

    /// Passes the frames to the engine, then drains at least `drained` of the frames that it has held the
    /// longest, and routes all outputs.
    fn coalesce_and_drain(&mut self, now: Instant, drained: usize) -> Result<(), CardError> {
        let Parts { queue, host, offload, .. } = &mut self.parts;
        let observes_host = offload.as_ref().is_some_and(|offload| offload.observes_host);
        let mut out =
            Outputs::new(queue, &mut host.delivery, observes_host, &mut self.stats, &mut self.scratch);
        match offload {
            None => {
                for frame in self.frames.drain(..) {
                    out.deliver(Packet::Frame(frame));
                }
            }
            Some(Offload { engine, .. }) if self.frames.is_empty() => {
                advance(engine, now, &mut |_, output| out.take(output));
            }
            Some(Offload { engine, .. }) => {
                deliver_batch_into(engine, &mut self.frames, now, &mut self.outputs);
                self.outputs.drain(..).for_each(|output| out.take(output));
            }
        }
        if let Some(Offload { engine, .. }) = offload
            && drained > 0
        {
            engine.drain_oldest(drained);
            while let Some(output) = engine.poll() {
                out.take(output);
            }
        }
        let (refused, ended) = out.end();
        if let Some(Offload { engine, .. }) = offload {
            refused.iter().for_each(|packet| engine.observe_refusal(packet));
        }
        ended
    }

    /// Sends the host's packets, for one [`Turn`]; returns false if there were none.
    fn transmit(&mut self) -> Result<bool, CardError> {
        let mut busy = self.transmit_unsent();
        let mut packets = 0;
        while self.unsent.is_empty()
            && packets < self.parts.host.turn.0
            && let Some(of_frame) = self.transmit_frame()?
        {
            packets += of_frame;
            busy = true;
        }
        self.wire_is_down = !is_up(self.parts.queue.wire.flush())?;
        Ok(busy)
    }

    /// Sends the packets that found the wire full, until it is full again; returns false if it had no room.
    fn transmit_unsent(&mut self) -> bool {
        let mut busy = false;
        while let Some((packet, checksum)) = self.unsent.pop_front() {
            let len = packet.len();
            match self.parts.queue.wire.transmit_whole(packet, checksum, clock::now()) {
                Err(Unsent { frame, error: TransmitError::Full }) => {
                    self.unsent.push_front((frame, checksum));
                    break;
                }
                sent => count(&mut self.stats, len, sent.is_ok()),
            }
            busy = true;
        }
        busy
    }

    /// Sends the packets of the host's next frame; returns their number, or `None` if there is no frame.
    fn transmit_frame(&mut self) -> Result<Option<usize>, CardError> {
        let Parts { queue: Queue { wire, observer }, host, offload, .. } = &mut self.parts;
        let Some(source) = &host.source else { return Ok(None) };
        let room = &mut self.arena.room(HEADROOM + MAX_RECEIVE)[HEADROOM..HEADROOM + MAX_RECEIVE];
        let FromHost { virtio, at, frame } = match source.receive(room) {
            Ok(Some(received)) => received,
            Ok(None) | Err(Errno::IO | Errno::NETDOWN) => return Ok(None),
            Err(error) => return Err(CardError::Host(HostError::Gone(error.into()))),
        };
        self.stats.from_host += 1;
        self.stats.from_host_bytes += frame.len() as u64;
        let Ok((mut segments, mut checksum)) = segment(frame, &virtio) else {
            self.stats.transmit_malformed += 1;
            return Ok(Some(1));
        };
        let packets = segments.remaining();
        if wire.carries_partial_checksums() {
            checksum = segments.leave_tcp_checksums().unwrap_or(checksum);
        }
        let (len, in_place) = (frame.len(), segments.in_place());
        let (mut left, packet_len) = write_in_place(in_place, &mut self.arena, HEADROOM + at, len);
        let now = clock::now();
        for _ in 0..packets {
            let len = left.min(packet_len);
            left -= len;
            let packet = self.arena.take(len);
            if let Some(Offload { engine, observes_host: true }) = offload {
                engine.observe_transmit(&packet);
            }
            if let Some(observer) = observer {
                observer.transmitted(&packet);
            }
            let sent = if self.unsent.is_empty() {
                wire.transmit_whole(packet, checksum, now)
            } else {
                Err(Unsent { frame: packet, error: TransmitError::Full })
            };
            match sent {
                Err(Unsent { frame, error: TransmitError::Full }) => self.unsent.push_back((frame, checksum)),
                sent => count(&mut self.stats, len, sent.is_ok()),
            }
        }
        Ok(Some(packets))
    }

    /// Sleeps until there is work; returns true if a control message may have arrived.
    fn sleep(&mut self) -> Result<bool, CardError> {
        let Parts { queue: Queue { wire, .. }, host, offload, inbox, .. } = &self.parts;
        let is_stuck = !self.unsent.is_empty() || wire.unsent() > 0 || wire.is_starved();
        let pause = if self.wire_is_down { RETRY_DOWN } else { RETRY };
        let retry = is_stuck.then(|| clock::now().plus_nanos(pause));
        let timer = offload.as_ref().and_then(|offload| offload.engine.poll_timeout());
        let until = [retry, timer, wire.poll_timeout()].into_iter().flatten().min();
        // Not woken by the host while the wire is full.
        let host = match &host.source {
            Some(host) if self.unsent.is_empty() => host.as_fd(),
            _ => inbox.as_fd(),
        };
        // Not woken by frames for which there is no memory.
        let wire = if wire.is_starved() { inbox.as_fd() } else { wire.as_fd() };
        let [_, _, woken] =
            clock::wait([wire, host, inbox.as_fd()], until).map_err(|error| CardError::Wire(error.into()))?;
        Ok(woken)
    }

    /// Executes pending control messages; returns true on [`ControlMessage::Stop`].
    fn execute_messages(&mut self) -> bool {
        self.parts.inbox.clear();
        while let Some(message) = self.parts.inbox.next() {
            match message {
                // The requesting thread may have ended.
                ControlMessage::Report(to) => drop(to.send(self.report())),
                ControlMessage::Stop => return true,
            }
        }
        false
    }

    fn report(&mut self) -> QueueStats {
        if let Ok(wire) = self.parts.queue.wire.stats() {
            self.stats.wire = wire;
        }
        if let Some(Offload { engine, .. }) = &self.parts.offload {
            self.stats.engine = *engine.statistics();
            self.stats.connections = engine.connections() as u64;
        }
        if let Delivery::Queue { stats, .. } = &self.parts.host.delivery {
            stats.copy_to(&mut self.stats);
        }
        self.stats.clone()
    }
}

/// Returns true if the wire is up, by its last result. A wire that is down may come up again; the card's
/// owner detects that a wire was removed.
fn is_up(result: Result<(), Errno>) -> Result<bool, CardError> {
    match result {
        Ok(()) => Ok(true),
        Err(Errno::NETDOWN | Errno::NXIO | Errno::NODEV) => Ok(false),
        Err(error) => Err(CardError::Wire(error.into())),
    }
}

/// Returns the checksum state of a frame that the engine accepts as it is; `None` if the frame must be
/// segmented or its checksum completed.
#[inline]
fn checksum_of_segment(frame: &[u8], virtio: &VirtioNetHeader) -> Option<ChecksumState> {
    match VirtioNetRepr::parse(virtio, frame.len()).ok()? {
        VirtioNetRepr { gso: Some(_), .. } => None,
        VirtioNetRepr { checksum: partial @ ChecksumState::Partial { .. }, .. } => {
            (partial_checksum(frame) == Some(partial)).then_some(partial)
        }
        VirtioNetRepr { checksum, .. } => Some(checksum),
    }
}

/// Segments in place the frame of `len` bytes at offset `at` of the arena's room: its packets overwrite the
/// frame and end up at the room's start. Returns their total length, and the length of each but the last.
fn write_in_place(packets: InPlace, arena: &mut Arena, mut at: usize, len: usize) -> (usize, usize) {
    let before = packets.needs_before();
    let mut room = arena.room(at + len);
    if before > at {
        // Many small segments: their headers need more room before the frame.
        let frame = room[at..at + len].to_vec();
        at = before;
        room = arena.room(at + len);
        room[at..at + len].copy_from_slice(&frame);
    }
    let Placed { packets, packet_len } = packets.write(room, at);
    let len = packets.len();
    if len <= packets.start {
        // Moves a few bytes instead of leaving a gap.
        room.copy_within(packets, 0);
    } else {
        arena.skip(packets.start);
    }
    (len, packet_len)
}

fn count(stats: &mut QueueStats, len: usize, is_sent: bool) {
    if is_sent {
        stats.transmitted += 1;
        stats.transmitted_bytes += len as u64;
    } else {
        stats.transmit_refused += 1;
    }
}
