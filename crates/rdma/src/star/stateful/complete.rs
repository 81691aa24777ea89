//! Completing operations in order, by CQEs for the client's program and CQEPs for the server's driver.
//!
//! | operation | completes |
//! |---|---|
//! | the client's WRITE, READ | when it is settled |
//! | the client's SEND, WRITE with immediate | when the server's driver has acknowledged the CQEP of its receive |
//! | the server's, of any kind | when it is settled, with a CQEP and the CQE of the client's receive |
//!
//! A failed operation completes after all before it.

use nichrome_wire::SeqNumber;
use nichrome_wire::star::{Completed, Cqe, CqeNotice, Flags, StatusCode};

use super::demand::uses_receive;
use super::{Report, Stateful};
use crate::core::attributes::QpState;
use crate::core::completion::{CompletedOperation, Notice, Status};
use crate::core::cq::Urgency;
use crate::core::event::Event;
use crate::core::memory::Memory;
use crate::core::protection::Invalidator;
use crate::core::queue_pair::Received;
use crate::core::send_queue::SendWork;
use crate::core::verbs::Verbs;
use crate::core::work::{Operation as Verb, SendFlags};
use crate::star::flight::Initiator;
use crate::star::pipeline::Operation;
use crate::star::status::code;

/// Maximum number of unsignaled sends of the server before a CQEP reports them.
const REPORT_INTERVAL: u32 = 16;

impl Stateful {
    /// Marks an operation as failed, unless it has failed before.
    pub(super) fn fail_operation(&mut self, initiator: Initiator, index: usize, failure: (Status, Status)) {
        if let Some(operation) = self.pipeline_mut(initiator).operations.get_mut(index) {
            operation.failed.get_or_insert(failure);
        }
    }

    /// Completes the operations that are settled or failed.
    pub(super) fn complete<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        self.complete_client_ops(verbs);
        self.complete_server_ops(verbs);
        self.check_drained(verbs);
    }

    fn complete_client_ops<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        while let Some(operation) = self.client_ops.operations.get(self.client_ops.settled)
            && operation.failed.is_none()
            && self.client_ops.is_settled(operation)
        {
            let index = self.client_ops.settled;
            self.client_ops.settled += 1;
            self.client_op_settled(index);
        }
        while let Some(operation) = self.client_ops.operations.front() {
            if self.client_ops.settled > 0 {
                if operation.reported.is_some_and(|reported| !self.outbox.is_acknowledged(reported)) {
                    return;
                }
                self.client_ops.retire();
                self.client_ops.settled -= 1;
                self.qp.complete_send(Status::Success, verbs);
            } else if let Some((status, receive)) = self.client_ops.failure() {
                return self.fail_client_op(status, receive, verbs);
            } else {
                return;
            }
        }
    }

    /// Queues the CQEP for the server's receive that an operation of the client consumed.
    fn client_op_settled(&mut self, index: usize) {
        let Some(work) = self.qp.sends.get(index).filter(|work| uses_receive(&work.operation)) else {
            return;
        };
        let notice = match work.operation {
            Verb::SendWithImmediate(data) | Verb::WriteWithImmediate(_, data) => {
                Some(CqeNotice::Immediate(data))
            }
            Verb::SendWithInvalidate(key) => Some(CqeNotice::Invalidate(key)),
            _ => None,
        };
        let completed = match work.operation {
            Verb::WriteWithImmediate(..) => Completed::ReceiveWithWrite,
            _ => Completed::Receive,
        };
        let solicited = work.flags.contains(SendFlags::SOLICITED);
        let flags = if solicited { Flags::SOLICITED } else { Flags::NONE };
        let len = work.len;
        let Some(wr_id) = self.mirror.release_receive() else { return };
        let cqe = Cqe { wr_id, status: StatusCode::SUCCESS, completed, len, notice };
        let reported = self.outbox.push(Report { cqe, flags });
        self.client_ops.operations[index].reported = Some(reported);
    }

    /// Completes the oldest of the client's sends in error and moves the queue pair to ERROR.
    fn fail_client_op<M: Memory>(&mut self, status: Status, receive: Status, verbs: &mut Verbs<M>) {
        let taken = self.client_ops.operations.front().is_some_and(|operation| operation.mirrored.is_some());
        if taken
            && receive != Status::Flushed
            && let Some(wr_id) = self.mirror.release_receive()
        {
            self.report(Cqe {
                wr_id,
                status: code(receive),
                completed: Completed::Receive,
                len: 0,
                notice: None,
            });
        }
        self.client_ops.retire();
        self.qp.complete_send(status, verbs);
        self.enter_error(status, verbs);
    }

    /// Queues a CQEP and returns its number.
    pub(super) fn report(&mut self, cqe: Cqe) -> SeqNumber {
        self.outbox.push(Report { cqe, flags: Flags::NONE })
    }

    fn complete_server_ops<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        while let Some(operation) = self.server_ops.operations.front() {
            if !self.server_ops.is_settled(operation) || operation.failed.is_some() {
                if let Some((status, receive)) = self.server_ops.failure() {
                    self.fail_server_op(status, receive, verbs);
                }
                return;
            }
            let Some(operation) = self.server_ops.retire() else { return };
            let Some(work) = self.mirror.pop_send() else { return };
            if !self.server_op_settled(&operation, &work, verbs) {
                return;
            }
        }
    }

    /// Completes a settled operation of the server. Returns false if that moves the queue pair to ERROR.
    fn server_op_settled<M: Memory>(
        &mut self,
        operation: &Operation,
        work: &SendWork,
        verbs: &mut Verbs<M>,
    ) -> bool {
        self.qp.receiving = operation.receive;
        let notice = match work.operation {
            Verb::SendWithImmediate(data) | Verb::WriteWithImmediate(_, data) => {
                Some(Notice::Immediate(data))
            }
            Verb::SendWithInvalidate(key) => {
                if verbs.protection.invalidate(self.qp.accessor(), key, Invalidator::Peer).is_err() {
                    self.report_send(work, Status::RemoteAccess);
                    let failed = Received::failed(Status::RemoteInvalidRequest);
                    self.qp.complete_receive(failed, Urgency::Plain, verbs);
                    verbs.events.push_back(Event::QpAccessError(self.qp.handle));
                    self.enter_error(Status::RemoteAccess, verbs);
                    return false;
                }
                Some(Notice::Invalidated(key))
            }
            _ => None,
        };
        if operation.receive.is_some() {
            let operation = match work.operation {
                Verb::WriteWithImmediate(..) => CompletedOperation::ReceiveWithWrite,
                _ => CompletedOperation::Receive,
            };
            let solicited = work.flags.contains(SendFlags::SOLICITED);
            let urgency = if solicited { Urgency::Solicited } else { Urgency::Plain };
            let done = Received { status: Status::Success, operation, len: work.len, notice, source: None };
            self.qp.complete_receive(done, urgency, verbs);
        }
        self.unreported += 1;
        let signaled = work.flags.contains(SendFlags::SIGNALED);
        if signaled || self.unreported >= REPORT_INTERVAL || self.mirror.sends.len() == 0 {
            self.report_send(work, Status::Success);
        }
        true
    }

    fn report_send(&mut self, work: &SendWork, status: Status) {
        self.unreported = 0;
        let completed = match work.completed_operation() {
            CompletedOperation::Write => Completed::Write,
            CompletedOperation::Read => Completed::Read,
            CompletedOperation::CompareSwap => Completed::CompareSwap,
            CompletedOperation::FetchAdd => Completed::FetchAdd,
            _ => Completed::Send,
        };
        let (wr_id, len) = (work.wr_id, work.len);
        self.mirror.report_queued();
        self.report(Cqe { wr_id, status: code(status), completed, len, notice: None });
    }

    /// Completes the oldest of the server's operations in error. A violation of the client's rights moves
    /// both queue pairs to ERROR; an error in the server's own memory, the server's only.
    fn fail_server_op<M: Memory>(&mut self, status: Status, receive: Status, verbs: &mut Verbs<M>) {
        let Some(operation) = self.server_ops.retire() else { return };
        let Some(work) = self.mirror.pop_send() else { return };
        self.report_send(&work, status);
        verbs.counters.refused += 1;
        let event = match status {
            Status::RemoteAccess => Event::QpAccessError as fn(_) -> _,
            Status::RemoteInvalidRequest => Event::QpRequestError as fn(_) -> _,
            Status::RemoteOperation | Status::BadResponse => Event::QpFatal as fn(_) -> _,
            _ => {
                // Returns the receives of the operations behind it to the queue first.
                self.peer_closed(verbs);
                self.qp.receiving = operation.receive;
                return self.qp.put_back_receive(verbs);
            }
        };
        self.qp.receiving = operation.receive;
        self.qp.complete_receive(Received::failed(receive), Urgency::Plain, verbs);
        verbs.events.push_back(event(self.qp.handle));
        self.enter_error(status, verbs);
    }

    /// Retransmits the last EA and all unacknowledged CQEPs.
    pub(in crate::star) fn repeat_acknowledgement(&mut self) {
        if !self.is_closed {
            self.inbox.ack_due = true;
            self.outbox.retransmit();
        }
    }

    /// Adds a request whose form has been checked.
    pub(in crate::star) fn post_send<M: Memory>(&mut self, work: SendWork, verbs: &mut Verbs<M>) {
        if let Some(demand) = &mut self.demand {
            demand.posted(&work);
        }
        self.qp.sends.push(work);
        if self.qp.state == QpState::Err {
            self.qp.flush_sends(verbs);
        }
        self.await_end(verbs);
    }

    /// Reports that the send queue has drained, if it has.
    pub(in crate::star) fn check_drained<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        self.qp.check_drained(!self.client_ops.operations.is_empty(), verbs);
    }
}
