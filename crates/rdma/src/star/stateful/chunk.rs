//! The bytes of one packet, and their place in the memory of server and client.
//!
//! A packet accesses one contiguous range of the server's memory. The server's buffers therefore cut an
//! operation into chunks of up to a path MTU; the client's buffers do not matter.

use nichrome_wire::Instant;
use nichrome_wire::star::{
    Capability, Flags, GrantCode, Lease, Message, Reason, Repr, Rights, Segment, Span,
};

use super::Stateful;
use crate::core::access::Access;
use crate::core::completion::Status;
use crate::core::memory::Memory;
use crate::core::protection::{LKey, Refusal};
use crate::core::verbs::Verbs;
use crate::core::work::{Operation as Verb, Remote, Sge};
use crate::star::flight::{ChunkId, Initiator};
use crate::star::mirror::{self, cut};
use crate::star::packet::{Cause, Outgoing};
use crate::star::pipeline::{Conflict, Extent, Host, Transfer};
use crate::star::security::Blocked;

/// The timeout of a packet that the egress module blocked, on a queue pair without one, as an exponent: 67
/// ms.
const EGRESS_TIMEOUT: u8 = 14;

/// A chunk of an operation.
struct Chunk {
    /// The bytes in the server's memory. With a remote key, the capability is empty, until `authorize` adds
    /// that of the memory table.
    span: Span,
    code: GrantCode,
    /// Bytes from the start of the message.
    offset: u32,
    len: u32,
    is_last: bool,
}

impl Stateful {
    /// Returns the chunk with number `nth`, of the operation at `index`.
    fn chunk(&self, initiator: Initiator, index: usize, nth: u64) -> Option<Chunk> {
        let mtu = self.qp.mtu() as u32;
        let work = self.work(initiator, index)?;
        let operation = self.pipeline(initiator).operations.get(index)?;
        let nth = u32::try_from(nth.checked_sub(operation.first)?).ok()?;
        let (sge, offset, granted) = match (initiator, work.operation) {
            (
                Initiator::Client,
                Verb::Write(remote)
                | Verb::WriteWithImmediate(remote, _)
                | Verb::Read(remote)
                | Verb::CompareSwap { remote, .. }
                | Verb::FetchAdd { remote, .. },
            ) => {
                let Remote { address, rkey } = remote;
                let whole = Sge { address, len: work.len, lkey: LKey(rkey.0) };
                let (sge, offset) = cut(std::iter::once(whole), nth, mtu)?;
                (sge, offset, None)
            }
            (Initiator::Client, _) => {
                let number = operation.mirrored?;
                let (sge, offset) = cut(self.mirror.receive_buffers(number, work.len), nth, mtu)?;
                (sge, offset, Some(self.mirror.receive_segment(number, &sge)?))
            }
            (Initiator::Server, _) => {
                let buffers = mirror::pieces(&self.mirror.sends, work.source, work.len);
                let (sge, offset) = cut(buffers, nth, mtu)?;
                (sge, offset, Some(self.mirror.send_segment(index, &sge)?))
            }
        };
        let is_last = nth + 1 == operation.chunks;
        let right = match operation.transfer {
            Transfer::ToServer => Rights::STORE,
            Transfer::FromServer => Rights::FETCH,
        };
        let (base, len, rights, code) = match granted {
            Some(Segment { address, len, code, .. }) => {
                (address, u64::from(len), right | Rights::ELEMENT, code)
            }
            None => (0, 0, Rights::NONE, GrantCode::default()),
        };
        let capability = Capability { base, len, rights, server: self.peer, lease: Lease::default() };
        let span = Span { address: sge.address, key: sge.lkey.0, capability };
        Some(Chunk { span, code, offset, len: sge.len, is_last })
    }

    /// Describes the packet for a chunk.
    pub(super) fn chunk_packet(&self, chunk_id: ChunkId, now: Instant) -> Option<Outgoing> {
        let pipeline = self.pipeline(chunk_id.initiator);
        let index = pipeline.operation_of(chunk_id.nth)?;
        let operation = &pipeline.operations[index];
        let Chunk { span, code, offset, len, is_last } =
            self.chunk(chunk_id.initiator, index, chunk_id.nth)?;
        let flight = self.flight(operation.transfer);
        let (sequence, stamp) = (flight.next(), self.clock.expiration(flight.lifetime(), now).stamp);
        let (message, payload_len) = match operation.transfer {
            Transfer::ToServer => (Message::Rdp(span), len as usize),
            Transfer::FromServer => match operation.atomic {
                Some(atomic) => (Message::Aop(span, atomic), 0),
                None => (Message::Gd(span, len as u16), 0),
            },
        };
        let flags = if is_last { Flags::LAST } else { Flags::NONE };
        let repr = Repr { flags, connection: self.qp.number, sequence, stamp, message };
        Some(Outgoing { repr, payload_len, cause: Cause::Chunk(chunk_id), code, offset })
    }

    /// Returns the packet for the chunk behind that of `packet`, which was sent, if both are of the same
    /// message and the same buffer of the server.
    #[inline]
    pub(super) fn next_of_message(
        &self,
        packet: &Outgoing,
        chunk_id: ChunkId,
        now: Instant,
    ) -> Option<Outgoing> {
        let ChunkId { initiator, nth } = chunk_id;
        let pipeline = self.pipeline(initiator);
        let (index, nth) = (pipeline.operation_of(nth)?, nth + 1);
        let operation = &pipeline.operations[index];
        let is_next = nth == pipeline.next() && nth < operation.end() && pipeline.has_room();
        if !is_next
            || !operation.is_contiguous
            || self.egress_wait.has_new(initiator)
            || !self.may_leave(operation.transfer, now)
            || self.is_blocked(initiator, index, nth)
        {
            return None;
        }
        let mtu = self.qp.mtu() as u32;
        let offset = packet.offset + mtu;
        let len = self.work(initiator, index)?.len.checked_sub(offset)?.min(mtu);
        let next_span = |span: Span| Span { address: span.address.wrapping_add(mtu.into()), ..span };
        let (message, payload_len) = match packet.repr.message {
            Message::Rdp(span) => (Message::Rdp(next_span(span)), len as usize),
            Message::Gd(span, _) => (Message::Gd(next_span(span), len as u16), 0),
            _ => return None,
        };
        let flags = if nth + 1 == operation.end() { Flags::LAST } else { Flags::NONE };
        let sequence = self.flight(operation.transfer).next();
        let repr = Repr { flags, sequence, message, ..packet.repr };
        Some(Outgoing {
            repr,
            payload_len,
            cause: Cause::Chunk(ChunkId { initiator, nth }),
            offset,
            ..*packet
        })
    }

    /// Returns true if a new chunk must wait: for operations before it that write what it reads or writes, or
    /// because its operation failed.
    pub(super) fn is_blocked(&self, initiator: Initiator, index: usize, nth: u64) -> bool {
        let pipeline = self.pipeline(initiator);
        let operation = &pipeline.operations[index];
        if operation.failed.is_some() {
            return true;
        }
        if operation.atomic.is_some() {
            // The card's slot holds one result: the client may still need that of the previous atomic.
            return !pipeline.is_first(operation);
        }
        match operation.conflict {
            Conflict::None | Conflict::Refill => return false,
            Conflict::SameBytes => return pipeline.is_last_and_ahead(index, nth),
            Conflict::Overlap => {}
        }
        let Some(chunk) = self.chunk(initiator, index, nth) else { return true };
        let there = Extent::new(Host::Server, chunk.span.address, chunk.len);
        let mtu = self.qp.mtu() as u64;
        let (writes, reads) = match operation.transfer {
            Transfer::ToServer if operation.writes.host == Host::Server => (there, operation.reads),
            Transfer::FromServer if operation.reads.host == Host::Server => (operation.writes, there),
            _ => (operation.writes, operation.reads),
        };
        pipeline.conflicts_before(index, &writes, &reads, mtu)
    }

    /// Schedules a retry of a chunk that the egress module blocked: the WQEP that registers its memory may
    /// still be on its way. Fails the operation after the queue pair's timeout and retries. Other chunks
    /// leave meanwhile.
    pub(super) fn chunk_blocked<M>(&mut self, chunk_id: ChunkId, why: Blocked, verbs: &mut Verbs<M>) {
        let ChunkId { initiator, nth } = chunk_id;
        let Some(index) = self.pipeline(initiator).operation_of(nth) else { return };
        let settings = self.qp.settings;
        let timeout = if settings.timeout == 0 { EGRESS_TIMEOUT } else { settings.timeout };
        let grace = (4096u64 << timeout).saturating_mul(u64::from(settings.retry_count) + 1);
        let pipeline = self.pipeline_mut(initiator);
        let is_new = nth == pipeline.next();
        let operation = &mut pipeline.operations[index];
        let (transfer, since) = (operation.transfer, *operation.blocked_since.get_or_insert(verbs.now));
        if verbs.now < since.plus_nanos(grace) {
            if is_new {
                self.egress_wait.add_new(initiator, verbs.now);
            } else {
                self.flight_mut(transfer).retransmissions.pop_front();
                self.egress_wait.add_retransmission(transfer, chunk_id, verbs.now);
            }
            return;
        }
        let reason = if let Blocked::Memory(reason) = why { reason } else { Reason::Owner };
        let failure = self.refused(chunk_id, index, reason);
        self.fail_operation(initiator, index, failure);
    }

    /// Retries the chunks that the egress module blocked, before others.
    pub(super) fn retry_blocked(&mut self) {
        for (transfer, chunk_id) in self.egress_wait.end().into_iter().rev() {
            self.flight_mut(transfer).retransmissions.push_front(chunk_id);
        }
    }

    /// Copies the payload of an RDP, `offset` bytes behind the start of the message, from the client's
    /// memory.
    pub(super) fn copy_payload<M: Memory>(
        &self,
        chunk_id: ChunkId,
        offset: u32,
        into: &mut [u8],
        verbs: &Verbs<M>,
    ) -> Result<(), Refusal> {
        let ChunkId { initiator, nth } = chunk_id;
        let index = self.pipeline(initiator).operation_of(nth).ok_or(Refusal::State)?;
        let work = self.work(initiator, index).ok_or(Refusal::State)?;
        let operation = &self.pipeline(initiator).operations[index];
        if operation.transfer == Transfer::FromServer {
            return Ok(());
        }
        let len = into.len() as u32;
        match (initiator, work.operation) {
            (Initiator::Client, _) => {
                let pieces = self.qp.sends.pieces(work.source, offset, len);
                verbs.gather(self.qp.domain, pieces, into)
            }
            (Initiator::Server, Verb::Read(Remote { address, rkey })) => {
                let address = address.wrapping_add(u64::from(offset));
                let (accessor, len) = (self.qp.accessor(), u64::from(len));
                let at = verbs.protection.remote(accessor, rkey, address, len, Access::REMOTE_READ)?;
                verbs.memory.read(at, into).map_err(|_| Refusal::Bounds)
            }
            (Initiator::Server, _) => {
                let before = operation.before.to_ne_bytes();
                let part = before.get(offset as usize..(offset + len) as usize).ok_or(Refusal::Bounds)?;
                into.copy_from_slice(part);
                Ok(())
            }
        }
    }

    /// Stores the payload of an SDP in the client's memory, unless a later operation has filled its place. An
    /// RA has no payload.
    pub(super) fn store_response<M: Memory>(
        &mut self,
        chunk_id: ChunkId,
        index: usize,
        payload: &[u8],
        verbs: &mut Verbs<M>,
    ) -> Result<(), (Status, Status)> {
        const BAD: (Status, Status) = (Status::BadResponse, Status::Flushed);
        let ChunkId { initiator, nth } = chunk_id;
        let operation = &self.pipeline(initiator).operations[index];
        if operation.transfer == Transfer::ToServer {
            return Ok(());
        }
        let receive = operation.receive;
        let Some(Chunk { offset, len, .. }) = self.chunk(initiator, index, nth) else { return Err(BAD) };
        let Some(work) = self.work(initiator, index) else { return Err(BAD) };
        if payload.len() != len as usize {
            return Err(BAD);
        }
        verbs.counters.bytes_received += payload.len() as u64;
        if self.pipeline(initiator).is_refilled(index, nth) {
            return Ok(());
        }
        match (initiator, work.operation) {
            (Initiator::Client, _) => {
                let put = self.qp.put_response(index, offset, payload, verbs);
                put.map_err(|_| (Status::LocalProtection, Status::Flushed))
            }
            (Initiator::Server, Verb::Write(remote) | Verb::WriteWithImmediate(remote, _)) => {
                let address = remote.address.wrapping_add(u64::from(offset));
                self.write_remote(address, remote.rkey, payload, verbs)
            }
            (Initiator::Server, _) => {
                self.qp.receiving = receive;
                let put = self.qp.put(offset, payload, verbs);
                self.qp.receiving = None;
                put.map_err(|_| (Status::RemoteOperation, Status::LocalProtection))
            }
        }
    }

    /// Returns the statuses of an operation whose packet the server's card refused: the error is that of the
    /// program which named the memory.
    pub(super) fn refused(&self, chunk_id: ChunkId, index: usize, reason: Reason) -> (Status, Status) {
        let is_remote = |work: &crate::core::send_queue::SendWork| {
            matches!(
                work.operation,
                Verb::Write(_)
                    | Verb::WriteWithImmediate(..)
                    | Verb::Read(_)
                    | Verb::CompareSwap { .. }
                    | Verb::FetchAdd { .. }
            )
        };
        let names_remote = self.work(chunk_id.initiator, index).is_some_and(is_remote);
        match (chunk_id.initiator, reason) {
            (Initiator::Server, Reason::Fault) => (Status::LocalQpOperation, Status::Flushed),
            (Initiator::Server, _) => (Status::LocalProtection, Status::Flushed),
            (Initiator::Client, Reason::Fault) => (Status::RemoteOperation, Status::LocalProtection),
            (Initiator::Client, _) if names_remote => (Status::RemoteAccess, Status::Flushed),
            (Initiator::Client, _) => (Status::RemoteOperation, Status::LocalProtection),
        }
    }
}
