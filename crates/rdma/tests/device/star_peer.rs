//! A StaR peer that violates the protocol: elements about requests that cannot exist are refused and change
//! nothing.

use crate::common::{Fate, Link, Pair};
use nichrome_rdma::star::{Admission, Admit, Connect, MakeOffer, Offer, QueueDepth, StarRole, Wish};
use nichrome_rdma::*;
use nichrome_wire::SeqNumber;
use nichrome_wire::star::{
    CommonHeader, Completed, Cqe, Data, Element, Epoch, Flags, Message, PacketCheck, PacketType,
    PacketWriter, Reason, Repr, Request, Stamp, StatusCode, Target, Wqe, WqeFlags,
};

const SERVER: usize = 0;
const CLIENT: usize = 1;

/// The depth of all queues, in requests.
const DEPTH: u64 = 128;

/// A connection, and forged packets for it.
struct Forger {
    pair: Pair,
    qps: [QpHandle; 2],
}

impl Forger {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl Fn(&mut Config)) -> Self {
        let mut pair = Pair::with(change);
        let qps = pair.connect_star(SERVER, &Link { psn: 0, ..Link::default() });
        Self { pair, qps }
    }

    /// Injects a packet to the end `to` in the name of its peer.
    fn forge(&mut self, to: usize, message: Message, sequence: u32, payload: &[u8]) {
        let packet = self.packet(to, message, sequence, payload);
        self.pair.inject_star(to, &packet);
    }

    /// Returns a packet to the end `to` in the name of its peer.
    fn packet(&self, to: usize, message: Message, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let connection = self.pair.ends[to].device.qp_number(self.qps[to]).unwrap();
        let flags = if to == SERVER { Flags::TO_SERVER } else { Flags::NONE };
        let repr = Repr { flags, connection, sequence: SeqNumber(sequence), stamp: Stamp(0), message };
        let mut packet = vec![0; repr.datagram_len(payload.len())];
        let mut writer = PacketWriter::new(&repr, payload.len(), &mut packet).unwrap();
        writer.payload().copy_from_slice(payload);
        let flow = Pair::flow_to(1 - to, nichrome_wire::star::STAR_PORT);
        writer.finish(&flow, PacketCheck::new(Epoch::default()));
        packet
    }

    /// Forges a WQEP. The server's elements have numbers from 0.
    fn announce(&mut self, sequence: u64, request: Request, bytes: &[u8]) {
        let (data, len) = match request {
            Request::Receive => (Data::Segments(0), 0),
            _ => (Data::Inline, bytes.len() as u32),
        };
        let wqe = Wqe { wr_id: sequence, request, flags: WqeFlags::SIGNALED, len, data };
        self.forge(CLIENT, Message::Wqep(Element::Work(wqe)), sequence as u32, bytes);
    }

    /// Forges a CQEP. The client's elements have numbers from 1.
    fn complete(&mut self, sequence: u32, completed: Completed, wr_id: u64) {
        self.forge(SERVER, cqep(completed, wr_id), sequence, &[]);
    }

    /// Loses all packets to this end from now on.
    fn cut_off(&mut self, end: usize) {
        self.pair.fates = Some(Box::new(move |to, _| if to == end { Fate::IsLost } else { Fate::Arrives }));
    }

    fn refused(&self) -> u64 {
        self.pair.ends[CLIENT].device.counters().refused
    }

    fn dropped(&self) -> u64 {
        self.pair.ends[SERVER].device.counters().dropped_stale
    }

    /// Sends a message in each direction and checks that only these requests complete.
    fn works(&mut self) {
        for to in [CLIENT, SERVER] {
            let byte = [0x50 + to as u8; 8];
            self.pair.ends[1 - to].fill(0, &byte);
            self.pair.ends[to].receive(self.qps[to], 900, 0x900, 8);
            self.pair.ends[1 - to].post(self.qps[1 - to], 901, Operation::Send, 0, 8);
            self.pair.run();
            for (end, expected) in [(to, 900), (1 - to, 901)] {
                let done = self.pair.ends[end].completions();
                let done: Vec<_> = done.iter().map(|wc| (wc.wr_id, wc.status)).collect();
                assert_eq!(done, [(expected, Status::Success)]);
            }
            assert_eq!(self.pair.ends[to].bytes(0x900, 8), byte);
        }
    }
}

fn cqep(completed: Completed, wr_id: u64) -> Message {
    Message::Cqep(Cqe { wr_id, status: StatusCode::SUCCESS, completed, len: 8, notice: None })
}

#[test]
fn only_a_packet_with_a_valid_seal_ends_a_hold_of_sends() {
    let mut forger = Forger::new();
    let [server, client] = forger.qps;
    forger.pair.ends[SERVER].device.hold_sends(server);
    forger.pair.ends[CLIENT].receive(client, 1, 0x900, 8);
    forger.pair.ends[SERVER].post(server, 2, Operation::Send, 0, 8);
    let mut statuses = |is_damaged: bool| {
        let mut packet = forger.packet(SERVER, cqep(Completed::Send, 7), 1, &[]);
        *packet.last_mut().unwrap() ^= u8::from(is_damaged);
        forger.pair.inject_star(SERVER, &packet);
        forger.pair.run();
        forger.pair.ends[SERVER].statuses()
    };
    assert_eq!(statuses(true), []);
    assert_eq!(statuses(false), [(2, Status::Success)]);
}

#[test]
fn a_server_that_announces_more_receives_than_agreed_is_refused() {
    let mut forger = Forger::new();
    let [server, client] = forger.qps;
    (0..DEPTH).for_each(|nth| forger.pair.ends[SERVER].receive(server, nth, 0x1000 + nth as usize * 8, 8));
    forger.pair.run();
    for _ in 0..3 {
        forger.announce(DEPTH, Request::Receive, &[]);
    }
    assert_eq!(forger.refused(), 3);
    forger.pair.run();
    (0..DEPTH).for_each(|nth| forger.pair.ends[CLIENT].post(client, nth, Operation::Send, 0, 8));
    forger.pair.run();
    for end in [SERVER, CLIENT] {
        let done = forger.pair.ends[end].completions();
        assert!(done.iter().map(|wc| (wc.wr_id, wc.status)).eq((0..DEPTH).map(|nth| (nth, Status::Success))));
    }
    forger.works();
}

#[test]
fn a_server_that_announces_more_sends_than_agreed_is_refused() {
    let mut forger = Forger::new();
    let [server, client] = forger.qps;
    // The sends wait for receives.
    (0..DEPTH).for_each(|nth| forger.pair.ends[SERVER].post(server, nth, Operation::Send, 0, 8));
    forger.pair.run_for(1_000_000);
    let Remote { address, rkey } = forger.pair.ends[CLIENT].remote(0x5000);
    forger.announce(DEPTH, Request::Write(Target { address, rkey }), &[7; 8]);
    assert_eq!(forger.refused(), 1);
    (0..DEPTH).for_each(|nth| forger.pair.ends[CLIENT].receive(client, nth, 0x1000, 8));
    forger.pair.run();
    for end in [SERVER, CLIENT] {
        let done = forger.pair.ends[end].completions();
        assert!(done.iter().map(|wc| (wc.wr_id, wc.status)).eq((0..DEPTH).map(|nth| (nth, Status::Success))));
    }
    assert_eq!(forger.pair.ends[CLIENT].bytes(0x5000, 8), [0; 8]);
    forger.works();
}

/// The client executes the sends at once, and keeps a CQEP for each until the server acknowledges it.
#[test]
fn a_server_that_acknowledges_no_completion_has_its_sends_refused_in_the_end() {
    for flags in [WqeFlags::SIGNALED, WqeFlags::NONE] {
        let mut forger = Forger::new();
        forger.cut_off(SERVER);
        let Remote { address, rkey } = forger.pair.ends[CLIENT].remote(0x5000);
        let request = Request::Write(Target { address, rkey });
        let mut announced = 0;
        for _ in 0..100 * DEPTH {
            let wqe = Wqe { wr_id: announced, request, flags, len: 0, data: Data::Segments(0) };
            let refused = forger.refused();
            forger.forge(CLIENT, Message::Wqep(Element::Work(wqe)), announced as u32, &[]);
            forger.pair.transmit();
            announced += u64::from(forger.refused() == refused);
        }
        // As many as CQEPs may be outstanding, and as many as the server's send queue holds.
        assert_eq!(announced, 2 * DEPTH, "{flags:?}");
    }
}

/// The longest requests of a server whose queues have their agreed length would otherwise take gigabytes of
/// the client.
#[test]
fn a_servers_requests_beyond_the_bytes_that_a_client_keeps_are_refused_until_earlier_ones_complete() {
    const LIMIT: usize = 1 << 20;
    const LEN: usize = 60_000;
    let mut forger = Forger::with(|config| config.star.mirrored_bytes = LIMIT);
    forger.cut_off(SERVER);
    let client = forger.qps[CLIENT];
    let announce = |forger: &mut Forger, first: u64| {
        // The sends wait for receives.
        (first..first + DEPTH).find(|sequence| {
            let refused = forger.refused();
            forger.announce(*sequence, Request::Send, &[7; LEN]);
            forger.refused() > refused
        })
    };
    let accepted = announce(&mut forger, 0).unwrap();
    assert!((LIMIT / LEN - 1..=LIMIT / LEN).contains(&(accepted as usize)), "{accepted}");
    for nth in 0..accepted {
        forger.pair.ends[CLIENT].receive(client, nth, 0x1000, LEN);
    }
    forger.pair.run_for(1_000_000);
    let done = forger.pair.ends[CLIENT].statuses();
    assert_eq!(done, (0..accepted).map(|nth| (nth, Status::Success)).collect::<Vec<_>>());
    assert_eq!(announce(&mut forger, accepted), Some(2 * accepted));
}

#[test]
fn a_server_whose_queues_are_larger_than_the_clients_may_be_is_not_connected() {
    const MOST: usize = 256;
    let connected = |depth: QueueDepth, role: fn(Admission) -> StarRole| {
        let mut pair = Pair::with(|config| config.limits.wrs = MOST);
        let link = Link::default();
        let qps = pair.create(QpType::Rc);
        pair.bring_up(QpType::Rc, qps, &link);
        let [theirs, ours] = [(SERVER, Wish::Own), (CLIENT, Wish::Automatic)].map(|(end, wish)| {
            let question = MakeOffer { wish, first_element: SeqNumber(0) };
            pair.ends[end].device.ask(qps[end], question).unwrap()
        });
        let admission = pair.ends[SERVER].device.ask(qps[SERVER], Admit(&ours)).unwrap();
        let (theirs, role) = (Offer { depth, ..theirs }, role(admission));
        let agreed = Connect { ours: &ours, theirs: &theirs, role: &role };
        pair.ends[CLIENT].device.connect(qps[CLIENT], &agreed)
    };
    let limit = MOST;
    for requests in [MOST as u32 + 1, u32::MAX] {
        let refused = Err(ConnectError::Depth { requests: requests as usize, limit });
        for depth in
            [QueueDepth { sends: requests, receives: 1 }, QueueDepth { sends: 1, receives: requests }]
        {
            assert_eq!(connected(depth, StarRole::Stateful), refused);
            // A server keeps no copy of a client's queues.
            assert_eq!(connected(depth, |_| StarRole::Stateless), Ok(()));
        }
    }
    let depth = QueueDepth { sends: MOST as u32, receives: MOST as u32 };
    assert_eq!(connected(depth, StarRole::Stateful), Ok(()));
}

/// CQEPs in order show that a client lives, but not that it receives elements.
#[test]
fn a_client_that_acknowledges_no_element_is_given_up() {
    let mut forger = Forger::new();
    forger.cut_off(CLIENT);
    let server = forger.qps[SERVER];
    forger.pair.ends[SERVER].post(server, 7, Operation::Send, 0, 8);
    for sequence in 1..1000 {
        forger.complete(sequence, Completed::ReceiveRequest, 0);
        forger.pair.run_for(100_000);
    }
    assert_eq!(forger.pair.ends[SERVER].statuses(), [(7, Status::RetryExceeded)]);
}

/// Otherwise a server that refuses each copy twice would cause two more copies each time.
#[test]
fn a_copy_that_counts_as_lost_and_is_refused_is_retransmitted_once() {
    let mut forger = Forger::new();
    forger.cut_off(SERVER);
    forger.pair.record = true;
    let (client, remote) = (forger.qps[CLIENT], forger.pair.ends[SERVER].remote(0));
    forger.pair.ends[CLIENT].post(client, 1, Operation::Write(remote), 0, 8);
    let rdps = |forger: &Forger| {
        let of_type = |(_, bytes): &&(usize, Vec<u8>)| {
            CommonHeader::new(bytes).unwrap().type_code() == PacketType::Rdp as u8
        };
        forger.pair.sent.iter().filter(of_type).count()
    };
    // Until the first timeout.
    forger.pair.run_for(1_500_000);
    assert_eq!(rdps(&forger), 2);
    // The numbers of RDPs begin with that of the first CQEP.
    forger.forge(CLIENT, Message::Ra(Err(Reason::Expired)), 1, &[]);
    forger.pair.transmit();
    assert_eq!(rdps(&forger), 2);
    forger.forge(CLIENT, Message::Ra(Err(Reason::Expired)), 2, &[]);
    forger.pair.transmit();
    assert_eq!(rdps(&forger), 3, "the copy that was not lost");
}

#[test]
fn a_completion_of_a_request_that_does_not_exist_is_refused() {
    let mut forger = Forger::new();
    let before = forger.pair.ends[SERVER].bytes(0, crate::common::MEMORY).to_vec();
    for (nth, completed) in
        [Completed::Send, Completed::Read, Completed::Receive, Completed::ReceiveWithWrite]
            .into_iter()
            .flat_map(|completed| [(0, completed), (1, completed), (u64::MAX, completed)])
    {
        forger.complete(1, completed, nth);
    }
    assert_eq!(forger.dropped(), 12);
    forger.pair.run();
    assert_eq!(forger.pair.ends[SERVER].completions(), []);
    assert_eq!(forger.pair.ends[SERVER].events(), []);
    assert!(forger.pair.ends[SERVER].bytes(0, crate::common::MEMORY) == before);
    forger.works();
}

#[test]
fn a_completion_of_a_receive_before_those_ahead_of_it_is_refused() {
    let mut forger = Forger::new();
    let [server, client] = forger.qps;
    (0..2).for_each(|nth| forger.pair.ends[SERVER].receive(server, nth, 0x1000, 8));
    forger.pair.run();
    forger.complete(1, Completed::Receive, 1);
    assert_eq!((forger.dropped(), forger.pair.ends[SERVER].completions().len()), (1, 0));
    (0..2).for_each(|nth| forger.pair.ends[CLIENT].post(client, nth, Operation::Send, 0, 8));
    forger.pair.run();
    for end in [SERVER, CLIENT] {
        let done: Vec<_> = forger.pair.ends[end].completions().iter().map(|wc| wc.wr_id).collect();
        assert_eq!(done, [0, 1]);
    }
    forger.works();
}

#[test]
fn a_completion_of_more_bytes_than_the_receive_holds_is_refused() {
    let mut forger = Forger::new();
    let [server, client] = forger.qps;
    forger.pair.ends[SERVER].receive(server, 5, 0x1000, 7);
    forger.pair.run();
    forger.complete(1, Completed::Receive, 0);
    assert_eq!((forger.dropped(), forger.pair.ends[SERVER].completions().len()), (1, 0));
    forger.pair.ends[CLIENT].post(client, 6, Operation::Send, 0, 7);
    forger.pair.run();
    for end in [SERVER, CLIENT] {
        assert_eq!(forger.pair.ends[end].completions()[0].status, Status::Success);
    }
    forger.works();
}

/// More requests are posted than fit the window of elements: the client cannot know the others.
#[test]
fn a_completion_of_an_unannounced_request_is_refused() {
    let mut forger = Forger::new();
    let [server, client] = forger.qps;
    (0..DEPTH).for_each(|nth| forger.pair.ends[SERVER].receive(server, nth, 0x1000, 8));
    (0..DEPTH).for_each(|nth| forger.pair.ends[SERVER].post(server, 200 + nth, Operation::Send, 0, 8));
    forger.pair.transmit();
    forger.complete(1, Completed::Send, 100);
    assert_eq!((forger.dropped(), forger.pair.ends[SERVER].completions().len()), (1, 0));
    (0..DEPTH).for_each(|nth| forger.pair.ends[CLIENT].receive(client, nth, 0x1000, 8));
    (0..DEPTH).for_each(|nth| forger.pair.ends[CLIENT].post(client, 200 + nth, Operation::Send, 0, 8));
    forger.pair.run();
    for end in [SERVER, CLIENT] {
        let done = forger.pair.ends[end].completions();
        assert_eq!(done.iter().filter(|wc| wc.status == Status::Success).count(), 2 * DEPTH as usize);
    }
    forger.works();
}
