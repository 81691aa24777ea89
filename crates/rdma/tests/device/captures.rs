//! Replays captured requests of Linux's rxe to this crate's responder, which must answer them as rxe's did.
//!
//! Each request gets the key of the device's region in place of rxe's, and a valid ICRC.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::common::Link;
use nichrome_rdma::*;
use nichrome_wire::rdma::{Message, NakCode, Part, RcMessage, Repr, Reth, Syndrome, UdpFlow};
use nichrome_wire::{AddressPair, Ipv4Header, TrafficClass, UdpHeader};
use pcap_file::pcap::PcapReader;

/// A RoCE packet of a capture.
struct Packet {
    addresses: AddressPair,
    repr: Repr,
    payload: Vec<u8>,
}

fn packets(file: &str) -> Vec<Packet> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures"));
    let mut reader = PcapReader::new(File::open(folder.join(file)).unwrap()).unwrap();
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let frame = packet.unwrap().data.into_owned();
        if frame[12..14] != [8, 0] {
            continue;
        }
        let ip = Ipv4Header::new(&frame[14..]).unwrap();
        let udp = UdpHeader::new(&frame[34..]);
        let Some(udp) = udp.filter(|udp| frame[23] == 17 && udp.dst_port() == 4791) else { continue };
        let Ok((repr, payload)) = Repr::parse(udp.payload().unwrap()) else { continue };
        let addresses = AddressPair::V4 { src: ip.src(), dst: ip.dst() };
        packets.push(Packet { addresses, repr, payload: payload.to_vec() });
    }
    packets
}

fn is_request(message: &RcMessage) -> bool {
    !matches!(
        message,
        RcMessage::Acknowledge(_) | RcMessage::ReadResponse(_) | RcMessage::AtomicAcknowledge(..)
    )
}

/// The memory that a request reaches.
fn reached(message: &RcMessage) -> Option<(u64, u64)> {
    match message {
        RcMessage::Write(part) => part.start().map(|reth| (reth.va, reth.va + u64::from(reth.len))),
        RcMessage::ReadRequest(reth) => Some((reth.va, reth.va + u64::from(reth.len))),
        RcMessage::CompareSwap(eth) | RcMessage::FetchAdd(eth) => Some((eth.va, eth.va + 8)),
        _ => None,
    }
}

fn with_key(message: RcMessage, rkey: RKey) -> RcMessage {
    let reth = |reth: Reth| Reth { rkey, ..reth };
    match message {
        RcMessage::Write(Part::First(eth)) => RcMessage::Write(Part::First(reth(eth))),
        RcMessage::Write(Part::Only(eth, end)) => RcMessage::Write(Part::Only(reth(eth), end)),
        RcMessage::ReadRequest(eth) => RcMessage::ReadRequest(reth(eth)),
        RcMessage::CompareSwap(mut eth) => {
            eth.rkey = rkey;
            RcMessage::CompareSwap(eth)
        }
        RcMessage::FetchAdd(mut eth) => {
            eth.rkey = rkey;
            RcMessage::FetchAdd(eth)
        }
        other => other,
    }
}

/// A responder's answers: acknowledgements and data, by packet number.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answered {
    sequence_naks: Vec<u32>,
    other_naks: usize,
    data: BTreeMap<u32, usize>,
    last_ack: Option<u32>,
    /// Whether all requests were executed.
    finished: bool,
}

impl Answered {
    fn add(&mut self, repr: &Repr, payload_len: usize) {
        let psn = repr.bth.psn.value();
        match repr.message {
            Message::Rc(RcMessage::Acknowledge(aeth)) => match aeth.syndrome {
                Syndrome::Ack(_) => self.last_ack = Some(psn),
                Syndrome::Nak(NakCode::PsnSequence) => self.sequence_naks.push(psn),
                Syndrome::Nak(_) | Syndrome::RnrNak(_) => self.other_naks += 1,
            },
            Message::Rc(RcMessage::ReadResponse(_)) => {
                self.data.insert(psn, payload_len);
            }
            Message::Rc(RcMessage::AtomicAcknowledge(..)) => {
                self.data.insert(psn, 8);
            }
            _ => {}
        }
    }
}

/// Replays the requests for one queue pair to a device; returns its answers.
fn replay(requests: &[&Packet]) -> Answered {
    let first = requests[0];
    let (ours, theirs): (IpAddr, IpAddr) = (first.addresses.dst(), first.addresses.src());
    let reach = requests.iter().filter_map(|packet| match &packet.repr.message {
        Message::Rc(message) => reached(message),
        _ => None,
    });
    let (low, high) = reach.fold((u64::MAX, 0), |(low, high), (from, to)| (low.min(from), high.max(to)));
    let (low, len) = if high == 0 { (0, 1 << 20) } else { (low & !7, (high - low + 16) as usize) };

    let mut config = Config::new(vec![ours]);
    config.first_qp = first.repr.bth.dest_qp.value();
    // With one number in the range, the queue pair gets that of the capture.
    config.limits.qps = 1;
    let mut device = Device::new(config, ByteMemory::new(low, len.max(1 << 20))).unwrap();
    let domain = device.create_domain().unwrap();
    let cq = device.create_cq(4096).unwrap();
    let region = RegionConfig::new(low, len.max(1 << 20) as u64, crate::common::ALL);
    let (_, keys) = crate::common::register(&mut device, domain, region);
    let capacity = QpCapacity { receive_wrs: 4096, receive_sges: 1, ..QpCapacity::default() };
    let (kind, signaling) = (QpType::Rc, Signaling::Requested);
    let config = QpConfig { kind, domain, send_cq: cq, receive_cq: cq, srq: None, capacity, signaling };
    let qp = device.create_qp(config).unwrap();
    let link = Link { psn: first.repr.bth.psn.value(), rd_atomic: 128, ..Link::default() };
    let peer = QpNumber::new(0x99).unwrap();
    let [init, rtr, _] = crate::common::changes(QpType::Rc, theirs, peer, &link);
    for change in [init, rtr] {
        device.modify_qp(qp, &change).unwrap();
    }
    let buffers = [Sge { address: low, len: 1 << 20, lkey: keys.lkey }];
    (0..4096)
        .for_each(|wr_id| device.post_receive(qp, &ReceiveRequest { wr_id, buffers: &buffers }).unwrap());

    let flow = UdpFlow::to_roce(first.addresses, 4791);
    let mut answered = Answered::default();
    let mut last = first.repr.bth.psn;
    for (nth, packet) in requests.iter().enumerate() {
        let Message::Rc(message) = packet.repr.message else { panic!() };
        let repr = Repr { message: Message::Rc(with_key(message, keys.rkey)), ..packet.repr };
        let bytes = crate::common::datagram_of_flow(&flow, &repr, &packet.payload);
        let now = Instant::from_nanos(nth as u64 * 1000);
        device.receive(&Datagram { flow, traffic_class: TrafficClass(0), bytes: &bytes }, now);
        let mut buffer = vec![0; 65_507];
        while let Some(Transmit::Datagrams(transmit)) = device.poll_transmit(now, 16, &mut buffer) {
            for bytes in transmit.datagrams(&buffer) {
                let (repr, payload) = Repr::parse(bytes).unwrap();
                answered.add(&repr, payload.len());
            }
        }
        if packet.repr.bth.psn.after(last) {
            last = packet.repr.bth.psn;
        }
    }
    let report = device.query_qp(qp).unwrap();
    assert_eq!(report.state, QpState::Rtr);
    answered.finished = report.rq_psn.after(last);
    let counters = device.counters();
    assert_eq!((counters.refused, counters.dropped_icrc, counters.dropped_malformed), (0, 0, 0));
    answered
}

/// Replays each queue pair's requests; returns our answers and rxe's.
fn both(file: &str) -> Vec<(Answered, Answered)> {
    let packets = packets(file);
    let mut flows: BTreeMap<(IpAddr, u32), Vec<&Packet>> = BTreeMap::new();
    for packet in &packets {
        if matches!(&packet.repr.message, Message::Rc(message) if is_request(message)) {
            let key = (packet.addresses.dst(), packet.repr.bth.dest_qp.value());
            flows.entry(key).or_default().push(packet);
        }
    }
    flows
        .values()
        .map(|requests| {
            // rxe's answers: packets from the queue pair's address with PSNs in the range of the requests.
            let numbers: Vec<Psn> = requests.iter().map(|packet| packet.repr.bth.psn).collect();
            let (low, high) = (numbers[0], *numbers.last().unwrap());
            let mut rxe = Answered::default();
            for packet in
                packets.iter().filter(|packet| packet.addresses.src() == requests[0].addresses.dst())
            {
                let psn = packet.repr.bth.psn;
                if psn.since(low) >= -1 && psn.since(high) < 200 {
                    rxe.add(&packet.repr, packet.payload.len());
                }
            }
            (replay(requests), rxe)
        })
        .collect()
}

/// The capture ends while a gap is being repaired.
#[test]
fn writes_over_a_lossy_path() {
    for (ours, rxe) in both("rxe-write-loss.pcap") {
        assert!(!ours.finished);
        assert_eq!(ours.sequence_naks, rxe.sequence_naks);
        assert_eq!((ours.other_naks, ours.last_ack), (0, rxe.last_ack));
        assert!(ours.sequence_naks.len() > 5);
    }
}

#[test]
fn reads_over_a_lossy_path() {
    for (ours, rxe) in both("rxe-read-loss.pcap") {
        assert!(rxe.data.len() > 100 && ours.finished);
        // Some of rxe's answers were lost before they were captured; ours are complete.
        for (psn, len) in &rxe.data {
            assert_eq!(ours.data.get(psn), Some(len), "response {psn}");
        }
    }
}

#[test]
fn every_operation() {
    let flows = both("rxe-verbs.pcap");
    assert!(flows.len() >= 6, "{} queue pairs", flows.len());
    for (ours, rxe) in flows {
        assert!(ours.finished);
        assert_eq!((ours.sequence_naks.len(), ours.other_naks), (0, 0));
        assert_eq!(ours.last_ack.is_some(), rxe.last_ack.is_some());
        for (psn, len) in &ours.data {
            assert_eq!(rxe.data.get(psn), Some(len), "response {psn}");
        }
    }
}
