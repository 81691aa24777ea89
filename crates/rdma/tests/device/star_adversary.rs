//! Two honest ends on StaR, and an adversary who sees all their packets and sends any packets, also with
//! their addresses.

use std::net::Ipv4Addr;

use crate::common::{BASE, Link, MEMORY, Pair};
use nichrome_rdma::star::{CardAuthentication, CardCounters, ServerSecret};
use nichrome_rdma::*;
use nichrome_wire::rdma::UdpFlow;
use nichrome_wire::star::{CommonHeader, PacketType};
use nichrome_wire::{AddressPair, TrafficClass};
use proptest::prelude::*;

const CLIENT: usize = 0;
const SERVER: usize = 1;

/// The part of the server's memory that peers may read and write.
const OPEN: std::ops::Range<usize> = 0..0x4000;
/// The part that receives are posted in, which is registered for no peer.
const INBOX: std::ops::Range<usize> = 0x8000..0xC000;
/// A part that is registered for no peer and in no element.
const PRIVATE: usize = 0x1_0000;
/// The contents of that memory, and of memory that is not registered.
const SECRET: [u8; 16] = *b"never leaves me!";

fn authenticated() -> Pair {
    let mut pair = Pair::with(|config| {
        let secret = ServerSecret::new([0x5E ^ config.seed as u8; 16]);
        config.star.authentication = Some(CardAuthentication { secret });
    });
    pair.record = true;
    pair
}

/// The server's memory: granted parts, and the secret everywhere else. Returns its remote and its local key.
fn prepare(server: &mut crate::common::End) -> (RKey, LKey) {
    server.device.deregister(server.region).unwrap();
    for at in (0..MEMORY).step_by(SECRET.len()) {
        server.fill(at, &SECRET);
    }
    server.fill(OPEN.start, &vec![0; OPEN.len()]);
    server.fill(INBOX.start, &vec![0; INBOX.len()]);
    let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let (_, open) = server.register(RegionConfig::new(BASE + OPEN.start as u64, OPEN.len() as u64, all));
    let inner = (PRIVATE + 0x1000 - INBOX.start) as u64;
    let (_, inbox) =
        server.register(RegionConfig::new(BASE + INBOX.start as u64, inner, Access::LOCAL_WRITE));
    (open.rkey, inbox.lkey)
}

/// The adversary's packets.
#[derive(Clone, Debug)]
enum Attack {
    /// A recorded packet again.
    Replay,
    /// A recorded packet with a changed byte.
    Change(prop::sample::Index, u8),
    /// The beginning of a recorded packet.
    Truncate(prop::sample::Index),
    /// The beginning of one and the end of another recorded packet.
    Splice(prop::sample::Index, prop::sample::Index),
    /// A recorded packet from another address.
    Foreign(u8),
    /// Arbitrary bytes.
    Arbitrary(Vec<u8>),
}

fn attack() -> impl Strategy<Value = Attack> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        Just(Attack::Replay),
        (index(), 1u8..).prop_map(|(at, bits)| Attack::Change(at, bits)),
        index().prop_map(Attack::Truncate),
        (index(), index()).prop_map(|(other, at)| Attack::Splice(other, at)),
        any::<u8>().prop_map(Attack::Foreign),
        prop::collection::vec(any::<u8>(), 0..120).prop_map(Attack::Arbitrary),
    ]
}

/// Sends a datagram to an end; `source` is the last byte of a foreign address, else it is in the peer's name.
fn send(pair: &mut Pair, to: usize, bytes: &[u8], source: Option<u8>) {
    let Some(source) = source else { return pair.inject_star(to, bytes) };
    let AddressPair::V4 { dst, .. } = Pair::flow_to(1 - to, nichrome_wire::star::STAR_PORT).addresses else {
        panic!()
    };
    let addresses = AddressPair::V4 { src: Ipv4Addr::new(10, 99, 0, source), dst };
    let datagram =
        Datagram { flow: UdpFlow::to_star(addresses, 4793), traffic_class: TrafficClass(0), bytes };
    pair.ends[to].device.receive(&datagram, pair.now);
}

fn perform(pair: &mut Pair, which: prop::sample::Index, attack: &Attack) {
    if pair.sent.is_empty() {
        return;
    }
    let (from, recorded) = pair.sent[which.index(pair.sent.len())].clone();
    let (mut bytes, mut source) = (recorded, None);
    match attack {
        Attack::Replay => {}
        Attack::Change(at, bits) => {
            let at = at.index(bytes.len());
            bytes[at] ^= bits;
        }
        Attack::Truncate(at) => bytes.truncate(at.index(bytes.len())),
        Attack::Splice(other, at) => {
            let other = &pair.sent[other.index(pair.sent.len())].1;
            let at = at.index(bytes.len().min(other.len()));
            bytes.truncate(at);
            bytes.extend(&other[at..]);
        }
        Attack::Foreign(last) => source = Some(*last),
        Attack::Arbitrary(any) => bytes.clone_from(any),
    }
    send(pair, 1 - from, &bytes, source);
}

/// Checks that only granted memory of the server has changed, and that no packet has carried other memory.
fn is_kept(pair: &Pair) {
    let memory = pair.ends[SERVER].device.memory().bytes();
    for (at, bytes) in memory.chunks(SECRET.len()).enumerate().map(|(nth, bytes)| (nth * SECRET.len(), bytes))
    {
        let is_granted = OPEN.contains(&at) || INBOX.contains(&at);
        assert!(is_granted || bytes == SECRET, "changed at {at:#x}");
    }
    let left = pair.sent.iter().any(|(_, bytes)| bytes.windows(SECRET.len()).any(|part| part == SECRET));
    assert!(!left, "memory that was not granted has left");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn an_adversary_reaches_nothing_and_honest_work_ends(
        steps in prop::collection::vec((0..3u8, 1..3000usize, prop::collection::vec((any::<prop::sample::Index>(), attack()), 0..8)), 1..12),
        seed in any::<u64>(),
        loss in prop_oneof![Just(0.0), Just(0.05)],
    ) {
        let mut pair = authenticated().seeded(seed, crate::common::Faults { loss, ..crate::common::Faults::default() });
        let (rkey, lkey) = prepare(&mut pair.ends[SERVER]);
        let qps = pair.connect_star(SERVER, &Link { psn: seed as u32 & 0xFF_FFFF, ..Link::default() });
        let (mut at, mut inbox) = (OPEN.start, INBOX.start);
        for (nth, (kind, len, attacks)) in steps.iter().enumerate() {
            let (wr_id, data) = (nth as u64, crate::common::pattern(*len, nth as u64));
            let len = (*len).min(OPEN.end - at).min(INBOX.end - inbox);
            let remote = Remote { address: BASE + at as u64, rkey };
            pair.ends[CLIENT].fill(0, &data);
            let operation = match kind {
                0 => Operation::Write(remote),
                1 => Operation::Read(remote),
                _ => {
                    let buffers = [Sge { address: BASE + inbox as u64, len: len as u32, lkey }];
                    let request = ReceiveRequest { wr_id, buffers: &buffers };
                    pair.ends[SERVER].device.post_receive(qps[SERVER], &request).unwrap();
                    Operation::Send
                }
            };
            let before = pair.ends[SERVER].bytes(at, len).to_vec();
            pair.ends[CLIENT].post(qps[CLIENT], wr_id, operation, 0, len);
            for (which, attack) in attacks {
                pair.step();
                perform(&mut pair, *which, attack);
                is_kept(&pair);
            }
            pair.run();
            let statuses = pair.ends[CLIENT].statuses();
            prop_assert_eq!(statuses, vec![(wr_id, Status::Success)]);
            match kind {
                0 => prop_assert!(pair.ends[SERVER].bytes(at, len) == &data[..len]),
                1 => prop_assert!(pair.ends[CLIENT].bytes(0, len) == before),
                _ => {
                    prop_assert_eq!(pair.ends[SERVER].statuses(), vec![(wr_id, Status::Success)]);
                    prop_assert!(pair.ends[SERVER].bytes(inbox, len) == &data[..len]);
                    inbox += len;
                }
            }
            at += if *kind == 0 { len } else { 0 };
        }
        is_kept(&pair);
    }
}

/// Bytes stored by the server's card.
fn stored(pair: &Pair) -> u64 {
    pair.ends[SERVER].device.view::<CardCounters>().stored
}

#[test]
fn a_forged_request_for_more_than_a_packet_can_hold_keeps_nobody_waiting() {
    let mut pair = authenticated();
    let (rkey, _) = prepare(&mut pair.ends[SERVER]);
    let qps = pair.connect_star(SERVER, &Link { psn: 100, ..Link::default() });
    let remote = Remote { address: BASE, rkey };
    pair.ends[CLIENT].post(qps[CLIENT], 1, Operation::Read(remote), 0, 100);
    pair.run();
    let type_of = |bytes: &[u8]| CommonHeader::new(bytes).unwrap().type_code();
    let gd = pair.sent.iter().find(|(_, bytes)| type_of(bytes) == PacketType::Gd as u8);
    let (_, mut forged) = gd.unwrap().clone();
    forged[2..4].fill(0xFF);
    pair.inject_star(SERVER, &forged);
    pair.ends[CLIENT].post(qps[CLIENT], 2, Operation::Write(remote), 0, 100);
    pair.run();
    assert_eq!(pair.ends[CLIENT].statuses(), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(pair.ends[SERVER].device.view::<CardCounters>().dropped_tag, 1);
}

#[test]
fn a_closed_connection_has_no_access_left_and_others_keep_theirs() {
    let mut pair = authenticated();
    let (rkey, _) = prepare(&mut pair.ends[SERVER]);
    let [first, second] = [100, 200].map(|psn| pair.connect_star(SERVER, &Link { psn, ..Link::default() }));
    let remote = |at: u64| Operation::Write(Remote { address: BASE + at, rkey });
    pair.ends[CLIENT].fill(0, b"before");
    pair.ends[CLIENT].post(first[CLIENT], 1, remote(0), 0, 6);
    pair.run();
    assert_eq!(pair.ends[CLIENT].statuses(), [(1, Status::Success)]);
    // The client does not receive the close: it continues as before.
    pair.fates =
        Some(Box::new(
            |to, _| if to == CLIENT { crate::common::Fate::IsLost } else { crate::common::Fate::Arrives },
        ));
    pair.ends[SERVER].device.destroy_qp(first[SERVER]).unwrap();
    pair.run_for(1_000_000);
    pair.fates = None;
    let before = stored(&pair);
    pair.ends[CLIENT].fill(0, b"after!");
    pair.ends[CLIENT].post(first[CLIENT], 2, remote(0), 0, 6);
    pair.ends[CLIENT].post(second[CLIENT], 3, remote(100), 0, 6);
    pair.run();
    let mut statuses = pair.ends[CLIENT].statuses();
    statuses.sort_by_key(|(wr_id, _)| *wr_id);
    assert_eq!(statuses, [(2, Status::RetryExceeded), (3, Status::Success)]);
    assert_eq!(
        (pair.ends[SERVER].bytes(0, 6), pair.ends[SERVER].bytes(100, 6)),
        (&b"before"[..], &b"after!"[..])
    );
    assert_eq!(stored(&pair), before + 1);
    assert!(pair.ends[SERVER].device.view::<CardCounters>().refused_lease > 0);
}

#[test]
fn deregistering_revokes_at_once_whatever_the_client_knows() {
    let mut pair = authenticated();
    let (rkey, _) = prepare(&mut pair.ends[SERVER]);
    let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let (region, keys) = pair.ends[SERVER].register(RegionConfig::new(BASE, 64, all));
    assert_ne!(keys.rkey, rkey);
    let qps = pair.connect_star(SERVER, &Link::default());
    let write = Operation::Write(Remote { address: BASE, rkey: keys.rkey });
    pair.ends[CLIENT].fill(0, b"one");
    pair.ends[CLIENT].post(qps[CLIENT], 1, write, 0, 3);
    pair.run();
    // The client does not learn of the deregistration, and the same bytes are registered again.
    pair.ends[SERVER].device.deregister(region).unwrap();
    pair.ends[SERVER].register(RegionConfig::new(BASE, 64, all));
    pair.ends[CLIENT].fill(0, b"two");
    pair.ends[CLIENT].post(qps[CLIENT], 2, write, 0, 3);
    pair.run();
    assert_eq!(pair.ends[CLIENT].statuses(), [(1, Status::Success), (2, Status::RemoteAccess)]);
    assert_eq!(pair.ends[SERVER].bytes(0, 3), b"one");
}

#[test]
fn memory_registered_for_no_peer_and_that_of_other_domains_is_not_granted() {
    let mut pair = authenticated();
    let (_, inbox) = prepare(&mut pair.ends[SERVER]);
    let device = &mut pair.ends[SERVER].device;
    let other = device.create_domain().unwrap();
    let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let (_, elsewhere) = crate::common::register(device, other, RegionConfig::new(BASE + 0x2_0000, 64, all));
    for (rkey, at) in [(RKey(inbox.0), PRIVATE), (elsewhere.rkey, 0x2_0000)] {
        for operation in [Operation::Write, Operation::Read] {
            let qps = pair.connect_star(SERVER, &Link { retry_count: 1, ..Link::default() });
            let remote = Remote { address: BASE + at as u64, rkey };
            pair.ends[CLIENT].post(qps[CLIENT], 1, operation(remote), 0, 16);
            pair.run();
            assert_eq!(pair.ends[CLIENT].statuses(), [(1, Status::RemoteAccess)]);
        }
    }
    is_kept(&pair);
}

#[test]
fn work_goes_on_over_many_leases_and_after_long_idle_times() {
    for idle in [7_000_000_000, 100_000_000_000] {
        let mut pair = authenticated();
        let (rkey, _) = prepare(&mut pair.ends[SERVER]);
        let qps = pair.connect_star(SERVER, &Link::default());
        for wr_id in 0..40 {
            let write = Operation::Write(Remote { address: BASE + wr_id, rkey });
            pair.ends[CLIENT].post(qps[CLIENT], wr_id, write, 0, 1);
            pair.run();
            assert_eq!(pair.ends[CLIENT].statuses(), [(wr_id, Status::Success)]);
            pair.now = pair.now.plus_nanos(idle);
        }
        assert_eq!(stored(&pair), 40, "each WRITE was sent once");
        assert_eq!(pair.ends[SERVER].device.view::<CardCounters>().refused_lease, 0);
    }
}

/// Only answers that the client waits for set its clock.
#[test]
fn replayed_answers_do_not_move_the_clients_clock() {
    let mut pair = authenticated();
    let (rkey, _) = prepare(&mut pair.ends[SERVER]);
    let qps = pair.connect_star(SERVER, &Link::default());
    for wr_id in 0..20 {
        let write = Operation::Write(Remote { address: BASE + wr_id, rkey });
        pair.ends[CLIENT].post(qps[CLIENT], wr_id, write, 0, 1);
        pair.run();
        let answers: Vec<_> = pair.sent.iter().filter(|(from, _)| *from == SERVER).cloned().collect();
        answers.iter().for_each(|(_, bytes)| send(&mut pair, CLIENT, bytes, None));
        pair.now = pair.now.plus_nanos(500_000_000);
    }
    assert_eq!(pair.ends[CLIENT].statuses().len(), 20);
    assert_eq!(pair.ends[SERVER].device.view::<CardCounters>().refused_expired, 0);
}
