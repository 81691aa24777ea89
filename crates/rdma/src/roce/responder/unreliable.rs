//! Requests of unreliable connections, and datagrams: the responder answers none, and drops those that it
//! cannot execute.
//!
//! | case | here |
//! |---|---|
//! | a packet number that is not the expected one, at the start of a message | the previous message is dropped, and this one begins (IBA 9.8.2.2) |
//! | a packet number that is not the expected one, within a message | the rest of the message is dropped |
//! | a request that a reliable connection would refuse | its message is dropped; the next message takes its receive |
//! | a datagram with a wrong Q_Key, without a posted receive, or longer than the receive | dropped |
//! | a receive whose buffers cannot be written | the receive completes with a local protection error; error (IBA 9.9.3) |

use nichrome_wire::rdma::{Deth, ImmediateData, RcMessage, UcMessage};
use nichrome_wire::{AddressPair, Ipv4Header, Ipv4HeaderMut};

use super::super::context::Context;
use super::super::packet::Incoming;
use super::outcome::Reject;
use super::{Failed, Inbound, Responder, takes_requests};
use crate::core::completion::{CompletedOperation, Notice, Status};
use crate::core::cq::Urgency;
use crate::core::event::Event;
use crate::core::memory::Memory;
use crate::core::queue_pair::Received;

/// Bytes at the front of a datagram's receive for its network header.
const GRH_LEN: usize = 40;

impl Responder {
    /// Processes a request of an unreliable connection.
    pub(in super::super) fn receive_unreliable<M: Memory>(
        &mut self,
        message: UcMessage,
        request: &Incoming<'_>,
        context: &mut Context<'_, M>,
    ) -> Result<(), Failed> {
        if !takes_requests(context.qp) {
            context.verbs.counters.dropped_state += 1;
            return Ok(());
        }
        self.report_established(context);
        let starts = match &message {
            UcMessage::Send(part) => part.start().is_some(),
            UcMessage::Write(part) => part.start().is_some(),
        };
        let carries_on = request.psn == self.expected && self.inbound != Inbound::Lost;
        self.expected = request.psn.next();
        match self.inbound {
            // The lost message was counted when it was dropped.
            Inbound::Lost if starts => self.inbound = Inbound::Nothing,
            Inbound::Send { .. } | Inbound::Write { .. } if starts => {
                self.give_up(Inbound::Nothing, context);
            }
            _ => {}
        }
        if !starts && !carries_on {
            self.give_up(Inbound::Lost, context);
            return Ok(());
        }
        let done = match RcMessage::from(message) {
            RcMessage::Send(part) => self.send(part, request, context),
            RcMessage::Write(part) => self.write(part, request, context),
            _ => Err(Reject::Invalid),
        };
        match done {
            Ok(_) => context.verbs.counters.bytes_received += request.payload.len() as u64,
            Err(Reject::Receive) => return Err(fail_receive(context)),
            Err(_) => self.give_up(Inbound::Lost, context),
        }
        Ok(())
    }

    /// Drops the message that was being received.
    fn give_up<M: Memory>(&mut self, inbound: Inbound, context: &mut Context<'_, M>) {
        context.verbs.counters.dropped_unreliable += 1;
        self.inbound = inbound;
        context.qp.put_back_receive(context.verbs);
    }

    /// Processes a datagram.
    pub(in super::super) fn receive_datagram<M: Memory>(
        deth: Deth,
        immediate: Option<ImmediateData>,
        request: &Incoming<'_>,
        context: &mut Context<'_, M>,
    ) -> Result<(), Failed> {
        let Context { qp, verbs, .. } = context;
        if !takes_requests(qp) {
            verbs.counters.dropped_state += 1;
            return Ok(());
        }
        if deth.qkey != qp.settings.qkey {
            verbs.counters.dropped_key += 1;
            return Ok(());
        }
        let total = GRH_LEN + request.payload.len();
        let fits = qp.take_receive(verbs) && total <= qp.receive_room(verbs) as usize;
        if !fits {
            verbs.counters.dropped_unreliable += 1;
            qp.put_back_receive(verbs);
            return Ok(());
        }
        let header = qp.put(0, &global_route(request), verbs);
        if header.and_then(|()| qp.put(GRH_LEN as u32, request.payload, verbs)).is_err() {
            return Err(fail_receive(context));
        }
        verbs.counters.bytes_received += request.payload.len() as u64;
        let done = Received {
            status: Status::Success,
            operation: CompletedOperation::Receive,
            len: total as u32,
            notice: immediate.map(Notice::Immediate),
            source: Some(deth.src_qp),
        };
        let urgency = if request.solicited { Urgency::Solicited } else { Urgency::Plain };
        qp.complete_receive(done, urgency, verbs);
        Ok(())
    }
}

/// Drops a message whose receive cannot be written, and completes the receive with a local protection error.
fn fail_receive<M: Memory>(context: &mut Context<'_, M>) -> Failed {
    let Context { qp, verbs, .. } = context;
    verbs.counters.dropped_unreliable += 1;
    qp.complete_receive(Received::failed(Status::LocalProtection), Urgency::Plain, verbs);
    verbs.events.push_back(Event::QpFatal(qp.handle));
    Failed
}

/// Returns the IP header that precedes a datagram in its receive: an IPv6 header, or 20 zero bytes and an
/// IPv4 header (annex A17.4.5). Fields that a socket does not report are 0.
fn global_route(request: &Incoming<'_>) -> [u8; GRH_LEN] {
    const UDP: u8 = 17;
    let mut bytes = [0; GRH_LEN];
    let class = request.traffic_class.0;
    match request.addresses {
        AddressPair::V4 { src, dst } => {
            let (_, header) = bytes.split_at_mut(GRH_LEN - Ipv4Header::LEN);
            header[0] = 0x45;
            header[1] = class;
            header[9] = UDP;
            header[12..16].copy_from_slice(&src.octets());
            header[16..20].copy_from_slice(&dst.octets());
            // Programs recognize an IPv4 header by its checksum.
            if let Some(mut header) = Ipv4HeaderMut::new(header) {
                header.fill_checksum();
            }
        }
        AddressPair::V6 { src, dst } => {
            bytes[0] = 0x60 | class >> 4;
            bytes[1] = class << 4;
            bytes[6] = UDP;
            bytes[8..24].copy_from_slice(&src.octets());
            bytes[24..40].copy_from_slice(&dst.octets());
        }
    }
    bytes
}
