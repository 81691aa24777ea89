//! Forged and replayed messages of the connection manager against a live adapter. Their ICRCs are right: only
//! the sender's address distinguishes them from the peer's messages.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use nichrome_hca::cm::CmOptions;
use nichrome_hca::{AdapterConfig, Place};
use nichrome_port::uninterrupted;
use nichrome_wire::AddressPair;
use nichrome_wire::cm::{
    Attribute, CommId, CommIds, Drep, Dreq, Ece, GSI_QKEY, Guid, Mad, Message, PrivateData, Rej, RejMessage,
    RejectReason, Rep, Req, Rtu, TimeExponent, TransactionId,
};
use nichrome_wire::rdma::{
    Bth, BthFlags, DatagramWriter, Deth, Message as Packet, PKey, Psn, QKey, QpNumber, ROCE_PORT, Repr,
    UdpFlow,
};

use self::cm_end::{End, PATIENCE, connected, polls_and_sees_the_end, sends_unpolled};

#[path = "common/cm_end.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod cm_end;

/// The port that is connected to.
const PORT: u16 = 7176;
/// The queue pair number in the peer's messages.
const QP: QpNumber = QpNumber::new(0x1234).unwrap();
/// Longer than the time until an unanswered message is retransmitted.
const SILENCE: Duration = Duration::from_secs(5);

/// Messages are retransmitted every 34 ms, three times.
const IMPATIENT: CmOptions = CmOptions {
    response_timeout: TimeExponent::new(13),
    max_retries: 3,
    service_timeout: TimeExponent::new(16),
    guid: None,
};

/// The victim, its peer and a stranger, of a test of their own.
fn addresses(test: u8) -> [Ipv4Addr; 3] {
    [1, 2, 3].map(|host| Ipv4Addr::new(127, 0, 80 + test, host))
}

fn at(address: Ipv4Addr) -> AdapterConfig {
    AdapterConfig { place: Place::Address(address.into()), ..AdapterConfig::default() }
}

/// Queue pair 1 of a host, by a socket.
struct Host {
    socket: UdpSocket,
    address: Ipv4Addr,
    victim: Ipv4Addr,
}

impl Host {
    fn at(address: Ipv4Addr, victim: Ipv4Addr) -> Self {
        let socket = UdpSocket::bind((address, ROCE_PORT)).unwrap();
        socket.set_read_timeout(Some(SILENCE)).unwrap();
        Self { socket, address, victim }
    }

    /// Sends a message to the victim.
    fn send(&self, mad: &Mad) {
        let deth = Deth { qkey: GSI_QKEY, src_qp: QpNumber::GENERAL_SERVICES };
        let dest_qp = QpNumber::GENERAL_SERVICES;
        let bth = Bth { flags: BthFlags::NONE, pkey: PKey::default(), dest_qp, psn: Psn::new(0) };
        let addresses = AddressPair::V4 { src: self.address, dst: self.victim };
        let (payload, mut bytes) = (mad.to_bytes(), [0; 512]);
        let repr = Repr { bth, message: Packet::Ud(deth, None) };
        let flow = UdpFlow::to_roce(addresses, ROCE_PORT);
        let mut writer = DatagramWriter::new(&repr, payload.len(), &flow, 0, &mut bytes).unwrap();
        writer.payload().copy_from_slice(&payload);
        let len = writer.finish();
        self.socket.send_to(&bytes[..len], (self.victim, ROCE_PORT)).unwrap();
    }

    /// The next message of this kind.
    fn awaits(&self, attribute: Attribute) -> Mad {
        loop {
            let mut bytes = [0; 2048];
            let len = uninterrupted(|| self.socket.recv(&mut bytes)).unwrap();
            let (_, payload) = Repr::parse(&bytes[..len]).unwrap();
            let mad = Mad::parse(payload).unwrap();
            if mad.message.attribute() == attribute {
                return mad;
            }
        }
    }

    /// Waits until the victim has processed all earlier messages: until it answers a DREQ for an unknown
    /// connection. `known` is an identifier of the victim, whose top bits name the process at the address.
    fn waits_until_taken(&self, known: CommId) {
        let ids = CommIds { local: CommId(0x7777_7777), remote: CommId(known.0 ^ 0x0055_5555) };
        self.send(&dreq(TransactionId(77), ids, QP));
        loop {
            let Message::Drep(drep) = self.awaits(Attribute::Drep).message else { panic!() };
            if drep.ids.remote == ids.local {
                return;
            }
        }
    }
}

fn rep(transaction: TransactionId, ids: CommIds, data: &[u8]) -> Mad {
    let rep = Rep {
        ids,
        ece: Ece::default(),
        qkey: QKey(0),
        qp: QP,
        psn: Psn::new(1),
        responder_resources: 1,
        initiator_depth: 1,
        ack_delay: TimeExponent::new(15),
        failover: 0,
        flow_control: false,
        rnr_retry: 7,
        srq: false,
        guid: Guid(5),
        private_data: PrivateData::new(data).unwrap(),
    };
    Mad { transaction, message: Message::Rep(rep) }
}

fn rej(transaction: TransactionId, ids: CommIds, rejected: RejMessage) -> Mad {
    let rej = Rej {
        ids,
        rejected,
        reason: RejectReason::CONSUMER,
        information_len: 0,
        information: PrivateData::new(b"").unwrap(),
        private_data: PrivateData::new(b"forged").unwrap(),
    };
    Mad { transaction, message: Message::Rej(rej) }
}

fn rtu(transaction: TransactionId, ids: CommIds) -> Mad {
    Mad { transaction, message: Message::Rtu(Rtu { ids, private_data: PrivateData::new(b"").unwrap() }) }
}

/// A DREQ that names a queue pair of its receiver.
fn dreq(transaction: TransactionId, ids: CommIds, remote_qp: QpNumber) -> Mad {
    let private_data = PrivateData::new(b"").unwrap();
    Mad { transaction, message: Message::Dreq(Dreq { ids, remote_qp, private_data }) }
}

fn drep(transaction: TransactionId, ids: CommIds) -> Mad {
    Mad { transaction, message: Message::Drep(Drep { ids, private_data: PrivateData::new(b"").unwrap() }) }
}

/// Every message that could end a connection, with its own identifiers. A DREQ names the victim's queue pair.
fn endings(transaction: TransactionId, ids: CommIds, victims: QpNumber) -> Vec<Mad> {
    let disconnect = dreq(transaction, ids, victims);
    let rejections =
        [RejMessage::Req, RejMessage::Rep, RejMessage::Other].map(|of| rej(transaction, ids, of));
    [&rejections[..], &[disconnect, drep(transaction, ids)]].concat()
}

/// Ends a connection by its peer's DREQ, which the victim accepts.
fn ends(peer: &Host, transaction: TransactionId, ids: CommIds, victims: QpNumber) {
    peer.send(&dreq(transaction, ids, victims));
    peer.awaits(Attribute::Drep);
}

fn as_request(mad: &Mad) -> &Req {
    let Message::Req(req) = &mad.message else { panic!() };
    req
}

#[test]
fn answers_and_endings_of_strangers_change_nothing() {
    let [address, at_peer, stranger] = addresses(1);
    let victim = &End::open(&at(address));
    let [peer, stranger] = [at_peer, stranger].map(|host| Host::at(host, address));
    thread::scope(|scope| {
        let connecting = scope.spawn(|| victim.connect(SocketAddr::from((at_peer, PORT)), b"").unwrap());
        let request = peer.awaits(Attribute::Req);
        let (transaction, req) = (request.transaction, as_request(&request));
        let ids = CommIds { local: CommId(0x55), remote: req.local };
        stranger.send(&rep(transaction, ids, b"forged"));
        endings(transaction, ids, req.qp).iter().for_each(|mad| stranger.send(mad));
        stranger.waits_until_taken(ids.remote);
        assert!(!connecting.is_finished());
        let accepted = rep(transaction, ids, b"true");
        peer.send(&accepted);
        peer.awaits(Attribute::Rtu);
        let connected = connecting.join().unwrap();
        assert!(connected.private_data().starts_with(b"true"));
        // The peer retransmits the REP, as if the RTU was lost; the stranger replays it.
        for host in [&peer, &stranger] {
            (0..3).for_each(|_| host.send(&accepted));
            host.send(&rtu(transaction, ids));
        }
        endings(transaction, ids, req.qp).iter().for_each(|mad| stranger.send(mad));
        stranger.waits_until_taken(ids.remote);
        assert!(connected.is_established());
        ends(&peer, transaction, ids, req.qp);
        assert!(connected.wait_disconnected(PATIENCE).unwrap());
    });
}

/// The REQ of an adapter at `from` that connects to `to`, and has given up since.
fn recorded_request(from: Ipv4Addr, to: Ipv4Addr) -> Mad {
    let silent = Host::at(to, from);
    let client = End::open(&AdapterConfig { cm: IMPATIENT, ..at(from) });
    thread::scope(|scope| {
        scope.spawn(|| assert!(client.connect(SocketAddr::from((to, PORT)), b"").is_err()));
        silent.awaits(Attribute::Req)
    })
}

#[test]
fn a_stranger_confirms_no_connection_and_ends_none() {
    let [address, peer, stranger] = addresses(2);
    let request = recorded_request(peer, address);
    let victim = &End::open(&at(address));
    let [peer, stranger] = [peer, stranger].map(|host| Host::at(host, address));
    let listener = &victim.adapter.listen(PORT, 0).unwrap();
    let (transaction, req) = (request.transaction, as_request(&request));
    peer.send(&request);
    thread::scope(|scope| {
        let accepting = scope.spawn(|| victim.accept(listener, b"").unwrap());
        let Message::Rep(answer) = peer.awaits(Attribute::Rep).message else { panic!() };
        let ids = CommIds { local: req.local, remote: answer.ids.local };
        stranger.send(&rtu(transaction, ids));
        endings(transaction, ids, answer.qp).iter().for_each(|mad| stranger.send(mad));
        stranger.waits_until_taken(ids.remote);
        assert!(!accepting.is_finished());
        peer.send(&rtu(transaction, ids));
        let connected = accepting.join().unwrap();
        // The peer and the stranger replay the RTU and the REQ.
        for host in [&peer, &stranger] {
            host.send(&rtu(transaction, ids));
            host.send(&request);
        }
        endings(transaction, ids, answer.qp).iter().for_each(|mad| stranger.send(mad));
        stranger.waits_until_taken(ids.remote);
        assert!(connected.is_established());
        assert!(listener.accept(Duration::ZERO).unwrap().is_none());
        ends(&peer, transaction, ids, answer.qp);
        assert!(connected.wait_disconnected(PATIENCE).unwrap());
    });
}

/// At most 64 ends wait.
#[test]
fn a_strangers_ends_do_not_keep_that_of_the_peer_from_waiting_for_the_last_message() {
    let [address, peer, stranger] = addresses(3);
    let ends = [peer, address].map(|host| End::open(&at(host)));
    let stranger = Host::at(stranger, address);
    let listener = ends[1].adapter.listen(PORT, 0).unwrap();
    let [client, server] = connected(&ends, &listener);
    let start = Instant::now();
    sends_unpolled([(&ends[0], &client), (&ends[1], &server)]);
    let qp = server.queue_pair().endpoint().qp;
    for nth in 1..=100 {
        // The top five bits name the process at the address.
        let ids = CommIds { local: CommId(nth), remote: CommId(qp.value() >> 19 << 27 | nth) };
        stranger.send(&dreq(TransactionId(nth.into()), ids, qp));
    }
    client.disconnect();
    polls_and_sees_the_end((&ends[1], &server), start);
}
