//! Results of the clients' atomic operations, which make each of them take effect once.
//!
//! A slot is 16 bytes of the server's host for each connection: the last operation's result, and its ticket.
//! The driver makes the slot with the connection; an AOP names it by the server's number of the connection,
//! which its tag covers. The card keeps nothing: it reads the slot, and does one of these.
//!
//! | the ticket of the AOP | the card |
//! |---|---|
//! | the next after the slot's | changes the 8 bytes, writes ticket and result to the slot, and answers with the result |
//! | the slot's: a copy, or a repetition because the answer was lost | answers with the slot's result, also if the memory was deregistered since |
//! | any other | refuses: [`Reason::Atomic`]. The client waits for each operation before the next, so this is an old copy |

use nichrome_wire::rdma::QpNumber;
use nichrome_wire::star::{Atomic, Reason};

use crate::core::memory::Memory;
use crate::core::qp_map::QpMap;

/// The last atomic operation of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// 0 before the first.
    ticket: u32,
    before: u64,
}

/// The slots of a server's connections, in its host's memory.
#[derive(Debug, Default)]
pub struct ResultSlots {
    slots: QpMap<Slot>,
}

impl ResultSlots {
    /// Creates the slot of a new connection.
    pub fn open(&mut self, server: QpNumber) {
        self.slots.insert(server, Slot::default());
    }

    /// Removes the slot of a connection that has ended.
    pub(super) fn close(&mut self, server: QpNumber) {
        self.slots.remove(&server);
    }

    /// Returns the result of an operation if it is the last one that was executed.
    pub(super) fn result(&self, server: QpNumber, atomic: &Atomic) -> Option<u64> {
        let slot = self.slots.get(&server)?;
        (atomic.ticket == slot.ticket && slot.ticket != 0).then_some(slot.before)
    }

    /// Executes an operation whose [`result`](Self::result) is not known on the 8 bytes at `address`. Returns
    /// their previous value.
    ///
    /// # Errors
    /// The ticket is not the next, the address is not a multiple of 8, or the memory is not mapped.
    pub(super) fn execute<M: Memory>(
        &mut self,
        server: QpNumber,
        atomic: &Atomic,
        address: u64,
        memory: &mut M,
    ) -> Result<u64, Reason> {
        let slot = self.slots.get_mut(&server).ok_or(Reason::Atomic)?;
        if atomic.ticket != next_ticket(slot.ticket) || !address.is_multiple_of(Atomic::WORD.into()) {
            return Err(Reason::Atomic);
        }
        let before = memory.update(address, |before| atomic.apply(before)).map_err(|_| Reason::Fault)?;
        *slot = Slot { ticket: atomic.ticket, before };
        Ok(before)
    }
}

/// Returns the ticket after this one, which is never 0.
pub(super) const fn next_ticket(ticket: u32) -> u32 {
    match ticket.wrapping_add(1) {
        0 => 1,
        next => next,
    }
}

#[cfg(test)]
mod tests {
    use nichrome_wire::star::{AtomicKind, Operands};

    use super::*;
    use crate::core::memory::ByteMemory;

    fn add(ticket: u32, add: u64) -> Atomic {
        Atomic { kind: AtomicKind::FetchAdd, ticket, operands: Operands { compare: 0, swap_or_add: add } }
    }

    #[test]
    fn a_repeated_operation_takes_effect_once_and_an_old_copy_has_none() {
        let (mut memory, mut slots) = (ByteMemory::new(0x1000, 16), ResultSlots::default());
        let server = QpNumber::new(7).unwrap();
        let mut execute = |atomic, address| slots.execute(server, &atomic, address, &mut memory);
        assert_eq!(execute(add(1, 5), 0x1000), Err(Reason::Atomic), "no slot");
        let mut slots = ResultSlots::default();
        slots.open(server);
        let mut execute = |atomic, address| match slots.result(server, &atomic) {
            Some(before) => Ok(before),
            None => slots.execute(server, &atomic, address, &mut memory),
        };
        assert_eq!(execute(add(0, 5), 0x1000), Err(Reason::Atomic), "no first ticket");
        assert_eq!([1, 1, 2, 2].map(|ticket| execute(add(ticket, 5), 0x1000)), [Ok(0), Ok(0), Ok(5), Ok(5)]);
        assert_eq!([1, 4].map(|ticket| execute(add(ticket, 5), 0x1000)), [Err(Reason::Atomic); 2]);
        assert_eq!(execute(add(3, 5), 0x1001), Err(Reason::Atomic), "not aligned");
        assert_eq!(execute(add(3, 5), 0x2000), Err(Reason::Fault), "no memory");
        let operands = Operands { compare: 10, swap_or_add: 99 };
        let swap = Atomic { kind: AtomicKind::CompareSwap, ticket: 3, operands };
        assert_eq!([execute(swap, 0x1000), execute(swap, 0x1000)], [Ok(10), Ok(10)]);
        assert_eq!(memory.bytes()[..8], 99u64.to_ne_bytes());
        slots.close(server);
        assert_eq!(slots.execute(server, &add(4, 1), 0x1000, &mut memory), Err(Reason::Atomic));
        assert_eq!([0, 1, u32::MAX].map(next_ticket), [1, 2, 1]);
    }
}
