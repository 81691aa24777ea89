//! Builds the nodes and connections of a network.

use nichrome_wire::Instant;

use super::baselines::Outline;
use super::card::{Card, CardConfig};
use super::config::{NetworkConfig, Pattern, Transport};
use super::connection::Connection;
use super::context_pool::ContextPool;
use super::engines::Engines;
use super::network::Network;
use super::nodes::{Node, Nodes};
use super::set_up::StatefulSides;
use crate::experiment::RunError;
use crate::{Link, Server};

/// The golden ratio of 2⁶⁴: spreads seeds.
const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;

impl Pattern {
    fn nodes(self) -> usize {
        match self {
            Self::FanIn { machines, .. } => machines + 1,
            Self::AllToAll { nodes } => nodes,
        }
    }

    /// Returns client and server of each connection.
    fn pairs(self) -> Vec<[usize; 2]> {
        match self {
            Self::FanIn { connections, machines } => {
                (0..connections).map(|nth| [1 + nth % machines.max(1), 0]).collect()
            }
            Self::AllToAll { nodes } => {
                let others = |client: usize| (1..nodes).map(move |far| [client, (client + far) % nodes]);
                (0..nodes).flat_map(others).collect()
            }
        }
    }

    /// Returns the number of servers, which are the first nodes.
    pub(super) fn servers(self) -> usize {
        match self {
            Self::FanIn { .. } => 1,
            Self::AllToAll { nodes } => nodes,
        }
    }

    /// Returns true if no server is a client.
    pub(super) fn has_separate_servers(self) -> bool {
        matches!(self, Self::FanIn { .. })
    }
}

impl Network {
    /// Builds the idle network for a run of `nanos` nanoseconds.
    ///
    /// # Errors
    /// The engines reject the configuration.
    pub(super) fn build(config: NetworkConfig, nanos: u64) -> Result<Self, RunError> {
        let outline = outline(&config)?;
        let mut contexts = vec![Contexts::default(); config.pattern.nodes()];
        let pairs = config.pattern.pairs();
        let mut connections = Vec::with_capacity(pairs.len());
        let mut engines = match config.transport {
            Transport::Outline(_) => None,
            _ => Some(Engines::new(&config, pairs.len())?),
        };
        for pair in &pairs {
            let stateful_sides = stateful_sides(&config, *pair, &contexts);
            let receives = Engines::receives(&config, stateful_sides, pairs.len(), nanos);
            if let Some(engines) = &mut engines {
                engines.connect(&config, stateful_sides, receives)?;
            }
            let contexts = take_contexts(&config, stateful_sides, *pair, &mut contexts);
            connections.push(Connection::new(*pair, contexts, receives));
        }
        if let Some(engines) = &mut engines {
            engines.settle(Instant::ZERO);
        }
        let nodes = (0..).zip(&contexts).map(|(nth, contexts)| node(&config, nth, contexts.count as usize));
        Ok(Self::new(config, Nodes::new(0, nodes.collect()), connections, engines, outline))
    }
}

/// Returns the flights of an operation; `None` for a transport with an engine.
fn outline(config: &NetworkConfig) -> Result<Option<Outline>, RunError> {
    let Transport::Outline(baseline) = config.transport else { return Ok(None) };
    let flights = baseline.flights(config.request, config.operation);
    let only_writes = || RunError::Impossible("the model has WRITEs of this transport only".into());
    Ok(Some(Outline { baseline, flights: flights.ok_or_else(only_writes)? }))
}

/// The contexts of a card.
#[derive(Clone, Copy, Debug, Default)]
struct Contexts {
    count: u32,
    /// Connections for which the last context has room.
    room: u32,
}

impl Contexts {
    /// Returns the context of the next connection, if each context serves `sharing` connections.
    fn take(&mut self, sharing: u32) -> u32 {
        if self.room == 0 {
            self.count += 1;
            self.room = sharing;
        }
        self.room -= 1;
        self.count - 1
    }
}

fn node(config: &NetworkConfig, nth: u64, contexts: usize) -> Node {
    // A StaR client's context is larger than RoCEv2's (section 3.1: it includes the server's queues).
    let fit = match config.transport {
        Transport::Stateless => (config.card.contexts as f64 / config.star_context).max(1.0) as usize,
        _ => config.card.contexts,
    };
    let card = CardConfig { contexts: fit, ..config.card };
    let is_server = nth < config.pattern.servers() as u64;
    let cores = if is_server { config.cores } else { 0 };
    Node {
        uplink: Link::new(config.uplink),
        downlink: Link::new(config.downlink),
        card: Card::new(card, contexts, config.seed.wrapping_add(GOLDEN_RATIO.wrapping_mul(nth))),
        pool: ContextPool::new(fit),
        pipelines: std::array::from_fn(|_| Server::new(usize::MAX)),
        cores: vec![Server::new(usize::MAX); cores],
    }
}

/// Returns the stateful sides of the next connection.
fn stateful_sides(
    config: &NetworkConfig,
    [client, server]: [usize; 2],
    contexts: &[Contexts],
) -> StatefulSides {
    let is_reliable = match config.transport {
        Transport::Reliable => true,
        Transport::Auto { budget } => contexts[client].count.max(contexts[server].count) < budget as u32,
        Transport::Stateless | Transport::Outline(_) => false,
    };
    if is_reliable { StatefulSides::Both } else { StatefulSides::Client }
}

/// Allocates a connection's contexts, at both sides or at the client.
fn take_contexts(
    config: &NetworkConfig,
    stateful_sides: StatefulSides,
    pair: [usize; 2],
    contexts: &mut [Contexts],
) -> [Option<u32>; 2] {
    let mut context = |node: usize, sharing| Some(contexts[node].take(sharing));
    let [client, server] = pair;
    match (config.transport, stateful_sides) {
        (Transport::Outline(_), _) => [None, None],
        (_, StatefulSides::Both) => [context(client, 1), context(server, config.sharing)],
        (_, StatefulSides::Client) => [context(client, 1), None],
    }
}
