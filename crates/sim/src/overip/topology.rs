//! The assignment of nodes to switches.

use super::config::{TestbedConfig, Topology};
use super::router::Port;
use crate::{HostId, PortId, Switch};

/// The node that all others communicate with.
pub(super) const SERVER: usize = 0;
/// The switches of network A, with the clients, and of network B.
pub(super) const A: usize = 0;
pub(super) const B: usize = 1;

/// The destination of a switch port's link.
#[derive(Clone, Copy, Debug)]
pub(super) enum LinkDestination {
    Node(usize),
    Router(Port),
}

/// Creates the switches and the destinations of their ports.
pub(super) fn switches(config: &TestbedConfig) -> ([Switch; 2], [Vec<LinkDestination>; 2]) {
    let mut switches = [Switch::new(config.switch), Switch::new(config.switch)];
    let mut destinations: [Vec<LinkDestination>; 2] = Default::default();
    let server_at = match config.topology {
        Topology::Lan => A,
        Topology::Wan => B,
    };
    let mut add = |switch: usize, what: LinkDestination| {
        destinations[switch].push(what);
        switches[switch].add_port(config.link)
    };
    let nodes: Vec<(usize, PortId)> = (0..=config.clients)
        .map(|node| {
            let switch = if node == SERVER { server_at } else { A };
            (switch, add(switch, LinkDestination::Node(node)))
        })
        .collect();
    let routers = match config.topology {
        Topology::Lan => None,
        Topology::Wan => Some([add(A, LinkDestination::Router(0)), add(B, LinkDestination::Router(1))]),
    };
    for (node, (at, port)) in nodes.into_iter().enumerate() {
        let host = HostId(node as u16);
        switches[at].set_route(host, port);
        if let Some(routers) = routers {
            switches[1 - at].set_route(host, routers[1 - at]);
        }
    }
    (switches, destinations)
}
