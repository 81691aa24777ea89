//! A device whose own transport is iWARP: its state table, and queue pairs before they are connected.

use nichrome_rdma::iwarp::Terms;
use nichrome_rdma::*;

use crate::common::{Link, Pair, address, changes};
use crate::foreign::Alone;
use crate::support::{TERMS, both};

const ALL: Access = Access::REMOTE_WRITE;

fn pair() -> Pair {
    Pair::with(|config| config.native = Native::Iwarp)
}

/// The changes that the kernel's connection manager makes for iWARP.
fn bare() -> [QpChange; 3] {
    let init = QpChange { access: Some(ALL), ..QpChange::to(QpState::Init) };
    [init, QpChange::to(QpState::Rtr), QpChange::to(QpState::Rts)]
}

#[test]
fn only_reliable_connections_exist() {
    let mut pair = pair();
    for kind in [QpType::Uc, QpType::Ud, QpType::XrcSend] {
        let config = pair.ends[0].qp_config(kind);
        assert_eq!(pair.ends[0].device.create_qp(config), Err(ObjectError::Service(kind)));
    }
    let device = &mut pair.ends[0].device;
    let xrc = device.create_xrc_domain().unwrap();
    assert_eq!(device.create_xrc_target(xrc), Err(ObjectError::Service(QpType::XrcReceive)));
    assert_eq!(device.qps(), 0);
}

#[test]
fn states_need_no_path_and_no_packet_numbers() {
    let mut pair = pair();
    let [qp, _] = pair.create(QpType::Rc);
    let device = &mut pair.ends[0].device;
    for (change, state) in bare().iter().zip([QpState::Init, QpState::Rtr, QpState::Rts]) {
        device.modify_qp(qp, change).unwrap();
        device.modify_qp(qp, &QpChange::default()).unwrap();
        assert_eq!(device.query_qp(qp).unwrap().state, state, "mask 0 changes nothing");
    }
    let with_qkey = QpChange { qkey: Some(QKey(1)), ..QpChange::default() };
    assert!(matches!(device.modify_qp(qp, &with_qkey), Err(ModifyError::NotAllowed { .. })));
    device.modify_qp(qp, &QpChange::to(QpState::Reset)).unwrap();
    assert!(matches!(device.modify_qp(qp, &bare()[2]), Err(ModifyError::Transition { .. })));
}

#[test]
fn programs_of_roce_may_set_their_usual_attributes() {
    let mut pair = pair();
    let [qp, _] = pair.create(QpType::Rc);
    let peer = QpNumber::new(5).unwrap();
    for change in changes(QpType::Rc, address(1), peer, &Link::default()) {
        pair.ends[0].device.modify_qp(qp, &change).unwrap();
    }
    let report = pair.ends[0].device.query_qp(qp).unwrap();
    assert_eq!((report.destination, report.max_rd_atomic), (Some(peer), 4));
}

#[test]
fn depths_are_those_of_the_terms_where_the_program_sets_none() {
    let mut pair = pair();
    let [qp, _] = pair.create(QpType::Rc);
    let device = &mut pair.ends[0].device;
    device.modify_qp(qp, &bare()[0]).unwrap();
    device.connect(qp, &Terms { ord: 3, ird: 300, ..TERMS }).unwrap();
    let report = device.query_qp(qp).unwrap();
    assert_eq!((report.max_rd_atomic, report.max_dest_rd_atomic), (3, 255));
}

#[test]
fn requests_wait_for_the_connection() {
    let mut pair = pair();
    let qps = pair.create(QpType::Rc);
    for (end, qp) in qps.into_iter().enumerate() {
        bare().iter().for_each(|change| pair.ends[end].device.modify_qp(qp, change).unwrap());
        pair.ends[end].post(qp, 1, Operation::Send, 0, 10);
        pair.ends[end].receive(qp, 2, 100, 10);
    }
    pair.run();
    assert_eq!(pair.ends[0].statuses(), []);
    pair.put_on_iwarp(qps, both(TERMS));
    pair.run();
    let success = [(1, Status::Success), (2, Status::Success)];
    for end in &mut pair.ends {
        let mut statuses = end.statuses();
        statuses.sort_by_key(|(id, _)| *id);
        assert_eq!(statuses, success);
    }
    let connected = pair.ends[0].device.connect(qps[0], &TERMS);
    assert!(matches!(connected, Err(ConnectError::State(QpState::Rts))), "once");
}

#[test]
fn requests_are_sent_in_rtr() {
    let mut pair = pair();
    let qps = pair.create(QpType::Rc);
    let [init, rtr, rts] = bare();
    for (end, qp) in qps.into_iter().enumerate() {
        pair.ends[end].device.modify_qp(qp, &init).unwrap();
        let request = SendRequest::new(1, Operation::Send, &[]);
        let refused = pair.ends[end].device.post_send(qp, &request);
        assert!(matches!(refused, Err(PostError::State(QpState::Init))), "{refused:?}");
        pair.ends[end].device.modify_qp(qp, &rtr).unwrap();
        pair.ends[end].receive(qp, 2, 100, 10);
    }
    pair.ends[0].device.modify_qp(qps[0], &rts).unwrap();
    pair.put_on_iwarp(qps, both(TERMS));
    pair.ends[0].post(qps[0], 1, Operation::Send, 0, 10);
    pair.run();
    // A receiver of SENDs need not come to RTS to answer.
    pair.ends[1].post(qps[1], 1, Operation::Send, 0, 10);
    pair.run();
    for end in &mut pair.ends {
        let mut statuses = end.statuses();
        statuses.sort_by_key(|(id, _)| *id);
        assert_eq!(statuses, [(1, Status::Success), (2, Status::Success)]);
    }
}

#[test]
fn a_queue_pair_that_is_reset_can_be_connected_again() {
    let mut pair = pair();
    let qps = pair.create(QpType::Rc);
    for round in 0..3 {
        for (end, qp) in qps.into_iter().enumerate() {
            bare().iter().for_each(|change| pair.ends[end].device.modify_qp(qp, change).unwrap());
        }
        pair.streams = Default::default();
        pair.put_on_iwarp(qps, both(TERMS));
        pair.ends[0].receive(qps[0], round, 0, 10);
        pair.ends[1].post(qps[1], round, Operation::Send, 0, 10);
        pair.run();
        assert_eq!(pair.ends[0].statuses(), [(round, Status::Success)]);
        pair.ends[1].completions();
        for (end, qp) in qps.into_iter().enumerate() {
            pair.ends[end].device.modify_qp(qp, &QpChange::to(QpState::Reset)).unwrap();
        }
    }
}

#[test]
fn nothing_is_read_before_rtr() {
    let mut pair = pair();
    let [qp, _] = pair.create(QpType::Rc);
    pair.ends[0].device.modify_qp(qp, &bare()[0]).unwrap();
    let mut alone = Alone::on(pair, qp, both(TERMS)[1]);
    let first = Alone::new(TERMS).bytes();
    assert!(!alone.end().device.wants_stream(qp));
    assert_eq!(alone.deliver_bytes(&first), 0);
    alone.end().device.modify_qp(qp, &bare()[1]).unwrap();
    assert!(alone.end().device.wants_stream(qp));
    assert_eq!(alone.deliver_bytes(&first), first.len());
}

#[test]
fn an_unconnected_queue_pair_flushes() {
    let mut pair = pair();
    let [qp, _] = pair.create(QpType::Rc);
    bare().iter().for_each(|change| pair.ends[0].device.modify_qp(qp, change).unwrap());
    pair.ends[0].post(qp, 1, Operation::Send, 0, 10);
    pair.ends[0].receive(qp, 2, 100, 10);
    pair.ends[0].device.modify_qp(qp, &QpChange::to(QpState::Err)).unwrap();
    assert_eq!(pair.ends[0].statuses(), [(1, Status::Flushed), (2, Status::Flushed)]);
    assert_eq!(pair.ends[0].device.poll_transmit(Instant::ZERO, 16, &mut [0; 1000]), None);
    pair.ends[0].device.destroy_qp(qp).unwrap();
}
