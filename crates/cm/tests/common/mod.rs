//! Managers in virtual time, connected by a network that loses, duplicates and delays datagrams.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // Each test uses some of it.

pub(crate) mod generated;

use std::collections::BTreeMap;
use std::collections::btree_map::OccupiedEntry;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use nichrome_cm::{
    Bearer, ChannelName, CommandError, Config, ConnectionParameters, Event, EventKind, IdName, Input,
    Manager, Output, OwnAddresses, Parameters, Route, StreamName, Transmit,
};
use nichrome_rdma::QpType;
use nichrome_wire::cm::{Ece, Guid, MAD_LEN, PortSpace, TimeExponent};
use nichrome_wire::rdma::{PathMtu, QpNumber};
use nichrome_wire::{Engine, Instant};

pub(crate) type TestManager = Manager<OwnAddresses>;

pub(crate) const MILLISECOND: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1000 * MILLISECOND;

/// The fate of each datagram: the delays of its copies in nanoseconds.
pub(crate) type Fate<'a> = dyn FnMut(&[u8; MAD_LEN]) -> Vec<u64> + 'a;

/// Delivers every datagram once, after 1 ms.
pub(crate) fn delivered(_: &[u8; MAD_LEN]) -> Vec<u64> {
    vec![MILLISECOND]
}

/// Loses every datagram.
pub(crate) fn lost(_: &[u8; MAD_LEN]) -> Vec<u64> {
    Vec::new()
}

/// Address of the nth node.
pub(crate) fn address(node: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, (node >> 8) as u8, node as u8 + 1))
}

pub(crate) fn at(node: usize, port: u16) -> SocketAddr {
    SocketAddr::new(address(node), port)
}

/// The configuration of the tests: messages are retransmitted after 33.6 ms, five times.
pub(crate) fn config(node: usize) -> Config {
    Config {
        response_timeout: TimeExponent::new(13),
        max_retries: 5,
        service_timeout: TimeExponent::new(15),
        max_service_timeout: TimeExponent::new(16),
        min_time_wait: 100 * MILLISECOND,
        ack_timeout: TimeExponent::new(10),
        ack_delay: TimeExponent::new(8),
        linger: 3 * SECOND,
        ..Config::new(Bearer::Roce, Guid(0x1000 + node as u64), node as u128 + 1)
    }
}

/// One machine: a manager and its channel.
pub(crate) struct Node {
    pub(crate) manager: TestManager,
    pub(crate) channel: ChannelName,
    /// The manager's requests to set up connections and to join and leave multicast groups.
    pub(crate) requests: Vec<Output>,
}

/// Machines, and the datagrams in flight by time of arrival.
pub(crate) struct Network {
    pub(crate) now: Instant,
    pub(crate) nodes: Vec<Node>,
    in_flight: BTreeMap<(Instant, u64), (usize, Input)>,
    sent: u64,
    /// Every datagram that was sent.
    pub(crate) log: Vec<Transmit>,
}

impl Network {
    pub(crate) fn new(configs: Vec<Config>) -> Self {
        let node = |(n, config): (usize, Config)| {
            let mut manager = Manager::new(config, OwnAddresses(vec![address(n)])).unwrap();
            let channel = manager.create_channel().unwrap();
            Node { manager, channel, requests: Vec::new() }
        };
        let nodes = configs.into_iter().enumerate().map(node).collect();
        Self { now: Instant::ZERO, nodes, in_flight: BTreeMap::new(), sent: 0, log: Vec::new() }
    }

    pub(crate) fn pair() -> Self {
        Self::new(vec![config(0), config(1)])
    }

    /// Executes the managers' requests.
    pub(crate) fn drain(&mut self, fate: &mut Fate<'_>) {
        for n in 0..self.nodes.len() {
            while let Some(output) = self.nodes[n].manager.poll() {
                self.carry_out(n, output, fate);
            }
        }
    }

    fn carry_out(&mut self, n: usize, output: Output, fate: &mut Fate<'_>) {
        let now = self.now;
        match output {
            Output::Transmit(transmit) => {
                assert_eq!(transmit.source, address(n));
                self.log.push((*transmit).clone());
                let Some(to) = (0..self.nodes.len()).find(|node| address(*node) == transmit.destination)
                else {
                    return;
                };
                for delay in fate(&transmit.payload) {
                    let Transmit { source, destination, payload } = *transmit;
                    let input = Input::Datagram { source, destination, payload: payload.to_vec() };
                    self.sent += 1;
                    self.in_flight.insert((now.plus_nanos(delay), self.sent), (to, input));
                }
            }
            Output::ResolveAddress { query, .. } => {
                self.nodes[n].manager.receive(Input::AddressResolved(query, Ok(address(n))), now);
            }
            Output::ResolveRoute { query, .. } => {
                let route = Route { path_mtu: PathMtu::B1024, hop_limit: 64 };
                self.nodes[n].manager.receive(Input::RouteResolved(query, Ok(route)), now);
            }
            Output::Readable(_) => {}
            request => self.nodes[n].requests.push(request),
        }
    }

    /// Passes an input of the driver to a node.
    pub(crate) fn input(&mut self, node: usize, input: Input) {
        self.nodes[node].manager.receive(input, self.now);
    }

    /// The time of the next arrival or deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        let arrival = self.in_flight.keys().next().map(|(time, _)| *time);
        let deadlines = self.nodes.iter().filter_map(|node| node.manager.poll_timeout());
        deadlines.chain(arrival).min()
    }

    /// Lets time pass to the next arrival or deadline; returns false if there is none until `end`.
    pub(crate) fn step(&mut self, end: Instant, fate: &mut Fate<'_>) -> bool {
        self.drain(fate);
        let Some(time) = self.next().filter(|time| *time <= end) else { return false };
        self.now = self.now.max(time);
        let due = self.in_flight.first_entry().filter(|first| first.key().0 <= time);
        match due.map(OccupiedEntry::remove) {
            Some((node, input)) => self.nodes[node].manager.receive(input, self.now),
            None => {
                for node in &mut self.nodes {
                    if node.manager.poll_timeout().is_some_and(|due| due <= self.now) {
                        node.manager.handle_timeout(self.now);
                    }
                }
            }
        }
        self.drain(fate);
        true
    }

    /// Lets a time pass, over a network without faults.
    pub(crate) fn pass(&mut self, nanos: u64) {
        let end = self.now.plus_nanos(nanos);
        while self.step(end, &mut delivered) {}
        self.now = end;
    }

    pub(crate) fn events(&mut self, node: usize) -> Vec<Event> {
        let Node { manager, channel, .. } = &mut self.nodes[node];
        std::iter::from_fn(|| manager.get_event(*channel).unwrap()).collect()
    }

    /// The only event of a node.
    pub(crate) fn event(&mut self, node: usize) -> Event {
        let mut events = self.events(node);
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0)
    }

    pub(crate) fn create(&mut self, node: usize, uid: u64, space: PortSpace) -> IdName {
        let kind = if space == PortSpace::Tcp { QpType::Rc } else { QpType::Ud };
        let Node { manager, channel, .. } = &mut self.nodes[node];
        manager.create_id(*channel, uid, space, kind).unwrap()
    }

    pub(crate) fn listen(
        &mut self,
        node: usize,
        uid: u64,
        space: PortSpace,
        port: u16,
        backlog: u32,
    ) -> IdName {
        let id = self.create(node, uid, space);
        self.nodes[node].manager.bind(id, at(node, port)).unwrap();
        self.nodes[node].manager.listen(id, backlog).unwrap();
        self.drain(&mut delivered);
        id
    }

    /// Creates an identifier whose route is resolved.
    pub(crate) fn resolved(
        &mut self,
        node: usize,
        uid: u64,
        space: PortSpace,
        destination: SocketAddr,
    ) -> IdName {
        let id = self.create(node, uid, space);
        let now = self.now;
        self.nodes[node].manager.resolve_address(id, None, destination, 1000, now).unwrap();
        self.drain(&mut delivered);
        assert_eq!(self.event(node).kind, EventKind::AddressResolved);
        self.nodes[node].manager.resolve_route(id, 1000, now).unwrap();
        self.drain(&mut delivered);
        assert_eq!(self.event(node).kind, EventKind::RouteResolved);
        id
    }

    pub(crate) fn connect(&mut self, node: usize, id: IdName, qp: u32) -> Result<(), CommandError> {
        let now = self.now;
        self.nodes[node].manager.connect(id, &parameters(qp, b"hello"), Ece::default(), now)
    }

    pub(crate) fn accept(&mut self, node: usize, id: IdName, uid: u64, qp: u32) -> Result<(), CommandError> {
        let now = self.now;
        self.nodes[node].manager.accept(
            id,
            uid,
            &parameters(qp, b"welcome"),
            Ece { vendor: 7, options: 9 },
            now,
        )
    }

    pub(crate) fn establish(&mut self, node: usize, id: IdName) -> Result<(), CommandError> {
        let now = self.now;
        self.nodes[node].manager.establish(id, now)
    }

    pub(crate) fn disconnect(&mut self, node: usize, id: IdName) -> Result<(), CommandError> {
        let now = self.now;
        self.nodes[node].manager.disconnect(id, now)
    }

    pub(crate) fn destroy(&mut self, node: usize, id: IdName) -> Result<u32, CommandError> {
        let now = self.now;
        self.nodes[node].manager.destroy_id(id, now)
    }

    /// Sends a REQ from node 0 to port 7 of node 1, which has a listener; returns the identifiers of
    /// initiator and request.
    pub(crate) fn requested(&mut self, qp: u32) -> (IdName, IdName) {
        let client = self.resolved(0, 1, PortSpace::Tcp, at(1, 7));
        self.connect(0, client, qp).unwrap();
        self.pass(2 * MILLISECOND);
        let request = self.event(1);
        assert_eq!(request.kind, EventKind::ConnectRequest);
        (client, IdName(request.id))
    }

    /// Connects node 0 to port 7 of node 1, which has a listener; returns both identifiers.
    pub(crate) fn connected(&mut self, qp: u32) -> (IdName, IdName) {
        let (client, server) = self.requested(qp);
        self.accept(1, server, 2, qp + 1).unwrap();
        self.pass(2 * MILLISECOND);
        assert_eq!(self.event(0).kind, EventKind::ConnectResponse);
        self.establish(0, client).unwrap();
        self.pass(2 * MILLISECOND);
        assert_eq!(self.event(1).kind, EventKind::Established);
        (client, server)
    }

    /// Checks that nothing is left once every identifier is destroyed and all answers had their time.
    pub(crate) fn assert_nothing_leaks(&mut self) {
        self.pass(60 * SECOND);
        for node in &self.nodes {
            let usage = node.manager.usage();
            let left = [
                usage.identifiers,
                usage.memberships,
                usage.ports,
                usage.connections,
                usage.half_open,
                usage.incoming,
            ];
            assert_eq!(left, [0; 6], "{usage:?}");
            assert_eq!(node.manager.poll_timeout(), None);
        }
        assert_eq!(self.next(), None);
    }
}

pub(crate) fn parameters(qp: u32, private_data: &[u8]) -> ConnectionParameters {
    ConnectionParameters {
        qp: QpNumber::new(qp).unwrap(),
        private_data: private_data.to_vec(),
        responder_resources: 3,
        initiator_depth: 5,
        retry_count: 6,
        rnr_retry: 4,
        ..ConnectionParameters::default()
    }
}

/// The kinds of events.
pub(crate) fn kinds(events: &[Event]) -> Vec<EventKind> {
    events.iter().map(|event| event.kind).collect()
}

/// The parameters of a connection's event.
pub(crate) fn of_connection(event: &Event) -> &ConnectionParameters {
    match &event.parameters {
        Parameters::Connection(parameters) => parameters,
        Parameters::Datagram(_) | Parameters::Argument(_) => panic!("{event:?}"),
    }
}

/// The name of the stream that an identifier connects.
pub(crate) fn outgoing(id: IdName) -> StreamName {
    StreamName::Outgoing(id)
}
