//! A queue pair on iWARP with random calls of its program and random segments of its peer. The invariants:
//! bytes outside the region registered for the peer and outside the posted buffers do not change; requests
//! complete at most once, and in order.

use nichrome_rdma::iwarp::{Role, RtrMessage, Terms, WithoutReceive};
use nichrome_rdma::*;
use nichrome_wire::iwarp::{
    AtomicOperation, AtomicRequest, AtomicResponse, Crc, Fpdu, MessageNumber, Opcode, ReadRequest, STag,
    Segment, SegmentDestination, fpdu_len,
};

use super::{BASE, Link, Pair};

/// Draws a number below its argument; `None` when there are no more.
pub type Choose<'a> = dyn FnMut(u32) -> Option<u32> + 'a;

/// Length in bytes of the region that the peer may access, and of those before and behind it that it may not.
const ZONE: usize = 16 << 10;

/// Identifiers of receives begin here.
const RECEIVES: u64 = 1 << 32;

/// Maximum number of steps of a run.
const STEPS: usize = 300;

/// The message numbers of the peer's next segments.
struct Peer {
    crc: Crc,
    next_send: u32,
    next_request: u32,
}

struct Run {
    pair: Pair,
    qp: QpHandle,
    peer: Peer,
    /// Keys of the region that the peer may access, and of the one with the program's buffers.
    shared: RegionReport,
    own: RegionReport,
    /// Bytes of the peer that were not consumed.
    stream: Vec<u8>,
    /// Identifiers of the next request, and of the last one that has completed.
    next: u64,
    completed: Option<u64>,
    buffer: Vec<u8>,
}

/// Runs a program until there are no more choices.
pub fn run(choose: &mut Choose<'_>) {
    let Some(mut run) = Run::new(choose) else { return };
    for _ in 0..STEPS {
        let is_done = run.step(choose).is_none();
        run.check();
        if is_done {
            break;
        }
    }
    run.finish();
}

fn terms(choose: &mut Choose<'_>) -> Option<Terms> {
    Some(Terms {
        role: if choose(2)? == 0 { Role::Initiator } else { Role::Responder },
        crc: if choose(2)? == 0 { Crc::Used } else { Crc::Unused },
        markers_in: choose(8)? == 0,
        markers_out: choose(8)? == 0,
        ird: choose(4)? as u16,
        ord: choose(4)? as u16,
        rtr: [None, Some(RtrMessage::Send), Some(RtrMessage::Write), Some(RtrMessage::Read)]
            [choose(4)? as usize],
        extended: choose(4)? > 0,
        max_ulpdu: [0, 50, 200, Terms::LONGEST_ULPDU][choose(4)? as usize],
    })
}

impl Run {
    fn new(choose: &mut Choose<'_>) -> Option<Self> {
        let terms = terms(choose)?;
        let without_receive = [WithoutReceive::Wait, WithoutReceive::Terminate][choose(2)? as usize];
        let mut pair = Pair::with(|config| config.iwarp.without_receive = without_receive);
        let [qp, _] = pair.connect(QpType::Rc, &Link::default());
        let end = &mut pair.ends[0];
        end.device.deregister(end.region).unwrap();
        let zone = |nth: usize, access| RegionConfig::new(BASE + (nth * ZONE) as u64, ZONE as u64, access);
        let (_, shared) = end.register(zone(1, super::ALL));
        let (_, own) = end.register(zone(3, Access::LOCAL_WRITE));
        end.device.connect(qp, &terms).unwrap();
        let peer = Peer { crc: terms.crc, next_send: 1, next_request: 1 };
        let (stream, buffer) = (Vec::new(), vec![0; 80_000]);
        Some(Self { pair, qp, peer, shared, own, stream, next: 0, completed: None, buffer })
    }

    fn step(&mut self, choose: &mut Choose<'_>) -> Option<()> {
        let (qp, device) = (self.qp, &mut self.pair.ends[0].device);
        match choose(13)? {
            0 => {
                let bytes = bytes(choose)?;
                self.stream.extend(bytes);
            }
            1 => {
                let ulpdu = bytes(choose)?;
                self.stream.extend(framed(&ulpdu, self.peer.crc));
            }
            2..=5 => {
                let ulpdu = segment(choose, &mut self.peer, self.shared.rkey.0)?;
                self.stream.extend(framed(&ulpdu, self.peer.crc));
            }
            6 | 7 => self.post(choose)?,
            8 => {
                let buffers = [self.sge(choose)?];
                let receive = ReceiveRequest { wr_id: RECEIVES, buffers: &buffers };
                // The queue may be full.
                let _ = self.pair.ends[0].device.post_receive(qp, &receive);
            }
            9 => {
                let room = &mut self.buffer[..100 + choose(2000)? as usize];
                while let Some(transmit) = device.poll_transmit(Instant::ZERO, 16, room) {
                    assert!(!matches!(transmit, Transmit::Datagrams(_)));
                }
            }
            10 if choose(8)? == 0 => device.stream_closed(qp, StreamEnd::Closed, Instant::ZERO),
            10 => {
                let state = [QpState::Sqd, QpState::Rts, QpState::Rts, QpState::Err][choose(4)? as usize];
                // The transition may not exist.
                let _ = device.modify_qp(qp, &QpChange::to(state));
            }
            _ if device.wants_stream(qp) => {
                let len = some_len(choose, 2000)?.min(self.stream.len());
                let consumed = device.receive_stream(qp, &self.stream[..len], Instant::ZERO).unwrap();
                assert!(consumed <= len);
                self.stream.drain(..consumed);
            }
            _ => {}
        }
        Some(())
    }

    fn sge(&self, choose: &mut Choose<'_>) -> Option<Sge> {
        let address = BASE + 3 * ZONE as u64 + u64::from(choose(3000)?);
        Some(Sge { address, len: some_len(choose, 300)? as u32, lkey: self.own.lkey })
    }

    fn post(&mut self, choose: &mut Choose<'_>) -> Option<()> {
        let buffers = [self.sge(choose)?, self.sge(choose)?];
        let remote = Remote { address: u64::from(choose(5000)?), rkey: RKey(choose(3)?) };
        let operation = match choose(6)? {
            0 => Operation::Send,
            1 => Operation::Write(remote),
            2 => Operation::WriteWithImmediate(remote, ImmediateData([1; 4])),
            3 => Operation::SendWithInvalidate(RKey(1)),
            4 => Operation::FetchAdd { remote, add: 1 },
            _ => Operation::Read(remote),
        };
        let request = SendRequest::new(self.next, operation, &buffers);
        self.next += u64::from(self.pair.ends[0].device.post_send(self.qp, &request).is_ok());
        Some(())
    }

    fn check(&mut self) {
        let end = &mut self.pair.ends[0];
        for wc in end.completions() {
            if wc.wr_id < RECEIVES {
                assert!(self.completed < Some(wc.wr_id) && wc.wr_id < self.next, "{wc:?}");
                self.completed = Some(wc.wr_id);
            }
        }
        let memory = end.device.memory().bytes();
        let outside = [&memory[..ZONE], &memory[2 * ZONE..3 * ZONE], &memory[4 * ZONE..5 * ZONE]];
        assert!(outside.concat().iter().all(|byte| *byte == 0), "outside of all regions");
    }

    fn finish(mut self) {
        let device = &mut self.pair.ends[0].device;
        device.modify_qp(self.qp, &QpChange::to(QpState::Err)).unwrap();
        self.check();
        assert_eq!(self.completed, self.next.checked_sub(1), "every request has completed");
        self.pair.ends[0].device.destroy_qp(self.qp).unwrap();
    }
}

/// Draws a length below `most`, or one at which a segment is placed while it arrives.
fn some_len(choose: &mut Choose<'_>, most: u32) -> Option<usize> {
    let len = if choose(4)? == 0 { 4096 + choose(9000)? } else { choose(most)? };
    Some(len as usize)
}

fn bytes(choose: &mut Choose<'_>) -> Option<Vec<u8>> {
    (0..choose(100)?).map(|_| choose(256).map(|byte| byte as u8)).collect()
}

/// Draws a valid or an almost valid segment.
fn segment(choose: &mut Choose<'_>, peer: &mut Peer, rkey: u32) -> Option<Vec<u8>> {
    let opcode = Opcode::ALL[choose(Opcode::ALL.len() as u32)? as usize];
    let stag = STag(if choose(8)? == 0 { choose(4)? } else { rkey });
    let at = u64::from(choose(ZONE as u32 + 900)?);
    let offset = if choose(4)? == 0 { at } else { BASE + ZONE as u64 + at };
    let is_last = choose(3)? > 0;
    let destination = match opcode.queue() {
        None => SegmentDestination::Tagged { stag, offset },
        Some(_) => {
            let next = match opcode {
                Opcode::ReadRequest | Opcode::AtomicRequest => &mut peer.next_request,
                _ => &mut peer.next_send,
            };
            let message = MessageNumber(if choose(8)? == 0 { choose(4)? } else { *next });
            *next += u32::from(is_last);
            let offset = if choose(4)? == 0 { choose(100)? } else { 0 };
            SegmentDestination::Untagged { message, offset, invalidate: stag }
        }
    };
    let payload = match opcode {
        Opcode::ReadRequest => {
            let (len, sink) = (choose(3000)?, STag(choose(3)?));
            let source_offset = offset;
            ReadRequest { sink, sink_offset: at, len, source: stag, source_offset }.to_bytes().to_vec()
        }
        Opcode::AtomicRequest => {
            let operation = AtomicOperation::FetchAdd { add: u64::MAX, mask: 0 };
            AtomicRequest { id: 1, stag, offset, operation }.to_bytes().to_vec()
        }
        Opcode::AtomicResponse => {
            AtomicResponse { id: choose(4)?, original_value: u64::MAX }.to_bytes().to_vec()
        }
        _ => vec![0xFF; some_len(choose, 600)?],
    };
    let segment = Segment { is_last, opcode, destination };
    let mut ulpdu = vec![0; segment.header_len() + payload.len()];
    segment.write(&mut ulpdu).unwrap().copy_from_slice(&payload);
    Some(ulpdu)
}

fn framed(ulpdu: &[u8], crc: Crc) -> Vec<u8> {
    let mut bytes = vec![0; fpdu_len(ulpdu.len())];
    Fpdu::ulpdu_mut(&mut bytes, ulpdu.len()).unwrap().copy_from_slice(ulpdu);
    Fpdu::finish(&mut bytes, ulpdu.len(), crc);
    bytes
}
