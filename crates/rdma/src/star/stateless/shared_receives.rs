//! Receives of a shared queue, lent to clients on demand.
//!
//! The client asks by a CQEP for one receive for each SEND or WRITE with immediate data that its program has
//! posted, so a client without such requests holds none. The driver lends the requested receives, up to
//! [`MAX_LENT`] at a time; connections that wait take turns of one receive each. The card is not involved.
//!
//! A receive that is lent is not taken back while the connection lives: the client may be storing into its
//! buffers, and only the client knows. Receives return to the front of the queue when the connection ends.
//! The driver gives up a client that holds receives and is silent for the timeouts of the queue pair.

use nichrome_wire::SeqNumber;

use super::loans::{Loan, MAX_LENT};
use super::{Entry, Stateless};
use crate::core::access::Access;
use crate::core::completion::Status;
use crate::core::cq::Urgency;
use crate::core::event::Event;
use crate::core::kind;
use crate::core::memory::Memory;
use crate::core::queue_pair::{Received, Receives};
use crate::core::receive_queue::ReceiveSlot;
use crate::core::slab::Handle;
use crate::core::verbs::Verbs;
use crate::star::element_room::check_buffers;

impl Stateless {
    fn shared_queue(&self) -> Option<Handle<kind::Srq>> {
        match &self.qp.receives {
            Receives::Own(_) => None,
            Receives::Shared(srq) => Some(*srq),
        }
    }

    /// Returns the receive with this number, if the client holds it.
    pub(super) fn loan(&self, number: u64) -> Option<&Loan> {
        self.loans.held.get(self.receive_index(number)?)
    }

    /// Returns the oldest receive that the client holds, with its element's number.
    pub(super) fn oldest_loan(&self) -> Option<(SeqNumber, Entry)> {
        self.loans.held.front()?;
        Some((*self.receives.elements.front()?, Entry::Receive(self.receives.done)))
    }

    /// Returns true if an element is to leave before the EA of a request for receives: a client that has the
    /// EA and no receive counts the time as RNR.
    pub(super) fn has_loan_to_send(&self) -> bool {
        !self.loans.held.is_empty() && self.outbox.next().is_some()
    }

    /// Handles the client's request for all receives before `number`.
    pub(super) fn receives_requested<M: Memory>(&mut self, number: u64, verbs: &mut Verbs<M>) {
        self.loans.wanted = self.loans.wanted.max(number);
        self.wait_for_receives(verbs);
    }

    fn wants_receive(&self) -> bool {
        let lent = self.loans.held.len();
        self.is_up() && lent < MAX_LENT && self.receives.done + (lent as u64) < self.loans.wanted
    }

    /// Waits for a receive of the shared queue, if the client may be lent another.
    pub(super) fn wait_for_receives<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        if let Some(srq) = self.shared_queue()
            && self.wants_receive()
            && !self.loans.is_waiting
        {
            self.loans.is_waiting = true;
            verbs.wait_for_receive(srq, self.qp.handle);
        }
    }

    /// Lends the client a receive, in the queue pair's turn.
    pub(in crate::star) fn take_shared_receive<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        self.loans.is_waiting = false;
        let Some(srq) = self.shared_queue().filter(|_| self.wants_receive()) else { return };
        let Some(slot) = verbs.take_shared_receive(srq) else { return };
        match self.checked(srq, slot, verbs) {
            Ok(loan) => {
                let number = self.receives.done + self.loans.held.len() as u64;
                self.receives.elements.push_back(self.outbox.push(Entry::Receive(number)));
                self.loans.held.push_back(loan);
                self.wait_for_receives(verbs);
            }
            Err(status) => {
                self.qp.receiving = Some(slot);
                self.fail_receive(status, verbs);
            }
        }
    }

    /// Completes the receive that was taken, which no WQEP can announce, and moves the queue pair to ERROR.
    pub(super) fn fail_receive<M: Memory>(&mut self, status: Status, verbs: &mut Verbs<M>) {
        self.qp.complete_receive(Received::failed(status), Urgency::Plain, verbs);
        verbs.events.push_back(Event::QpFatal(self.qp.handle));
        self.enter_error(verbs);
    }

    /// Checks that a WQEP can announce a receive, and that its keys are of the queue's domain (IBA 10.2.9).
    fn checked<M: Memory>(
        &self,
        srq: Handle<kind::Srq>,
        slot: ReceiveSlot,
        verbs: &Verbs<M>,
    ) -> Result<Loan, Status> {
        let shared = verbs.srqs.get(srq).ok_or(Status::LocalQpOperation)?;
        let buffers = shared.queue.buffers(slot);
        check_buffers(&self.qp, buffers.len()).map_err(|_| Status::LocalQpOperation)?;
        for sge in buffers {
            let len = sge.len.into();
            let found =
                verbs.protection.local(shared.domain, sge.lkey, sge.address, len, Access::LOCAL_WRITE);
            found.map_err(|_| Status::LocalProtection)?;
        }
        Ok(Loan { slot, buffers: buffers.len(), len: shared.queue.room(slot) })
    }

    /// Ends the loan of the oldest receive, which the client has filled.
    pub(super) fn end_loan(&mut self) -> Option<ReceiveSlot> {
        self.loans.held.pop_front().map(|loan| loan.slot)
    }

    /// Returns the client's receives to the shared queue, and stops waiting for more. The client's leases are
    /// void before the queue pairs that wait are served.
    pub(super) fn return_receives<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        self.receives.elements.clear();
        let Some(srq) = self.shared_queue() else { return };
        if std::mem::take(&mut self.loans.is_waiting) {
            verbs.stop_waiting(srq, self.qp.handle);
        }
        let held = std::mem::take(&mut self.loans.held);
        verbs.put_back_shared_receives(srq, held.into_iter().map(|loan| loan.slot));
    }

    /// Raises the event of the last receive, once (IBA 11.6.3.2).
    pub(super) fn report_last_receive<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        if self.shared_queue().is_some() && !self.loans.is_ended {
            self.loans.is_ended = true;
            verbs.events.push_back(Event::LastReceiveReached(self.qp.handle));
        }
    }
}
