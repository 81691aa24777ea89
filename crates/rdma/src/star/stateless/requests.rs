//! Announcing the program's requests to the client in WQEPs.

use nichrome_wire::star::{Data, Element, Request, Segment, Wqe, WqeFlags};

use super::{Entry, Stateless};
use crate::core::access::Access;
use crate::core::completion::Status;
use crate::core::memory::Memory;
use crate::core::protection::LKey;
use crate::core::queue_pair::{Receives, Signaling};
use crate::core::receive_queue::{ReceiveQueue, ReceiveSlot};
use crate::core::send_queue::{Pieces, Progress, SendWork};
use crate::core::verbs::Verbs;
use crate::core::work::Sge;
use crate::star::element_room::{check_buffers, element_room};
use crate::star::mirror;

impl Stateless {
    /// Announces the receives of the queue pair's own queue. A receive that was posted before set-up and does
    /// not fit an element fails in order.
    pub(super) fn announce_receives<M: Memory>(&mut self, verbs: &mut Verbs<M>) {
        while let Receives::Own(queue) = &self.qp.receives {
            let announced = self.receives.elements.len();
            let Some(slot) = queue.waiting(announced) else { return };
            if check_buffers(&self.qp, queue.buffers(slot).len()).is_ok() {
                let number = self.receives.done + announced as u64;
                self.receives.elements.push_back(self.outbox.push(Entry::Receive(number)));
            } else {
                if announced == 0 && self.qp.take_receive(verbs) {
                    self.fail_receive(Status::LocalQpOperation, verbs);
                }
                return;
            }
        }
    }

    /// Announces the next send. Returns false if there is none, if its buffers are invalid, or if it was
    /// posted before set-up and does not fit an element.
    pub(super) fn announce_send<M: Memory>(&mut self, verbs: &Verbs<M>) -> bool {
        let index = self.sends.elements.len();
        let Some(work) = self.qp.sends.get(index).filter(|work| work.progress == Progress::Posted) else {
            return false;
        };
        let right = if work.wants_data() { Access::LOCAL_WRITE } else { Access::NONE };
        let owned = |sge: Sge| {
            let len = u64::from(sge.len);
            verbs.protection.local(self.qp.domain, sge.lkey, sge.address, len, right).is_ok()
        };
        let failure = if !self.fits_element(work) {
            Some(Status::LocalQpOperation)
        } else if !mirror::pieces(&self.qp.sends, work.source, work.len).all(owned) {
            Some(Status::LocalProtection)
        } else {
            None
        };
        if let Some(status) = failure {
            if let Some(work) = self.qp.sends.get_mut(index) {
                work.progress = Progress::Failed(status);
            }
            return false;
        }
        let number = self.sends.done + index as u64;
        self.sends.elements.push_back(self.outbox.push(Entry::Send(number)));
        true
    }

    fn fits_element(&self, work: &SendWork) -> bool {
        match self.qp.sends.pieces(work.source, 0, work.len) {
            Pieces::Inline(..) => work.len as usize <= element_room(&self.qp),
            Pieces::Buffers(buffers) => check_buffers(&self.qp, buffers.count()).is_ok(),
        }
    }

    pub(super) fn send(&self, number: u64) -> Option<&SendWork> {
        self.qp.sends.get(usize::try_from(number.checked_sub(self.sends.done)?).ok()?)
    }

    /// Returns the announced receive with this number, and its queue.
    pub(super) fn receive_slot<'a, M: Memory>(
        &'a self,
        number: u64,
        verbs: &'a Verbs<M>,
    ) -> Option<(&'a ReceiveQueue, ReceiveSlot)> {
        match &self.qp.receives {
            Receives::Own(queue) => Some((queue, queue.waiting(self.receive_index(number)?)?)),
            Receives::Shared(srq) => Some((&verbs.srqs.get(*srq)?.queue, self.loan(number)?.slot)),
        }
    }

    /// Returns the buffers of an announced receive. A buffer that the queue's domain may not write has key 0,
    /// which no region has: the card, which knows no domains of connections, refuses the message.
    pub(super) fn receive_buffers<'a, M: Memory>(
        &'a self,
        number: u64,
        verbs: &'a Verbs<M>,
    ) -> Option<impl Iterator<Item = Sge> + 'a> {
        let (queue, slot) = self.receive_slot(number, verbs)?;
        let domain = match &self.qp.receives {
            Receives::Own(_) => self.qp.domain,
            Receives::Shared(srq) => verbs.srqs.get(*srq)?.domain,
        };
        Some(queue.buffers(slot).iter().map(move |sge| {
            let len = sge.len.into();
            match verbs.protection.local(domain, sge.lkey, sge.address, len, Access::LOCAL_WRITE) {
                Ok(_) => *sge,
                Err(_) => Sge { lkey: LKey(0), ..*sge },
            }
        }))
    }

    /// Returns the number of buffers of an announced receive, and their total length in bytes.
    fn receive_form(&self, number: u64) -> Option<(usize, u32)> {
        match &self.qp.receives {
            Receives::Own(queue) => {
                let slot = queue.waiting(self.receive_index(number)?)?;
                Some((queue.buffers(slot).len(), queue.room(slot)))
            }
            Receives::Shared(_) => self.loan(number).map(|loan| (loan.buffers, loan.len)),
        }
    }

    pub(super) fn receive_index(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.receives.done)?).ok()
    }

    /// Returns the element of an entry, and the length of its payload in bytes.
    pub(super) fn element(&self, entry: Entry) -> Option<(Element, usize)> {
        let wqe = match entry {
            Entry::Control(element) => return Some((element, 0)),
            Entry::Send(wr_id) => {
                let work = self.send(wr_id)?;
                let request = mirror::request(&work.operation)?;
                let data = match self.qp.sends.pieces(work.source, 0, work.len) {
                    Pieces::Inline(..) => Data::Inline,
                    Pieces::Buffers(buffers) => Data::Segments(u8::try_from(buffers.count()).ok()?),
                };
                Wqe { wr_id, request, flags: self.flags(work), len: work.len, data }
            }
            Entry::Receive(wr_id) => {
                let (buffers, len) = self.receive_form(wr_id)?;
                let data = Data::Segments(u8::try_from(buffers).ok()?);
                Wqe { wr_id, request: Request::Receive, flags: WqeFlags::NONE, len, data }
            }
        };
        let payload_len = match wqe.data {
            Data::Segments(count) => usize::from(count) * Segment::LEN,
            Data::Inline => wqe.len as usize,
        };
        Some((Element::Work(wqe), payload_len))
    }

    fn flags(&self, work: &SendWork) -> WqeFlags {
        let flags = mirror::wqe_flags(work.flags);
        match self.qp.signaling {
            Signaling::All => flags | WqeFlags::SIGNALED,
            Signaling::Requested => flags,
        }
    }
}
