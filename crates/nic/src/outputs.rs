//! Routes the outputs of a worker's engine.

use std::io::IoSlice;
use std::time::Duration;

use nichrome_lro::{AckFrame, Output, Packet};
use nichrome_port::WireQueue;

use crate::delivery::Pushed;
use crate::delivery_thread::Delivery;
use crate::error::CardError;
use crate::host::{HostError, parts, send_or_segment};
use crate::queue::Queue;
use crate::received::Received;
use crate::stats::QueueStats;

/// Maximum wait of a batch for room in a full delivery queue before packets are dropped: a few times as long
/// as the host takes to receive a full queue.
const MAX_WAIT: Duration = Duration::from_millis(5);

/// Routes the outputs of an engine.
pub(crate) struct Outputs<'a, W: WireQueue> {
    queue: &'a mut Queue<W>,
    delivery: &'a mut Delivery<W::Buffer>,
    /// True if the engine must observe the packets that the host refuses.
    observes_host: bool,
    stats: &'a mut QueueStats,
    scratch: &'a mut Vec<u8>,
    /// The error that stops the card.
    failed: Option<CardError>,
    /// Packets of this batch that the host refused.
    refused: Vec<Vec<u8>>,
    /// True if the delivery thread must be woken.
    delivered: bool,
    /// Remaining wait of this batch for room in the delivery queue.
    max_wait: Duration,
}

impl<'a, W: WireQueue> Outputs<'a, W> {
    /// Starts a batch.
    pub(crate) fn new(
        queue: &'a mut Queue<W>,
        delivery: &'a mut Delivery<W::Buffer>,
        observes_host: bool,
        stats: &'a mut QueueStats,
        scratch: &'a mut Vec<u8>,
    ) -> Self {
        Self {
            queue,
            delivery,
            observes_host,
            stats,
            scratch,
            failed: None,
            refused: Vec::new(),
            delivered: false,
            max_wait: MAX_WAIT,
        }
    }

    #[inline]
    pub(crate) fn take(&mut self, output: Output<Received<W::Buffer>>) {
        match output {
            Output::ToHost(packet) => self.deliver(packet),
            Output::ToWire(ack) => self.acknowledge(&ack),
            // The engine counts drops.
            Output::Dropped(..) => {}
        }
    }

    #[inline]
    pub(crate) fn deliver(&mut self, packet: Packet<Received<W::Buffer>>) {
        if let Some(observer) = &mut self.queue.observer {
            observer.delivered(&mut parts(&packet));
        }
        match self.delivery {
            Delivery::Own(device) => match send_or_segment(&**device, &packet, self.scratch) {
                Ok(taken_apart) => {
                    self.stats.to_host += 1;
                    self.stats.to_host_bytes += packet.len() as u64;
                    self.stats.taken_apart += u64::from(taken_apart);
                }
                Err(HostError::Refused(_) | HostError::Down) => self.refused(&packet),
                Err(error @ HostError::Gone(_)) => self.failed = Some(CardError::Host(error)),
            },
            // The delivery thread counts the packets that it delivers.
            Delivery::Queue { queue, waker, .. } => {
                let pushed = queue.push(packet, &mut self.max_wait, || waker.wake());
                self.stats.delivery_waited += u64::from(pushed == Pushed::AfterWaiting);
                if pushed == Pushed::Dropped {
                    self.stats.delivery_dropped += 1;
                } else {
                    self.delivered = true;
                }
            }
        }
    }

    fn refused(&mut self, packet: &Packet<Received<W::Buffer>>) {
        self.stats.host_refused += 1;
        if self.observes_host {
            self.refused.push(parts(packet).flatten().copied().collect());
        }
    }

    /// Sends an ACK, unless the host refused a packet of this batch: the ACK may cover it.
    fn acknowledge(&mut self, ack: &AckFrame) {
        if !self.refused.is_empty() || self.failed.is_some() {
            self.stats.acks_dropped += 1;
            return;
        }
        // The ACK leaves together with the host's responses to the delivered packets.
        if self.queue.wire.transmit(&[IoSlice::new(ack.bytes())]).is_err() {
            self.stats.acks_dropped += 1;
        } else if let Some(observer) = &mut self.queue.observer {
            observer.acknowledged(ack.bytes());
        }
    }

    /// Ends the batch; returns the packets that the host refused, if the engine observes the host.
    pub(crate) fn end(self) -> (Vec<Vec<u8>>, Result<(), CardError>) {
        if self.delivered
            && let Delivery::Queue { waker, .. } = self.delivery
        {
            waker.wake();
        }
        (self.refused, self.failed.map_or(Ok(()), Err))
    }
}
