//! FLUSH and ATOMIC WRITE (IBA annex A19), as rxe has them.

use crate::common::{ALL, BASE, Faults, Link, Pair, pattern};
use nichrome_rdma::*;

const GLOBAL: Feth = Feth { placement: Placement::GLOBAL, selectivity: Selectivity::Range };
const REGION: Feth = Feth { placement: Placement::GLOBAL, selectivity: Selectivity::Region };

/// Posts a FLUSH at the first end.
fn flush(pair: &mut Pair, qp: QpHandle, wr_id: u64, remote: Remote, len: u32, scope: Feth) {
    pair.ends[0].post_local(qp, wr_id, Operation::Flush { remote, len, scope });
}

/// The status of one request of the first end, and the state of its queue pair after.
fn outcome(link: &Link, post: impl Fn(&mut Pair, QpHandle)) -> (Status, QpState) {
    let mut pair = Pair::new();
    let [a, _] = pair.connect(QpType::Rc, link);
    post(&mut pair, a);
    pair.run();
    let [(_, status)] = pair.ends[0].statuses()[..] else { panic!("not one completion") };
    (status, pair.ends[0].device.query_qp(a).unwrap().state)
}

fn flushed(link: &Link, offset: usize, len: u32, scope: Feth) -> (Status, QpState) {
    outcome(link, |pair, a| {
        let remote = pair.ends[1].remote(offset);
        flush(pair, a, 1, remote, len, scope);
    })
}

const DONE: (Status, QpState) = (Status::Success, QpState::Rts);
const NO_ACCESS: (Status, QpState) = (Status::RemoteAccess, QpState::Err);
const INVALID: (Status, QpState) = (Status::RemoteInvalidRequest, QpState::Err);

#[test]
fn a_flush_completes_behind_the_writes_before_it_whatever_is_lost() {
    for seed in 0..20 {
        let faults = Faults { loss: 0.2, duplicate: 0.2, reorder: 0.2, ..Faults::default() };
        let mut pair = Pair::new().seeded(seed, faults);
        let [a, _] = pair.connect(QpType::Rc, &Link::default());
        let data = pattern(5000, seed);
        pair.ends[0].fill(0, &data);
        for n in 0..20usize {
            let remote = pair.ends[1].remote(5000 * n);
            pair.ends[0].post(a, 2 * n as u64, Operation::Write(remote), 0, 5000);
            flush(&mut pair, a, 2 * n as u64 + 1, remote, 5000, if n % 2 == 0 { GLOBAL } else { REGION });
        }
        pair.run();
        let completions = pair.ends[0].completions();
        let succeeded = completions.iter().zip(0..).all(|(wc, id)| {
            let operation = [CompletedOperation::Write, CompletedOperation::Flush][id as usize % 2];
            (wc.wr_id, wc.status, wc.operation) == (id, Status::Success, operation)
        });
        assert!(succeeded && completions.len() == 40, "{completions:?}");
        assert!((0..20).all(|n| pair.ends[1].bytes(5000 * n, 5000) == data));
    }
}

#[test]
fn a_flush_needs_its_range_within_the_region_and_its_right() {
    let link = Link::default();
    let end = crate::common::MEMORY as u32;
    assert_eq!(flushed(&link, 0, end, GLOBAL), DONE);
    assert_eq!(flushed(&link, crate::common::MEMORY, 0, GLOBAL), DONE);
    assert_eq!(flushed(&link, 1, end, GLOBAL), NO_ACCESS);
    assert_eq!(flushed(&link, crate::common::MEMORY + 1, 0, GLOBAL), NO_ACCESS);
    // The whole region is flushed: address and length are ignored.
    assert_eq!(flushed(&link, crate::common::MEMORY + 1, 12_345_678, REGION), DONE);
    let none = Feth { placement: Placement::NONE, ..GLOBAL };
    assert_eq!(flushed(&link, 0, 1, none), DONE);
}

#[test]
fn a_flush_needs_the_right_of_the_queue_pair_for_each_placement_type() {
    let persistent = Feth { placement: Placement::PERSISTENT, ..GLOBAL };
    let both = Feth { placement: Placement::GLOBAL | Placement::PERSISTENT, ..GLOBAL };
    let link = |access| Link { access, ..Link::default() };
    assert_eq!(flushed(&link(Access::REMOTE_WRITE), 0, 1, GLOBAL), INVALID);
    assert_eq!(flushed(&link(Access::FLUSH_GLOBAL), 0, 1, GLOBAL), DONE);
    assert_eq!(flushed(&link(Access::FLUSH_GLOBAL), 0, 1, persistent), INVALID);
    assert_eq!(flushed(&link(Access::FLUSH_GLOBAL), 0, 1, both), INVALID);
    // The region's memory is volatile.
    let all = link(Access::FLUSH_GLOBAL | Access::FLUSH_PERSISTENT);
    assert_eq!(flushed(&all, 0, 1, persistent), NO_ACCESS);
    assert_eq!(flushed(&all, 0, 1, both), NO_ACCESS);
    assert_eq!(flushed(&Link { rd_atomic: 1, ..all }, 0, 1, GLOBAL), DONE);
}

#[test]
fn a_flush_needs_the_right_of_the_region_and_a_key_of_the_domain() {
    for scope in [GLOBAL, REGION] {
        let (status, _) = outcome(&Link::default(), |pair, a| {
            let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
            let (_, keys) = pair.ends[1].register(RegionConfig::new(BASE, 64, access));
            flush(pair, a, 1, Remote { address: BASE, rkey: keys.rkey }, 8, scope);
        });
        assert_eq!(status, Status::RemoteAccess);
        let (status, _) = outcome(&Link::default(), |pair, a| {
            let domain = pair.ends[1].device.create_domain().unwrap();
            let config = RegionConfig::new(BASE, 64, ALL);
            let (_, keys) = crate::common::register(&mut pair.ends[1].device, domain, config);
            flush(pair, a, 1, Remote { address: BASE, rkey: keys.rkey }, 8, scope);
        });
        assert_eq!(status, Status::RemoteAccess);
    }
}

#[test]
fn a_flush_through_a_window_needs_the_windows_right() {
    for (access, expected) in
        [(Access::REMOTE_WRITE, Status::RemoteAccess), (Access::FLUSH_GLOBAL, Status::Success)]
    {
        for scope in [GLOBAL, REGION] {
            let mut pair = Pair::new();
            let [a, b] = pair.connect(QpType::Rc, &Link::default());
            let (window, key) = pair.ends[1].window(WindowKind::Two);
            let region = pair.ends[1].lkey;
            let bind = Bind { window: key, key_byte: 7, region, address: BASE, len: 64, access };
            pair.ends[1].post_local(b, 1, Operation::BindWindow(bind));
            pair.run();
            let rkey = pair.ends[1].device.window_key(window).unwrap();
            flush(&mut pair, a, 1, Remote { address: BASE, rkey }, 64, scope);
            pair.run();
            assert_eq!(pair.ends[0].statuses(), [(1, expected)], "{access:?}");
        }
    }
}

#[test]
fn volatile_memory_is_not_registered_as_persistent() {
    let mut pair = Pair::new();
    let [end, _] = &mut pair.ends;
    let access = Access::LOCAL_WRITE | Access::FLUSH_PERSISTENT;
    let made = end.device.register(end.domain, RegionConfig::new(BASE, 64, access));
    assert_eq!(made, Err(RegisterError::Rights(access)));
}

#[test]
fn atomic_writes_are_done_once_and_in_order_whatever_is_lost() {
    for seed in 0..20 {
        let faults = Faults { loss: 0.2, duplicate: 0.2, reorder: 0.2, ..Faults::default() };
        let mut pair = Pair::new().seeded(seed, faults);
        let [a, _] = pair.connect(QpType::Rc, &Link::default());
        let remote = pair.ends[1].remote(64);
        for n in 0..40u64 {
            pair.ends[0].fill(8 * n as usize, &(100 * n).to_ne_bytes());
            pair.ends[0].post(a, 2 * n, Operation::AtomicWrite(remote), 8 * n as usize, 8);
            let add = Operation::FetchAdd { remote, add: 1 };
            pair.ends[0].post(a, 2 * n + 1, add, 1000 + 8 * n as usize, 8);
        }
        pair.run();
        let completions = pair.ends[0].completions();
        assert!(completions.iter().zip(0..).all(|(wc, id)| (wc.wr_id, wc.status) == (id, Status::Success)));
        assert_eq!((completions.len(), completions[0].operation), (80, CompletedOperation::AtomicWrite));
        for n in 0..40u64 {
            assert_eq!(pair.ends[0].bytes(1000 + 8 * n as usize, 8), (100 * n).to_ne_bytes(), "{n}");
        }
        assert_eq!(pair.ends[1].bytes(64, 8), 3901u64.to_ne_bytes());
    }
}

fn written(link: &Link, offset: usize, rkey: impl Fn(RKey) -> RKey) -> (Status, QpState) {
    outcome(link, |pair, a| {
        let Remote { address, rkey: key } = pair.ends[1].remote(offset);
        pair.ends[0].post(a, 1, Operation::AtomicWrite(Remote { address, rkey: rkey(key) }), 0, 8);
    })
}

#[test]
fn an_atomic_write_needs_alignment_bounds_and_the_right_to_write() {
    let link = Link::default();
    assert_eq!(written(&link, crate::common::MEMORY - 8, |key| key), DONE);
    assert_eq!(written(&link, crate::common::MEMORY, |key| key), NO_ACCESS);
    assert_eq!(written(&link, 4, |key| key), INVALID);
    assert_eq!(written(&link, 8, |key| RKey(key.0 ^ 1)), NO_ACCESS);
    let access = Access::REMOTE_ATOMIC | Access::REMOTE_READ;
    assert_eq!(written(&Link { access, ..link }, 8, |key| key), INVALID);
}

#[test]
fn the_bytes_of_an_atomic_write_may_be_inline_on_a_queue_made_for_none() {
    let mut pair = Pair::new();
    let qps = pair.ends.each_mut().map(|end| {
        let mut config = end.qp_config(QpType::Rc);
        config.capacity.inline = 0;
        end.device.create_qp(config).unwrap()
    });
    pair.bring_up(QpType::Rc, qps, &Link::default());
    let remote = pair.ends[1].remote(8);
    let request = SendRequest {
        payload: Payload::Inline(b"at once!"),
        ..SendRequest::new(1, Operation::AtomicWrite(remote), &[])
    };
    pair.ends[0].device.post_send(qps[0], &request).unwrap();
    let write = SendRequest { operation: Operation::Write(remote), ..request };
    let refused = pair.ends[0].device.post_send(qps[0], &write);
    assert_eq!(refused, Err(PostError::Inline { len: 8, max: 0 }));
    pair.run();
    assert_eq!(pair.ends[0].statuses(), [(1, Status::Success)]);
    assert_eq!(pair.ends[1].bytes(8, 8), b"at once!");
}

/// At most `max_rd_atomic` requests that have a response of their own are outstanding, so that the responder
/// can keep the answers of all.
#[test]
fn flushes_and_atomic_writes_count_among_the_reads_outstanding() {
    let mut pair = Pair::new();
    let [a, _] = pair.connect(QpType::Rc, &Link { rd_atomic: 2, ..Link::default() });
    let remote = pair.ends[1].remote(0);
    for n in 0..3 {
        flush(&mut pair, a, 2 * n, remote, 1, GLOBAL);
        pair.ends[0].post(a, 2 * n + 1, Operation::AtomicWrite(remote), 0, 8);
    }
    pair.record = true;
    pair.transmit();
    assert_eq!(pair.sent.len(), 2);
    pair.run();
    assert_eq!(pair.ends[0].statuses(), (0..6).map(|id| (id, Status::Success)).collect::<Vec<_>>());
    let (_, sent) = &pair.sent[0];
    // The opcodes of IBA 1.5 and rxe: FLUSH is 0x1C with FETH and RETH, ATOMIC WRITE is 0x1D with RETH.
    assert_eq!((sent[0], sent.len()), (0x1C, 12 + 4 + 16 + 4));
    let (_, sent) = &pair.sent[1];
    assert_eq!((sent[0], sent.len()), (0x1D, 12 + 16 + 8 + 4));
    // Each is answered by an empty READ response.
    assert!(
        pair.sent.iter().filter(|(end, _)| *end == 1).all(|(_, sent)| (sent[0], sent.len()) == (0x10, 20))
    );
}

#[test]
fn star_has_neither() {
    for server in 0..2 {
        let mut pair = Pair::new();
        let [a, _] = pair.connect_star(server, &Link::default());
        let remote = pair.ends[1].remote(0);
        let end = &mut pair.ends[0];
        let requests = [Operation::Flush { remote, len: 1, scope: GLOBAL }, Operation::AtomicWrite(remote)];
        let buffers = [end.sge(0, 8)];
        for (operation, buffers) in requests.into_iter().zip([&[][..], &buffers]) {
            let posted = end.device.post_send(a, &SendRequest::new(1, operation, buffers));
            assert_eq!(posted, Err(PostError::Transport));
        }
    }
}
