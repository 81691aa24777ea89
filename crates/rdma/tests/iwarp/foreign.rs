//! One device, and a scripted peer that sends it any segment.

use nichrome_rdma::iwarp::Terms;
use nichrome_rdma::*;
use nichrome_wire::iwarp::{
    Crc, Fpdu, MessageNumber, Opcode, ReadRequest, STag, Segment, SegmentDestination, TerminateCode,
    Terminated, fpdu_len,
};

use crate::common::{BASE, End, Link, Pair};

/// A device whose peer is the test.
pub(crate) struct Alone {
    pub(crate) pair: Pair,
    pub(crate) qp: QpHandle,
    crc: Crc,
    /// How the queue pair has ended its stream.
    pub(crate) ending: Option<StreamShutdown>,
    /// Bytes that were sent and not yet taken by the test.
    sent: Vec<u8>,
}

/// A segment that the device has sent.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) segment: Segment,
    pub(crate) payload: Vec<u8>,
}

impl Alone {
    /// Connects a queue pair on these terms.
    pub(crate) fn new(terms: Terms) -> Self {
        Self::with(terms, &Link::default(), |_| {})
    }

    pub(crate) fn with(terms: Terms, link: &Link, change: impl Fn(&mut Config)) -> Self {
        let mut pair = Pair::with(change);
        let [qp, _] = pair.connect(QpType::Rc, link);
        Self::on(pair, qp, terms)
    }

    /// Connects a queue pair of end 0 on these terms.
    pub(crate) fn on(mut pair: Pair, qp: QpHandle, terms: Terms) -> Self {
        pair.ends[0].device.connect(qp, &terms).unwrap();
        Self { pair, qp, crc: terms.crc, ending: None, sent: Vec::new() }
    }

    pub(crate) fn end(&mut self) -> &mut End {
        &mut self.pair.ends[0]
    }

    /// Receives the FPDU of a segment; returns true if it was consumed.
    pub(crate) fn deliver(&mut self, segment: Segment, payload: &[u8]) -> bool {
        let fpdu = fpdu(&segment, payload, self.crc);
        self.deliver_bytes(&fpdu) == fpdu.len()
    }

    pub(crate) fn deliver_bytes(&mut self, bytes: &[u8]) -> usize {
        let qp = self.qp;
        self.end().device.receive_stream(qp, bytes, Instant::ZERO).unwrap()
    }

    /// Takes the bytes that are sent.
    pub(crate) fn bytes(&mut self) -> Vec<u8> {
        let mut buffer = vec![0; 80_000];
        while let Some(transmit) = self.end().device.poll_transmit(Instant::ZERO, 16, &mut buffer) {
            match transmit {
                Transmit::Stream(StreamBytes { len, .. }) => self.sent.extend(&buffer[..len]),
                Transmit::End(StreamEnding { how, .. }) => {
                    assert_eq!(self.ending.replace(how), None, "ended twice");
                }
                Transmit::Datagrams(_) => panic!("a datagram"),
            }
        }
        std::mem::take(&mut self.sent)
    }

    /// Takes all effects of the stream: the first `len` bytes of memory, the completions, and the bytes that
    /// are sent.
    pub(crate) fn effects(&mut self, len: usize) -> (Vec<u8>, Vec<Completion>, Vec<u8>) {
        let sent = self.bytes();
        let done = self.end().completions();
        (self.end().bytes(0, len).to_vec(), done, sent)
    }

    /// Takes the segments that are sent.
    pub(crate) fn segments(&mut self) -> Vec<Sent> {
        let bytes = self.bytes();
        let (mut rest, mut segments) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            let fpdu = Fpdu::parse(rest, self.crc).unwrap().expect("whole FPDUs only");
            let (segment, payload) = Segment::parse(fpdu.ulpdu).unwrap();
            segments.push(Sent { segment, payload: payload.to_vec() });
            rest = &rest[fpdu.len..];
        }
        segments
    }

    /// Takes the TERMINATE that is the only segment sent, and the headers that it names; the stream ends in
    /// order.
    pub(crate) fn terminated(&mut self) -> (TerminateCode, Vec<u8>) {
        let segments = self.segments();
        assert_eq!(segments.len(), 1, "{segments:?}");
        let Sent { segment, payload } = &segments[0];
        assert_eq!(*segment, untagged(Opcode::Terminate, 1, 0, true));
        let terminated = Terminated::from_bytes(payload).unwrap();
        let (code, context) = (terminated.error, terminated.context.to_vec());
        assert!(code.is_defined(), "{code:?}");
        assert_eq!(self.ending, Some(StreamShutdown::Orderly));
        let qp = self.qp;
        assert_eq!(self.end().device.query_qp(qp).unwrap().state, QpState::Err);
        (code, context)
    }

    /// Returns a tagged segment to offset `at` of the device's memory.
    pub(crate) fn tagged(&self, opcode: Opcode, at: u64, is_last: bool) -> Segment {
        let stag = STag(self.pair.ends[0].rkey.0);
        Segment { is_last, opcode, destination: SegmentDestination::Tagged { stag, offset: BASE + at } }
    }

    /// Returns a READ request for `len` bytes at offset `at` of the device's memory.
    pub(crate) fn read_request(&self, at: u64, len: u32) -> ReadRequest {
        let source = STag(self.pair.ends[0].rkey.0);
        ReadRequest { sink: STag(77), sink_offset: 1000, len, source, source_offset: BASE + at }
    }
}

/// Returns an untagged segment that invalidates nothing.
pub(crate) fn untagged(opcode: Opcode, message: u32, offset: u32, is_last: bool) -> Segment {
    let destination =
        SegmentDestination::Untagged { message: MessageNumber(message), offset, invalidate: STag(0) };
    Segment { is_last, opcode, destination }
}

pub(crate) fn fpdu(segment: &Segment, payload: &[u8], crc: Crc) -> Vec<u8> {
    let len = segment.header_len() + payload.len();
    let mut bytes = vec![0; fpdu_len(len)];
    segment.write(Fpdu::ulpdu_mut(&mut bytes, len).unwrap()).unwrap().copy_from_slice(payload);
    Fpdu::finish(&mut bytes, len, crc);
    bytes
}
