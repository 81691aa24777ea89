//! Shared receive queues of another protection domain than the queue pairs that take from them.

use crate::common::{ALL, BASE, Link, MEMORY, Pair, pattern};
use nichrome_rdma::*;

/// Connects queue pairs, of which the second takes from a shared receive queue of a domain of its own;
/// returns that queue and the key of a region in its domain.
fn connect(pair: &mut Pair) -> ([QpHandle; 2], SrqHandle, LKey) {
    let end = &mut pair.ends[1];
    let other = end.device.create_domain().unwrap();
    let srq = end.device.create_srq(other, SrqAttributes { wrs: 4, sges: 1, limit: 0 }).unwrap();
    let region = end.device.register(other, RegionConfig::new(BASE, MEMORY as u64, ALL)).unwrap();
    let LKey(key) = end.device.query_region(region).unwrap().lkey;
    let shared = QpConfig { srq: Some(srq), ..end.qp_config(QpType::Rc) };
    let b = end.device.create_qp(shared).unwrap();
    let a = pair.ends[0].device.create_qp(pair.ends[0].qp_config(QpType::Rc)).unwrap();
    pair.bring_up(QpType::Rc, [a, b], &Link::default());
    ([a, b], srq, LKey(key))
}

fn send_into(pair: &mut Pair, lkey_of: impl Fn(LKey, LKey) -> LKey) -> (Completion, Completion) {
    let ([a, _], srq, srq_key) = connect(pair);
    let lkey = lkey_of(srq_key, pair.ends[1].lkey);
    let buffers = [Sge { address: BASE + 5000, len: 3000, lkey }];
    let receive = ReceiveRequest { wr_id: 7, buffers: &buffers };
    pair.ends[1].device.post_srq_receive(srq, &receive).unwrap();
    pair.ends[0].fill(0, &pattern(3000, 1));
    pair.ends[0].post(a, 1, Operation::Send, 0, 3000);
    pair.run();
    (pair.ends[0].completions()[0], pair.ends[1].completions()[0])
}

#[test]
fn receives_of_a_shared_queue_use_keys_of_its_domain() {
    let mut pair = Pair::new();
    let (sent, received) = send_into(&mut pair, |srq_key, _| srq_key);
    assert_eq!((sent.status, received.status), (Status::Success, Status::Success));
    assert_eq!((received.wr_id, received.len), (7, 3000));
    assert!(pair.ends[1].bytes(5000, 3000) == pattern(3000, 1));
}

#[test]
fn keys_of_the_queue_pair_s_domain_do_not_reach_through_a_shared_queue_of_another() {
    let mut pair = Pair::new();
    let (sent, received) = send_into(&mut pair, |_, qp_key| qp_key);
    assert_eq!((sent.status, received.status), (Status::RemoteOperation, Status::LocalProtection));
    assert_eq!(pair.ends[1].bytes(5000, 3000), [0; 3000]);
}

#[test]
fn both_domains_are_in_use() {
    let mut pair = Pair::new();
    let ([_, b], srq, _) = connect(&mut pair);
    let device = &mut pair.ends[1].device;
    assert_eq!(device.destroy_srq(srq), Err(ObjectError::InUse(ObjectKind::Srq)));
    device.destroy_qp(b).unwrap();
    device.destroy_srq(srq).unwrap();
}
