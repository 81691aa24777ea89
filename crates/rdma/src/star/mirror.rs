//! The client's copy of the server's send and receive queues, and the conversion between requests and WQEs.

use std::collections::VecDeque;

use nichrome_wire::star::{Data, Operands, Request, Segment, Target, Wqe, WqeFlags, segments};

use super::mirror_pool::{MirrorPool, PoolShare};
use super::pipeline;
use super::setup::QueueDepth;
use crate::core::protection::LKey;
use crate::core::send_queue::{Pieces, Progress, SendQueue, SendWork, Source};
use crate::core::work::{Operation, Remote, SendFlags, Sge};

/// The server's queues.
pub(super) struct Mirror {
    pub(super) sends: SendQueue,
    receives: SendQueue,
    send_segments: Segments,
    receive_segments: Segments,
    /// Receives released so far: the number of the oldest in the queue.
    released: u64,
    /// Receives at the front that operations have taken.
    taken: usize,
    depth: QueueDepth,
    /// Bytes that the requests take, and their maximum.
    bytes: usize,
    byte_limit: usize,
    /// Most bytes beyond [`UNSHARED`] that the requests took since the queues were last empty: the rings
    /// shrink only then.
    share: PoolShare,
    /// Completed sends whose CQEP has not left: the server's queue still holds them.
    reports_waiting: usize,
    scratch: Vec<Sge>,
}

/// Bytes of a connection's requests that do not count in the bound for all connections: enough for ordinary
/// queues.
const UNSHARED: usize = 1 << 20;

/// The segments of the requests of one queue.
#[derive(Default)]
struct Segments {
    segments: VecDeque<Segment>,
    /// By request, the number of the segment behind its last one.
    ends: VecDeque<u64>,
    /// The number of the first of `segments`.
    first: u64,
}

impl Segments {
    fn push(&mut self, segments: impl Iterator<Item = Segment>) {
        self.segments.extend(segments);
        self.ends.push_back(self.first + self.segments.len() as u64);
    }

    fn pop(&mut self) {
        let end = self.ends.pop_front().unwrap_or(self.first);
        self.segments.drain(..(end - self.first) as usize);
        self.first = end;
    }

    /// Returns the segment of the request at `index` that `part` is a part of.
    fn around(&self, index: usize, part: &Sge) -> Option<Segment> {
        let start = match index.checked_sub(1) {
            None => self.first,
            Some(before) => *self.ends.get(before)?,
        };
        let range = (start - self.first) as usize..(self.ends.get(index)? - self.first) as usize;
        let is_around = |segment: &&Segment| {
            let offset = part.address.wrapping_sub(segment.address);
            segment.lkey == part.lkey.0 && offset.saturating_add(part.len.into()) <= segment.len.into()
        };
        self.segments.range(range).find(is_around).copied()
    }
}

/// The server announced more requests than the queue depth in its offer, or than the client keeps.
#[derive(Debug)]
pub(super) struct Overrun;

impl Mirror {
    pub(super) fn new(depth: QueueDepth, byte_limit: usize, pool: &MirrorPool) -> Self {
        let (sends, receives, scratch) = Default::default();
        let (send_segments, receive_segments) = Default::default();
        Self {
            sends,
            receives,
            send_segments,
            receive_segments,
            released: 0,
            taken: 0,
            depth,
            bytes: 0,
            byte_limit,
            share: pool.share(),
            reports_waiting: 0,
            scratch,
        }
    }

    /// Adds a request of the server's program, whose form the parser has checked.
    pub(super) fn push(&mut self, wqe: &Wqe, payload: &[u8]) -> Result<(), Overrun> {
        let operation = operation(&wqe.request);
        let (queue, left, depth, granted) = match operation {
            Some(_) => (&mut self.sends, self.reports_waiting, self.depth.sends, &mut self.send_segments),
            None => (&mut self.receives, 0, self.depth.receives, &mut self.receive_segments),
        };
        let bytes = match wqe.data {
            Data::Segments(count) => bytes_of(operation.is_some(), count.into(), 0),
            Data::Inline => bytes_of(operation.is_some(), 0, payload.len()),
        };
        let bytes = self.bytes + bytes;
        if queue.len() + left >= depth as usize
            || bytes > self.byte_limit
            || !self.share.grow_to(bytes.saturating_sub(UNSHARED))
        {
            return Err(Overrun);
        }
        self.bytes = bytes;
        let is_inline = wqe.data == Data::Inline;
        granted.push(segments(if is_inline { &[] } else { payload }));
        let source = match wqe.data {
            Data::Segments(_) => {
                let sges = segments(payload).map(|Segment { address, len, lkey, .. }| Sge {
                    address,
                    len,
                    lkey: LKey(lkey),
                });
                self.scratch.clear();
                self.scratch.extend(sges);
                queue.add_buffers(&self.scratch)
            }
            Data::Inline => {
                let source = queue.inline_start();
                queue.add_inline(payload);
                source
            }
        };
        queue.push(SendWork {
            wr_id: wqe.wr_id,
            operation: operation.unwrap_or(Operation::Send),
            recipient: None,
            srq: None,
            source,
            len: wqe.len,
            flags: send_flags(wqe.flags),
            progress: Progress::Posted,
        });
        Ok(())
    }

    /// Returns true if there is a receive that no operation has taken.
    pub(super) fn has_receive(&self) -> bool {
        self.taken < self.receives.len()
    }

    /// Returns the number of the oldest receive that no operation has taken.
    pub(super) fn waiting_receive(&self) -> u64 {
        self.released + self.taken as u64
    }

    /// Takes the oldest receive that no operation has taken and returns its number.
    pub(super) fn take_receive(&mut self) -> Option<u64> {
        let number = self.waiting_receive();
        let waits = self.has_receive();
        self.taken += usize::from(waits);
        waits.then_some(number)
    }

    fn receive(&self, number: u64) -> Option<&SendWork> {
        self.receives.get(usize::try_from(number.checked_sub(self.released)?).ok()?)
    }

    /// Returns the total length of a receive's buffers in bytes.
    pub(super) fn receive_room(&self, number: u64) -> u32 {
        self.receive(number).map_or(0, |receive| receive.len)
    }

    /// Returns the buffers of a receive for a message of `len` bytes.
    pub(super) fn receive_buffers(&self, number: u64, len: u32) -> impl Iterator<Item = Sge> {
        self.receive(number).into_iter().flat_map(move |receive| pieces(&self.receives, receive.source, len))
    }

    /// Returns the segment of a receive that `part` is a part of.
    pub(super) fn receive_segment(&self, number: u64, part: &Sge) -> Option<Segment> {
        let index = usize::try_from(number.checked_sub(self.released)?).ok()?;
        self.receive_segments.around(index, part)
    }

    /// Returns the segment of the send at `index` that `part` is a part of.
    pub(super) fn send_segment(&self, index: usize, part: &Sge) -> Option<Segment> {
        self.send_segments.around(index, part)
    }

    /// Removes the oldest send.
    pub(super) fn pop_send(&mut self) -> Option<SendWork> {
        self.send_segments.pop();
        let send = self.sends.pop()?;
        self.bytes -= bytes_of_work(true, &send);
        self.shrink_if_empty();
        Some(send)
    }

    /// Records that a CQEP which reports a send was queued.
    pub(super) fn report_queued(&mut self) {
        self.reports_waiting += 1;
    }

    /// Records that such a CQEP has left for the first time.
    pub(super) fn report_left(&mut self) {
        self.reports_waiting = self.reports_waiting.saturating_sub(1);
    }

    /// Removes the oldest receive, which was taken, and returns the server's number for it.
    pub(super) fn release_receive(&mut self) -> Option<u64> {
        let receive = self.receives.pop()?;
        self.receive_segments.pop();
        self.bytes -= bytes_of_work(false, &receive);
        self.released += 1;
        self.taken -= 1;
        self.shrink_if_empty();
        Some(receive.wr_id)
    }

    /// Drops all requests.
    pub(super) fn clear(&mut self) {
        self.drop_rings();
        (self.taken, self.bytes, self.reports_waiting) = (0, 0, 0);
    }

    /// Frees the memory of long queues that are empty.
    fn shrink_if_empty(&mut self) {
        if self.bytes == 0 && !self.share.is_none() {
            self.drop_rings();
        }
    }

    fn drop_rings(&mut self) {
        (self.sends, self.receives) = Default::default();
        (self.send_segments, self.receive_segments) = Default::default();
        self.share.give_back();
    }
}

/// Returns the bytes that a request takes, for a send including its operation in the pipeline.
fn bytes_of(is_send: bool, buffers: usize, inline: usize) -> usize {
    let operation = if is_send { size_of::<pipeline::Operation>() } else { 0 };
    let buffer = size_of::<Segment>() + size_of::<Sge>();
    size_of::<SendWork>() + size_of::<u64>() + operation + buffers * buffer + inline
}

fn bytes_of_work(is_send: bool, work: &SendWork) -> usize {
    match work.source {
        Source::Buffers { count, .. } => bytes_of(is_send, count.into(), 0),
        Source::Inline { .. } => bytes_of(is_send, 0, work.len as usize),
    }
}

/// Returns the buffers that hold the first `len` bytes of a request; none for inline bytes.
pub(super) fn pieces(queue: &SendQueue, source: Source, len: u32) -> impl Iterator<Item = Sge> {
    let buffers = match queue.pieces(source, 0, len) {
        Pieces::Buffers(scatter) => Some(scatter),
        Pieces::Inline(..) => None,
    };
    buffers.into_iter().flatten()
}

/// Returns the range of chunk `nth` when each of `buffers` is cut into chunks of `mtu` bytes, and the bytes
/// before it.
pub(super) fn cut(buffers: impl Iterator<Item = Sge>, nth: u32, mtu: u32) -> Option<(Sge, u32)> {
    let (mut left, mut before) = (nth, 0);
    for sge in buffers {
        let chunks = sge.len.div_ceil(mtu);
        if left < chunks {
            let offset = left * mtu;
            let address = sge.address.wrapping_add(u64::from(offset));
            return Some((Sge { address, len: (sge.len - offset).min(mtu), ..sge }, before + offset));
        }
        (left, before) = (left - chunks, before + sge.len);
    }
    None
}

/// Returns the number of chunks of `buffers`.
pub(super) fn count(buffers: impl Iterator<Item = Sge>, mtu: u32) -> u32 {
    buffers.map(|sge| sge.len.div_ceil(mtu)).sum()
}

/// Returns the operation of a WQE's request; `None` for a receive.
fn operation(request: &Request) -> Option<Operation> {
    let remote = |target: &Target| Remote { address: target.address, rkey: target.rkey };
    Some(match request {
        Request::Receive => return None,
        Request::Send => Operation::Send,
        Request::SendWithImmediate(data) => Operation::SendWithImmediate(*data),
        Request::SendWithInvalidate(key) => Operation::SendWithInvalidate(*key),
        Request::Write(target) => Operation::Write(remote(target)),
        Request::WriteWithImmediate(target, data) => Operation::WriteWithImmediate(remote(target), *data),
        Request::Read(target) => Operation::Read(remote(target)),
        Request::CompareSwap(target, Operands { compare, swap_or_add }) => {
            Operation::CompareSwap { remote: remote(target), compare: *compare, swap: *swap_or_add }
        }
        Request::FetchAdd(target, operands) => {
            Operation::FetchAdd { remote: remote(target), add: operands.swap_or_add }
        }
    })
}

/// Returns the WQE request of an operation; `None` if StaR does not support it.
pub(super) fn request(operation: &Operation) -> Option<Request> {
    let target = |remote: &Remote| Target { address: remote.address, rkey: remote.rkey };
    Some(match operation {
        Operation::Send => Request::Send,
        Operation::SendWithImmediate(data) => Request::SendWithImmediate(*data),
        Operation::SendWithInvalidate(key) => Request::SendWithInvalidate(*key),
        Operation::Write(remote) => Request::Write(target(remote)),
        Operation::WriteWithImmediate(remote, data) => Request::WriteWithImmediate(target(remote), *data),
        Operation::Read(remote) => Request::Read(target(remote)),
        Operation::CompareSwap { remote, compare, swap } => {
            Request::CompareSwap(target(remote), Operands { compare: *compare, swap_or_add: *swap })
        }
        Operation::FetchAdd { remote, add } => {
            Request::FetchAdd(target(remote), Operands { compare: 0, swap_or_add: *add })
        }
        Operation::LocalInvalidate(_)
        | Operation::BindWindow(_)
        | Operation::Flush { .. }
        | Operation::AtomicWrite(_) => return None,
    })
}

/// Flags of the verbs and of WQEs.
const FLAGS: [(SendFlags, WqeFlags); 3] = [
    (SendFlags::SIGNALED, WqeFlags::SIGNALED),
    (SendFlags::FENCE, WqeFlags::FENCE),
    (SendFlags::SOLICITED, WqeFlags::SOLICITED),
];

fn send_flags(flags: WqeFlags) -> SendFlags {
    let set = FLAGS.into_iter().filter(|(_, wire)| flags.contains(*wire));
    set.fold(SendFlags::NONE, |flags, (send, _)| flags | send)
}

/// Returns the WQE flags of a request.
pub(super) fn wqe_flags(flags: SendFlags) -> WqeFlags {
    let set = FLAGS.into_iter().filter(|(send, _)| flags.contains(*send));
    set.fold(WqeFlags::NONE, |flags, (_, wire)| flags | wire)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::limits::Limits;
    use crate::star::config::StarConfig;

    #[test]
    fn the_default_limit_holds_the_longest_queue_of_small_receives_and_hardwares_longest_queues() {
        let limit = StarConfig::default().mirrored_bytes;
        assert!(Limits::default().wrs * bytes_of(false, 2, 0) <= limit);
        // mlx5: max_qp_wr and max_sge of ibv_devinfo -v.
        let (wrs, sges) = (32_768, 30);
        assert!(wrs * (bytes_of(false, sges, 0) + bytes_of(true, sges, 0)) <= limit);
    }

    const LEN: usize = 60_000;

    fn mirror(pool: &MirrorPool) -> Mirror {
        let depth = QueueDepth { sends: 1 << 20, receives: 1 << 20 };
        Mirror::new(depth, StarConfig::default().mirrored_bytes, pool)
    }

    /// Announces sends until one is refused.
    fn fill(mirror: &mut Mirror) {
        let flags = WqeFlags::NONE;
        let wqe = Wqe { wr_id: 1, request: Request::Send, flags, len: LEN as u32, data: Data::Inline };
        while mirror.push(&wqe, &[7; LEN]).is_ok() {}
    }

    #[test]
    fn servers_that_announce_without_end_take_a_bounded_sum_and_leave_some_to_others() {
        const ALL: usize = 64 << 20;
        let pool = MirrorPool::new(ALL);
        let mut mirrors: Vec<Mirror> = (0..20).map(|_| mirror(&pool)).collect();
        mirrors.iter_mut().for_each(fill);
        let bytes: Vec<usize> = mirrors.iter().map(|mirror| mirror.bytes).collect();
        assert!(bytes.iter().sum::<usize>() <= ALL + mirrors.len() * UNSHARED, "{bytes:?}");
        assert!(
            bytes[0] > ALL / 2 - LEN && bytes.iter().all(|bytes| *bytes > UNSHARED - 2 * LEN),
            "{bytes:?}"
        );
        // Its rings are as long as before until the last request completes.
        while mirrors[0].sends.len() > 1 {
            mirrors[0].pop_send();
        }
        let mut late = mirror(&pool);
        fill(&mut late);
        assert!(late.bytes < 2 * UNSHARED, "{}", late.bytes);
        mirrors[0].pop_send();
        fill(&mut late);
        assert!(late.bytes > 8 * UNSHARED, "{}", late.bytes);
        drop((mirrors, late));
        let mut again = mirror(&pool);
        fill(&mut again);
        assert!(again.bytes > ALL / 2 - LEN);
    }
}
