//! Handling CQEPs: completions of requests, and the end of the connection.

use nichrome_wire::star::{Completed, Cqe, CqeNotice};

use super::{Closing, Stateless};
use crate::core::attributes::QpState;
use crate::core::completion::{CompletedOperation, Notice, Status};
use crate::core::cq::Urgency;
use crate::core::event::Event;
use crate::core::memory::Memory;
use crate::core::protection::Invalidator;
use crate::core::queue_pair::{Received, Receives};
use crate::core::verbs::Verbs;
use crate::star::status::status;

impl Stateless {
    /// Handles a CQE. Returns false if it was dropped because it names no outstanding request.
    pub(super) fn completed<M: Memory>(&mut self, cqe: &Cqe, urgency: Urgency, verbs: &mut Verbs<M>) -> bool {
        if !self.knows(cqe, verbs) {
            verbs.counters.dropped_stale += 1;
            // The client may have executed a send that was flushed here. A receive that was flushed or
            // returned to its queue is not acknowledged: the client's send must fail.
            return self.is_closed() && !cqe.completed.is_of_receive();
        }
        match cqe.completed {
            Completed::Connection => self.client_ended(status(cqe.status), verbs),
            Completed::ReceiveRequest => self.receives_requested(cqe.wr_id, verbs),
            Completed::Receive => self.receive_completed(cqe, CompletedOperation::Receive, urgency, verbs),
            Completed::ReceiveWithWrite => {
                self.receive_completed(cqe, CompletedOperation::ReceiveWithWrite, urgency, verbs);
            }
            _ => self.sends_completed(cqe, verbs),
        }
        true
    }

    /// Returns true if a CQE names a request that was sent to the client. A receive must be the oldest, and
    /// have buffers for the message.
    fn knows<M: Memory>(&self, cqe: &Cqe, verbs: &Verbs<M>) -> bool {
        let room = |number| {
            let slot = self.receive_slot(number, verbs);
            slot.map_or(0, |(queue, slot)| queue.buffers(slot).iter().map(|sge| u64::from(sge.len)).sum())
        };
        let oldest = Some(cqe.wr_id).filter(|number| *number == self.receives.done);
        let (queue, number) = match cqe.completed {
            Completed::Connection | Completed::ReceiveRequest => return true,
            Completed::Receive => {
                (&self.receives, oldest.filter(|number| u64::from(cqe.len) <= room(*number)))
            }
            Completed::ReceiveWithWrite => (&self.receives, oldest),
            _ => (&self.sends, Some(cqe.wr_id)),
        };
        let before = number.and_then(|number| usize::try_from(number.checked_sub(queue.done)?).ok());
        let element = before.and_then(|before| queue.elements.get(before));
        element.is_some_and(|element| self.outbox.is_sent(*element))
    }

    /// Completes a send and all unreported ones before it.
    fn sends_completed<M: Memory>(&mut self, cqe: &Cqe, verbs: &mut Verbs<M>) {
        let before = cqe.wr_id.wrapping_sub(self.sends.done);
        (0..before).for_each(|_| self.pop_send(Status::Success, verbs));
        match status(cqe.status) {
            Status::Success => self.pop_send(Status::Success, verbs),
            failure => {
                self.pop_send(failure, verbs);
                // The client is in ERROR, too.
                self.close_now(verbs);
            }
        }
        self.retire(verbs);
    }

    pub(super) fn pop_send<M: Memory>(&mut self, status: Status, verbs: &mut Verbs<M>) {
        if let Some(element) = self.sends.elements.pop_front() {
            // A completed request was received: an implicit EA.
            self.outbox.acknowledged(element + 1, verbs.now);
            self.sends.done += 1;
        }
        self.qp.complete_send(status, verbs);
    }

    fn receive_completed<M: Memory>(
        &mut self,
        cqe: &Cqe,
        operation: CompletedOperation,
        urgency: Urgency,
        verbs: &mut Verbs<M>,
    ) {
        self.qp.receiving = match &mut self.qp.receives {
            Receives::Own(queue) => queue.take(),
            Receives::Shared(_) => self.end_loan(),
        };
        if let Some(element) = self.receives.elements.pop_front() {
            self.outbox.acknowledged(element + 1, verbs.now);
            self.receives.done += 1;
        }
        let (mut ended, mut notice) = (status(cqe.status), None);
        match cqe.notice {
            Some(CqeNotice::Immediate(data)) => notice = Some(Notice::Immediate(data)),
            Some(CqeNotice::Invalidate(key)) => {
                match verbs.protection.invalidate(self.qp.accessor(), key, Invalidator::Peer) {
                    Ok(()) => notice = Some(Notice::Invalidated(key)),
                    Err(_) => ended = Status::RemoteInvalidRequest,
                }
            }
            None => {}
        }
        let done = Received { status: ended, operation, len: cqe.len, notice, source: None };
        self.qp.complete_receive(done, urgency, verbs);
        self.wait_for_receives(verbs);
        let event = match ended {
            Status::Success => return,
            Status::LocalLength => Event::QpRequestError as fn(_) -> _,
            Status::RemoteInvalidRequest => Event::QpAccessError as fn(_) -> _,
            _ => Event::QpFatal as fn(_) -> _,
        };
        verbs.events.push_back(event(self.qp.handle));
        self.enter_error(verbs);
    }

    /// Handles the end of the client's connection: after an access violation or an invalid request, moves the
    /// queue pair to ERROR; else only fails the outstanding sends, after the [`Grace`].
    ///
    /// [`Grace`]: crate::star::grace::Grace
    fn client_ended<M: Memory>(&mut self, status: Status, verbs: &mut Verbs<M>) {
        if self.closing != Closing::Open {
            return self.close_now(verbs);
        }
        let event = match status {
            Status::RemoteAccess => Event::QpAccessError as fn(_) -> _,
            Status::RemoteInvalidRequest => Event::QpRequestError as fn(_) -> _,
            _ => {
                self.closing = Closing::Closed;
                self.outbox.clear();
                self.sends.elements.clear();
                self.return_receives(verbs);
                return self.await_end(verbs);
            }
        };
        verbs.events.push_back(event(self.qp.handle));
        self.close_now(verbs);
    }

    /// Starts the time after which sends on a closed connection fail, if there are any.
    pub(super) fn await_end<M: Memory>(&mut self, verbs: &Verbs<M>) {
        let sends = matches!(self.qp.state, QpState::Rts | QpState::Sqd);
        if self.closing == Closing::Closed && sends && self.qp.sends.len() > 0 {
            self.grace.begin(verbs.now);
        }
    }

    /// Fails the sends of a closed connection.
    pub(super) fn fail_closed<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        let sends = matches!(self.qp.state, QpState::Rts | QpState::Sqd);
        if self.closing == Closing::Closed && sends && self.qp.sends.len() > 0 {
            self.pop_send(Status::RetryExceeded, verbs);
            self.close_now(verbs);
        }
    }
}
