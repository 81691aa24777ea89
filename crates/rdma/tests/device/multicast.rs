//! Multicast datagrams to UD queue pairs.

use std::net::IpAddr;

use crate::common::{End, Link, Pair, address, readdressed};
use nichrome_rdma::*;
use nichrome_wire::AddressPair;
use nichrome_wire::TrafficClass;
use nichrome_wire::rdma::UdpFlow;

fn group(last: u8) -> IpAddr {
    IpAddr::from([239, 1, 2, last])
}

/// UD queue pairs of an end in RTS, with a receive of 200 bytes each at `1000 * nth`.
fn receivers(end: &mut End, count: usize) -> Vec<QpHandle> {
    let qps = (0..count).map(|nth| {
        let qp = end.device.create_qp(end.qp_config(QpType::Ud)).unwrap();
        let init = QpChange {
            pkey_index: Some(0),
            port: Some(1),
            qkey: Some(QKey(0x1234)),
            ..QpChange::to(QpState::Init)
        };
        let rts = QpChange { sq_psn: Some(Psn::new(0)), ..QpChange::to(QpState::Rts) };
        for change in [init, QpChange::to(QpState::Rtr), rts] {
            end.device.modify_qp(qp, &change).unwrap();
        }
        end.receive(qp, nth as u64, 1000 * nth, 200);
        qp
    });
    qps.collect()
}

/// A datagram of an end to a group, as it is on the network: its flow and bytes.
fn datagram(end: &mut End, from: QpHandle, to: IpAddr, qkey: u32) -> (UdpFlow, Vec<u8>) {
    let address = end.device.create_address(end.domain, AddressVector::to(to)).unwrap();
    let recipient = Some(Recipient { address, qp: QpNumber::MULTICAST, qkey: QKey(qkey) });
    let payload = Payload::Inline(b"to all");
    let request = SendRequest { recipient, payload, ..SendRequest::new(9, Operation::Send, &[]) };
    end.device.post_send(from, &request).unwrap();
    let mut buffer = vec![0; 4096];
    let sent = end.device.poll_transmit(Instant::ZERO, 1, &mut buffer);
    let Some(Transmit::Datagrams(sent)) = sent else { panic!("nothing was sent") };
    assert_eq!(sent.route.flow.addresses.dst(), to);
    (sent.route.flow, buffer[..sent.len].to_vec())
}

fn deliver(end: &mut End, flow: UdpFlow, bytes: &[u8]) {
    end.device.receive(&Datagram { flow, traffic_class: TrafficClass(0), bytes }, Instant::ZERO);
}

/// The receives of an end that completed.
fn received(end: &mut End) -> Vec<u64> {
    let all = end.completions().into_iter().filter(|wc| wc.operation == CompletedOperation::Receive);
    all.map(|wc| wc.wr_id).collect()
}

#[test]
fn every_attached_queue_pair_gets_a_copy() {
    let Pair { ends: [mut one, mut two], .. } = Pair::new();
    let sender = receivers(&mut one, 1)[0];
    let qps = receivers(&mut two, 4);
    let attach = |end: &mut End, qp, last| end.device.attach_multicast(qp, group(last)).unwrap();
    assert_eq!(attach(&mut two, qps[0], 1), GroupChange::Joined);
    assert_eq!(attach(&mut two, qps[2], 1), GroupChange::None);
    assert_eq!(attach(&mut two, qps[2], 1), GroupChange::None, "attached already");
    assert_eq!(attach(&mut two, qps[3], 2), GroupChange::Joined);
    assert_eq!(attach(&mut one, sender, 1), GroupChange::Joined);
    let (flow, bytes) = datagram(&mut one, sender, group(1), 0x1234);
    deliver(&mut two, flow, &bytes);
    assert_eq!(received(&mut two), [0, 2]);
    // The IP header that comes with a datagram names the group.
    for at in [0, 2000] {
        assert_eq!(two.bytes(at + 36, 10), b"\xEF\x01\x02\x01to all");
    }
    deliver(&mut one, flow, &bytes);
    assert_eq!(received(&mut one), [0], "the sender's too");
}

#[test]
fn a_queue_pair_that_was_detached_or_destroyed_gets_none() {
    let Pair { ends: [mut one, mut two], .. } = Pair::new();
    let sender = receivers(&mut one, 1)[0];
    let qps = receivers(&mut two, 3);
    for qp in &qps {
        two.device.attach_multicast(*qp, group(1)).unwrap();
    }
    two.device.attach_multicast(qps[1], group(2)).unwrap();
    assert_eq!(two.device.multicast_groups(qps[1]), [group(1), group(2)]);
    assert_eq!(two.device.detach_multicast(qps[0], group(1)), Ok(GroupChange::None));
    assert_eq!(two.device.detach_multicast(qps[0], group(1)), Err(MulticastError::NotAttached));
    assert_eq!(two.device.detach_multicast(qps[0], group(3)), Err(MulticastError::NotAttached));
    two.device.destroy_qp(qps[1]).unwrap();
    let (flow, bytes) = datagram(&mut one, sender, group(1), 0x1234);
    deliver(&mut two, flow, &bytes);
    assert_eq!(received(&mut two), [2]);
    assert_eq!(two.device.detach_multicast(qps[2], group(1)), Ok(GroupChange::Left));
    let dropped = two.device.counters().dropped_unknown;
    deliver(&mut two, flow, &bytes);
    assert_eq!((received(&mut two), two.device.counters().dropped_unknown), (vec![], dropped + 1));
}

#[test]
fn a_datagram_with_another_key_or_without_a_receive_is_dropped_for_that_queue_pair_alone() {
    let Pair { ends: [mut one, mut two], .. } = Pair::new();
    let sender = receivers(&mut one, 1)[0];
    let qps = receivers(&mut two, 2);
    for qp in &qps {
        two.device.attach_multicast(*qp, group(1)).unwrap();
    }
    let (flow, bytes) = datagram(&mut one, sender, group(1), 0x4321);
    deliver(&mut two, flow, &bytes);
    assert_eq!((received(&mut two), two.device.counters().dropped_key), (vec![], 2));
    let (flow, bytes) = datagram(&mut one, sender, group(1), 0x1234);
    deliver(&mut two, flow, &bytes);
    two.receive(qps[1], 7, 0, 200);
    deliver(&mut two, flow, &bytes);
    assert_eq!(received(&mut two), [0, 1, 7]);
}

/// A multicast datagram has both the queue pair number 0xFFFFFF and the address of a group.
#[test]
fn group_and_queue_pair_number_must_belong_together() {
    let Pair { ends: [mut one, mut two], .. } = Pair::new();
    let sender = receivers(&mut one, 1)[0];
    let qps = receivers(&mut two, 2);
    two.device.attach_multicast(qps[0], group(1)).unwrap();
    let (flow, bytes) = datagram(&mut one, sender, group(1), 0x1234);
    for qp in &qps {
        let number = two.device.qp_number(*qp).unwrap();
        deliver(&mut two, flow, &readdressed(&bytes, &flow, number));
    }
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (address(0), address(1)) else { panic!() };
    let unicast = UdpFlow { addresses: AddressPair::V4 { src, dst }, ..flow };
    deliver(&mut two, unicast, &readdressed(&bytes, &unicast, QpNumber::MULTICAST));
    assert_eq!((received(&mut two), two.device.counters().dropped_unknown), (vec![], 3));
    deliver(&mut two, flow, &readdressed(&bytes, &flow, QpNumber::MULTICAST));
    assert_eq!(received(&mut two), [0]);
}

#[test]
fn connected_queue_pairs_unicast_addresses_and_other_families_are_refused() {
    let mut pair = Pair::new();
    let [connected, _] = pair.connect(QpType::Rc, &Link::default());
    let [end, _] = &mut pair.ends;
    let qp = receivers(end, 1)[0];
    let mut attach = |qp, group: &str| end.device.attach_multicast(qp, group.parse().unwrap());
    assert_eq!(attach(connected, "239.1.2.3"), Err(MulticastError::Service(QpType::Rc)));
    let unicast = attach(qp, "10.0.0.1");
    assert_eq!(unicast, Err(MulticastError::Unicast(address(0))));
    assert!(matches!(attach(qp, "ff15::1"), Err(MulticastError::Family(_))));
}

#[test]
fn groups_and_their_members_are_bounded() {
    let mut pair = Pair::with(|config| (config.limits.groups, config.limits.group_members) = (3, 2));
    let [end, _] = &mut pair.ends;
    let qps = receivers(end, 3);
    let mut attach = |nth: usize, last| end.device.attach_multicast(qps[nth], group(last));
    let full = Err(MulticastError::Object(ObjectError::Exhausted(ObjectKind::Group)));
    assert!((0..3).all(|last| attach(0, last) == Ok(GroupChange::Joined)));
    assert_eq!((attach(0, 3), attach(1, 3)), (full, full));
    assert_eq!((attach(1, 0), attach(2, 0)), (Ok(GroupChange::None), full));
}
