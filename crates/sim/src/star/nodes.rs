//! The nodes of a part of the network, by their numbers in the whole.

use std::ops::{Index, IndexMut};

use super::card::Card;
use super::context_pool::ContextPool;
use super::packet::Packet;
use crate::{Link, Server};

/// A machine: its card, and its links to and from the switch.
pub(super) struct Node {
    pub(super) uplink: Link,
    pub(super) downlink: Link,
    pub(super) card: Card<Task>,
    /// Contexts of a server that connections take on demand.
    pub(super) pool: ContextPool,
    /// The card's pipelines: received packets, and packets to send.
    pub(super) pipelines: [Server; 2],
    /// Cores of a server for software and StaR's driver.
    pub(super) cores: Vec<Server>,
}

/// A task of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Receive a packet.
    Receive(Packet),
    /// Send a packet of the engine.
    Send(Packet),
}

/// Consecutive nodes.
pub(super) struct Nodes {
    first: u32,
    nodes: Vec<Node>,
}

impl Nodes {
    /// Creates the nodes from number `first` on.
    pub(super) fn new(first: u32, nodes: Vec<Node>) -> Self {
        Self { first, nodes }
    }

    /// Separates the nodes before number `at` from the others.
    pub(super) fn split(mut self, at: u32) -> [Self; 2] {
        let others = self.nodes.split_off((at - self.first) as usize);
        [self, Self::new(at, others)]
    }

    /// Iterates over the nodes here that are among the first `count` nodes of the network.
    pub(super) fn of_first(&self, count: usize) -> impl Iterator<Item = &Node> {
        self.nodes.iter().take(count.saturating_sub(self.first as usize))
    }
}

impl Index<u32> for Nodes {
    type Output = Node;

    fn index(&self, number: u32) -> &Node {
        &self.nodes[(number - self.first) as usize]
    }
}

impl IndexMut<u32> for Nodes {
    fn index_mut(&mut self, number: u32) -> &mut Node {
        &mut self.nodes[(number - self.first) as usize]
    }
}
