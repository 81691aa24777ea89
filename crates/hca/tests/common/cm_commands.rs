//! Commands of `/dev/infiniband/rdma_cm` and their events, as librdmacm writes and reads them.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)] // Each test uses some of it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use nichrome_cm::ucma::Caller;
use nichrome_cm::{ChannelName, Errno};
use nichrome_hca::cm::CmChannel;
use nichrome_port::clock;

/// Numbers of commands.
pub(crate) const CREATE_ID: u32 = 0;
pub(crate) const DESTROY_ID: u32 = 1;
pub(crate) const BIND_IP: u32 = 2;
pub(crate) const RESOLVE_IP: u32 = 3;
pub(crate) const RESOLVE_ROUTE: u32 = 4;
pub(crate) const CONNECT: u32 = 6;
pub(crate) const LISTEN: u32 = 7;
pub(crate) const ACCEPT: u32 = 8;
pub(crate) const DISCONNECT: u32 = 10;
pub(crate) const GET_EVENT: u32 = 12;
pub(crate) const SET_OPTION: u32 = 14;
pub(crate) const JOIN_IP_MCAST: u32 = 16;
pub(crate) const LEAVE_MCAST: u32 = 17;
pub(crate) const MIGRATE_ID: u32 = 18;

/// Port spaces.
pub(crate) const TCP: u16 = 0x0106;
pub(crate) const UDP: u16 = 0x0111;

/// Numbers of events.
pub(crate) const ADDRESS_RESOLVED: u32 = 0;
pub(crate) const ADDRESS_ERROR: u32 = 1;
pub(crate) const ROUTE_RESOLVED: u32 = 2;
pub(crate) const CONNECT_REQUEST: u32 = 4;
pub(crate) const CONNECT_RESPONSE: u32 = 5;
pub(crate) const REJECTED: u32 = 8;
pub(crate) const ESTABLISHED: u32 = 9;
pub(crate) const DISCONNECTED: u32 = 10;
pub(crate) const MULTICAST_JOIN: u32 = 12;

/// A program.
#[derive(Default)]
pub(crate) struct Program {
    pub(crate) files: BTreeMap<u32, ChannelName>,
    /// The memory that a command reads, equal at every address.
    pub(crate) memory: Vec<u8>,
}

impl Caller for Program {
    fn read(&mut self, _: u64, len: usize) -> Option<Vec<u8>> {
        self.memory.get(..len).map(<[u8]>::to_vec)
    }

    fn channel_of(&mut self, fd: u32) -> Option<ChannelName> {
        self.files.get(&fd).copied()
    }
}

/// An event: kind, identifier, status.
pub(crate) type Seen = (u32, u32, i32);

pub(crate) fn word(value: u32) -> [u8; 4] {
    value.to_ne_bytes()
}

pub(crate) fn sockaddr_in6(address: SocketAddr) -> Vec<u8> {
    let family: u16 = if address.is_ipv4() { 2 } else { 10 };
    let mut bytes = family.to_ne_bytes().to_vec();
    bytes.extend(address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => bytes.extend(ip.octets()),
        // After the flow information.
        IpAddr::V6(ip) => bytes.extend([&[0; 4], &ip.octets()[..]].concat()),
    }
    bytes.resize(28, 0);
    bytes
}

pub(crate) fn parameters(qp: u32) -> Vec<u8> {
    let mut bytes = word(qp).to_vec();
    bytes.resize(264, 0);
    // Responder resources, initiator depth, flow control, retries, RNR retries, valid.
    bytes.extend([0, 0, 1, 1, 0, 7, 7, u8::from(qp != 0)]);
    bytes
}

/// Writes a command; returns the first number of its answer.
pub(crate) fn write(channel: &CmChannel, number: u32, body: &[&[u8]]) -> Result<u32, Errno> {
    write_as(&mut Program::default(), channel, number, body)
}

pub(crate) fn write_as(
    program: &mut Program,
    channel: &CmChannel,
    number: u32,
    body: &[&[u8]],
) -> Result<u32, Errno> {
    let answer = answer(program, channel, number, body)?;
    Ok(answer.map_or(0, |bytes| u32::from_ne_bytes(bytes[..4].try_into().unwrap())))
}

pub(crate) fn answer(
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

pub(crate) fn create(channel: &CmChannel, uid: u64, space: u16) -> u32 {
    write(channel, CREATE_ID, &[&uid.to_ne_bytes(), &[0; 8], &space.to_ne_bytes(), &[0; 6]]).unwrap()
}

pub(crate) fn bind(channel: &CmChannel, id: u32, address: SocketAddr) -> Result<u32, Errno> {
    write(channel, BIND_IP, &[&[0; 8], &sockaddr_in6(address), &word(id)])
}

pub(crate) fn resolve(channel: &CmChannel, id: u32, destination: SocketAddr) {
    write(channel, RESOLVE_IP, &[&[0; 28], &sockaddr_in6(destination), &word(id), &word(1000)]).unwrap();
}

/// Waits for the descriptor, then fetches an event.
pub(crate) fn event(channel: &CmChannel) -> Seen {
    let until = clock::now() + Duration::from_secs(20);
    assert_eq!(clock::wait([channel.as_fd()], Some(until)), Ok([true]));
    let bytes = answer(&mut Program::default(), channel, GET_EVENT, &[&[0; 8]]).unwrap().unwrap();
    let at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    (at(12), at(8), at(16).cast_signed())
}
