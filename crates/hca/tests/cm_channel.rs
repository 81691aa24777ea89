//! Programs that speak the commands of `/dev/infiniband/rdma_cm` to live adapters, as librdmacm does.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use nichrome_cm::ucma::Caller;
use nichrome_cm::{ChannelName, Errno};
use nichrome_hca::cm::CmChannel;
use nichrome_hca::{Adapter, AdapterConfig};
use nichrome_port::clock;

/// Numbers of commands.
const CREATE_ID: u32 = 0;
const DESTROY_ID: u32 = 1;
const BIND_IP: u32 = 2;
const RESOLVE_IP: u32 = 3;
const RESOLVE_ROUTE: u32 = 4;
const CONNECT: u32 = 6;
const LISTEN: u32 = 7;
const ACCEPT: u32 = 8;
const DISCONNECT: u32 = 10;
const GET_EVENT: u32 = 12;
const JOIN_IP_MCAST: u32 = 16;
const LEAVE_MCAST: u32 = 17;
const MIGRATE_ID: u32 = 18;

/// Port spaces.
const TCP: u16 = 0x0106;
const UDP: u16 = 0x0111;

/// Numbers of events.
const ADDRESS_RESOLVED: u32 = 0;
const ADDRESS_ERROR: u32 = 1;
const ROUTE_RESOLVED: u32 = 2;
const CONNECT_REQUEST: u32 = 4;
const CONNECT_RESPONSE: u32 = 5;
const ESTABLISHED: u32 = 9;
const DISCONNECTED: u32 = 10;
const MULTICAST_JOIN: u32 = 12;

/// A program without memory: no command here reads it.
#[derive(Default)]
struct Program {
    files: BTreeMap<u32, ChannelName>,
}

impl Caller for Program {
    fn read(&mut self, _: u64, _: usize) -> Option<Vec<u8>> {
        None
    }

    fn channel_of(&mut self, fd: u32) -> Option<ChannelName> {
        self.files.get(&fd).copied()
    }
}

/// An event: kind, identifier, status.
type Seen = (u32, u32, i32);

fn word(value: u32) -> [u8; 4] {
    value.to_ne_bytes()
}

fn sockaddr_in6(address: SocketAddr) -> Vec<u8> {
    let IpAddr::V4(ip) = address.ip() else { panic!() };
    let mut bytes = 2u16.to_ne_bytes().to_vec();
    bytes.extend(address.port().to_be_bytes());
    bytes.extend(ip.octets());
    bytes.resize(28, 0);
    bytes
}

fn parameters(qp: u32) -> Vec<u8> {
    let mut bytes = word(qp).to_vec();
    bytes.resize(264, 0);
    // Responder resources, initiator depth, flow control, retries, RNR retries, valid.
    bytes.extend([0, 0, 1, 1, 0, 7, 7, u8::from(qp != 0)]);
    bytes
}

/// Writes a command; returns the first number of its answer.
fn write(channel: &CmChannel, number: u32, body: &[&[u8]]) -> Result<u32, Errno> {
    write_as(&mut Program::default(), channel, number, body)
}

fn write_as(program: &mut Program, channel: &CmChannel, number: u32, body: &[&[u8]]) -> Result<u32, Errno> {
    let answer = answer(program, channel, number, body)?;
    Ok(answer.map_or(0, |bytes| u32::from_ne_bytes(bytes[..4].try_into().unwrap())))
}

fn answer(
    program: &mut Program,
    channel: &CmChannel,
    number: u32,
    body: &[&[u8]],
) -> Result<Option<Vec<u8>>, Errno> {
    let body = body.concat();
    let mut written = word(number).to_vec();
    written.extend((body.len() as u16).to_ne_bytes());
    written.extend(336u16.to_ne_bytes());
    written.extend(body);
    Ok(channel.execute(program, &written)?.map(|answer| answer.bytes))
}

fn create(channel: &CmChannel, uid: u64, space: u16) -> u32 {
    write(channel, CREATE_ID, &[&uid.to_ne_bytes(), &[0; 8], &space.to_ne_bytes(), &[0; 6]]).unwrap()
}

fn bind(channel: &CmChannel, id: u32, address: SocketAddr) -> Result<u32, Errno> {
    write(channel, BIND_IP, &[&[0; 8], &sockaddr_in6(address), &word(id)])
}

fn resolve(channel: &CmChannel, id: u32, destination: SocketAddr) {
    write(channel, RESOLVE_IP, &[&[0; 28], &sockaddr_in6(destination), &word(id), &word(1000)]).unwrap();
}

fn is_readable(channel: &CmChannel) -> bool {
    clock::wait([channel.as_fd()], Some(clock::now())).unwrap() == [true]
}

/// Waits for the descriptor, then fetches an event.
fn event(channel: &CmChannel) -> Seen {
    let until = clock::now() + Duration::from_secs(20);
    assert_eq!(clock::wait([channel.as_fd()], Some(until)), Ok([true]));
    let bytes = answer(&mut Program::default(), channel, GET_EVENT, &[&[0; 8]]).unwrap().unwrap();
    let at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    (at(12), at(8), at(16).cast_signed())
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
    // An event that goes with its identifier.
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
    let mut program = Program { files: BTreeMap::from([(5, old.name())]) };
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

/// Listens at `address` on one channel and connects to it on another; returns the identifiers of the client and of its request.
fn request(listening: &CmChannel, connecting: &CmChannel, address: SocketAddr) -> [u32; 2] {
    let listener = create(listening, 1, TCP);
    bind(listening, listener, address).unwrap();
    write(listening, LISTEN, &[&word(listener), &word(3)]).unwrap();
    let client = create(connecting, 2, TCP);
    resolve(connecting, client, address);
    assert_eq!(event(connecting), (ADDRESS_RESOLVED, client, 0));
    write(connecting, RESOLVE_ROUTE, &[&word(client), &word(1000)]).unwrap();
    assert_eq!(event(connecting), (ROUTE_RESOLVED, client, 0));
    write(connecting, CONNECT, &[&parameters(0x11), &word(client), &word(0)]).unwrap();
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
