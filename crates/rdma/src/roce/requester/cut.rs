//! The part of a send that one packet carries, as a message.

use nichrome_wire::rdma::{AtomicEth, Deth, Message, Part, RcMessage, Reth, SendEnd, UcMessage};

use super::super::packet::PayloadSource;
use super::spans::Span;
use crate::core::attributes::QpType;
use crate::core::queue_pair::QueuePair;
use crate::core::send_queue::SendWork;
use crate::core::work::{Operation, Recipient, Remote, SendFlags};

/// The part of a send that one packet carries.
pub(super) struct Cut {
    offset: u32,
    len: u32,
    starts: bool,
    pub(super) ends: bool,
    /// Packet numbers that it takes.
    pub(super) packets: u32,
}

impl Cut {
    /// Returns the part at `packet`. A READ is requested in parts that end at multiples of `read` packets,
    /// also when retransmitted: the responder then finds each part within a request that it has kept.
    #[inline]
    pub(super) fn new(work: &SendWork, span: Span, packet: u32, mtu: u32, read: u32) -> Self {
        let last = span.packets - 1;
        match work.operation {
            Operation::Read(_) => {
                let end = ((packet / read + 1) * read).min(span.packets);
                let offset = packet * mtu;
                let len = work.len.min(end.saturating_mul(mtu)) - offset;
                Self { offset, len, starts: packet == 0, ends: end == span.packets, packets: end - packet }
            }
            Operation::CompareSwap { .. } | Operation::FetchAdd { .. } => {
                Self { offset: 0, len: work.len, starts: true, ends: true, packets: 1 }
            }
            _ => {
                let offset = packet * mtu;
                let len = (work.len - offset).min(mtu);
                Self { offset, len, starts: packet == 0, ends: packet == last, packets: 1 }
            }
        }
    }

    /// Returns the source of the packet's payload, and its length in bytes.
    #[inline]
    pub(super) fn payload(&self, work: &SendWork) -> (PayloadSource, usize) {
        match work.wants_data() {
            true => (PayloadSource::Nothing, 0),
            false => (PayloadSource::Send { source: work.source, offset: self.offset }, self.len as usize),
        }
    }

    /// Returns true if the packet requests a solicited event.
    #[inline]
    pub(super) fn is_solicited(&self, work: &SendWork) -> bool {
        self.ends && work.flags.contains(SendFlags::SOLICITED) && reaches_a_receive(work)
    }

    /// Returns the packet's message; `None` if the service does not support the operation.
    #[inline]
    pub(super) fn message(&self, qp: &QueuePair, work: &SendWork) -> Option<Message> {
        match qp.kind {
            QpType::Rc => self.rc_message(work).map(Message::Rc),
            QpType::XrcSend => Some(Message::Xrc(work.srq?, self.rc_message(work)?)),
            QpType::XrcReceive => None,
            QpType::Uc => self.uc_message(work).map(Message::Uc),
            QpType::Ud => datagram(qp, work),
        }
    }

    fn rc_message(&self, work: &SendWork) -> Option<RcMessage> {
        let send = |end| RcMessage::Send(Part::new(self.starts.then_some(()), self.ends.then_some(end)));
        let write = |remote: Remote, end| {
            let reth = Reth { va: remote.address, rkey: remote.rkey, len: work.len };
            RcMessage::Write(Part::new(self.starts.then_some(reth), self.ends.then_some(end)))
        };
        Some(match work.operation {
            Operation::Send => send(SendEnd::Plain),
            Operation::SendWithImmediate(immediate) => send(SendEnd::Immediate(immediate)),
            Operation::SendWithInvalidate(key) => send(SendEnd::Invalidate(key)),
            Operation::Write(remote) => write(remote, None),
            Operation::WriteWithImmediate(remote, immediate) => write(remote, Some(immediate)),
            Operation::Read(remote) => {
                let va = remote.address.wrapping_add(u64::from(self.offset));
                RcMessage::ReadRequest(Reth { va, rkey: remote.rkey, len: self.len })
            }
            Operation::CompareSwap { remote, compare, swap } => {
                let Remote { address: va, rkey } = remote;
                RcMessage::CompareSwap(AtomicEth { va, rkey, swap_or_add: swap, compare })
            }
            Operation::FetchAdd { remote, add } => {
                let Remote { address: va, rkey } = remote;
                RcMessage::FetchAdd(AtomicEth { va, rkey, swap_or_add: add, compare: 0 })
            }
            Operation::Flush { remote: Remote { address: va, rkey }, len, scope } => {
                RcMessage::Flush(scope, Reth { va, rkey, len })
            }
            Operation::AtomicWrite(Remote { address: va, rkey }) => {
                RcMessage::AtomicWrite(Reth { va, rkey, len: self.len })
            }
            Operation::LocalInvalidate(_) | Operation::BindWindow(_) => return None,
        })
    }

    fn uc_message(&self, work: &SendWork) -> Option<UcMessage> {
        let send = |end| UcMessage::Send(Part::new(self.starts.then_some(()), self.ends.then_some(end)));
        let write = |remote: Remote, end| {
            let reth = Reth { va: remote.address, rkey: remote.rkey, len: work.len };
            UcMessage::Write(Part::new(self.starts.then_some(reth), self.ends.then_some(end)))
        };
        Some(match work.operation {
            Operation::Send => send(None),
            Operation::SendWithImmediate(immediate) => send(Some(immediate)),
            Operation::Write(remote) => write(remote, None),
            Operation::WriteWithImmediate(remote, immediate) => write(remote, Some(immediate)),
            _ => return None,
        })
    }
}

fn datagram(qp: &QueuePair, work: &SendWork) -> Option<Message> {
    let immediate = match work.operation {
        Operation::Send => None,
        Operation::SendWithImmediate(immediate) => Some(immediate),
        _ => return None,
    };
    let Recipient { qkey, .. } = work.recipient?;
    // A Q_Key with the top bit set stands for the queue pair's own Q_Key (IBA 10.2.5).
    let qkey = if qkey.0 >> 31 == 1 { qp.settings.qkey } else { qkey };
    Some(Message::Ud(Deth { qkey, src_qp: qp.number }, immediate))
}

/// Returns true if the send completes a receive at the peer.
fn reaches_a_receive(work: &SendWork) -> bool {
    matches!(
        work.operation,
        Operation::Send
            | Operation::SendWithImmediate(_)
            | Operation::SendWithInvalidate(_)
            | Operation::WriteWithImmediate(..)
    )
}
