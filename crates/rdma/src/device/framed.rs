//! A small transport over byte streams, for tests: a SEND is a frame of its length in four bytes and its
//! payload.

use nichrome_wire::rdma::QpNumber;
use nichrome_wire::{AddressPair, Instant};

use super::Config;
use crate::core::attributes::{QpChange, QpState};
use crate::core::completion::{CompletedOperation, Status};
use crate::core::cq::Urgency;
use crate::core::memory::Memory;
use crate::core::queue_pair::{QueuePair, Received};
use crate::core::send_queue::SendWork;
use crate::core::verbs::Verbs;
use crate::net::{Datagram, Room};
use crate::transport::set_up::{Agreed, ConnectError};
use crate::transport::{Endpoint, Environment, Shared, StreamEnd};

const HEADER: usize = 4;

/// A queue pair on a stream.
pub(super) type FramedQp = Box<Framed>;

pub(super) struct Framed {
    qp: QueuePair,
    /// Bytes of the oldest send's frame already sent.
    sent: usize,
    /// A complete frame is in the stream and no receive is posted.
    is_starved: bool,
}

impl Endpoint for FramedQp {
    type Shared = FramedShared;

    fn qp(&self) -> &QueuePair {
        &self.qp
    }

    fn qp_mut(&mut self) -> &mut QueuePair {
        &mut self.qp
    }

    fn modified(&mut self, _: &QpChange, _: &FramedShared) {}

    fn post_send<M: Memory>(&mut self, work: SendWork, _: &mut FramedShared, verbs: &mut Verbs<M>) {
        self.qp.sends.push(work);
        if self.qp.state == QpState::Err {
            self.qp.flush_sends(verbs);
        }
    }

    fn receive_posted<M: Memory>(&mut self, _: &mut Verbs<M>) -> bool {
        self.is_starved = false;
        false
    }

    fn is_from_peer(&self, _: &AddressPair) -> bool {
        false
    }

    fn receive<M: Memory>(
        &mut self,
        (): (),
        _: &Datagram<'_>,
        _: &mut FramedShared,
        _: &mut Verbs<M>,
    ) -> bool {
        false
    }

    fn receive_stream<M: Memory>(
        &mut self,
        bytes: &[u8],
        _: &mut FramedShared,
        verbs: &mut Verbs<M>,
    ) -> usize {
        let mut rest = bytes;
        while let Some((header, after)) = rest.split_first_chunk::<HEADER>() {
            let Some(payload) = after.get(..u32::from_be_bytes(*header) as usize) else { break };
            if !self.qp.take_receive(verbs) {
                self.is_starved = true;
                break;
            }
            let status = self.qp.put(0, payload, verbs).map_or(Status::LocalProtection, |()| Status::Success);
            let (operation, len) = (CompletedOperation::Receive, payload.len() as u32);
            let done = Received { status, operation, len, notice: None, source: None };
            self.qp.complete_receive(done, Urgency::Plain, verbs);
            rest = &after[payload.len()..];
        }
        bytes.len() - rest.len()
    }

    fn wants_stream<M: Memory>(&self, _: &Verbs<M>) -> bool {
        !self.is_starved
    }

    fn stream_closed<M: Memory>(&mut self, _: StreamEnd, shared: &mut FramedShared, verbs: &mut Verbs<M>) {
        self.enter_error(Status::Flushed, shared, verbs);
    }

    fn write<M: Memory>(&mut self, room: &mut Room<'_>, _: &mut FramedShared, verbs: &mut Verbs<M>) -> bool {
        let Framed { qp, sent, .. } = &mut **self;
        let handle = qp.handle;
        let has_room = room.fill_stream(handle, |buffer| {
            let mut filled = 0;
            while let Some(work) = qp.sends.front()
                && filled < buffer.len()
            {
                let mut frame = work.len.to_be_bytes().to_vec();
                frame.resize(HEADER + work.len as usize, 0);
                let pieces = qp.sends.pieces(work.source, 0, work.len);
                if verbs.gather(qp.domain, pieces, &mut frame[HEADER..]).is_err() {
                    break;
                }
                let part = (frame.len() - *sent).min(buffer.len() - filled);
                buffer[filled..filled + part].copy_from_slice(&frame[*sent..*sent + part]);
                (filled, *sent) = (filled + part, *sent + part);
                if *sent == frame.len() {
                    *sent = 0;
                    qp.complete_send(Status::Success, verbs);
                }
            }
            filled
        });
        !has_room || self.qp.sends.len() > 0
    }

    fn has_work(&self, _: Instant) -> bool {
        self.qp.sends.len() > 0
    }

    fn next_timeout(&self, _: &FramedShared, _: Instant) -> Option<Instant> {
        None
    }

    fn handle_timeout<M: Memory>(&mut self, _: &mut FramedShared, _: &mut Verbs<M>) {}

    fn repeat_acknowledgement(&mut self) {}

    fn drain<M: Memory>(&mut self, _: &mut FramedShared, _: &mut Verbs<M>) {}

    fn enter_error<M: Memory>(&mut self, _: Status, _: &mut FramedShared, verbs: &mut Verbs<M>) {
        self.qp.state = QpState::Err;
        self.qp.flush(verbs);
    }

    fn dissolve<M: Memory>(self, _: &mut FramedShared, _: &mut Verbs<M>) -> QueuePair {
        self.qp
    }

    fn state_bytes(&self) -> usize {
        0
    }
}

/// The transport has no shared state.
pub(super) struct FramedShared;

impl Shared for FramedShared {
    type Config = ();
    type Packet<'a> = ();

    const PORT: Option<u16> = None;

    fn new(_: &Environment, (): ()) -> Self {
        Self
    }

    fn read<'a, M: Memory>(&mut self, _: &Datagram<'a>, _: &mut Verbs<M>) -> Option<(QpNumber, ())> {
        None
    }
}

impl AsRef<()> for Config {
    fn as_ref(&self) -> &() {
        &()
    }
}

/// Puts a queue pair on its stream.
struct Attach;

impl<M: Memory> Agreed<M> for Attach {
    type Endpoint = FramedQp;

    fn connect(&self, qp: QueuePair, _: &mut FramedShared, _: &mut Verbs<M>) -> FramedQp {
        Box::new(Framed { qp, sent: 0, is_starved: false })
    }
}

mod tests {
    use super::*;
    use crate::*;

    const BASE: u64 = 0x1000;

    struct End {
        device: Device<ByteMemory>,
        qp: QpHandle,
        cq: CqHandle,
        lkey: LKey,
    }

    impl End {
        fn new() -> Self {
            let config = Config::new(vec!["10.0.0.1".parse().unwrap()]);
            let mut device = Device::new(config, ByteMemory::new(BASE, 0x1_0000)).unwrap();
            let (domain, cq) = (device.create_domain().unwrap(), device.create_cq(64).unwrap());
            let region = RegionConfig::new(BASE, 0x1_0000, Access::LOCAL_WRITE);
            let region = device.register(domain, region).unwrap();
            let lkey = device.query_region(region).unwrap().lkey;
            let capacity =
                QpCapacity { send_wrs: 16, receive_wrs: 16, send_sges: 1, receive_sges: 1, inline: 0 };
            let (kind, signaling) = (QpType::Rc, Signaling::All);
            let config =
                QpConfig { kind, domain, send_cq: cq, receive_cq: cq, srq: None, capacity, signaling };
            let qp = device.create_qp(config).unwrap();
            let init = QpChange {
                pkey_index: Some(0),
                port: Some(1),
                access: Some(Access::NONE),
                ..QpChange::to(QpState::Init)
            };
            device.modify_qp(qp, &init).unwrap();
            device.connect(qp, &Attach).unwrap();
            assert!(matches!(device.hold_qp(qp), Err(ConnectError::State(QpState::Init))), "set up once");
            let rtr = QpChange {
                path: Some(AddressVector::to("10.0.0.2".parse().unwrap())),
                path_mtu: Some(PathMtu::B1024),
                destination: Some(QpNumber::new(17).unwrap()),
                rq_psn: Some(Psn::new(0)),
                max_dest_rd_atomic: Some(0),
                min_rnr_timer: RnrTimer::new(1),
                ..QpChange::to(QpState::Rtr)
            };
            let rts = QpChange {
                sq_psn: Some(Psn::new(0)),
                timeout: Some(0),
                retry_count: Some(0),
                rnr_retry: Some(0),
                max_rd_atomic: Some(0),
                ..QpChange::to(QpState::Rts)
            };
            [rtr, rts].iter().for_each(|change| device.modify_qp(qp, change).unwrap());
            Self { device, qp, cq, lkey }
        }

        fn send(&mut self, at: u64, len: u32) {
            let buffers = [Sge { address: BASE + at, len, lkey: self.lkey }];
            self.device.post_send(self.qp, &SendRequest::new(at, Operation::Send, &buffers)).unwrap();
        }

        fn post_receive(&mut self, at: u64) {
            let buffers = [Sge { address: BASE + at, len: 1000, lkey: self.lkey }];
            let receive = ReceiveRequest { wr_id: at, buffers: &buffers };
            self.device.post_receive(self.qp, &receive).unwrap();
        }

        /// Returns the outgoing bytes of the stream, at most `room`.
        fn transmit(&mut self, room: usize) -> Option<Vec<u8>> {
            let mut buffer = vec![0; room];
            match self.device.poll_transmit(Instant::ZERO, 16, &mut buffer)? {
                Transmit::Stream(StreamBytes { qp, len }) if qp == self.qp => Some(buffer[..len].to_vec()),
                other => panic!("{other:?}"),
            }
        }

        fn receive(&mut self, bytes: &[u8]) -> usize {
            self.device.receive_stream(self.qp, bytes, Instant::ZERO).unwrap()
        }

        fn completed(&mut self) -> Vec<(u64, Status)> {
            std::iter::from_fn(|| self.device.poll_cq(self.cq)).map(|wc| (wc.wr_id, wc.status)).collect()
        }
    }

    /// The frames of two sends, of 300 and of 5 bytes.
    fn frames() -> Vec<u8> {
        let mut sender = End::new();
        let pattern = (0..400).map(|nth: u32| nth as u8).collect::<Vec<_>>();
        sender.device.memory_mut().bytes_mut()[..400].copy_from_slice(&pattern);
        sender.send(0, 300);
        sender.send(300, 5);
        // Room for 64 bytes a call: the first frame is split.
        let mut stream = Vec::new();
        while let Some(bytes) = sender.transmit(64) {
            assert!(bytes.len() <= 64);
            stream.extend(bytes);
        }
        assert_eq!(sender.completed(), [(0, Status::Success), (300, Status::Success)]);
        stream
    }

    #[test]
    fn a_stream_means_the_same_however_it_is_split() {
        let stream = frames();
        for split in 0..=stream.len() {
            let mut receiver = End::new();
            [1000, 2000].into_iter().for_each(|at| receiver.post_receive(at));
            let consumed = receiver.receive(&stream[..split]);
            assert!(receiver.device.wants_stream(receiver.qp));
            assert_eq!(consumed + receiver.receive(&stream[consumed..]), stream.len(), "split at {split}");
            assert_eq!(receiver.completed(), [(1000, Status::Success), (2000, Status::Success)]);
            let memory = receiver.device.memory().bytes();
            assert_eq!((&memory[1000..1300], &memory[2000..2005]), (&stream[4..304], &stream[308..313]));
        }
    }

    #[test]
    fn a_frame_without_a_receive_stops_the_reading() {
        let stream = frames();
        let mut receiver = End::new();
        receiver.post_receive(1000);
        assert_eq!(receiver.receive(&stream), 304);
        assert!(!receiver.device.wants_stream(receiver.qp));
        receiver.post_receive(2000);
        assert!(receiver.device.wants_stream(receiver.qp));
        assert_eq!(receiver.receive(&stream[304..]), 9);
    }

    #[test]
    fn a_blocked_stream_waits_without_work_or_timers() {
        let mut sender = End::new();
        sender.send(0, 100);
        assert_eq!(sender.transmit(60).map(|bytes| bytes.len()), Some(60));
        sender.device.hold_sends(sender.qp);
        assert_eq!(sender.transmit(60), None);
        sender.send(100, 10);
        assert_eq!((sender.transmit(60), sender.device.poll_timeout()), (None, None));
        sender.device.release_sends(sender.qp);
        assert_eq!(sender.transmit(60).map(|bytes| bytes.len()), Some(58));
        assert_eq!(sender.completed(), [(0, Status::Success), (100, Status::Success)]);
    }

    #[test]
    fn a_stream_that_ends_flushes_its_queue_pair() {
        let mut end = End::new();
        end.send(0, 10);
        end.post_receive(1000);
        end.device.stream_closed(end.qp, StreamEnd::Lost, Instant::ZERO);
        assert_eq!(end.completed(), [(0, Status::Flushed), (1000, Status::Flushed)]);
        assert_eq!(end.transmit(60), None);
        assert_eq!(end.device.query_qp(end.qp).unwrap().state, QpState::Err);
    }

    #[test]
    fn streams_and_datagrams_leave_apart() {
        let mut end = End::new();
        let config = end.device.query_qp(end.qp).unwrap().config;
        let datagrams = end.device.create_qp(QpConfig { kind: QpType::Ud, ..config }).unwrap();
        let address = AddressVector::to("10.0.0.2".parse().unwrap());
        let address = end.device.create_address(config.domain, address).unwrap();
        let init = QpChange {
            pkey_index: Some(0),
            port: Some(1),
            qkey: Some(QKey(1)),
            ..QpChange::to(QpState::Init)
        };
        let rts = QpChange { sq_psn: Some(Psn::new(0)), ..QpChange::to(QpState::Rts) };
        for change in [init, QpChange::to(QpState::Rtr), rts] {
            end.device.modify_qp(datagrams, &change).unwrap();
        }
        let recipient = Some(Recipient { address, qp: QpNumber::new(17).unwrap(), qkey: QKey(1) });
        let request = SendRequest { recipient, ..SendRequest::new(1, Operation::Send, &[]) };
        end.device.post_send(datagrams, &request).unwrap();
        end.send(0, 10);
        let mut next = || end.device.poll_transmit(Instant::ZERO, 16, &mut [0; 9000]);
        assert!(matches!(next(), Some(Transmit::Datagrams(batch)) if batch.len > 0));
        assert!(matches!(next(), Some(Transmit::Stream(StreamBytes { len: 14, .. }))));
        assert_eq!(next(), None);
    }
}
