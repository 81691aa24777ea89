//! Programs on two machines that connect, accept, reject, disconnect and destroy at random, over a network
//! that loses each message at most twice and duplicates, delays and reorders all of them.

use std::collections::BTreeMap;

use nichrome_cm::{Event, EventKind, IdName};
use nichrome_wire::cm::{Ece, MAD_LEN, PortSpace, RejectReason};

use super::{MILLISECOND, Network, at, parameters};

/// Draws a number below a bound; `None` once there is no more input.
pub(crate) type Choose<'a> = dyn FnMut(u32) -> Option<u32> + 'a;

/// Maximum number of losses of a message: fewer than its transmissions.
const MAX_LOSSES: u32 = 2;

/// Longest delay of a datagram in milliseconds: shorter than the end of a connection is remembered.
const MAX_DELAY: u64 = 90;

const SERVER_PORT: u16 = 7;
const SERVICE_PORT: u16 = 8;

/// One end of a connection, as its program sees it.
#[derive(Clone, Debug)]
struct End {
    node: usize,
    id: IdName,
    events: Vec<EventKind>,
    /// The program has accepted, or has sent the RTU.
    has_agreed: bool,
    is_destroyed: bool,
}

impl End {
    fn new(node: usize, id: IdName) -> Self {
        Self { node, id, events: Vec::new(), has_agreed: false, is_destroyed: false }
    }

    fn count(&self, kind: EventKind) -> usize {
        self.events.iter().filter(|seen| **seen == kind).count()
    }

    fn has_failed(&self) -> bool {
        use EventKind::{ConnectError, Disconnected, Rejected, Unreachable};
        [Disconnected, Rejected, Unreachable, ConnectError].iter().any(|kind| self.count(*kind) > 0)
    }
}

/// A connection, or a datagram service that a program asks for.
#[derive(Clone, Debug)]
struct Pair {
    client: End,
    server: Option<End>,
    is_service: bool,
    /// A program has rejected it.
    is_rejected: bool,
}

/// The network's effect on datagrams.
struct Faults {
    /// Of 100 datagrams, how many are lost, duplicated, and delayed.
    rates: [u64; 3],
    losses: BTreeMap<[u8; MAD_LEN], u32>,
    state: u64,
}

impl Faults {
    fn below(&mut self, bound: u64) -> u64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % bound
    }

    fn fate(&mut self, payload: &[u8; MAD_LEN]) -> Vec<u64> {
        let [loss, duplication, delay] = self.rates;
        let copies = 1 + u64::from(self.below(100) < duplication);
        let mut delays = Vec::new();
        if self.below(100) < loss {
            let losses = self.losses.entry(*payload).or_default();
            *losses += 1;
            if *losses <= MAX_LOSSES {
                return delays;
            }
        }
        for _ in 0..copies {
            let is_delayed = self.below(100) < delay;
            delays.push(if is_delayed { self.below(MAX_DELAY) + 1 } else { 1 } * MILLISECOND);
        }
        delays
    }
}

struct World {
    network: Network,
    faults: Faults,
    pairs: Vec<Pair>,
    listeners: Vec<IdName>,
}

/// Runs programs with the chosen operations, and checks their results.
pub(crate) fn run(choose: &mut Choose<'_>) {
    let mut draw = |bound| choose(bound).map(u64::from);
    let rates = [draw(50), draw(50), draw(100)].map(Option::unwrap_or_default);
    let state = draw(u32::MAX).unwrap_or_default();
    let mut network = Network::pair();
    let listeners = vec![
        network.listen(1, 1, PortSpace::Tcp, SERVER_PORT, 8),
        network.listen(1, 2, PortSpace::Udp, SERVICE_PORT, 8),
    ];
    let faults = Faults { rates, losses: BTreeMap::new(), state };
    let mut world = World { network, faults, pairs: Vec::new(), listeners };
    for _ in 0..200 {
        let Some(operation) = choose(12) else { break };
        let argument = choose(1 << 16).unwrap_or_default() as usize;
        world.operate(operation, argument);
    }
    world.finish();
}

impl World {
    fn operate(&mut self, operation: u32, argument: usize) {
        let pair = argument.checked_rem(self.pairs.len()).unwrap_or_default();
        match operation {
            0 if self.pairs.len() < 12 => self.connect(argument.is_multiple_of(4)),
            1 | 2 => self.take_events(),
            3 | 4 => self.answer(pair),
            5 | 6 => self.establish(pair),
            7 => self.reject(pair, argument / 32),
            8 => self.disconnect(pair, argument / 32),
            9 => self.destroy(pair, argument / 32),
            _ => self.pass(argument as u64 % 120 * MILLISECOND),
        }
    }

    /// Lets time pass over the network with faults.
    fn pass(&mut self, nanos: u64) {
        let Self { network, faults, .. } = self;
        let end = network.now.plus_nanos(nanos);
        while network.step(end, &mut |payload| faults.fate(payload)) {}
        network.now = end;
    }

    fn connect(&mut self, is_service: bool) {
        let number = self.pairs.len();
        let (space, port) = match is_service {
            true => (PortSpace::Udp, SERVICE_PORT),
            false => (PortSpace::Tcp, SERVER_PORT),
        };
        let now = self.network.now;
        let id = self.network.create(0, 100 + number as u64, space);
        let manager = &mut self.network.nodes[0].manager;
        manager.resolve_address(id, None, at(1, port), 1000, now).unwrap();
        self.pass(0);
        self.network.nodes[0].manager.resolve_route(id, 1000, now).unwrap();
        self.pass(0);
        let parameters = parameters(0x100 + number as u32, &(number as u32).to_be_bytes());
        self.network.nodes[0].manager.connect(id, &parameters, Ece::default(), now).unwrap();
        self.pairs.push(Pair { client: End::new(0, id), server: None, is_service, is_rejected: false });
    }

    fn take_events(&mut self) {
        for node in 0..2 {
            for event in self.network.events(node) {
                self.take_event(node, &event);
            }
        }
    }

    fn take_event(&mut self, node: usize, event: &Event) {
        if event.kind == EventKind::ConnectRequest {
            let data = match &event.parameters {
                nichrome_cm::Parameters::Connection(parameters) => &parameters.private_data,
                nichrome_cm::Parameters::Datagram(parameters) => &parameters.private_data,
                nichrome_cm::Parameters::Argument(_) => panic!("{event:?}"),
            };
            let number = u32::from_be_bytes(data[..4].try_into().unwrap()) as usize;
            let pair = &mut self.pairs[number];
            assert!(pair.server.is_none(), "a request was reported twice: {pair:?}");
            pair.server = Some(End::new(node, IdName(event.id)));
            return;
        }
        let of_event = |end: &&mut End| end.node == node && end.id == IdName(event.id) && !end.is_destroyed;
        let ends = self.pairs.iter_mut().flat_map(|pair| [Some(&mut pair.client), pair.server.as_mut()]);
        let end = ends.flatten().find(of_event).unwrap_or_else(|| panic!("{event:?} of nothing"));
        let is_last = end.has_failed();
        assert!(!is_last || event.kind == EventKind::TimewaitExit, "{event:?} after the end: {end:?}");
        end.events.push(event.kind);
        assert_eq!(end.count(event.kind), 1, "{event:?} twice: {end:?}");
    }

    /// Returns true if the program may still act on this end.
    fn is_open(end: &End) -> bool {
        !end.is_destroyed && !end.has_failed()
    }

    fn answer(&mut self, number: usize) {
        let now = self.network.now;
        let Some(pair) = self.pairs.get_mut(number).filter(|pair| !pair.is_rejected) else { return };
        let Some(server) = pair.server.as_mut().filter(|end| Self::is_open(end) && !end.has_agreed) else {
            return;
        };
        let parameters = parameters(0x200 + number as u32, b"");
        let accepted = self.network.nodes[1].manager.accept(
            server.id,
            200 + number as u64,
            &parameters,
            Ece::default(),
            now,
        );
        // Fails only for a request that the peer has withdrawn.
        server.has_agreed = accepted.is_ok();
        pair.is_rejected |= accepted.is_err();
    }

    fn establish(&mut self, number: usize) {
        let now = self.network.now;
        let Some(pair) = self.pairs.get_mut(number).filter(|pair| !pair.is_rejected && !pair.is_service)
        else {
            return;
        };
        let client = &mut pair.client;
        if Self::is_open(client) && client.count(EventKind::ConnectResponse) == 1 && !client.has_agreed {
            let established = self.network.nodes[0].manager.establish(client.id, now);
            client.has_agreed = established.is_ok();
            pair.is_rejected |= established.is_err();
        }
    }

    fn reject(&mut self, number: usize, argument: usize) {
        let now = self.network.now;
        let Some(pair) = self.pairs.get_mut(number).filter(|pair| !pair.is_rejected) else { return };
        let end = match argument.is_multiple_of(2) {
            true => Some(&mut pair.client).filter(|end| end.count(EventKind::ConnectResponse) == 1),
            false => pair.server.as_mut(),
        };
        let Some(end) = end.filter(|end| Self::is_open(end) && !end.has_agreed) else { return };
        // Fails for a request that the peer has withdrawn.
        let _ = self.network.nodes[end.node].manager.reject(end.id, RejectReason::CONSUMER, b"", now);
        pair.is_rejected = true;
    }

    fn disconnect(&mut self, number: usize, argument: usize) {
        let now = self.network.now;
        let Some(pair) = self.pairs.get(number) else { return };
        let end = if argument.is_multiple_of(2) { Some(&pair.client) } else { pair.server.as_ref() };
        if let Some(end) = end.filter(|end| !end.is_destroyed && end.has_agreed) {
            self.network.nodes[end.node].manager.disconnect(end.id, now).unwrap();
        }
    }

    fn destroy(&mut self, number: usize, argument: usize) {
        // Fetched first: events of a destroyed identifier are gone.
        self.take_events();
        let now = self.network.now;
        let Some(pair) = self.pairs.get_mut(number) else { return };
        let end = if argument.is_multiple_of(2) { Some(&mut pair.client) } else { pair.server.as_mut() };
        if let Some(end) = end.filter(|end| !end.is_destroyed) {
            end.is_destroyed = true;
            let reported = self.network.nodes[end.node].manager.destroy_id(end.id, now).unwrap();
            assert_eq!(reported as usize, end.events.len(), "{end:?}");
        }
    }

    /// The network stops losing datagrams, programs answer their requests, and both ends agree; then all is
    /// destroyed.
    fn finish(&mut self) {
        for _ in 0..100 {
            self.take_events();
            for number in 0..self.pairs.len() {
                self.answer(number);
                self.establish(number);
            }
            self.network.pass(60 * MILLISECOND);
        }
        self.take_events();
        self.pairs.iter().for_each(check_agreement);
        for number in 0..self.pairs.len() {
            self.destroy(number, 0);
            self.destroy(number, 1);
        }
        let now = self.network.now;
        for listener in self.listeners.clone() {
            self.network.nodes[1].manager.destroy_id(listener, now).unwrap();
        }
        self.network.assert_nothing_leaks();
    }
}

/// Checks that both ends consider the connection established, or neither does.
fn check_agreement(pair: &Pair) {
    let client = &pair.client;
    if pair.is_service {
        let has_answer = client.has_failed() || client.count(EventKind::Established) == 1;
        assert!(has_answer || client.is_destroyed, "no answer: {pair:?}");
        return;
    }
    let is_connected = |end: &End| !end.is_destroyed && !end.has_failed() && end.has_agreed;
    let at_server =
        pair.server.as_ref().is_some_and(|end| is_connected(end) && end.count(EventKind::Established) == 1);
    assert_eq!(is_connected(client), at_server, "one end only is connected: {pair:?}");
    let is_decided = client.has_failed() || client.has_agreed || client.is_destroyed || pair.is_rejected;
    assert!(is_decided, "the client waits: {pair:?}");
}
