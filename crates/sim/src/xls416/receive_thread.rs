//! A receiving thread (lro-npu III, Figure 4): processes messages of the timeout checking thread first, then
//! packets.

use std::collections::VecDeque;

use nichrome_lro::{Coalescer, ConfigError, Frame, Output, Packet};
use nichrome_wire::{Engine, Instant};

use super::config::{AckOrder, ReceiveConfig};
use super::ring::{DescriptorRing, MessageRing};
use crate::host::Compact;

/// A receiving thread: engine, pending jobs and descriptor ring.
pub(super) struct ReceiveThread {
    /// `None` on a card without receive offload.
    engine: Option<Coalescer<Vec<u8>>>,
    acks: AckOrder,
    packets: MessageRing<Compact>,
    timeouts: MessageRing<()>,
    job: Option<Job>,
    outgoing: VecDeque<Outgoing>,
    descriptors: DescriptorRing,
    requests: DescriptorRing,
}

/// A job of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobKind {
    /// Processes timed-out connections (IV.E).
    Timeout,
    /// Processes a packet (IV.B to IV.D).
    Packet,
}

enum Job {
    Timeout,
    Packet(Compact),
}

/// A packet for the host, and the ACKs that may be sent once the host has it.
pub(super) struct Outgoing {
    /// The packet.
    pub(super) packet: Packet<Vec<u8>>,
    /// ACK frames for the wire.
    pub(super) acks: Vec<Vec<u8>>,
    /// The job that produced it.
    pub(super) made_by: JobKind,
}

/// The results of a job other than packets for the host.
#[derive(Debug, Default)]
pub(super) struct JobResult {
    /// ACKs that can be sent at once.
    pub(super) acks: Vec<Vec<u8>>,
    /// Number of dropped frames.
    pub(super) dropped: u64,
}

impl ReceiveThread {
    /// Creates an idle thread.
    ///
    /// # Errors
    /// A value of the engine's configuration is out of range.
    pub(super) fn new(config: &ReceiveConfig) -> Result<Self, ConfigError> {
        let engine = match &config.engine {
            Some((engine, profile)) => Some(Coalescer::new(engine, profile)?),
            None => None,
        };
        Ok(Self {
            engine,
            acks: config.acks,
            packets: MessageRing::new(config.packet_ring),
            timeouts: MessageRing::new(1),
            job: None,
            outgoing: VecDeque::new(),
            descriptors: DescriptorRing::new(config.descriptors),
            requests: DescriptorRing::new(config.requests),
        })
    }

    /// Accepts a packet from the packet distribution engine; returns false if the ring is full.
    pub(super) fn packet(&mut self, frame: Compact) -> bool {
        self.packets.send(frame).is_ok()
    }

    /// Accepts a message from the timeout checking thread; ignores it if one is pending.
    pub(super) fn timeout(&mut self) {
        let _ = self.timeouts.send(());
    }

    /// Starts the next job, if there is one and no packet waits for a descriptor or for the DMA engine.
    pub(super) fn begin(&mut self) -> Option<JobKind> {
        if self.job.is_some() || !self.outgoing.is_empty() {
            return None;
        }
        let timeout = self.timeouts.receive().map(|()| Job::Timeout);
        self.job = timeout.or_else(|| self.packets.receive().map(Job::Packet));
        Some(match self.job.as_ref()? {
            Job::Timeout => JobKind::Timeout,
            Job::Packet(_) => JobKind::Packet,
        })
    }

    /// Ends the job. [`ReceiveThread::submit`] returns its packets for the host.
    pub(super) fn finish(&mut self, now: Instant) -> JobResult {
        let mut result = JobResult::default();
        let made_by = if let Some(Job::Timeout) = self.job { JobKind::Timeout } else { JobKind::Packet };
        match (self.job.take(), &mut self.engine) {
            (Some(Job::Packet(frame)), Some(engine)) => {
                engine.receive(Frame::verified(frame.expand()), now);
            }
            (Some(Job::Packet(frame)), None) => {
                let packet = Packet::Frame(Frame::new(frame.expand()));
                self.outgoing.push_back(Outgoing { packet, acks: Vec::new(), made_by });
            }
            (Some(Job::Timeout), Some(engine)) => engine.handle_timeout(now),
            (Some(Job::Timeout), None) | (None, _) => {}
        }
        self.collect(made_by, &mut result);
        result
    }

    /// Collects the engine's outputs. With [`AckOrder::AfterTransfer`], an ACK waits for the transfer of the
    /// last packet before it; without such a packet it is sent at once.
    fn collect(&mut self, made_by: JobKind, result: &mut JobResult) {
        let Some(engine) = &mut self.engine else { return };
        while let Some(output) = engine.poll() {
            match output {
                Output::ToHost(packet) => {
                    self.outgoing.push_back(Outgoing { packet, acks: Vec::new(), made_by });
                }
                Output::Dropped(..) => result.dropped += 1,
                Output::ToWire(ack) => {
                    let waits_for = self.outgoing.back_mut().filter(|_| self.acks == AckOrder::AfterTransfer);
                    let acks = waits_for.map_or(&mut result.acks, |outgoing| &mut outgoing.acks);
                    acks.push(ack.bytes().to_vec());
                }
            }
        }
    }

    /// Returns the next packet for the host, if a descriptor is free and the limit of requests allows it.
    pub(super) fn submit(&mut self) -> Option<Outgoing> {
        if self.outgoing.is_empty() || !self.descriptors.has_one() || !self.requests.take() {
            return None;
        }
        let _ = self.descriptors.take();
        self.outgoing.pop_front()
    }

    /// Releases the slot of a completed DMA request.
    pub(super) fn completed(&mut self) {
        self.requests.release();
    }

    /// Frees a descriptor that the driver has refilled.
    pub(super) fn refill(&mut self) {
        self.descriptors.release();
    }

    /// Returns the number of frames in its ring.
    pub(super) fn waiting_frames(&self) -> usize {
        self.packets.len()
    }

    /// Returns the number of descriptors in use.
    pub(super) fn descriptors_in_use(&self) -> u64 {
        self.descriptors.in_use()
    }

    /// Returns when a connection of this thread times out, if no packet arrives before.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.engine.as_ref()?.poll_timeout()
    }

    /// Lets the engine observe a frame of the host.
    pub(super) fn observe_transmit(&mut self, frame: &[u8]) {
        if let Some(engine) = &mut self.engine {
            engine.observe_transmit(frame);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nichrome_lro::{Config, NpuConfig, ProfileConfig};
    use nichrome_wire::{SeqNumber, TcpFrame};

    use super::*;

    fn thread(descriptors: u64) -> ReceiveThread {
        let npu = NpuConfig { floor: Duration::from_micros(10), ..NpuConfig::default() };
        let config = Config { max_connections: 16, max_aggregates: 16, ..Config::default() };
        let engine = Some((config, ProfileConfig::Npu(npu)));
        ReceiveThread::new(&ReceiveConfig {
            engine,
            acks: AckOrder::AtOnce,
            packet_ring: 2,
            descriptors,
            requests: 2,
        })
        .unwrap()
    }

    fn segment(nth: u32) -> Compact {
        TcpFrame { seq: SeqNumber(nth * 1000), payload: vec![0; 1000], ..TcpFrame::default() }.build().into()
    }

    #[test]
    fn timeouts_come_before_packets() {
        let mut thread = thread(1);
        assert_eq!(thread.begin(), None);
        assert!(thread.packet(segment(0)));
        thread.timeout();
        assert_eq!(thread.begin(), Some(JobKind::Timeout));
        assert_eq!(thread.begin(), None, "one job at a time");
        thread.finish(Instant::ZERO);
        assert_eq!(thread.begin(), Some(JobKind::Packet));
    }

    #[test]
    fn a_full_ring_takes_no_packet() {
        let mut thread = thread(1);
        assert_eq!([0, 1, 2].map(|nth| thread.packet(segment(nth))), [true, true, false]);
    }

    #[test]
    fn a_thread_without_descriptors_stands_still() {
        let mut thread = thread(1);
        let mut now = Instant::ZERO;
        for nth in [0, 1] {
            assert!(thread.packet(segment(nth)));
            assert_eq!(thread.begin(), Some(JobKind::Packet));
            thread.finish(now);
            now = thread.deadline().unwrap();
            thread.timeout();
            assert_eq!(thread.begin(), Some(JobKind::Timeout));
            thread.finish(now);
            assert_eq!(thread.submit().is_some(), nth == 0);
        }
        assert!(thread.packet(segment(2)));
        assert_eq!(thread.begin(), None);
        thread.refill();
        assert!(thread.submit().is_some());
        assert_eq!(thread.begin(), Some(JobKind::Packet));
    }
}
