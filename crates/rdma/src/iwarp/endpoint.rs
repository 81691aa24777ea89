//! A queue pair on iWARP as the device sees it.

use nichrome_wire::{AddressPair, Instant};

use super::context::Context;
use super::fault::{Fault, Faulty};
use super::link::{Link, Stage};
use super::requester::is_carried;
use super::responder::SegmentOutcome;
use super::shared::IwarpShared;
use super::states;
use super::stream::Stream;
use crate::core::attributes::{QpChange, QpState, QpType, Rule};
use crate::core::completion::Status;
use crate::core::error::PostError;
use crate::core::memory::Memory;
use crate::core::queue_pair::QueuePair;
use crate::core::send_queue::SendWork;
use crate::core::verbs::Verbs;
use crate::core::work::{Operation, Payload};
use crate::net::{Datagram, Room, StreamShutdown};
use crate::transport::{Endpoint, StreamEnd};

/// A queue pair on iWARP.
pub(crate) type IwarpQp = Box<Stream>;

impl Endpoint for IwarpQp {
    type Shared = IwarpShared;

    #[inline]
    fn qp(&self) -> &QueuePair {
        &self.qp
    }

    #[inline]
    fn qp_mut(&mut self) -> &mut QueuePair {
        &mut self.qp
    }

    fn rule(&self, kind: QpType, from: QpState, to: QpState) -> Option<Rule> {
        states::rule(kind, from, to)
    }

    fn modified(&mut self, _: &QpChange, _: &IwarpShared) {}

    /// RDMAP has no RTR: a queue pair that has its stream may send (RFC 5040 section 6.1).
    fn takes_sends_in(&self, state: QpState) -> bool {
        !matches!(state, QpState::Reset | QpState::Init)
    }

    fn accepts(&self, operation: &Operation, _: &Payload<'_>, _: u32) -> Result<(), PostError> {
        // The peer's extensions are known once the connection is set up.
        let extended = self.extended || self.link.is_none();
        if is_carried(operation, extended) { Ok(()) } else { Err(PostError::Transport) }
    }

    #[inline]
    fn post_send<M: Memory>(&mut self, work: SendWork, _: &mut IwarpShared, verbs: &mut Verbs<M>) {
        self.qp.sends.push(work);
        if self.qp.state == QpState::Err {
            self.qp.flush_sends(verbs);
        }
    }

    fn is_from_peer(&self, _: &AddressPair) -> bool {
        false
    }

    fn receive<M: Memory>(
        &mut self,
        (): (),
        _: &Datagram<'_>,
        _: &mut IwarpShared,
        _: &mut Verbs<M>,
    ) -> bool {
        false
    }

    fn receive_stream<M: Memory>(
        &mut self,
        bytes: &[u8],
        shared: &mut IwarpShared,
        verbs: &mut Verbs<M>,
    ) -> usize {
        self.is_starved = false;
        if matches!(self.qp.state, QpState::Reset | QpState::Init) {
            return 0;
        }
        let mut rest = bytes;
        if let Some(Link { stage: Stage::Open, begun: Some(begun), .. }) = self.link {
            rest = &rest[self.place_part(begun, rest, verbs)..];
            if self.link.as_ref().is_some_and(|link| link.begun.is_some()) {
                return bytes.len() - rest.len();
            }
        }
        while let Some(Link { stage: Stage::Open, reader, .. }) = self.link {
            let fpdu = match reader.peek(rest, &mut shared.unmarked) {
                Ok(Some(fpdu)) => fpdu,
                Ok(None) => return bytes.len() - rest.len() + self.place_front(rest, verbs),
                Err(error) => {
                    self.fail(Fault::fpdu(error), None, verbs);
                    break;
                }
            };
            match self.process_ulpdu(fpdu.ulpdu, verbs) {
                Ok(SegmentOutcome::Processed) => {
                    rest = &rest[fpdu.len..];
                    if let Some(link) = &mut self.link {
                        link.reader = fpdu.next;
                    }
                    self.segment_complete(verbs);
                }
                Ok(SegmentOutcome::NoReceive) => {
                    self.is_starved = true;
                    return bytes.len() - rest.len();
                }
                Err(fault) => self.fail(fault, Some(Faulty::whole(fpdu.ulpdu)), verbs),
            }
        }
        // Bytes after the end are dropped.
        bytes.len()
    }

    fn wants_stream<M: Memory>(&self, verbs: &Verbs<M>) -> bool {
        match self.qp.state {
            QpState::Reset | QpState::Init => false,
            QpState::Err => true,
            _ => !self.is_starved || self.qp.has_receive(verbs),
        }
    }

    fn ends_stream(&self) -> bool {
        self.link.as_ref().is_some_and(Link::ends)
    }

    fn stream_closed<M: Memory>(&mut self, _: StreamEnd, _: &mut IwarpShared, verbs: &mut Verbs<M>) {
        // A queue pair that was reset has no stream.
        let Some(link) = &mut self.link else { return };
        link.ended();
        self.stop(verbs);
    }

    fn write<M: Memory>(
        &mut self,
        room: &mut Room<'_>,
        shared: &mut IwarpShared,
        verbs: &mut Verbs<M>,
    ) -> bool {
        let (handle, mut more) = (self.qp.handle, false);
        let filled = room.fill_stream(handle, |buffer| {
            let (len, is_full) = self.fill(buffer, shared, verbs);
            more = is_full;
            len
        });
        match &mut self.link {
            Some(link) if filled && !more => match link.stage {
                Stage::Ending(how) if room.end_stream(handle, how) => {
                    link.ended();
                    false
                }
                Stage::Ending(_) => true,
                Stage::Open | Stage::Ended => false,
            },
            _ => !filled || more,
        }
    }

    #[inline]
    fn has_work(&self, _: Instant) -> bool {
        self.has_segments()
    }

    #[inline]
    fn next_timeout(&self, _: &IwarpShared, _: Instant) -> Option<Instant> {
        self.link.as_ref().and_then(|link| link.opening.due())
    }

    fn handle_timeout<M: Memory>(&mut self, _: &mut IwarpShared, verbs: &mut Verbs<M>) {
        if let Some(link) = &mut self.link {
            link.opening.handle_timeout(verbs.now);
        }
    }

    fn repeat_acknowledgement(&mut self) {}

    fn drain<M: Memory>(&mut self, _: &mut IwarpShared, verbs: &mut Verbs<M>) {
        let Stream { qp, requester, .. } = &mut **self;
        qp.drain.begin();
        requester.check_drained(&mut Context { qp, verbs });
    }

    fn enter_error<M: Memory>(&mut self, why: Status, _: &mut IwarpShared, verbs: &mut Verbs<M>) {
        let (is_busy, is_blocked) = (self.is_busy(), self.qp.is_blocked);
        if let Some(link) = &mut self.link {
            if is_blocked {
                // The peer may never read the TERMINATE.
                link.give_up_terminate();
            }
            match why {
                Status::Fatal => link.end_by_failure(),
                _ if is_busy => link.end(StreamShutdown::Abort),
                _ => link.end(StreamShutdown::Orderly),
            }
        }
        self.stop(verbs);
    }

    fn dissolve<M: Memory>(self, _: &mut IwarpShared, _: &mut Verbs<M>) -> QueuePair {
        self.qp
    }

    fn state_bytes(&self) -> usize {
        size_of::<Stream>()
    }
}
