//! The nodes and connections of a network.

use super::card::Card;
use super::config::{NetworkConfig, Pattern, Transport};
use super::connection::{Connection, State};
use super::elements::Elements;
use super::exchange::Exchange;
use super::network::{Network, Node};
use super::stream::Stream;
use super::window::Window;
use crate::{Link, Server};

use nichrome_wire::Instant;

/// The golden ratio of 2⁶⁴: what is seeded with multiples of it is far apart.
const APART: u64 = 0x9E37_79B9_7F4A_7C15;

impl Pattern {
    fn nodes(self) -> usize {
        match self {
            Self::FanIn { machines, .. } => machines + 1,
            Self::AllToAll { nodes } => nodes,
        }
    }

    /// Client and server of each connection.
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

    /// Nodes that are servers: the first ones.
    pub(super) fn servers(self) -> usize {
        match self {
            Self::FanIn { .. } => 1,
            Self::AllToAll { nodes } => nodes,
        }
    }
}

impl Network {
    /// Everything, at rest.
    pub(super) fn build(config: NetworkConfig) -> Self {
        let mut contexts = vec![0; config.pattern.nodes()];
        let pairs = config.pattern.pairs();
        let connections = pairs.into_iter().map(|pair| connect(&config, pair, &mut contexts)).collect();
        let nodes = (0..).zip(&contexts).map(|(nth, contexts)| Node {
            uplink: Link::new(config.uplink),
            downlink: Link::new(config.downlink),
            card: Card::new(
                config.card,
                *contexts as usize,
                config.seed.wrapping_add(APART.wrapping_mul(nth)),
            ),
            cores: vec![
                Server::new(usize::MAX);
                if is_server_of_datagrams(&config, nth) { config.cores } else { 0 }
            ],
        });
        Self::new(config, nodes.collect(), connections)
    }
}

fn is_server_of_datagrams(config: &NetworkConfig, node: u64) -> bool {
    config.transport == Transport::Datagram && (node as usize) < config.pattern.servers()
}

/// A connection, with a context wherever it needs one.
fn connect(config: &NetworkConfig, [client, server]: [usize; 2], contexts: &mut [u32]) -> Connection {
    let window = Window::new(config.window, config.congestion);
    let is_reliable = match config.transport {
        Transport::Reliable => true,
        Transport::Auto { budget } => contexts[client].max(contexts[server]) < budget as u32,
        Transport::Stateless | Transport::Datagram => false,
    };
    let mut context = |node: usize| {
        contexts[node] += 1;
        contexts[node] - 1
    };
    let (contexts, state) = match config.transport {
        Transport::Datagram => ([None, None], State::Datagram),
        _ if is_reliable => {
            ([client, server].map(|node| Some(context(node))), State::Reliable([Stream::new(window); 2]))
        }
        _ => {
            let exchange = Exchange::new(window);
            let (work, completions) = (Elements::default(), Elements::default());
            let state = State::Stateless { out: exchange, back: exchange, work, completions };
            ([Some(context(client)), None], state)
        }
    };
    Connection {
        nodes: [client as u32, server as u32],
        contexts,
        state,
        is_busy: false,
        started: Instant::ZERO,
        waiting: std::collections::VecDeque::new(),
        is_queued: [false; 2],
        has_timer: [false; 2],
        active: [Instant::ZERO; 2],
    }
}
