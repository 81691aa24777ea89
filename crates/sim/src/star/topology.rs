//! Builds the nodes and connections of a network.

use nichrome_wire::Instant;

use super::card::{Card, CardConfig};
use super::config::{NetworkConfig, Pattern, Transport};
use super::connection::Connection;
use super::engines::Engines;
use super::network::{Network, Node};
use super::set_up::Keeps;
use crate::experiment::RunError;
use crate::{Link, Server};

/// The golden ratio of 2⁶⁴: spreads seeds.
const APART: u64 = 0x9E37_79B9_7F4A_7C15;

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
}

impl Network {
    /// Builds the idle network for a run of `nanos` nanoseconds.
    ///
    /// # Errors
    /// The engines reject the configuration.
    pub(super) fn build(config: NetworkConfig, nanos: u64) -> Result<Self, RunError> {
        let mut contexts = vec![0; config.pattern.nodes()];
        let pairs = config.pattern.pairs();
        let mut connections = Vec::with_capacity(pairs.len());
        let mut engines = match config.transport {
            Transport::Datagram => None,
            _ => Some(Engines::new(&config, pairs.len())?),
        };
        for pair in &pairs {
            let keeps = keeps(&config, *pair, &contexts);
            let receives = Engines::receives(&config, keeps, pairs.len(), nanos);
            if let Some(engines) = &mut engines {
                engines.connect(&config, keeps, receives)?;
            }
            let contexts = take_contexts(&config, keeps, *pair, &mut contexts);
            connections.push(Connection::new(*pair, contexts, receives));
        }
        if let Some(engines) = &mut engines {
            engines.settle(Instant::ZERO);
        }
        let nodes = (0..).zip(&contexts).map(|(nth, contexts)| node(&config, nth, *contexts as usize));
        Ok(Self::new(config, nodes.collect(), connections, engines))
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
    let cores = if config.transport == Transport::Datagram && is_server { config.cores } else { 0 };
    Node {
        uplink: Link::new(config.uplink),
        downlink: Link::new(config.downlink),
        card: Card::new(card, contexts, config.seed.wrapping_add(APART.wrapping_mul(nth))),
        cores: vec![Server::new(usize::MAX); cores],
    }
}

/// Returns the stateful sides of the next connection.
fn keeps(config: &NetworkConfig, [client, server]: [usize; 2], contexts: &[u32]) -> Keeps {
    let is_reliable = match config.transport {
        Transport::Reliable => true,
        Transport::Auto { budget } => contexts[client].max(contexts[server]) < budget as u32,
        Transport::Stateless | Transport::Datagram => false,
    };
    if is_reliable { Keeps::Both } else { Keeps::Client }
}

/// Allocates a connection's contexts, at both sides or at the client.
fn take_contexts(
    config: &NetworkConfig,
    keeps: Keeps,
    pair: [usize; 2],
    contexts: &mut [u32],
) -> [Option<u32>; 2] {
    let mut context = |node: usize| {
        contexts[node] += 1;
        Some(contexts[node] - 1)
    };
    match (config.transport, keeps) {
        (Transport::Datagram, _) => [None, None],
        (_, Keeps::Both) => pair.map(context),
        (_, Keeps::Client) => [context(pair[0]), None],
    }
}
