//! StaR with a shared receive queue on the stateless side: clients are lent its receives.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{ALL, BASE, Fate, Faults, Link, MEMORY, Pair, pattern};
use nichrome_rdma::star::{CardAuthentication, ServerSecret};
use nichrome_rdma::*;
use nichrome_wire::star::{PacketType, Repr};
use proptest::prelude::*;

/// Maximum number of receives lent to one client.
const MAX_LENT: usize = 16;
/// Bytes of a receive.
const ROOM: usize = 3000;
/// Offset of the server's first receive.
const RECEIVES: usize = 0x10_0000;

/// Clients on end 0, and their stateless server on end 1.
struct Clients {
    pair: Pair,
    srq: SrqHandle,
    /// Queue pairs of each connection, on both ends.
    qps: Vec<[QpHandle; 2]>,
    posted: u64,
}

impl Clients {
    fn new(pair: Pair, count: usize, limit: usize, link: &Link) -> Self {
        let domain = pair.ends[1].domain;
        Self::with_queue(pair, domain, count, limit, link)
    }

    fn with_queue(mut pair: Pair, domain: DomainHandle, count: usize, limit: usize, link: &Link) -> Self {
        let server = &mut pair.ends[1];
        let srq = server.device.create_srq(domain, SrqAttributes { wrs: 200, sges: 1, limit }).unwrap();
        let mut clients = Self { pair, srq, qps: Vec::new(), posted: 0 };
        (0..count).for_each(|_| clients.add(link));
        clients
    }

    fn add(&mut self, link: &Link) {
        let config = QpConfig { srq: Some(self.srq), ..self.pair.ends[1].qp_config(QpType::Rc) };
        let server = self.pair.ends[1].device.create_qp(config).unwrap();
        let config = self.pair.ends[0].qp_config(QpType::Rc);
        let qps = [self.pair.ends[0].device.create_qp(config).unwrap(), server];
        self.pair.bring_up_star(1, qps, link);
        self.qps.push(qps);
    }

    /// Posts receives to the shared queue, with consecutive numbers.
    fn post(&mut self, count: usize) {
        for _ in 0..count {
            let at = RECEIVES + self.posted as usize % 200 * ROOM;
            let buffers = [self.pair.ends[1].sge(at, ROOM)];
            let receive = ReceiveRequest { wr_id: self.posted, buffers: &buffers };
            self.pair.ends[1].device.post_srq_receive(self.srq, &receive).unwrap();
            self.posted += 1;
        }
    }

    fn send(&mut self, client: usize, wr_id: u64, len: usize) {
        self.pair.ends[0].post(self.qps[client][0], wr_id, Operation::Send, 0, len);
    }

    /// Returns the client whose connection a completion at the server belongs to.
    fn client_of(&self, completion: &Completion) -> usize {
        let number = |qps: &[QpHandle; 2]| self.pair.ends[1].device.qp_number(qps[1]).unwrap();
        self.qps.iter().position(|qps| number(qps) == completion.qp).unwrap()
    }

    fn received(&mut self) -> Vec<(usize, Completion)> {
        let done = self.pair.ends[1].completions();
        done.into_iter().map(|completion| (self.client_of(&completion), completion)).collect()
    }

    /// Loses the RDPs of a client from now on, so that it keeps its lent receives.
    fn stall(&mut self, client: usize) {
        let number = self.pair.ends[0].device.qp_number(self.qps[client][0]).unwrap();
        self.pair.fates = Some(Box::new(move |_, bytes| {
            let repr = Repr::parse(bytes).unwrap().0;
            let is_its = repr.message.packet_type() == PacketType::Rdp && repr.connection == number;
            if is_its { Fate::IsLost } else { Fate::Arrives }
        }));
    }
}

fn authenticated(config: &mut Config) {
    let secret = ServerSecret::new([7; 16]);
    config.star.authentication = Some(CardAuthentication { secret });
}

fn succeeded(done: &[Completion]) -> usize {
    assert!(done.iter().all(|wc| wc.status == Status::Success), "{done:?}");
    done.len()
}

#[test]
fn clients_share_the_receives_of_one_queue() {
    let mut clients = Clients::new(Pair::new(), 4, 0, &Link::default());
    clients.pair.ends[0].fill(0, &pattern(ROOM, 1));
    clients.post(120);
    for nth in 0..30 {
        (0..4).for_each(|client| clients.send(client, nth, 100 * client + nth as usize));
    }
    clients.pair.run();
    assert_eq!(succeeded(&clients.pair.ends[0].completions()), 120);
    assert_eq!(clients.pair.ends[0].device.counters().rnr_naks_received, 0);
    let (mut used, mut lens) = (BTreeSet::new(), BTreeMap::<usize, Vec<usize>>::new());
    for (client, wc) in clients.received() {
        assert_eq!(wc.status, Status::Success);
        let at = RECEIVES + wc.wr_id as usize * ROOM;
        assert!(clients.pair.ends[1].bytes(at, wc.len as usize) == &pattern(ROOM, 1)[..wc.len as usize]);
        assert!(used.insert(wc.wr_id), "{} twice", wc.wr_id);
        lens.entry(client).or_default().push(wc.len as usize);
    }
    assert_eq!(used.len(), 120);
    for (client, lens) in lens {
        assert_eq!(lens, (0..30).map(|nth| 100 * client + nth).collect::<Vec<_>>());
    }
    assert_eq!(clients.pair.ends.each_ref().map(|end| end.device.poll_timeout()), [None; 2]);
}

#[test]
fn clients_take_turns_when_receives_are_few() {
    let mut clients = Clients::new(Pair::new(), 4, 0, &Link::default());
    // The first client asks for all that it may have before the others do.
    (0..40).for_each(|nth| clients.send(0, nth, 10));
    clients.pair.run_for(1_000_000);
    (1..4).for_each(|client| (0..10).for_each(|nth| clients.send(client, nth, 10)));
    clients.pair.run_for(1_000_000);
    let mut counts = [0; 4];
    for round in 0..40 {
        clients.post(1);
        clients.pair.run_for(1_000_000);
        let done = clients.received();
        assert_eq!(done.len(), 1);
        counts[done[0].0] += 1;
        assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?} after {round}");
    }
    assert_eq!(counts, [10; 4]);
}

#[test]
fn a_client_that_holds_receives_does_not_stop_others() {
    let mut clients = Clients::new(Pair::new(), 2, 0, &Link { timeout: 20, ..Link::default() });
    clients.stall(0);
    (0..40).for_each(|nth| clients.send(0, nth, 10));
    clients.pair.run_for(1_000_000);
    clients.post(MAX_LENT + 1);
    clients.pair.run_for(1_000_000);
    clients.send(1, 7, 10);
    clients.pair.run_for(1_000_000);
    assert_eq!(clients.pair.ends[0].statuses(), [(7, Status::Success)]);
    assert_eq!(clients.received().iter().map(|(client, _)| *client).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_send_waits_for_a_receive_or_fails_by_its_rnr_retries() {
    let link = Link { rnr_retry: 2, ..Link::default() };
    let mut clients = Clients::new(Pair::new(), 2, 0, &link);
    clients.send(0, 1, 10);
    clients.pair.run();
    assert_eq!(clients.pair.ends[0].statuses(), [(1, Status::RnrRetryExceeded)]);
    assert_eq!(clients.pair.ends[0].device.counters().rnr_naks_received, 1);

    clients.add(&Link::default());
    clients.send(2, 2, 10);
    clients.pair.run_for(10_000_000_000);
    assert_eq!(clients.pair.ends[0].statuses(), []);
    clients.post(1);
    clients.pair.run();
    assert_eq!(clients.pair.ends[0].statuses(), [(2, Status::Success)]);
    assert_eq!(clients.received()[0].0, 2);
}

#[test]
fn a_send_that_waits_for_a_receive_ends_with_its_server() {
    let mut clients = Clients::new(Pair::new(), 1, 0, &Link { retry_count: 2, ..Link::default() });
    clients.send(0, 1, 10);
    clients.pair.run_for(1_000_000_000);
    clients.pair.faults.loss = 1.0;
    clients.pair.run();
    assert_eq!(clients.pair.ends[0].statuses(), [(1, Status::RetryExceeded)]);
}

#[test]
fn receives_return_when_a_client_dies() {
    for is_authenticated in [false, true] {
        let pair = Pair::with(|config| {
            if is_authenticated {
                authenticated(config);
            }
        });
        let mut clients = Clients::new(pair, 2, 0, &Link::default());
        clients.post(4);
        clients.stall(0);
        (0..4).for_each(|nth| clients.send(0, nth, 10));
        clients.pair.run_for(200_000);
        (0..4).for_each(|nth| clients.send(1, 10 + nth, 10));
        clients.pair.run_for(200_000);
        assert_eq!(clients.received().len(), 0, "the first client holds all");
        clients.pair.run();
        let done = clients.received();
        assert_eq!(
            done.iter().map(|(client, wc)| (*client, wc.wr_id)).collect::<Vec<_>>(),
            [(1, 0), (1, 1), (1, 2), (1, 3)]
        );
        let failed = [(0, Status::RetryExceeded), (1, Status::Flushed)];
        assert_eq!(clients.pair.ends[0].statuses()[..2], failed);
    }
}

#[test]
fn receives_return_when_a_client_is_silent() {
    let mut clients = Clients::new(Pair::new(), 1, 0, &Link::default());
    clients.post(2);
    clients.stall(0);
    (0..2).for_each(|nth| clients.send(0, nth, 10));
    clients.pair.run_for(200_000);
    clients.pair.fates = Some(Box::new(|_, _| Fate::IsLost));
    clients.pair.run();
    clients.pair.fates = None;
    clients.add(&Link::default());
    clients.pair.ends[0].completions();
    (0..2).for_each(|nth| clients.send(1, 5 + nth, 10));
    clients.pair.run();
    assert_eq!(clients.received().iter().map(|(_, wc)| wc.wr_id).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn receives_return_when_the_server_s_queue_pair_ends() {
    for destroys in [false, true] {
        let mut clients = Clients::new(Pair::new(), 2, 0, &Link::default());
        clients.post(2);
        clients.stall(0);
        (0..2).for_each(|nth| clients.send(0, nth, 10));
        clients.pair.run_for(200_000);
        (0..2).for_each(|nth| clients.send(1, 10 + nth, 10));
        clients.pair.run_for(200_000);
        let (device, qp) = (&mut clients.pair.ends[1].device, clients.qps[0][1]);
        if destroys {
            device.destroy_qp(qp).unwrap();
        } else {
            device.modify_qp(qp, &QpChange::to(QpState::Err)).unwrap();
        }
        clients.pair.run();
        let done = clients.pair.ends[1].completions();
        assert_eq!(done.iter().map(|wc| wc.wr_id).collect::<Vec<_>>(), [0, 1]);
        let second = clients.pair.ends[1].device.qp_number(clients.qps[1][1]).unwrap();
        assert!(done.iter().all(|wc| wc.status == Status::Success && wc.qp == second));
        let last = clients.pair.ends[1].events().contains(&Event::LastReceiveReached(qp));
        assert_eq!(last, !destroys);
        let sends = clients.pair.ends[0].statuses();
        assert!(sends.contains(&(0, Status::RetryExceeded)) && sends.contains(&(11, Status::Success)));
    }
}

#[test]
fn a_waiting_client_that_ends_is_passed_over() {
    let mut clients = Clients::new(Pair::new(), 3, 0, &Link::default());
    (0..3).for_each(|client| clients.send(client, client as u64, 10));
    clients.pair.run_for(1_000_000);
    clients.pair.ends[1].device.destroy_qp(clients.qps[0][1]).unwrap();
    clients.pair.ends[1].device.modify_qp(clients.qps[1][1], &QpChange::to(QpState::Err)).unwrap();
    clients.post(1);
    clients.pair.run();
    let done = clients.pair.ends[1].completions();
    let third = clients.pair.ends[1].device.qp_number(clients.qps[2][1]).unwrap();
    assert_eq!(done.iter().map(|wc| (wc.qp, wc.wr_id)).collect::<Vec<_>>(), [(third, 0)]);
}

#[test]
fn the_limit_event_is_raised_once_when_receives_are_lent() {
    let mut clients = Clients::new(Pair::new(), 2, 0, &Link::default());
    clients.post(5);
    clients.pair.ends[1].device.modify_srq(clients.srq, None, Some(3)).unwrap();
    clients.pair.ends[1].events();
    let mut raised = Vec::new();
    for nth in 0..5 {
        clients.send(nth as usize % 2, nth, 10);
        clients.pair.run();
        let events = clients.pair.ends[1].events();
        raised.push(events.iter().filter(|event| **event == Event::SrqLimit(clients.srq)).count());
    }
    assert_eq!(raised, [0, 0, 1, 0, 0]);
}

#[test]
fn lent_receives_count_as_posted() {
    let mut clients = Clients::new(Pair::new(), 1, 0, &Link::default());
    clients.stall(0);
    clients.post(200);
    (0..20).for_each(|nth| clients.send(0, nth, 10));
    clients.pair.run_for(200_000);
    let buffers = [clients.pair.ends[1].sge(0, 10)];
    let receive = ReceiveRequest { wr_id: 1, buffers: &buffers };
    let refused = clients.pair.ends[1].device.post_srq_receive(clients.srq, &receive);
    assert_eq!(refused, Err(PostError::Full(200)));
}

#[test]
fn keys_of_another_domain_do_not_reach_through_a_shared_queue() {
    let mut pair = Pair::new();
    let other = pair.ends[1].device.create_domain().unwrap();
    let region = pair.ends[1].device.register(other, RegionConfig::new(BASE, MEMORY as u64, ALL)).unwrap();
    let right_key = pair.ends[1].device.query_region(region).unwrap().lkey;
    let mut clients = Clients::with_queue(pair, other, 2, 0, &Link::default());
    let wrong_key = clients.pair.ends[1].lkey;
    for (client, lkey, status) in [(0, right_key, Status::Success), (1, wrong_key, Status::LocalProtection)] {
        let buffers = [Sge { address: BASE + 0x5000, len: 100, lkey }];
        let receive = ReceiveRequest { wr_id: client as u64, buffers: &buffers };
        clients.pair.ends[1].device.post_srq_receive(clients.srq, &receive).unwrap();
        clients.send(client, 1, 10);
        clients.pair.run();
        assert_eq!(clients.pair.ends[1].statuses(), [(client as u64, status)]);
    }
    let sends = clients.pair.ends[0].statuses();
    assert_eq!(sends, [(1, Status::Success), (1, Status::RetryExceeded)]);
}

/// A step of a random program.
#[derive(Clone, Debug)]
enum Step {
    Send {
        client: usize,
        len: usize,
    },
    Post(usize),
    Pause(usize),
    /// The server's queue pair of a client moves to ERROR.
    Fail(usize),
    /// A client's queue pair is destroyed.
    Destroy(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..4usize, 0..ROOM).prop_map(|(client, len)| Step::Send { client, len }),
        4 => (1..6usize).prop_map(Step::Post),
        6 => (1..40usize).prop_map(Step::Pause),
        1 => (1..4usize).prop_map(Step::Fail),
        1 => (1..4usize).prop_map(Step::Destroy),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Each receive completes at most once. Each client's messages arrive once and in order, among them all
    /// whose sends completed. Receives that dead clients held serve the others.
    #[test]
    fn each_receive_is_used_once_and_nothing_accepted_is_lost(
        steps in proptest::collection::vec(step(), 1..60),
        chances in (0.0..0.1f64, 0.0..0.1f64, 0.0..0.1f64),
        is_authenticated in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let (loss, duplicate, reorder) = chances;
        let faults = Faults { loss, duplicate, reorder, ..Faults::default() };
        let pair = Pair::with(|config| if is_authenticated { authenticated(config); }).seeded(seed, faults);
        let link = Link { timeout: 12, ..Link::default() };
        let mut clients = Clients::new(pair, 4, 0, &link);
        let numbers: Vec<_> =
            clients.qps.iter().map(|qps| clients.pair.ends.each_ref().map(|end| &end.device)
                .iter().zip(qps).map(|(device, qp)| device.qp_number(*qp).unwrap()).collect::<Vec<_>>()).collect();
        // A message of each client is named by its length.
        let mut lens = [const { Vec::new() }; 4];
        let mut alive = [true; 4];
        for step in steps {
            match step {
                Step::Send { client, len } => if alive[client] && lens[client].len() < 30 {
                    clients.send(client, lens[client].len() as u64, len);
                    lens[client].push(len);
                },
                Step::Post(count) => if clients.posted < 120 { clients.post(count) },
                Step::Pause(steps) => (0..steps).for_each(|_| { clients.pair.step(); }),
                Step::Fail(client) => if std::mem::take(&mut alive[client]) {
                    let qp = clients.qps[client][1];
                    clients.pair.ends[1].device.modify_qp(qp, &QpChange::to(QpState::Err)).unwrap();
                },
                Step::Destroy(client) => if std::mem::take(&mut alive[client]) {
                    clients.pair.ends[0].device.destroy_qp(clients.qps[client][0]).unwrap();
                },
            }
        }
        let most: usize = lens.iter().map(Vec::len).sum();
        let missing = most.saturating_sub(clients.posted as usize);
        clients.post(missing);
        clients.pair.run();

        let done = clients.pair.ends[1].completions();
        let mut used = BTreeSet::new();
        let mut received = [const { Vec::new() }; 4];
        for wc in done {
            prop_assert_eq!(wc.status, Status::Success);
            prop_assert!(used.insert(wc.wr_id), "receive {} twice", wc.wr_id);
            let client = numbers.iter().position(|numbers| numbers[1] == wc.qp).unwrap();
            received[client].push(wc.len as usize);
        }
        let mut sent = [0; 4];
        for wc in clients.pair.ends[0].completions() {
            let client = numbers.iter().position(|numbers| numbers[0] == wc.qp).unwrap();
            sent[client] += usize::from(wc.status == Status::Success);
        }
        for client in 0..4 {
            prop_assert!(lens[client].starts_with(&received[client]));
            prop_assert!(sent[client] <= received[client].len());
            if alive[client] {
                prop_assert_eq!(&received[client], &lens[client]);
                prop_assert_eq!(sent[client], lens[client].len());
            }
        }
        // All receives that no message has used are in the queue again: a new client uses them all.
        clients.pair.faults = Faults::default();
        let left = clients.posted as usize - used.len();
        clients.add(&link);
        for nth in 0..left {
            clients.send(4, nth as u64, 8);
            clients.pair.run();
        }
        let last = clients.pair.ends[1].completions();
        prop_assert_eq!(last.len(), left);
        prop_assert!(last.iter().all(|wc| wc.status == Status::Success && used.insert(wc.wr_id)));
    }
}

#[test]
fn a_receive_that_a_destroyed_queue_pair_gives_back_goes_to_a_waiting_client() {
    let mut clients = Clients::new(Pair::new(), 1, 0, &Link::default());
    let config = QpConfig { srq: Some(clients.srq), ..clients.pair.ends[1].qp_config(QpType::Rc) };
    let server = clients.pair.ends[1].device.create_qp(config).unwrap();
    let client = clients.pair.ends[0].device.create_qp(clients.pair.ends[0].qp_config(QpType::Rc)).unwrap();
    clients.pair.bring_up(QpType::Rc, [client, server], &Link { timeout: 0, ..Link::default() });
    clients.post(1);
    // The first packet of three takes the receive.
    let mut packets = 0;
    clients.pair.fates = Some(Box::new(move |to, _| {
        packets += u32::from(to == 1);
        if packets > 1 { Fate::IsLost } else { Fate::Arrives }
    }));
    clients.pair.ends[0].post(client, 1, Operation::Send, 0, ROOM);
    clients.pair.run();
    clients.pair.fates = None;
    clients.send(0, 2, 100);
    clients.pair.run_for(50_000_000);
    assert_eq!(clients.pair.ends[0].statuses(), []);
    clients.pair.ends[1].device.destroy_qp(server).unwrap();
    clients.pair.run_for(50_000_000);
    assert_eq!(clients.pair.ends[0].statuses(), [(2, Status::Success)]);
}
