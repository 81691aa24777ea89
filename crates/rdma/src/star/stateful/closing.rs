//! The end of the connection: closed by the server, given up, or ended by an error of the client.
//!
//! | end | the client's requests |
//! |---|---|
//! | the server has closed | complete if the card has answered or still answers; the others fail after the [`Grace`] |
//! | the server is silent for the timeouts and retries of the queue pair | fail at once |
//! | the client's queue pair enters the error state | are flushed |
//!
//! [`Grace`]: crate::star::grace::Grace

use nichrome_wire::star::{Completed, Cqe};

use super::Stateful;
use crate::core::attributes::QpState;
use crate::core::completion::Status;
use crate::core::cq::Urgency;
use crate::core::drain::Drain;
use crate::core::event::Event;
use crate::core::memory::Memory;
use crate::core::queue_pair::{Received, Receives};
use crate::core::verbs::Verbs;
use crate::star::status::code;

impl Stateful {
    /// Ends the connection with a server that no longer answers. Requests of the client's program fail.
    pub(super) fn peer_gone<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        self.is_closed = true;
        self.put_back_receives(verbs);
        self.stop_operations();
        self.fail_closed(verbs);
    }

    /// Ends the connection with a server that has closed it. No more packets of operations leave.
    pub(super) fn peer_closed<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        self.is_closed = true;
        self.put_back_receives(verbs);
        self.server_ops.clear();
        self.stop_waiting();
        self.egress_wait.clear();
        self.rdp.timer.stop();
        self.gd.timer.stop();
        self.await_end(verbs);
    }

    /// Starts the time after which requests on a closed connection fail, if there are any.
    pub(super) fn await_end<M: Memory>(&mut self, verbs: &Verbs<M>) {
        if self.is_closed && self.qp.sends.len() > 0 {
            self.grace.begin(verbs.now);
        }
    }

    /// Returns the receives of the server's operations to their queue.
    pub(super) fn put_back_receives<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        while let Some(operation) = self.server_ops.operations.pop_back() {
            self.qp.receiving = operation.receive;
            self.qp.put_back_receive(verbs);
        }
    }

    /// Drops the server's operations and requests, all packets in flight, and the timers of operations.
    fn stop_operations(&mut self) {
        self.rdp.clear();
        self.gd.clear();
        self.server_ops.clear();
        self.mirror.clear();
        self.stop_waiting();
        self.egress_wait.clear();
    }

    /// Handles a server whose driver acknowledges no CQEP: fails the operations that wait for that or for a
    /// receive. Without such operations, the server may have closed in good order.
    pub(super) fn server_timed_out<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        let waits = self.client_ops.operations.iter().any(|operation| operation.reported.is_some());
        if waits || self.is_request_outstanding() || self.next_liveness_check.is_some() {
            self.peer_gone(verbs);
        }
        if self.qp.state == QpState::Err || self.is_closed {
            self.outbox.clear();
        }
    }

    /// Fails the client's requests on a closed connection.
    pub(super) fn fail_closed<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        if self.is_closed && self.qp.sends.len() > 0 && matches!(self.qp.state, QpState::Rts | QpState::Sqd) {
            self.client_ops.clear();
            self.qp.complete_send(Status::RetryExceeded, verbs);
            self.enter_error(Status::RetryExceeded, verbs);
        }
    }

    /// Moves the queue pair to ERROR, flushes its queues and queues a CQEP with the status.
    pub(in crate::star) fn enter_error<M: Memory>(&mut self, status: Status, verbs: &mut Verbs<M>) {
        let entered = self.qp.state != QpState::Err;
        self.qp.state = QpState::Err;
        self.client_ops.clear();
        let flushed = Received::failed(Status::Flushed);
        while let Some(operation) = self.server_ops.operations.pop_front() {
            self.qp.receiving = operation.receive;
            self.qp.complete_receive(flushed, Urgency::Plain, verbs);
        }
        self.stop_operations();
        self.qp.drain = Drain::Running;
        if entered && !self.is_closed {
            self.report_end(status);
        }
        self.is_closed = true;
        self.qp.flush(verbs);
        if entered && matches!(self.qp.receives, Receives::Shared(_)) {
            verbs.events.push_back(Event::LastReceiveReached(self.qp.handle));
        }
    }

    /// Queues the CQEP of the connection's end.
    fn report_end(&mut self, status: Status) {
        let completed = Completed::Connection;
        self.report(Cqe { wr_id: 0, status: code(status), completed, len: 0, notice: None });
    }

    /// Ends the connection with a server whose card no longer answers. Its driver may still answer: by the
    /// CQEP it learns that its requests do not complete, and gets back the receives that the client holds.
    pub(super) fn card_gone<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        self.report_end(Status::RetryExceeded);
        self.peer_gone(verbs);
    }
}
