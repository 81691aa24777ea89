//! Programs that speak the commands of `/dev/infiniband/rdma_cm` to live adapters, as librdmacm does.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;

use nichrome_cm::Errno;
use nichrome_hca::cm::CmChannel;
use nichrome_hca::{Adapter, AdapterConfig, Transport};
use nichrome_port::clock;
use nichrome_rdma::{QpCapacity, QpState};

use self::cm_commands::*;

#[path = "common/cm_commands.rs"]
mod cm_commands;

fn is_readable(channel: &CmChannel) -> bool {
    clock::wait([channel.as_fd()], Some(clock::now())).unwrap() == [true]
}

/// An adapter with a channel.
fn end() -> (Adapter, CmChannel) {
    let adapter = Adapter::open(&AdapterConfig::default()).unwrap();
    let channel = adapter.open_cm_channel().unwrap();
    (adapter, channel)
}

#[test]
fn the_descriptor_is_readable_while_the_channel_has_events() {
    let (adapter, channel) = end();
    let id = create(&channel, 1, TCP);
    assert!(!is_readable(&channel));
    assert_eq!(write(&channel, GET_EVENT, &[&[0; 8]]), Err(Errno::EAGAIN));
    resolve(&channel, id, SocketAddr::new(adapter.address(), 9));
    assert!(is_readable(&channel));
    assert_eq!(event(&channel), (ADDRESS_RESOLVED, id, 0));
    assert!(!is_readable(&channel));
    // An event that is dropped with its identifier.
    write(&channel, RESOLVE_ROUTE, &[&word(id), &word(1000)]).unwrap();
    assert!(is_readable(&channel));
    assert_eq!(write(&channel, DESTROY_ID, &[&[0; 8], &word(id), &word(0)]), Ok(1));
    assert!(!is_readable(&channel));
}

#[test]
fn an_identifier_takes_its_events_to_another_channel() {
    let (adapter, old) = end();
    let new = adapter.open_cm_channel().unwrap();
    let id = create(&old, 1, TCP);
    resolve(&old, id, SocketAddr::new(adapter.address(), 9));
    let mut program = Program { files: BTreeMap::from([(5, old.name())]), ..Program::default() };
    write_as(&mut program, &new, MIGRATE_ID, &[&[0; 8], &word(id), &word(5)]).unwrap();
    assert!(!is_readable(&old) && is_readable(&new));
    assert_eq!(event(&new), (ADDRESS_RESOLVED, id, 0));
}

#[test]
fn addresses_of_other_adapters_and_destinations_without_a_route_are_refused() {
    let (_, channel) = end();
    let id = create(&channel, 1, TCP);
    assert_eq!(bind(&channel, id, "192.0.2.1:9".parse().unwrap()), Err(Errno::ENODEV));
    // From a loopback address the kernel routes to addresses of this machine only.
    resolve(&channel, id, "192.0.2.1:9".parse().unwrap());
    let (kind, of, status) = event(&channel);
    assert_eq!((kind, of, status < 0), (ADDRESS_ERROR, id, true));
}

/// Creates an identifier for one address family, and binds it.
fn bound(channel: &CmChannel, address: SocketAddr) -> u32 {
    let id = create(channel, 1, TCP);
    let mut program = Program { memory: word(1).to_vec(), ..Program::default() };
    // RDMA_OPTION_ID_AFONLY, of 4 bytes.
    let option = [&[0; 8][..], &word(id), &word(0), &word(2), &word(4)];
    write_as(&mut program, channel, SET_OPTION, &option).unwrap();
    bind(channel, id, address).unwrap();
    id
}

fn listens(channel: &CmChannel, id: u32) {
    write(channel, LISTEN, &[&word(id), &word(3)]).unwrap();
}

fn destroys(channel: &CmChannel, id: u32) {
    write(channel, DESTROY_ID, &[&[0; 8], &word(id), &word(0)]).unwrap();
}

/// Over iWARP the listeners share a socket, since the adapter has one address.
#[test]
fn a_listener_of_one_address_family_outlives_that_of_the_other() {
    type Steps = fn(&CmChannel, &dyn Fn(bool) -> u32);
    let scenarios: [Steps; 3] = [
        |channel, bound| {
            let ids = [true, false].map(bound);
            ids.iter().for_each(|id| listens(channel, *id));
            destroys(channel, ids[0]);
        },
        |channel, bound| {
            let ids = [false, true].map(bound);
            ids.iter().for_each(|id| listens(channel, *id));
            destroys(channel, ids[0]);
            listens(channel, bound(false));
        },
        |channel, bound| {
            let ids = [false, true].map(bound);
            listens(channel, ids[0]);
            destroys(channel, ids[0]);
            listens(channel, bound(false));
        },
    ];
    for steps in scenarios {
        let config = AdapterConfig { transport: Transport::Iwarp, ..AdapterConfig::default() };
        let [(server, listening), (client, connecting)] = [(); 2].map(|()| {
            let adapter = Adapter::open(&config).unwrap();
            let channel = adapter.open_cm_channel().unwrap();
            (adapter, channel)
        });
        let address = SocketAddr::new(server.address(), 7175);
        let other = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 7175);
        steps(&listening, &|is_other| bound(&listening, if is_other { other } else { address }));
        let cq = client.completion_queue(1).unwrap();
        let qp = client.queue_pair(QpCapacity::default(), &cq, &cq).unwrap();
        qp.prepare().unwrap();
        requests(&listening, &connecting, address, qp.endpoint().qp.value());
    }
}

/// The peer refuses the connection, or does not answer until the program gives it up.
#[test]
fn a_queue_pair_whose_connection_over_iwarp_fails_enters_error() {
    let config = AdapterConfig { transport: Transport::Iwarp, ..AdapterConfig::default() };
    let adapter = Adapter::open(&config).unwrap();
    let channel = adapter.open_cm_channel().unwrap();
    let peer = TcpListener::bind((adapter.address(), 0)).unwrap();
    let (cq, address) = (adapter.completion_queue(1).unwrap(), peer.local_addr().unwrap());
    let connecting = || {
        let qp = adapter.queue_pair(QpCapacity::default(), &cq, &cq).unwrap();
        qp.prepare().unwrap();
        let id = connects(&channel, address, qp.endpoint().qp.value());
        (qp, id)
    };
    let (qp, id) = connecting();
    assert_eq!(qp.state(), QpState::Rtr);
    destroys(&channel, id);
    assert_eq!(qp.state(), QpState::Err);
    drop(peer);
    let (qp, id) = connecting();
    let (kind, of, _) = event(&channel);
    assert_eq!((kind, of, qp.state()), (REJECTED, id, QpState::Err));
}

/// Listens at `address` on one channel and connects to it on another; returns the identifiers of the client
/// and of its request.
fn request(listening: &CmChannel, connecting: &CmChannel, address: SocketAddr) -> [u32; 2] {
    let listener = create(listening, 1, TCP);
    bind(listening, listener, address).unwrap();
    listens(listening, listener);
    requests(listening, connecting, address, 0x11)
}

/// Requests a connection of a queue pair; returns its identifier.
fn connects(channel: &CmChannel, address: SocketAddr, qp: u32) -> u32 {
    let client = create(channel, 2, TCP);
    resolve(channel, client, address);
    assert_eq!(event(channel), (ADDRESS_RESOLVED, client, 0));
    write(channel, RESOLVE_ROUTE, &[&word(client), &word(1000)]).unwrap();
    assert_eq!(event(channel), (ROUTE_RESOLVED, client, 0));
    write(channel, CONNECT, &[&parameters(qp), &word(client), &word(0)]).unwrap();
    client
}

/// Connects a queue pair on one channel to a listener of another; returns the identifiers of the client and
/// of its request.
fn requests(listening: &CmChannel, connecting: &CmChannel, address: SocketAddr, qp: u32) -> [u32; 2] {
    let client = connects(connecting, address, qp);
    let (kind, accepted, _) = event(listening);
    assert_eq!(kind, CONNECT_REQUEST);
    [client, accepted]
}

#[test]
fn a_connection_is_made_and_ended() {
    let [(server, listening), (_, connecting)] = [(); 2].map(|()| end());
    let address = SocketAddr::new(server.address(), 7174);
    let [client, accepted] = request(&listening, &connecting, address);
    let accept = [&3u64.to_ne_bytes()[..], &parameters(0x12), &word(accepted), &word(0)];
    write(&listening, ACCEPT, &accept).unwrap();
    assert_eq!(event(&connecting), (CONNECT_RESPONSE, client, 0));
    write(&connecting, ACCEPT, &[&[0; 8], &parameters(0), &word(client), &word(0)]).unwrap();
    assert_eq!(event(&listening), (ESTABLISHED, accepted, 0));
    write(&connecting, DISCONNECT, &[&word(client)]).unwrap();
    assert_eq!(event(&listening), (DISCONNECTED, accepted, 0));
    assert_eq!(event(&connecting), (DISCONNECTED, client, 0));
}

#[test]
fn a_channel_that_closes_ends_its_connections() {
    let [(server, listening), (_, connecting)] = [(); 2].map(|()| end());
    let address = SocketAddr::new(server.address(), 7174);
    let [client, _] = request(&listening, &connecting, address);
    drop(listening);
    let (kind, id, status) = event(&connecting);
    // Rejected by the consumer.
    assert_eq!((kind, id, status), (8, client, 28));
    // Its port is free.
    let again = server.open_cm_channel().unwrap();
    let listener = create(&again, 1, TCP);
    bind(&again, listener, address).unwrap();
}

#[test]
fn groups_are_joined_and_left() {
    let (adapter, channel) = end();
    let id = create(&channel, 1, UDP);
    bind(&channel, id, SocketAddr::new(adapter.address(), 0)).unwrap();
    let group = sockaddr_in6("239.255.77.1:0".parse().unwrap());
    let join = |uid: u64| [&[0; 8], &uid.to_ne_bytes()[..], &group, &word(id)].concat();
    let memberships = [7, 8].map(|uid| write(&channel, JOIN_IP_MCAST, &[&join(uid)]).unwrap());
    for _ in memberships {
        let (kind, _, status) = event(&channel);
        assert_eq!((kind, status), (MULTICAST_JOIN, 0));
    }
    for membership in memberships {
        assert_eq!(write(&channel, LEAVE_MCAST, &[&[0; 8], &word(membership), &word(0)]), Ok(1));
    }
}

#[test]
fn a_thousand_requests_at_once_are_all_connected() {
    const MANY: usize = 1000;
    let [(server, listening), (_, connecting)] = [(); 2].map(|()| end());
    let address = SocketAddr::new(server.address(), 7174);
    let listener = create(&listening, 1, TCP);
    bind(&listening, listener, address).unwrap();
    write(&listening, LISTEN, &[&word(listener), &word(0)]).unwrap();
    let clients: Vec<u32> = (0..MANY)
        .map(|nth| {
            let client = create(&connecting, 2 + nth as u64, TCP);
            resolve(&connecting, client, address);
            assert_eq!(event(&connecting), (ADDRESS_RESOLVED, client, 0));
            write(&connecting, RESOLVE_ROUTE, &[&word(client), &word(1000)]).unwrap();
            assert_eq!(event(&connecting), (ROUTE_RESOLVED, client, 0));
            client
        })
        .collect();
    for (nth, client) in clients.iter().enumerate() {
        let qp = 0x100 + nth as u32;
        write(&connecting, CONNECT, &[&parameters(qp), &word(*client), &word(0)]).unwrap();
    }
    for nth in 0..MANY {
        let (kind, accepted, _) = event(&listening);
        assert_eq!(kind, CONNECT_REQUEST);
        let uid = (10_000 + nth as u64).to_ne_bytes();
        let qp = 0x2000 + nth as u32;
        write(&listening, ACCEPT, &[&uid, &parameters(qp), &word(accepted), &word(0)]).unwrap();
    }
    for _ in 0..MANY {
        let (kind, client, _) = event(&connecting);
        assert_eq!(kind, CONNECT_RESPONSE);
        write(&connecting, ACCEPT, &[&[0; 8], &parameters(0), &word(client), &word(0)]).unwrap();
    }
    for _ in 0..MANY {
        assert_eq!(event(&listening).0, ESTABLISHED);
    }
}
