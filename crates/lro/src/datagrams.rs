//! Lossless coalescing of UDP datagrams: the received datagrams can be re-created bit for bit.
//!
//! The rules are those of the Linux kernel's `udp_gro_receive`. Consecutive datagrams of a flow merge if they
//! are equal in every header bit except lengths, checksums and the IPv4 identification (constant, or
//! incremented by one). All payloads have the length of the first; the last may be shorter. A datagram that
//! cannot merge flushes its flow first, and never overtakes it.
//!
//! | case | what happens |
//! |---|---|
//! | no payload, no checksum, IP options, a fragment, UDP length and IP length differ | flow flushed, frame passed |
//! | shorter than those before it | appended, then the flow is flushed |
//! | longer, another header field, no more room | flow flushed; the datagram starts a new aggregate |
//! | the 64th datagram (`UDP_GRO_CNT_MAX`) | appended, then the flow is flushed |
//! | wrong checksum | flow flushed, passed for the host to drop and count (or dropped, by configuration) |
//! | table full | the flow held longest is flushed for the new one |
//! | no free aggregate: the driver and other flows have all of them | the TCP flow held longest is flushed; the frame passes if that frees none |

use std::time::Duration;
use std::vec::IntoIter;

use nichrome_wire::{Instant, SeqNumber, TcpFlags};

use crate::checksums;
use crate::config::{BadChecksum, Config};
use crate::datagram::{Datagram, UdpPacket};
use crate::flow::FlowKey;
use crate::frame::Frame;
use crate::mask::{Masks, Rule};
use crate::outbox::Outbox;
use crate::reason::{FlushReason, PassReason};
use crate::run::{Limits, PooledRun};
use crate::run_pool::RunPool;
use crate::segment::{FirstSegment, Idents, Layout};
use crate::table::{AgeList, ConnectionTable, Index};
use crate::template::COMMON_LEN;

/// Most datagrams in an aggregate, as in the kernel (`UDP_GRO_CNT_MAX`).
const MOST_DATAGRAMS: u32 = 64;

/// The held datagrams, by flow: see the [module](self).
pub(crate) struct Datagrams<B> {
    limits: Limits,
    bad_checksum: BadChecksum,
    masks: Masks,
    table: ConnectionTable<PooledRun<B>>,
    ages: AgeList,
}

impl<B: AsRef<[u8]>> Datagrams<B> {
    /// Reserves memory for as many flows as may hold datagrams.
    pub(crate) fn new(config: &Config) -> Self {
        let Limits { bytes, segments } = config.limits();
        let max_flows = config.holding_connections();
        Self {
            limits: Limits { bytes, segments: segments.min(MOST_DATAGRAMS) },
            bad_checksum: config.bad_checksum.unwrap_or(BadChecksum::Pass),
            masks: Masks::new(Rule::Lossless),
            table: ConnectionTable::new(max_flows, max_flows / 4, config.seed),
            ages: AgeList::new(max_flows),
        }
    }

    /// Returns the number of flows that hold datagrams.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns when the flow that has held datagrams the longest began to hold them.
    #[inline]
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.ages.oldest().map(|(_, since)| since)
    }

    /// Flushes all flows.
    pub(crate) fn flush_all(&mut self, reason: FlushReason, pool: &mut RunPool<B>, out: &mut Outbox<B>) {
        self.flush_oldest(usize::MAX, reason, pool, out);
    }

    /// Flushes the flows that have held datagrams the longest, until this number of datagrams has left.
    pub(crate) fn flush_oldest(
        &mut self,
        datagrams: usize,
        reason: FlushReason,
        pool: &mut RunPool<B>,
        out: &mut Outbox<B>,
    ) {
        let mut left = datagrams;
        while left > 0
            && let Some((oldest, _)) = self.ages.oldest()
        {
            left = left.saturating_sub(self.table.peek(oldest).map_or(0, |run| run.segments()));
            self.flush(oldest, reason, pool, out);
        }
    }

    /// Flushes the flows that have held datagrams for `hold` or longer.
    pub(crate) fn flush_due(
        &mut self,
        hold: Duration,
        now: Instant,
        pool: &mut RunPool<B>,
        out: &mut Outbox<B>,
    ) {
        while let Some((oldest, _)) = self.ages.oldest().filter(|(_, since)| *since + hold <= now) {
            self.flush(oldest, FlushReason::Timeout, pool, out);
        }
    }

    /// Consumes the first frame, whose headers are `packet`, and the following frames that extend its
    /// aggregate. Returns the first frame if it needs an aggregate and none is free.
    pub(crate) fn receive(
        &mut self,
        frames: &mut IntoIter<Frame<B>>,
        packet: &UdpPacket,
        now: Instant,
        pool: &mut RunPool<B>,
        out: &mut Outbox<B>,
    ) -> Result<(), Frame<B>> {
        let Some(frame) = frames.next() else { return Ok(()) };
        let hash = self.table.hash(&packet.flow);
        let held = self.table.find(hash, &packet.flow);
        let datagram = match admit(&frame, packet) {
            Ok(datagram) => datagram,
            Err(reason) => {
                if let Some(index) = held {
                    self.flush(index, FlushReason::Barrier, pool, out);
                }
                self.pass_or_drop(frame, packet, reason, out);
                return Ok(());
            }
        };
        let joined = match held {
            Some(index) => self.join(index, frame, &datagram, pool, out),
            None => Err(frame),
        };
        if let Err(frame) = joined {
            if let Some((oldest, _)) = self.ages.oldest().filter(|_| self.table.is_full()) {
                self.flush(oldest, FlushReason::Evicted, pool, out);
            }
            let Some(run) = pool.take() else { return Err(frame) };
            self.hold(run, frame, hash, packet.flow, &datagram, now);
        }
        if let Some(index) = self.table.find(hash, &packet.flow) {
            self.join_expected(index, frames, pool, out);
        }
        Ok(())
    }

    /// Consumes a frame that [`Datagrams::receive`] has returned: holds it, or passes it if still no
    /// aggregate is free.
    #[cold]
    pub(crate) fn receive_again(
        &mut self,
        frame: Frame<B>,
        packet: &UdpPacket,
        now: Instant,
        pool: &mut RunPool<B>,
        out: &mut Outbox<B>,
    ) {
        if let Ok(datagram) = &packet.datagram
            && let Some(run) = pool.take()
        {
            self.hold(run, frame, self.table.hash(&packet.flow), packet.flow, datagram, now);
        } else {
            out.pass(frame, 0, PassReason::PoolEmpty);
        }
    }

    /// Passes a frame that cannot be held, or drops it for a wrong checksum, as configured.
    fn pass_or_drop(&self, frame: Frame<B>, packet: &UdpPacket, reason: PassReason, out: &mut Outbox<B>) {
        if reason == PassReason::BadChecksum
            && self.bad_checksum == BadChecksum::Drop
            && let Ok(Datagram { layout, payload_len, .. }) = packet.datagram
            && let Err(reason) = checksums::verify(&frame, layout, payload_len)
        {
            return out.drop(frame, reason);
        }
        out.pass(frame, 0, reason);
    }

    /// Appends a datagram to its flow's aggregate. If it does not fit there, flushes the aggregate and
    /// returns the frame.
    fn join(
        &mut self,
        index: Index,
        frame: Frame<B>,
        datagram: &Datagram,
        pool: &mut RunPool<B>,
        out: &mut Outbox<B>,
    ) -> Result<(), Frame<B>> {
        let Some(run) = self.table.get_mut(index) else { return Err(frame) };
        let equal = run.layout == datagram.layout
            && self.masks.of(run.layout).matches(run.first(), frame.bytes())
            && run.identification_with(datagram.idents).is_some();
        let reason = if !equal {
            FlushReason::UnequalField
        } else if datagram.payload_len > run.first_len {
            FlushReason::LongSegment
        } else if run.len_on_ip() + datagram.payload_len > self.limits.bytes {
            FlushReason::MaxLength
        } else {
            run.follow(frame, datagram.idents, datagram.payload_len, TcpFlags::NONE);
            if let Some(reason) = self.ended_by(index, datagram.payload_len) {
                self.flush(index, reason, pool, out);
            }
            return Ok(());
        };
        self.flush(index, reason, pool, out);
        Err(frame)
    }

    /// Returns why the last datagram of a flow, of `payload_len` bytes, ends the aggregate.
    fn ended_by(&self, index: Index, payload_len: u32) -> Option<FlushReason> {
        let run = self.table.peek(index)?;
        if payload_len < run.first_len {
            Some(FlushReason::ShortSegment)
        } else {
            (run.segments() >= self.limits.segments as usize).then_some(FlushReason::MaxSegments)
        }
    }

    /// Appends the leading frames that are the expected next datagrams of a flow.
    fn join_expected(
        &mut self,
        index: Index,
        frames: &mut IntoIter<Frame<B>>,
        pool: &mut RunPool<B>,
        out: &mut Outbox<B>,
    ) {
        let Some(run) = self.table.get_mut(index) else { return };
        let mask = self.masks.of(run.layout);
        while let Some(frame) = frames.as_slice().first() {
            let Some(first) = run.first().first_chunk::<COMMON_LEN>() else { break };
            let (len, ident) = (run.first_len, run.next_ident());
            let expected = frame.bytes().len() == run.first().len()
                && frame.bytes().first_chunk().is_some_and(|next| mask.matches_full_size(first, next))
                && has_expected_fields(frame.bytes(), run.layout, ident)
                && checksums::verify(frame, run.layout, len).is_ok()
                && run.len_on_ip() + len <= self.limits.bytes;
            if !expected {
                break;
            }
            let Some(frame) = frames.next() else { break };
            run.follow(frame, Idents { own: ident, outer: 0 }, len, TcpFlags::NONE);
            if run.segments() >= self.limits.segments as usize {
                return self.flush(index, FlushReason::MaxSegments, pool, out);
            }
        }
    }

    /// Starts an aggregate in `run` with the first datagram of a flow.
    fn hold(
        &mut self,
        mut run: PooledRun<B>,
        frame: Frame<B>,
        hash: u32,
        flow: FlowKey,
        datagram: &Datagram,
        now: Instant,
    ) {
        let first = FirstSegment {
            layout: datagram.layout,
            seq: SeqNumber(0),
            payload_len: datagram.payload_len,
            ident: datagram.idents.own,
            flags: TcpFlags::NONE,
            ack: SeqNumber(0),
            window: 0,
        };
        run.start_with(frame, first, self.limits, now);
        if let Ok(index) = self.table.insert(hash, flow, run) {
            self.ages.push(index, now);
        }
    }

    /// Flushes a flow.
    fn flush(&mut self, index: Index, reason: FlushReason, pool: &mut RunPool<B>, out: &mut Outbox<B>) {
        self.ages.remove(index);
        if let Some(run) = self.table.remove(index) {
            pool.finish(run, reason, out);
        }
    }
}

/// Returns the datagram of a frame, or why it cannot be held.
fn admit<B: AsRef<[u8]>>(frame: &Frame<B>, packet: &UdpPacket) -> Result<Datagram, PassReason> {
    let datagram = packet.datagram?;
    match checksums::verify(frame, datagram.layout, datagram.payload_len) {
        Ok(()) => Ok(datagram),
        Err(_) => Err(PassReason::BadChecksum),
    }
}

/// Returns true if a frame has the IPv4 identification `ident`, checksums that can be re-created, and a UDP
/// length that agrees with its IP length.
fn has_expected_fields(frame: &[u8], layout: Layout, ident: u16) -> bool {
    let (network, transport) = (usize::from(layout.network), usize::from(layout.transport));
    let ip: Option<&[u8; 12]> = frame.get(network..).and_then(<[u8]>::first_chunk);
    let udp: Option<&[u8; 8]> = frame.get(transport..).and_then(<[u8]>::first_chunk);
    let (Some(ip), Some(udp)) = (ip, udp) else { return false };
    let is_next = !layout.is_ipv4() || (ip[4..6] == ident.to_be_bytes() && ip[10..12] != [0xFF; 2]);
    let carried = frame.len() - transport;
    is_next && udp[6..8] != [0; 2] && usize::from(u16::from_be_bytes([udp[4], udp[5]])) == carried
}
