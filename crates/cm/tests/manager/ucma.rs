//! Programs that write the kernel's commands, as librdmacm does.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use nichrome_cm::ucma::{Answer, Caller, execute};
use nichrome_cm::{ChannelName, Errno};
use proptest::prelude::*;

use crate::common::*;

/// A program's memory and open files.
#[derive(Default)]
struct Program {
    memory: BTreeMap<u64, Vec<u8>>,
    files: BTreeMap<u32, ChannelName>,
}

impl Caller for Program {
    fn read(&mut self, address: u64, len: usize) -> Option<Vec<u8>> {
        self.memory.get(&address)?.get(..len).map(<[u8]>::to_vec)
    }

    fn channel_of(&mut self, fd: u32) -> Option<ChannelName> {
        self.files.get(&fd).copied()
    }
}

/// The address of every answer.
const ANSWER: u64 = 0x1000;

/// A command: its number, the length for the answer, its body.
fn command(number: u32, answer_len: u16, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let mut bytes = number.to_ne_bytes().to_vec();
    bytes.extend((body.len() as u16).to_ne_bytes());
    bytes.extend(answer_len.to_ne_bytes());
    bytes.extend(body);
    bytes
}

fn word(value: u32) -> [u8; 4] {
    value.to_ne_bytes()
}

fn long(value: u64) -> [u8; 8] {
    value.to_ne_bytes()
}

fn sockaddr_in(address: SocketAddr) -> Vec<u8> {
    let IpAddr::V4(ip) = address.ip() else { panic!() };
    let mut bytes = 2u16.to_ne_bytes().to_vec();
    bytes.extend(address.port().to_be_bytes());
    bytes.extend(ip.octets());
    bytes.resize(28, 0);
    bytes
}

fn conn_param(qp: u32, data: &[u8], valid: u8) -> Vec<u8> {
    let mut bytes = qp.to_ne_bytes().to_vec();
    bytes.resize(8, 0);
    bytes.extend(data);
    bytes.resize(264, 0);
    bytes.extend([data.len() as u8, 0, 1, 2, 0, 7, 6, valid]);
    bytes
}

struct Session {
    network: Network,
    programs: [Program; 2],
}

impl Session {
    fn new() -> Self {
        Self { network: Network::pair(), programs: Default::default() }
    }

    fn write(&mut self, node: usize, written: &[u8]) -> Result<Vec<u8>, Errno> {
        let channel = self.network.nodes[node].channel;
        self.write_to(node, channel, written)
    }

    fn write_to(&mut self, node: usize, channel: ChannelName, written: &[u8]) -> Result<Vec<u8>, Errno> {
        let now = self.network.now;
        let manager = &mut self.network.nodes[node].manager;
        let answer = execute(manager, channel, &mut self.programs[node], written, now)?;
        self.network.drain(&mut delivered);
        Ok(answer.map_or(Vec::new(), |Answer { address, bytes }| {
            assert!(address == ANSWER || bytes.len() < 400);
            bytes
        }))
    }

    fn create(&mut self, node: usize, uid: u64, space: u16) -> u32 {
        let body = [&long(uid)[..], &long(ANSWER), &space.to_ne_bytes(), &[0; 6]];
        let answer = self.write(node, &command(0, 4, &body)).unwrap();
        u32::from_ne_bytes(answer.try_into().unwrap())
    }

    /// Fetches an event: uid, id, number, status, and the parameters.
    fn event(&mut self, node: usize) -> (u64, u32, u32, i32, Vec<u8>) {
        let bytes = self.write(node, &command(12, 336, &[&long(ANSWER)])).unwrap();
        assert_eq!(bytes.len(), 336);
        let at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        let uid = u64::from_ne_bytes(bytes[..8].try_into().unwrap());
        (uid, at(8), at(12), at(16).cast_signed(), bytes[20..324].to_vec())
    }

    /// Creates a listener at port 7 of node 1 and a client of node 0 whose route is resolved, by the commands
    /// without AF_IB.
    fn ready(&mut self) -> (u32, u32) {
        let listener = self.create(1, 90, 0x0106);
        self.write(1, &command(2, 0, &[&long(0), &sockaddr_in(at(1, 7)), &word(listener)])).unwrap();
        self.write(1, &command(7, 0, &[&word(listener), &word(3)])).unwrap();
        let client = self.create(0, 10, 0x0106);
        let body = [&[0; 28][..], &sockaddr_in(at(1, 7)), &word(client), &word(1000)];
        self.write(0, &command(3, 0, &body)).unwrap();
        assert_eq!(self.event(0).2, 0);
        self.write(0, &command(4, 0, &[&word(client), &word(1000)])).unwrap();
        assert_eq!(self.event(0).2, 2);
        (listener, client)
    }

    /// Connects; returns listener, client and server.
    fn connected(&mut self) -> (u32, u32, u32) {
        let (listener, client) = self.ready();
        self.write(0, &command(6, 0, &[&conn_param(0x11, b"hi", 1), &word(client), &word(0)])).unwrap();
        self.network.pass(2 * MILLISECOND);
        let (uid, server, kind, status, parameters) = self.event(1);
        assert_eq!((uid, kind, status), (90, 4, 0));
        assert_eq!((parameters[0], &parameters[8..10], parameters[264]), (0x11, &b"hi"[..], 56));
        let body = [&long(91)[..], &conn_param(0x22, b"ho", 1), &word(server), &word(0)];
        self.write(1, &command(8, 0, &body)).unwrap();
        self.network.pass(2 * MILLISECOND);
        let (uid, id, kind, _, parameters) = self.event(0);
        assert_eq!((uid, id, kind, parameters[0], parameters[264]), (10, client, 5, 0x22, 196));
        (listener, client, server)
    }

    fn establish(&mut self, client: u32) {
        let body = [&long(0)[..], &conn_param(0, b"", 0), &word(client), &word(0)];
        self.write(0, &command(8, 0, &body)).unwrap();
        self.network.pass(2 * MILLISECOND);
    }

    fn destroy(&mut self, node: usize, id: u32) -> Result<u32, Errno> {
        let answer = self.write(node, &command(1, 4, &[&long(ANSWER), &word(id), &word(0)]))?;
        Ok(u32::from_ne_bytes(answer.try_into().unwrap()))
    }
}

#[test]
fn a_connection_is_made_and_ended_by_commands() {
    let mut session = Session::new();
    let (listener, client, server) = session.connected();
    session.establish(client);
    let (uid, id, kind, ..) = session.event(1);
    assert_eq!((uid, id, kind), (91, server, 9));
    session.write(0, &command(10, 0, &[&word(client)])).unwrap();
    session.network.pass(2 * MILLISECOND);
    assert_eq!((session.event(0).2, session.event(1).2), (10, 10));
    session.network.pass(SECOND);
    assert_eq!((session.event(0).2, session.event(1).2), (15, 15));
    assert_eq!(session.write(0, &command(12, 336, &[&long(ANSWER)])), Err(Errno::EAGAIN));
    assert_eq!(session.destroy(0, client), Ok(5));
    assert_eq!(session.destroy(1, server), Ok(3));
    assert_eq!(session.destroy(1, listener), Ok(1));
    assert_eq!(session.destroy(1, listener), Err(Errno::ENOENT));
    session.network.assert_nothing_leaks();
}

#[test]
fn a_program_gets_the_events_that_it_writes() {
    let mut session = Session::new();
    let id = session.create(0, 10, 0x0106);
    let write = |session: &mut Session, event: u32, argument: u64| {
        // librdmacm writes the whole union, of 304 bytes.
        let body = [&word(id)[..], &word(0), &word(event), &word(5), &long(argument), &[0; 296]];
        session.write(0, &command(24, 0, &body))
    };
    for (event, argument) in [(18, 0x0102_0304_0506_0708), (19, 16)] {
        write(&mut session, event, argument).unwrap();
        let (uid, of, kind, status, parameters) = session.event(0);
        assert_eq!((uid, of, kind, status), (10, id, event, 5));
        assert_eq!(parameters[..8], argument.to_ne_bytes());
    }
    for event in [0, 9, 17, 20, u32::MAX] {
        assert_eq!(write(&mut session, event, 0), Err(Errno::EINVAL), "{event}");
    }
    let written = std::iter::from_fn(|| write(&mut session, 18, 0).ok()).take(1000).count();
    assert_eq!(written, 64, "what a program leaves is bounded");
    assert_eq!(session.destroy(0, id), Ok(2));
    session.network.assert_nothing_leaks();
}

#[test]
fn queue_pair_attributes_are_those_of_the_connection() {
    let mut session = Session::new();
    let (_, client, server) = session.connected();
    let mut attributes = |node, id: u32, state: u32| {
        session.write(node, &command(11, 144, &[&long(ANSWER), &word(id), &word(state)])).unwrap()
    };
    let at = |bytes: &[u8], at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let (init, rtr, rts) = (attributes(0, client, 1), attributes(0, client, 2), attributes(0, client, 3));
    // The masks of Linux: STATE, ACCESS_FLAGS, PKEY_INDEX, PORT; AV, PATH_MTU, RQ_PSN, MIN_RNR_TIMER,
    // MAX_DEST_RD_ATOMIC, DEST_QPN; TIMEOUT, RETRY_CNT, RNR_RETRY, MAX_QP_RD_ATOMIC, SQ_PSN.
    assert_eq!([&init, &rtr, &rts].map(|bytes| at(bytes, 0)), [0x39, 0x12_9181, 0x1_2E01]);
    assert_eq!((at(&rtr, 32), at(&rtr, 12), rtr[72 - 3]), (0x22, 3, 1));
    assert_eq!(rtr[40..56], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 2]);
    let (peer_rtr, peer_rts) = (attributes(1, server, 2), attributes(1, server, 3));
    assert_eq!((at(&rtr, 24), at(&rts, 28)), (at(&peer_rts, 28), at(&peer_rtr, 24)));
    assert_eq!((rts[135], rts[136], init[133]), (7, 6, 1));
}

#[test]
fn queries_name_the_adapter_the_addresses_and_the_path() {
    let mut session = Session::new();
    let (_, client) = session.ready();
    let route = session.write(0, &command(5, 208, &[&long(ANSWER), &word(client), &word(0)])).unwrap();
    assert_eq!((route.len(), &route[..8]), (208, &0x1000u64.to_be_bytes()[..]));
    assert_eq!(route[164..172], sockaddr_in(at(1, 7))[..8]);
    // One path, port 1, unknown index of the adapter.
    assert_eq!((route[192], route[196], &route[200..204]), (1, 1, &[0xFF; 4][..]));
    let mut query =
        |option| session.write(0, &command(19, 280, &[&long(ANSWER), &word(client), &word(option)])).unwrap();
    let address = query(0);
    assert_eq!((address[8], &address[10..12], address[12], address[14]), (1, &[0xFF; 2][..], 16, 16));
    assert_eq!(address[144..152], sockaddr_in(at(1, 7))[..8]);
    let path = query(1);
    assert_eq!((path.len(), path[0], path[8]), (80, 1, 0x2B));
    let gid = query(2);
    assert_eq!((gid[144], gid[12], &gid[162..168]), (27, 48, &[0xFF, 0xFF, 10, 0, 0, 2][..]));
    // The answer is cut to the length of the program's buffer, which must hold its first version.
    let old = session.write(0, &command(5, 200, &[&long(ANSWER), &word(client), &word(0)])).unwrap();
    assert_eq!(old.len(), 200);
    let short = command(5, 199, &[&long(ANSWER), &word(client), &word(0)]);
    assert_eq!(session.write(0, &short), Err(Errno::ENOSPC));
}

#[test]
fn an_identifier_migrates_with_its_events() {
    let mut session = Session::new();
    let (_, client, _) = session.connected();
    let (old, manager) = (session.network.nodes[0].channel, &mut session.network.nodes[0].manager);
    let new = manager.create_channel().unwrap();
    session.programs[0].files.insert(5, old);
    session.write(0, &command(10, 0, &[&word(client)])).unwrap();
    let migrate = |fd| command(18, 4, &[&long(ANSWER), &word(client), &word(fd)]);
    assert_eq!(session.write_to(0, new, &migrate(6)), Err(Errno::ENOENT));
    // Address, route and response were fetched.
    assert_eq!(session.write_to(0, new, &migrate(5)), Ok(word(3).to_vec()));
    assert_eq!(session.write_to(0, new, &migrate(5)), Err(Errno::EINVAL));
    assert_eq!(session.write(0, &command(10, 0, &[&word(client)])), Err(Errno::EINVAL));
    assert_eq!(session.write_to(0, new, &command(10, 0, &[&word(client)])), Ok(vec![]));
}

#[test]
fn options_are_read_from_the_programs_memory() {
    let mut session = Session::new();
    let id = session.create(0, 1, 0x0106);
    session.programs[0].memory.insert(0x2000, vec![1, 0, 0, 0]);
    let mut set = |level: u32, name: u32, address: u64, len: u32| {
        session.write(0, &command(14, 0, &[&long(address), &word(id), &word(level), &word(name), &word(len)]))
    };
    for (name, len) in [(0, 1), (1, 4), (2, 4), (3, 1)] {
        assert_eq!(set(0, name, 0x2000, len), Ok(vec![]));
        assert_eq!(set(0, name, 0x2000, len + 1), Err(Errno::EINVAL));
        assert_eq!(set(0, name, 0x3000, len), Err(Errno::EFAULT));
    }
    assert_eq!((set(1, 1, 0x2000, 72), set(0, 9, 0x2000, 4)), (Err(Errno::ENOSYS), Err(Errno::ENOSYS)));
}

#[test]
fn unknown_commands_fail_as_with_the_kernel() {
    let mut session = Session::new();
    let id = session.create(0, 1, 0x0106);
    // AF_IB, by which librdmacm finds out which commands to use.
    let mut address = 27u16.to_ne_bytes().to_vec();
    address.resize(128, 0);
    let body = [&word(id)[..], &48u16.to_ne_bytes(), &[0, 0], &address];
    assert_eq!(session.write(0, &command(20, 0, &body)), Err(Errno::EINVAL));
    assert_eq!(session.write(0, &command(13, 0, &[])), Err(Errno::ENOSYS));
    assert_eq!(session.write(0, &command(25, 0, &[])), Err(Errno::EINVAL));
    assert_eq!(session.write(0, &[0; 7]), Err(Errno::EINVAL));
    assert_eq!(session.write(0, &command(0, 4, &[&long(1), &long(ANSWER), &[9; 8]])), Err(Errno::EINVAL));
    assert_eq!(session.write(0, &command(10, 0, &[&word(id)])), Err(Errno::EINVAL));
    assert_eq!(session.write(0, &command(10, 0, &[&word(id + 77)])), Err(Errno::ENOENT));
    let other = session.network.nodes[0].manager.create_channel().unwrap();
    assert_eq!(session.write_to(0, other, &command(10, 0, &[&word(id)])), Err(Errno::EINVAL));
    // An address that no adapter has.
    let body = [&long(0)[..], &sockaddr_in(at(9, 7)), &word(id)];
    assert_eq!(session.write(0, &command(2, 0, &body)), Err(Errno::ENODEV));
}

#[test]
fn a_port_in_use_fails_as_the_kernels() {
    let mut session = Session::new();
    session.ready();
    let mut bind = |address| {
        let id = session.create(1, 5, 0x0106);
        session.write(1, &command(2, 0, &[&long(0), &sockaddr_in(address), &word(id)]))
    };
    assert_eq!(bind(at(1, 7)), Err(Errno::EADDRINUSE));
    assert_eq!(bind("0.0.0.0:7".parse().unwrap()), Err(Errno::EADDRNOTAVAIL));
    assert_eq!(bind(at(1, 8)), Ok(vec![]));
}

#[test]
fn a_program_joins_and_leaves_a_group() {
    let mut session = Session::new();
    let id = session.create(0, 1, 0x0111);
    session.write(0, &command(2, 0, &[&long(0), &sockaddr_in(at(0, 0)), &word(id)])).unwrap();
    let group = sockaddr_in("239.1.2.3:0".parse().unwrap());
    let join = command(16, 4, &[&long(ANSWER), &long(77), &group, &word(id)]);
    let membership = u32::from_ne_bytes(session.write(0, &join).unwrap().try_into().unwrap());
    let name = nichrome_cm::MembershipName(membership);
    session.network.input(0, nichrome_cm::Input::GroupJoined(name, Ok(())));
    let (uid, event_id, kind, status, parameters) = session.event(0);
    assert_eq!((uid, event_id, kind, status), (77, membership, 12, 0));
    // The queue pair of groups, Linux's key, and the group as GID.
    assert_eq!((&parameters[..4], &parameters[4..8]), (&word(0xFF_FFFF)[..], &word(0x0123_4567)[..]));
    assert_eq!(parameters[8..24], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 239, 1, 2, 3]);
    let leave = command(17, 4, &[&long(ANSWER), &word(membership), &word(0)]);
    assert_eq!(session.write(0, &leave), Ok(word(1).to_vec()));
    assert_eq!(session.write(0, &leave), Err(Errno::ENOENT));
}

proptest! {
    /// Any bytes are a command or an error, and leave nothing behind once the channel is closed.
    #[test]
    fn any_bytes_are_a_command_or_an_error(
        writes in proptest::collection::vec((0u32..26, any::<u16>(), proptest::collection::vec(any::<u8>(), 0..300)), 0..40),
    ) {
        let mut session = Session::new();
        session.connected();
        for (number, answer_len, mut body) in writes {
            // Makes identifiers that exist more likely.
            for at in (0..body.len().saturating_sub(4)).step_by(4) {
                if body[at] < 40 {
                    body[at + 1..at + 4].fill(0);
                }
            }
            if let Ok(answer) = session.write(0, &command(number, answer_len, &[&body])) {
                prop_assert!(answer.len() <= answer_len.into());
            }
            session.network.pass(MILLISECOND);
        }
        let now = session.network.now;
        for node in &mut session.network.nodes {
            node.manager.destroy_channel(node.channel, now).unwrap();
        }
        session.network.assert_nothing_leaks();
    }
}
