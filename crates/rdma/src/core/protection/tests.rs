//! Regions and windows: their rights, bounds and owners.

use super::*;

/// A queue pair, another one in its protection domain, and one in another domain.
struct Peers {
    own: Accessor,
    other_qp: Accessor,
    other_domain: Accessor,
}

fn peers() -> Peers {
    let (mut domains, mut qps) = (Slab::new(2), Slab::new(2));
    let [domain, other] = [(); 2].map(|()| domains.insert(|_| ()).unwrap());
    let [qp, other_qp] = [(); 2].map(|()| qps.insert(|_| ()).unwrap());
    Peers {
        own: Accessor { domain, qp },
        other_qp: Accessor { domain, qp: other_qp },
        other_domain: Accessor { domain: other, qp },
    }
}

fn region(accessor: Accessor, access: Access) -> Region {
    let (io_address, address, len) = (0x1000, 0x9000, 100);
    Region {
        domain: accessor.domain,
        access,
        io_address,
        address,
        len,
        windows: 0,
        validity: Validity::Valid,
    }
}

/// Adds a region and a window; returns their handles and keys.
fn region_and_window(
    protection: &mut Protection,
    accessor: Accessor,
    access: Access,
    kind: WindowKind,
) -> [(Handle<kind::Key>, u32); 2] {
    let region = protection.add_region(region(accessor, access)).unwrap();
    let window = protection.add_window(Window { domain: accessor.domain, kind, binding: None }).unwrap();
    [region, window].map(|handle| (handle, protection.key_of(handle).unwrap()))
}

fn bind(window: u32, region: u32, access: Access) -> Bind {
    Bind { window: RKey(window), key_byte: 7, region: LKey(region), address: 0x1010, len: 20, access }
}

#[test]
fn regions_and_windows_are_counted() {
    let (mut protection, peers) = (Protection::new(8, 1), peers());
    let [(region_handle, _), (window, _)] =
        region_and_window(&mut protection, peers.own, Access::NONE, WindowKind::Two);
    protection.add_region(region(peers.own, Access::NONE)).unwrap();
    assert_eq!(protection.counts(), (2, 1));
    protection.remove_region(region_handle).unwrap();
    assert_eq!(protection.counts(), (1, 1));
    protection.remove_window(window).unwrap();
    assert_eq!(protection.counts(), (1, 0));
}

#[test]
fn a_region_is_invalidated_only_with_the_right_and_without_windows() {
    let (mut protection, peers) = (Protection::new(8, 1), peers());
    let with = Access::INVALIDATE | Access::WINDOW_BIND;
    let [(_, free), _] = region_and_window(&mut protection, peers.own, Access::WINDOW_BIND, WindowKind::Two);
    let [(handle, key), (_, window)] = region_and_window(&mut protection, peers.own, with, WindowKind::Two);
    for by in [Invalidator::Program, Invalidator::Peer] {
        assert_eq!(protection.invalidate(peers.own, RKey(free), by), Err(Refusal::State));
        assert_eq!(protection.invalidate(peers.other_domain, RKey(key), by), Err(Refusal::Owner));
    }
    let bound = protection.bind(peers.own, bind(window, key, Access::NONE)).unwrap();
    assert_eq!(protection.invalidate(peers.own, RKey(key), Invalidator::Peer), Err(Refusal::State));
    assert_eq!(protection.remove_region(handle), Err(Refusal::State));
    protection.invalidate(peers.own, bound, Invalidator::Peer).unwrap();
    assert_eq!(protection.invalidate(peers.other_qp, RKey(key), Invalidator::Peer), Ok(()));
    assert_eq!(protection.local(peers.own.domain, LKey(key), 0x1000, 1, Access::NONE), Err(Refusal::State));
    assert_eq!(protection.regions_of(peers.own.domain).map(|(key, _)| key).collect::<Vec<_>>(), [free]);
}

#[test]
fn a_peer_invalidates_only_windows_that_are_bound_on_its_queue_pair() {
    let (mut protection, peers) = (Protection::new(8, 1), peers());
    let [(_, region), (_, key)] =
        region_and_window(&mut protection, peers.own, Access::WINDOW_BIND, WindowKind::Two);
    let unbound = RKey(key);
    assert_eq!(protection.invalidate(peers.own, unbound, Invalidator::Peer), Err(Refusal::State));
    assert_eq!(protection.invalidate(peers.own, unbound, Invalidator::Program), Ok(()));
    let bound = protection.bind(peers.own, bind(key, region, Access::NONE)).unwrap();
    assert_eq!(protection.invalidate(peers.other_qp, bound, Invalidator::Peer), Err(Refusal::Owner));
    assert_eq!(protection.invalidate(peers.other_domain, bound, Invalidator::Program), Err(Refusal::Owner));
    assert_eq!(protection.invalidate(peers.other_qp, bound, Invalidator::Program), Ok(()));
    assert_eq!(protection.remote(peers.own, bound, 0x1010, 1, Access::NONE), Err(Refusal::State));
}

#[test]
fn windows_of_type_1_cannot_be_invalidated() {
    let (mut protection, peers) = (Protection::new(8, 1), peers());
    let [_, (_, key)] = region_and_window(&mut protection, peers.own, Access::NONE, WindowKind::One);
    assert_eq!(protection.invalidate(peers.own, RKey(key), Invalidator::Program), Err(Refusal::State));
}

#[test]
fn a_window_grants_its_last_byte_and_no_byte_after() {
    let (mut protection, peers) = (Protection::new(8, 1), peers());
    let right = Access::REMOTE_READ;
    let [(_, region), (_, key)] =
        region_and_window(&mut protection, peers.own, Access::WINDOW_BIND, WindowKind::Two);
    let bound = protection.bind(peers.own, bind(key, region, right)).unwrap();
    let read = |address, len| protection.remote(peers.own, bound, address, len, right);
    assert_eq!((read(0x1010, 20), read(0x1023, 1), read(0x1024, 0)), (Ok(0x9010), Ok(0x9023), Ok(0x9024)));
    let outside = [(0x100F, 1), (0x1010, 21), (0x1024, 1), (0x1025, 0), (0x1011, u64::MAX)];
    assert_eq!(outside.map(|(address, len)| read(address, len)), [Err(Refusal::Bounds); 5]);
}

#[test]
fn a_window_for_persistent_flushes_takes_a_region_with_that_right() {
    let (mut protection, peers) = (Protection::new(8, 1), peers());
    let flush = Access::FLUSH_PERSISTENT;
    let [(_, plain), (_, first)] =
        region_and_window(&mut protection, peers.own, Access::WINDOW_BIND, WindowKind::Two);
    let [(_, persistent), (_, second)] =
        region_and_window(&mut protection, peers.own, Access::WINDOW_BIND | flush, WindowKind::Two);
    assert_eq!(protection.bind(peers.own, bind(first, plain, flush)), Err(Refusal::Right));
    assert!(protection.bind(peers.own, bind(first, plain, Access::NONE)).is_ok());
    assert!(protection.bind(peers.own, bind(second, persistent, flush)).is_ok());
}

#[test]
fn a_replaced_region_has_a_new_key_only_in_another_domain() {
    let (mut protection, peers) = (Protection::new(8, 1), peers());
    let handle = protection.add_region(region(peers.own, Access::NONE)).unwrap();
    let key = protection.key_of(handle).unwrap();
    protection.replace_region(handle, region(peers.own, Access::LOCAL_WRITE));
    assert_eq!(protection.key_of(handle), Some(key));
    protection.replace_region(handle, region(peers.other_domain, Access::LOCAL_WRITE));
    let renewed = protection.key_of(handle).unwrap();
    let reach = |accessor: Accessor, key| {
        protection.local(accessor.domain, LKey(key), 0x1000, 8, Access::LOCAL_WRITE)
    };
    assert_eq!(reach(peers.own, key), Err(Refusal::Key));
    assert_eq!(reach(peers.own, renewed), Err(Refusal::Owner));
    assert_eq!(reach(peers.other_domain, renewed), Ok(0x9000));
    assert_eq!(protection.regions_of(peers.own.domain).count(), 0);
    assert_eq!(
        protection.regions_of(peers.other_domain.domain).map(|(key, _)| key).collect::<Vec<_>>(),
        [renewed]
    );
}
